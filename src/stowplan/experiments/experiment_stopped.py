"""ExperimentStopped: an experiment that ended before all its runs did."""

from __future__ import annotations


class ExperimentStopped(RuntimeError):
    """Runs cannot go on, or results cannot be written. Finished runs are kept, and the same
    experiment goes on from there."""
