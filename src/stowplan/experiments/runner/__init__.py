"""Executing runs: what a worker does, and where workers are."""
