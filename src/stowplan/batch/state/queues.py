"""Queues, as sessions see them."""

from __future__ import annotations

import datetime

from stowplan.batch.state.resource_vector import ResourceVector

CLOSED_STATES = ("Closed", "Closing")
"""The states in which a queue takes no new jobs."""


class QueueInfo:
    """A queue. capability: the most that its jobs may have together; None: all there is.

    is_reclaimable: False where other queues take nothing back from it. state: what Volcano says of
    it, "" where nobody says anything.
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
        """True when jobs that have not started may."""
        return self.state not in CLOSED_STATES

    def __repr__(self) -> str:
        return f"QueueInfo({self.name}, weight {self.weight})"
