"""NUMA zones of a node in a session of KAI-Scheduler: what each has left, and where the kubelet's
Topology Manager would put a pod.

A request is aligned as the kubelet does it: for the whole pod or for each container, by the policy
of the node. Amounts are as those of the session's resources.

Source: Kubernetes 1.36, pkg/kubelet/cm/topologymanager (policies and scopes); KAI-Scheduler,
docs/numa.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

import msgspec

from stowplan.batch.queue_models.kai.state.kai_amount import CPU, Amount, ResourceIndex, plus
from stowplan.objects.kai.zone_placement import (
    OBSERVED_ANNOTATION,
    PREDICTED_ANNOTATION,
    KaiZonePlacement,
    read_zones,
)
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import Quantity, QuantityError, milli_value, value

GUARANTEED = "Guaranteed"
FOUND_MAX = 1_000
"""Requests of which a node remembers where they would go."""

Placement = tuple[tuple[int, tuple[float, ...]], ...]
"""What a pod has of zones: index of a zone and the amount there, by index."""


class NumaPolicy(IntEnum):
    """Policy of the Topology Manager."""

    NONE = 0
    BEST_EFFORT = 1
    RESTRICTED = 2
    SINGLE_NUMA_NODE = 3


class NumaScope(IntEnum):
    """What is aligned: every container, or the pod as a whole."""

    CONTAINER = 0
    POD = 1


class NumaZone(msgspec.Struct):
    """A zone. id: its name in the node's report. available: allocatable less what pods have."""

    id: str
    allocatable: Amount
    available: Amount


class ZoneRules(msgspec.Struct, frozen=True):
    """Arguments of KAI-Scheduler's plugin numa. ignored: resources that zones report and the
    kubelet does not align. trusts_available: zones have what their report says is available, not
    what they can give less what is recorded of pods."""

    ignored: frozenset[str] = frozenset()
    trusts_available: bool = False


