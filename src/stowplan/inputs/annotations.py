"""Annotations that only simulations read."""

from stowplan.objects.timing.run_limits import RUN_ANNOTATION

__all__ = ["RUN_ANNOTATION"]
