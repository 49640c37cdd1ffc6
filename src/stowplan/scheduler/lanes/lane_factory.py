"""LaneFactory: makes a batch lane for a scheduler that is being built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stowplan.framework import Framework
from stowplan.framework.deciders.lane import BatchLane
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext


class LaneFactory(Protocol):
    """Makes a batch lane."""

    @property
    def frameworks(self) -> Mapping[str, Framework]:
        """Frameworks of the lane's pods, by scheduler name. The scheduling queue has theirs where
        there are no profiles."""

    def __call__(self, context: SchedulerContext, bindings: BindingCycles) -> BatchLane:
        """Make the lane."""
