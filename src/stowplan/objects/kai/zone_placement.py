"""Where a pod is in the NUMA zones of its node, as annotations and bind requests record it.

Source: KAI-Scheduler, pkg/apis/scheduling/v1alpha2/numa_placement_types.go and
pkg/binder/binding/binder.go (patchBindAnnotations).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stowplan.objects.meta import Value
from stowplan.objects.quantity import Quantity

OBSERVED_ANNOTATION = "kai.scheduler/numa-placement-observed"
"""Where the kubelet has put a pod; an agent on the node writes it."""
PREDICTED_ANNOTATION = "kai.scheduler/numa-placement-predicted"
"""Where the scheduler expects a pod; KAI's binder writes it with the binding."""

_ZEROS = (("E", 18), ("P", 15), ("T", 12), ("G", 9), ("M", 6), ("k", 3))


class KaiZonePlacement(Value, frozen=True):
    """What a pod has in a zone."""

    zone: str = ""
    amount: dict[str, Quantity] = {}


def zones_text(zones: Iterable[KaiZonePlacement]) -> str:
    """Zones as an annotation has them: JSON without spaces, resources by name."""
    trees = [
        {"zone": one.zone, "amount": {name: one.amount[name] for name in sorted(one.amount)}}
        for one in zones
    ]
    return msgspec.json.encode(trees).decode()


def read_zones(text: str) -> tuple[KaiZonePlacement, ...]:
    """The zones of an annotation; what cannot be read counts as none, as in KAI-Scheduler."""
    try:
        return msgspec.json.decode(text or "[]", type=tuple[KaiZonePlacement, ...])
    except msgspec.DecodeError:
        return ()


def decimal_text(amount: int) -> str:
    """A whole amount as Kubernetes writes a quantity of decimal format: 4000 is `4k`."""
    for suffix, zeros in _ZEROS:
        if amount and amount % 10**zeros == 0:
            return f"{amount // 10**zeros}{suffix}"
    return str(amount)
