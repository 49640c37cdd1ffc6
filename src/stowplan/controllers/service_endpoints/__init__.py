"""Controllers of the endpoints of Services."""
