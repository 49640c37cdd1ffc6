"""Built-in actions: the steps of a session."""
