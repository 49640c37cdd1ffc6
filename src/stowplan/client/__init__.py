"""Client side of the Kubernetes API as values: requests to send, and the meaning of responses."""
