"""Annotations by which manifests say what only a simulation needs to know."""

RUN_ANNOTATION = "stowplan.dev/run-seconds"
"""How long a pod runs once it has started, in seconds."""
