"""Pools of devices: which slices a node can use, in which order, and which pools are unusable.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating/pools_incubating.go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from stowplan.objects.devices.device import Device, ResourceSlice
from stowplan.objects.node import Node
from stowplan.objects.selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    node_selector_error,
    node_selector_matches,
)
from stowplan.plugins.devices.device_amounts import amount_of
from stowplan.plugins.devices.device_selectors import shape_of

LONG_MIN = 32
"""From so many usable devices on a search remembers where it may begin."""

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""
PoolId = tuple[str, str]
"""(driver, pool)."""


class AllocationError(Exception):
    """The whole attempt fails, in the original's words."""


@dataclass(slots=True)
class PoolDevice:
    """A device and its place. shape: see `shape_of`, as a small number. counters: (counter set,
    counter, billionths) that it consumes."""

    id: DeviceId
    device: Device
    slice: ResourceSlice
    shape: int
    counters: tuple[tuple[str, str, int], ...]


@dataclass(slots=True)
class PreparedSlice:
    """A slice with its devices prepared once."""

    slice: ResourceSlice
    devices: tuple[PoolDevice, ...]


@dataclass(slots=True)
class DevicePool:
    """A pool as one node sees it. Of an incomplete or invalid pool nothing is used.

    others: slices of the pool that the node does not see. counters: (counter set, counter) to
    billionths.
    """

    id: PoolId
    is_incomplete: bool = False
    is_invalid: bool = False
    slices: list[PreparedSlice] = field(default_factory=list)
    others: list[PreparedSlice] = field(default_factory=list)
    counters: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`DRIVER/POOL`."""
        return "/".join(self.id)

    def devices(self) -> Iterator[PoolDevice]:
        """The devices that the node may use, in order."""
        for one in self.slices:
            yield from one.devices

    def all_devices(self) -> Iterator[PoolDevice]:
        """All devices of the pool, of any node."""
        for one in (*self.slices, *self.others):
            yield from one.devices

    def is_own(self, node_name: str) -> bool:
        """True for a pool of which a search reads nothing but devices of this node."""
        if any(one.slice.spec.node_name != node_name for one in self.slices):
            return False
        return not (self.others and any(one.counters for one in self.devices()))

    @property
    def has_binding_conditions(self) -> bool:
        """True where a device has the field, even an empty one."""
        return any(one.device.binding_conditions is not None for one in self.devices())


@dataclass(slots=True)
class FirstPlaces:
    """Where a search may begin: devices before do not serve a request until a device is given back.

    places: (claim, request, alternative) to the position of the first other device, and the steps
    that the search takes before. basis: on what they rest.
    """

    basis: tuple[int, object]
    places: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)


class PoolList(list[DevicePool]):
    """The pools of nodes that see the same slices, in the order in which they are tried."""

    @cached_property
    def is_long(self) -> bool:
        """True for lists in which a search should not begin at the first device every time, and
        may begin later for all nodes alike."""
        return len(self.usable) >= LONG_MIN and not any(
            one.slice.spec.per_device_node_selection for _, one in self.usable
        )

    @cached_property
    def first_places(self) -> dict[Hashable, FirstPlaces]:
        """By what claims ask for: see `FirstPlaces`."""
        return {}

    @cached_property
    def usable(self) -> list[tuple[DevicePool, PoolDevice]]:
        """The devices that may be used, with their pools, in the order in which they are tried."""
        return [
            (pool, one)
            for pool in self
            if not pool.is_incomplete and not pool.is_invalid
            for one in pool.devices()
        ]


def _formatted(requirements: Iterable[NodeSelectorRequirement]) -> str:
    return "".join(
        f"NodeSelectorRequirement{{Key:{r.key},Operator:{r.operator},"
        f"Values:[{' '.join(r.values)}],}},"
        for r in requirements
    )


def go_text(selector: NodeSelector) -> str:
    """A node selector as Go's generated String shows it."""
    terms = "".join(
        "NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{"
        f"{_formatted(term.match_expressions)}}},"
        f"MatchFields:[]NodeSelectorRequirement{{{_formatted(term.match_fields)}}},}},"
        for term in selector.node_selector_terms
    )
    return f"&NodeSelector{{NodeSelectorTerms:[]NodeSelectorTerm{{{terms}}},}}"


def node_matches(
    node: Node, node_name: str | None, all_nodes: bool, selector: NodeSelector | None
) -> bool:
    """True where a slice or device with this node selection is for the node; raises
    AllocationError."""
    if node_name:
        return node.name == node_name
    if all_nodes:
        return True
    if selector is None:
        return False
    fault = node_selector_error(selector)
    if fault:
        raise AllocationError(f"failed to parse node selector {go_text(selector)}: {fault}")
    return node_selector_matches(selector, node.labels, node.name)


