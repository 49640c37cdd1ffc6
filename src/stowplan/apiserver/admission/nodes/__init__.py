"""Admission of nodes, and of what nodes write."""
