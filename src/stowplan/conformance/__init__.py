"""Answers to recorded scheduling questions (stowplan evaluate)."""
