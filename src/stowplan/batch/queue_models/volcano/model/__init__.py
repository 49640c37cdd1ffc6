"""Volcano as a queue model: its state between sessions, and what a session decides and writes."""