class SliceIndex:
    """All slices, prepared, by node and by pool; follows changed slices one by one."""

    def __init__(self) -> None:
        """No slice yet."""
        self._prepared: dict[str, PreparedSlice] = {}
        self._shapes: dict[Hashable, int] = {}
        self._of_node: dict[str, list[PreparedSlice]] = {}
        # Slices that several nodes may see, with a number for their node selector, -1 for none.
        self._shared: list[tuple[PreparedSlice, int]] = []
        # Of pools that a node without devices of theirs does not notice.
        self._counters: dict[PoolId, list[PreparedSlice]] = {}
        self._of_pool: dict[PoolId, list[PreparedSlice]] = {}
        self._gathered: dict[str, tuple[Node, PoolList]] = {}
        self._pools_of: dict[tuple[int, ...], PoolList] = {}

    def index_of(self, slices: Iterable[ResourceSlice]) -> SliceIndex:
        """An index of other slices, in which equal devices have the same shapes."""
        other = SliceIndex()
        other._shapes = self._shapes
        other.update(slices)
        return other

    def update(self, slices: Iterable[ResourceSlice]) -> None:
        """Follow the slices of the cluster."""
        before = self._prepared
        self._prepared = {}
        for one in slices:
            held = before.get(one.name)
            known = held is not None and held.slice is one
            self._prepared[one.name] = held if known and held else self._prepare(one)
        of_node: dict[str, list[PreparedSlice]] = defaultdict(list)
        of_pool: dict[PoolId, list[PreparedSlice]] = defaultdict(list)
        counters: dict[PoolId, list[PreparedSlice]] = defaultdict(list)
        shared: list[PreparedSlice] = []
        for prepared in self._prepared.values():
            spec = prepared.slice.spec
            of_pool[spec.driver, spec.pool.name].append(prepared)
            if spec.shared_counters:
                counters[spec.driver, spec.pool.name].append(prepared)
            elif spec.node_name:
                of_node[spec.node_name].append(prepared)
            else:
                shared.append(prepared)
        self._of_node, self._of_pool = dict(of_node), dict(of_pool)
        self._counters = {}
        for pool_id, of_counters in counters.items():
            if self._is_unnoticed(pool_id, of_counters):
                self._counters[pool_id] = of_counters
            else:
                shared += of_counters
        numbers: dict[NodeSelector, int] = {}
        self._shared = [(one, _selector_number(one, numbers)) for one in shared]
        self._gathered.clear()
        self._pools_of.clear()

    def _is_unnoticed(self, pool_id: PoolId, slices: list[PreparedSlice]) -> bool:
        """True for a pool that changes nothing on nodes which see its counters and no devices."""
        newest: dict[PoolId, list[PreparedSlice]] = {}
        for prepared in slices:
            if prepared.slice.spec.devices:
                return False
            _add_slice(newest, prepared)
        pool = self._pool(pool_id, newest[pool_id])
        return pool is None or not (pool.is_incomplete or pool.is_invalid)

    def _prepare(self, one: ResourceSlice) -> PreparedSlice:
        spec = one.spec
        devices = []
        for device in spec.devices:
            counters = tuple(
                (consumed.counter_set, name, amount_of(counter.value).nanos)
                for consumed in device.consumes_counters
                for name, counter in consumed.counters.items()
            )
            shape = self._shapes.setdefault(shape_of(spec.driver, device), len(self._shapes))
            place = (spec.driver, spec.pool.name, device.name)
            devices.append(PoolDevice(place, device, one, shape, counters))
        return PreparedSlice(one, tuple(devices))

    def pools(self, node: Node) -> PoolList:
        """The pools of a node in the order in which they are tried; raises AllocationError."""
        held = self._gathered.get(node.name)
        if held is not None and is_same_to_slices(held[0], node):
            return held[1]
        seen = [*self._of_node.get(node.name, ()), *self._seen_by(node)]
        which = tuple(id(one) for one in seen)
        found = self._pools_of.get(which)
        if found is None:
            found = self._pools_of[which] = self._gather(seen)
        self._gathered[node.name] = (node, found)
        return found

    def nodes_of(self, pool: PoolId) -> list[str]:
        """Names of the nodes that slices of the pool are for by their name."""
        names = (one.slice.spec.node_name for one in self._of_pool.get(pool, ()))
        return [name for name in names if name]

    def _seen_by(self, node: Node) -> Iterator[PreparedSlice]:
        """Of the slices that several nodes may see those that this one sees."""
        matching: dict[int, bool] = {}
        for prepared, number in self._shared:
            known = matching.get(number)
            if known is None:
                known = _is_relevant(prepared.slice, node)
                if number >= 0:
                    matching[number] = known
            if known:
                yield prepared

    def _gather(self, seen: Iterable[PreparedSlice]) -> PoolList:
        by_pool: dict[PoolId, list[PreparedSlice]] = {}
        for prepared in seen:
            _add_slice(by_pool, prepared)
        for pool_id in tuple(by_pool) if self._counters else ():
            for prepared in self._counters.get(pool_id, ()):
                _add_slice(by_pool, prepared)
        first: list[DevicePool] = []
        last: list[DevicePool] = []
        for pool_id, slices in by_pool.items():
            pool = self._pool(pool_id, slices)
            if pool is not None:
                (last if pool.has_binding_conditions else first).append(pool)
        by_name = [(tuple(part.encode() for part in pool.id), pool) for pool in first]
        by_name_last = [(tuple(part.encode() for part in pool.id), pool) for pool in last]
        ordered = sorted(by_name, key=lambda one: one[0])
        ordered += sorted(by_name_last, key=lambda one: one[0])
        return PoolList(pool for _, pool in ordered)

    def _pool(self, pool_id: PoolId, slices: list[PreparedSlice]) -> DevicePool | None:
        """The pool of these slices; None where newer slices replace it elsewhere."""
        wanted = slices[0].slice.spec.pool
        whole = slices
        if len(slices) != wanted.resource_slice_count:
            whole = []
            for one in self._of_pool[pool_id]:
                generation = one.slice.spec.pool.generation
                if generation > wanted.generation:
                    return None
                if generation == wanted.generation:
                    whole.append(one)
            if len(whole) != wanted.resource_slice_count:
                return DevicePool(pool_id, is_incomplete=True)
        return _built(pool_id, slices, whole)


