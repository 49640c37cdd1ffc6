"""What the client adds to bindings: times, and the locks of nodes."""
