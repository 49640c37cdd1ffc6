"""Insight: why pods were or were not placed, from snapshots."""
