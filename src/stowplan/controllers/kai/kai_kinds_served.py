"""Resource paths of KAI-Scheduler's kinds, and sums of quantities in their statuses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from stowplan.objects.quantity import Quantity, QuantityError, format_quantity, nanos

KAI_QUEUES = "scheduling.run.ai/queues"
KAI_BIND_REQUESTS = "scheduling.run.ai/bindrequests"
KAI_POD_GROUPS = "scheduling.run.ai/podgroups"
PRIORITY_CLASSES = "scheduling.k8s.io/priorityclasses"
_NANO = 10**9


def sum_of(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, str]:
    """The sum of lists of resources: resource -> quantity; what is no quantity counts as 0."""
    totals: dict[str, int] = {}
    for one in lists:
        for name, quantity in one.items():
            # A garbled amount must not keep others from being counted.
            with contextlib.suppress(QuantityError):
                totals[name] = totals.get(name, 0) + nanos(quantity)
    return {name: _quantity(name, total) for name, total in totals.items()}


def _quantity(name: str, total: int) -> str:
    """total: in billionths."""
    if name == "cpu" or total % _NANO == 0:
        return format_quantity(name, -(-total * 1000 // _NANO) if name == "cpu" else total // _NANO)
    return f"{-(-total * 1000 // _NANO)}m"
