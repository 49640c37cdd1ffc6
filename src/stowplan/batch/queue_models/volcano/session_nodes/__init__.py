"""Nodes of a session as positions, and what is known of each."""
