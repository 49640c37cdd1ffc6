"""Scv: state of a node's GPUs, as reported by an agent on the node.

Source: NJUPT-ISL SCV 2.x, api/v1/scv_types.go.
"""

from __future__ import annotations

from stowplan.objects.meta import Object, Time, Value

HEALTHY = "Healthy"


class Card(Value, frozen=True):
    """A GPU. power: W. total_memory, free_memory: MiB. clock: of the memory, core: of the
    processors, both MHz. bandwidth: of the bus, MB/s."""

    id: int = 0
    health: str = ""
    model: str = ""
    power: int = 0
    total_memory: int = 0
    clock: int = 0
    free_memory: int = 0
    core: int = 0
    bandwidth: int = 0

    @property
    def is_healthy(self) -> bool:
        """True for a card reported as healthy."""
        return self.health == HEALTHY


class ScvSpec(Value, frozen=True):
    """`spec` of an Scv. update_interval: ms between two reports."""

    update_interval: int = 0


class ScvStatus(Value, frozen=True):
    """`status` of an Scv. total_memory_sum, free_memory_sum: MiB of all cards."""

    card_list: tuple[Card, ...] = ()
    card_number: int = 0
    update_time: Time | None = None
    total_memory_sum: int = 0
    free_memory_sum: int = 0


class Scv(Object, frozen=True):
    """The GPUs of the node of the same name."""

    spec: ScvSpec = ScvSpec()
    status: ScvStatus = ScvStatus()