def is_same_to_slices(before: Node, after: Node) -> bool:
    """True for versions of a node that see the same slices."""
    return before is after or before.labels == after.labels


def _selector_number(one: PreparedSlice, numbers: dict[NodeSelector, int]) -> int:
    """A number for what decides which nodes see the slice; -1 where that is no node selector."""
    spec = one.slice.spec
    if spec.node_selector is None or spec.shared_counters or spec.node_name or spec.all_nodes:
        return -1
    return numbers.setdefault(spec.node_selector, len(numbers))


def _is_relevant(one: ResourceSlice, node: Node) -> bool:
    spec = one.spec
    if spec.shared_counters:
        return True
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        try:
            return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
        except AllocationError as fault:
            text = f"failed to perform node selection for slice {one.name}: {fault}"
            raise AllocationError(f"gather pool information: {text}") from None
    if not spec.per_device_node_selection:
        return False
    for device in spec.devices:
        try:
            if node_matches(node, device.node_name, device.all_nodes, device.node_selector):
                return True
        except AllocationError as fault:
            text = f"failed to perform node selection for device {device.name} in slice {one.name}"
            raise AllocationError(f"gather pool information: {text}: {fault}") from None
    return False


def _add_slice(by_pool: dict[PoolId, list[PreparedSlice]], prepared: PreparedSlice) -> None:
    spec = prepared.slice.spec
    pool_id = (spec.driver, spec.pool.name)
    held = by_pool.get(pool_id)
    generation = held[0].slice.spec.pool.generation if held else spec.pool.generation - 1
    if spec.pool.generation > generation:
        by_pool[pool_id] = [prepared]
    elif spec.pool.generation == generation and held is not None:
        held.append(prepared)


def _built(pool_id: PoolId, slices: list[PreparedSlice], whole: list[PreparedSlice]) -> DevicePool:
    ordered = sorted(slices, key=lambda one: one.slice.name.encode())
    with_devices = [one for one in ordered if not one.slice.spec.shared_counters]
    invalid = DevicePool(pool_id, is_invalid=True)
    names: set[str] = set()
    for prepared in with_devices:
        for one in prepared.devices:
            if one.id[2] in names:
                return invalid
            names.add(one.id[2])
    sets: set[str] = set()
    counters: dict[tuple[str, str], int] = {}
    for prepared in ordered:
        for counter_set in prepared.slice.spec.shared_counters:
            if counter_set.name in sets:
                return invalid
            sets.add(counter_set.name)
            for name, counter in counter_set.counters.items():
                counters[counter_set.name, name] = amount_of(counter.value).nanos
    if not _counters_exist(ordered, sets, counters):
        return invalid
    seen = {id(one) for one in ordered}
    others = [one for one in whole if id(one) not in seen]
    if not _counters_exist(others, sets, counters):
        return invalid
    return DevicePool(pool_id, slices=with_devices, others=others, counters=counters)


def _counters_exist(
    slices: Iterable[PreparedSlice], sets: set[str], counters: dict[tuple[str, str], int]
) -> bool:
    """True where devices consume only counters that the pool has."""
    for prepared in slices:
        for one in prepared.devices:
            for consumed in one.device.consumes_counters:
                if consumed.counter_set not in sets:
                    return False
                if any((consumed.counter_set, name) not in counters for name in consumed.counters):
                    return False
    return True
