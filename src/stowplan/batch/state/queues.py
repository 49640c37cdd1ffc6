"""QueueInfo: a queue as sessions see it."""

from __future__ import annotations

import datetime

from stowplan.framework.deciders.resource_vector import ResourceVector

CLOSED_STATES = ("Closed", "Closing")
"""States in which a queue accepts no new jobs."""


class QueueInfo:
    """A queue.

    capability: the most that its jobs may use together; None: no limit. is_reclaimable: False if
    other queues may not reclaim from it. state: Volcano's queue state, "" if not set.
    """

    __slots__ = ("capability", "created", "is_reclaimable", "name", "state", "weight")

    def __init__(
        self,
        name: str,
        weight: int,
        created: datetime.datetime | None = None,
        capability: ResourceVector | None = None,
        *,
        is_reclaimable: bool = True,
        state: str = "",
    ) -> None:
        self.name = name
        self.weight = weight
        self.created = created or datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self.capability = capability
        self.is_reclaimable = is_reclaimable
        self.state = state

    @property
    def is_open(self) -> bool:
        """True if new jobs may start."""
        return self.state not in CLOSED_STATES

    def __repr__(self) -> str:
        return f"QueueInfo({self.name}, weight {self.weight})"