class NumaTopology:
    """The zones of a node, in the order of their numbers. aware: places of the resources that
    zones report, which are the only ones that are aligned. trusts_available: see ZoneRules."""

    def __init__(
        self,
        policy: NumaPolicy,
        scope: NumaScope,
        zones: Sequence[NumaZone],
        aware: Mapping[int, str],
        trusts_available: bool = False,
    ) -> None:
        """aware: name of the resource by place."""
        self.trusts_available = trusts_available
        self.policy = policy
        self.scope = scope
        self.zones = sorted(zones, key=_zone_order)
        self.aware = dict(sorted(aware.items()))
        # What was found since amounts have last changed: pods that ask for the same go alike.
        self._found: dict[NumaRequests, Placement | None] = {}

    @property
    def rejects(self) -> bool:
        """Whether the kubelet rejects a pod that it cannot align."""
        return self.policy in (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)

    def devices(self) -> set[int]:
        """Places of aligned devices, which count for pods of every QoS class."""
        return {place for place, name in self.aware.items() if not is_qos_gated(name)}

    def is_aligned(self, pod: Pod, request: Sequence[float]) -> bool:
        """Whether a pod is aligned here at all: Guaranteed, or it requests an aligned device."""
        if self.policy == NumaPolicy.NONE:
            return False
        return is_guaranteed(pod) or any(request[place] > 0 for place in self.devices())

    def place(self, requests: NumaRequests) -> Placement | None:
        """Where the kubelet would put a pod that asks for these; None if it cannot align it."""
        if requests not in self._found:
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            self._found[requests] = self._place(requests)
        return self._found[requests]

    def _place(self, requests: NumaRequests) -> Placement | None:
        aware = [
            place
            for place, name in self.aware.items()
            if requests.is_guaranteed or not is_qos_gated(name)
        ]
        is_whole = self.scope == NumaScope.POD
        together = (requests.pod,) if is_whole else requests.concurrent
        one_by_one = () if is_whole else requests.serial
        taken: dict[int, Amount] = {}
        for request in together:
            mask = self._mask(request, aware, taken)
            if mask is None:
                return None
            self._draw(request, aware, mask, taken)
        if any(self._mask(request, aware, {}) is None for request in one_by_one):
            return None
        return tuple((zone, tuple(taken[zone])) for zone in sorted(taken))

    def reset(self) -> None:
        """Nothing of the zones is used."""
        self._found.clear()
        for zone in self.zones:
            zone.available = list(zone.allocatable)

    def charge(self, placement: Placement, sign: int = 1) -> None:
        """Count a placement as used, or with sign -1 as free again."""
        if placement:
            self._found.clear()
        for zone, amount in placement:
            available = self.zones[zone].available
            for place, value_there in enumerate(amount):
                available[place] -= sign * value_there

    def read_placement(self, pod: Pod, index: ResourceIndex) -> Placement:
        """The placement that a pod's annotations record, observed before predicted; empty if there
        is none, or if it names a zone that the node does not report."""
        notes = pod.metadata.annotations
        for name in (OBSERVED_ANNOTATION, PREDICTED_ANNOTATION):
            record = read_zones(notes[name]) if name in notes else ()
            amounts = _known_amounts(record, index)
            if not amounts:
                continue
            by_id = {zone.id: i for i, zone in enumerate(self.zones)}
            if any(zone.zone not in by_id for zone in record):
                return ()
            entries = [
                (by_id[zone.zone], amount) for zone, amount in zip(record, amounts, strict=True)
            ]
            return tuple(sorted(entries, key=lambda entry: entry[0]))
        return ()

    def record(self, placement: Placement, index: ResourceIndex) -> tuple[KaiZonePlacement, ...]:
        """A placement as bind requests record it: amounts of the resources that zones report."""
        return tuple(
            KaiZonePlacement(
                self.zones[zone].id,
                {
                    name: index.quantity(place, amount[place])
                    for place, name in self.aware.items()
                    if amount[place] > 0
                },
            )
            for zone, amount in placement
        )

    # Policies.

    def _mask(
        self, request: Sequence[float], aware: Sequence[int], taken: Mapping[int, Amount]
    ) -> Sequence[int] | None:
        if self.policy == NumaPolicy.SINGLE_NUMA_NODE:
            return next(
                (mask for mask in self._masks(1) if self._holds(mask, request, aware, taken)), None
            )
        if self.policy == NumaPolicy.RESTRICTED:
            return self._preferred_mask(request, aware, taken)
        return self._covering_mask(request, aware, taken)

    def _masks(self, width: int) -> Iterator[tuple[int, ...]]:
        return itertools.combinations(range(len(self.zones)), width)

    def _preferred_mask(
        self, request: Sequence[float], aware: Sequence[int], taken: Mapping[int, Amount]
    ) -> Sequence[int] | None:
        """Zones of the width that every resource prefers, the lowest that hold the request."""
        widths = {self._width(request[place], place) for place in aware if request[place] > 0}
        if not widths:
            return ()
        width = widths.pop()
        if widths or width is None:
            return None
        return next(
            (mask for mask in self._masks(width) if self._holds(mask, request, aware, taken)), None
        )

    def _width(self, needed: float, place: int) -> int | None:
        """The fewest zones whose allocatable amounts suffice; None if all do not."""
        total = 0.0
        amounts = sorted((zone.allocatable[place] for zone in self.zones), reverse=True)
        for width, amount in enumerate(amounts, 1):
            total += amount
            if total >= needed:
                return width
        return None

    def _covering_mask(
        self, request: Sequence[float], aware: Sequence[int], taken: Mapping[int, Amount]
    ) -> Sequence[int] | None:
        """Zones taken one by one, each time the one that covers most of what is still needed."""
        needed = {place: request[place] for place in aware}
        mask: list[int] = []
        while any(amount > 0 for amount in needed.values()):
            best, best_cover = -1, 0.0
            for zone in range(len(self.zones)):
                if zone in mask:
                    continue
                cover = sum(
                    min(amount, self._free(zone, place, taken))
                    for place, amount in needed.items()
                    if amount > 0
                )
                if cover > best_cover:
                    best, best_cover = zone, cover
            if best < 0:
                return None
            mask.append(best)
            for place in needed:
                needed[place] -= self._free(best, place, taken)
        return mask

    def _holds(
        self,
        mask: Sequence[int],
        request: Sequence[float],
        aware: Sequence[int],
        taken: Mapping[int, Amount],
    ) -> bool:
        return all(
            sum(self._free(zone, place, taken) for zone in mask) >= request[place]
            for place in aware
            if request[place] > 0
        )

    def _free(self, zone: int, place: int, taken: Mapping[int, Amount]) -> float:
        used = taken[zone][place] if zone in taken else 0.0
        return self.zones[zone].available[place] - used

    def _draw(
        self,
        request: Sequence[float],
        aware: Sequence[int],
        mask: Sequence[int],
        taken: dict[int, Amount],
    ) -> None:
        """Take a request from the zones of a mask, in its order."""
        for place in aware:
            needed = request[place]
            for zone in mask:
                part = min(needed, self._free(zone, place, taken))
                if needed <= 0 or part <= 0:
                    continue
                amount = taken.setdefault(zone, [0.0] * len(request))
                amount[place] += part
                needed -= part


