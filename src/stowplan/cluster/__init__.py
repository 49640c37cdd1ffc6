"""The embedded API server, its controllers and its hollow nodes, as pure state."""
