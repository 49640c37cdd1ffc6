"""Queues, as sessions see them."""

from __future__ import annotations

import datetime

from stowplan.batch.amounts import Amount


class QueueInfo:
    """A queue. capability: the most that its jobs may have together; None: all there is."""

    __slots__ = ("capability", "created", "name", "weight")

    def __init__(
        self,
        name: str,
        weight: int,
        created: datetime.datetime | None = None,
        capability: Amount | None = None,
    ) -> None:
        self.name = name
        self.weight = weight
        self.created = created or datetime.datetime.min.replace(tzinfo=datetime.UTC)
        self.capability = capability

    def __repr__(self) -> str:
        return f"QueueInfo({self.name}, weight {self.weight})"