class NumaRequests(msgspec.Struct, frozen=True):
    """What a pod asks to be aligned. pod: as a whole. concurrent: of containers that run together.
    serial: of init containers, which give back what they had. is_guaranteed: by its QoS class."""

    is_guaranteed: bool
    pod: tuple[float, ...]
    concurrent: tuple[tuple[float, ...], ...]
    serial: tuple[tuple[float, ...], ...]


def numa_requests(pod: Pod, index: ResourceIndex) -> NumaRequests:
    """The requests of a pod; only whole CPUs of containers of Guaranteed pods are aligned."""
    total, sidecars, peak = index.empty(), index.empty(), index.empty()
    concurrent: list[tuple[float, ...]] = []
    serial: list[tuple[float, ...]] = []
    for container in pod.spec.init_containers:
        asked = _aligned(pod, container, index)
        if container.is_sidecar:
            concurrent.append(tuple(asked))
            sidecars = plus(sidecars, asked)
        else:
            serial.append(tuple(asked))
            peak = [max(a, b) for a, b in zip(peak, plus(sidecars, asked), strict=True)]
    for container in pod.spec.containers:
        asked = _aligned(pod, container, index)
        concurrent.append(tuple(asked))
        total = plus(total, asked)
    whole = [max(a, b) for a, b in zip(plus(total, sidecars), peak, strict=True)]
    level = {} if pod.spec.resources is None else pod.spec.resources.requests
    for name, amount in _without_cpu(level, index).items():
        whole[index.place_of(name)] = index.read({name: amount})[index.place_of(name)]
    whole = plus(whole, index.read(_without_cpu(pod.spec.overhead, index)))
    return NumaRequests(is_guaranteed(pod), tuple(whole), tuple(concurrent), tuple(serial))


def _without_cpu(amounts: Mapping[str, Quantity], index: ResourceIndex) -> dict[str, Quantity]:
    return {name: one for name, one in amounts.items() if name != "cpu" and index.has(name)}


def _aligned(pod: Pod, container: Container, index: ResourceIndex) -> Amount:
    requests = container.resources.requests
    asked = index.read(requests)
    cpu = requests.get("cpu", 0)
    if not is_guaranteed(pod) or value(cpu) * 1000 != milli_value(cpu):
        asked[CPU] = 0.0
    return asked


def is_guaranteed(pod: Pod) -> bool:
    """Whether a pod's status says that it is Guaranteed."""
    return pod.status.qos_class == GUARANTEED


def is_qos_gated(resource: str) -> bool:
    """Whether a resource is aligned for Guaranteed pods only."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _known_amounts(
    record: Sequence[KaiZonePlacement], index: ResourceIndex
) -> list[tuple[float, ...]]:
    """The amounts of zones; none where one cannot be read."""
    try:
        return [_known_amount(zone.amount, index) for zone in record]
    except QuantityError:
        return []


def _known_amount(amount: Mapping[str, Quantity], index: ResourceIndex) -> tuple[float, ...]:
    return tuple(index.read({name: one for name, one in amount.items() if index.has(name)}))


def _zone_order(zone: NumaZone) -> tuple[bool, int, str]:
    """By the number at the end of the name, those without one last."""
    digits = len(zone.id) - len(zone.id.rstrip("0123456789"))
    return (digits == 0, int(zone.id[-digits:]) if digits else 0, zone.id)
