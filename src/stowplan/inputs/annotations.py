"""Annotations that only simulations read."""

RUN_ANNOTATION = "stowplan.dev/run-seconds"
"""Run time of a pod after its start, in seconds."""
