"""Validation that kinds share, and the list of features without effect."""
