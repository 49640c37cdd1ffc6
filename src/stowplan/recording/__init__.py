"""Recordings of a scheduler: its events and effects as a file, read back, replayed and verified."""
