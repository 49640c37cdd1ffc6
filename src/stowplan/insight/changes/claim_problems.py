"""What lets the devices of a node serve the claims of a pod: edits of the claims, and of the node's
devices, each tried by a search on that node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import combinations
from math import comb, gcd
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.cycle.attempt import Attempt
from stowplan.inputs.counts import count_of
from stowplan.insight.changes import device_edits, edits
from stowplan.insight.changes.device_edits import RequestPlace
from stowplan.insight.changes.edits import AddNodeEdit, ObjectEdit
from stowplan.insight.changes.node_edits import node_content
from stowplan.objects.devices.device import Device, DeviceTaint, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.quantity import Quantity
from stowplan.plugins.devices.allocation_search import tolerates_device_taint
from stowplan.plugins.devices.claim_search import ClaimSearch
from stowplan.plugins.devices.device_amounts import (
    amount_of,
    consumed_amount,
    quantity_of,
)
from stowplan.plugins.devices.pools.device_pools import (
    AllocationError,
    DevicePool,
    PoolDevice,
    PoolId,
)

OTHERS_MAX = 64
"""Slices of pools that a node reaches beside others, where its own devices are changed."""
NODES_MAX = 200
"""Nodes whose devices are changed."""
KINDS_MAX = 64
"""Nodes with different devices, or different ones of them in use, for which claims are changed."""
SETS_MAX = DEVICES_MAX = 128
"""Sets of devices of one size that are tried, and devices of a slice."""
LIKE_MAX = 8
"""Devices of a node, none alike, of which more are added."""
HARD = ("NoSchedule", "NoExecute")


class ClaimProblems:
    """Edits for the claims of one attempt. not_searched: what was left out, in words."""

    def __init__(self, attempt: Attempt, search: object) -> None:
        """search: what the state of the attempt has of its claims."""
        self._attempt = attempt
        self._nodes = attempt.snapshot.nodes
        # Claims for extended resources differ from node to node.
        self._search: ClaimSearch | None = None
        if isinstance(search, ClaimSearch) and search.extended is None:
            self._search = search
        self._of_kind: dict[tuple[str, int], list[ObjectEdit]] = {}
        self._changed_kinds: set[tuple[str, int]] = set()
        self._n_nodes = 0
        self._n_left_out = 0

    @property
    def not_searched(self) -> list[str]:
        """What was left out."""
        if not self._n_left_out:
            return []
        return [f"changes of claims for, and of devices of, {count_of(self._n_left_out, 'node')}"]

    def edits_for(self, row: int, *, is_all: bool) -> list[ObjectEdit]:
        """The cheapest edit of each part of the claims, and of the node's devices, with which the
        node serves the claims. is_all: nothing else keeps the pod from the node, so that the first
        of nodes that answer alike stands for all of them."""
        if self._search is None:
            return []
        # Changes that were tried are undone in the objects alone.
        self._search.devices.refresh()
        node = self._nodes.nodes[row]
        key = self._kind_of(row)
        found = self._of_kind.get(key)
        is_cut = False
        if found is None and len(self._of_kind) < KINDS_MAX:
            found = self._of_kind[key] = list(self._edits_of_claims(node))
        elif found is None:
            found, is_cut = [], True
        own = self._own_slices.get(node.name, [])
        others = self._others_seen_by(node, own)
        if not own or (is_all and key in self._changed_kinds):
            pass
        elif self._n_nodes < NODES_MAX and len(others) <= OTHERS_MAX:
            self._n_nodes += 1
            if is_all:
                self._changed_kinds.add(key)
            found = [*found, *NodeDeviceEdits(self._search, node, own, others).edits()]
        else:
            is_cut = True
        self._n_left_out += is_cut
        return found

    def _others_seen_by(self, node: Node, own: Sequence[ResourceSlice]) -> list[ResourceSlice]:
        """The slices of pools that other nodes reach, too."""
        known = {_pool_of(one) for one in own}
        seen = dict.fromkeys(pool.id for pool in self._pools(node))
        return [one for pool in seen if pool not in known for one in self._of_pool[pool]]

    def _kind_of(self, row: int) -> tuple[str, int]:
        """Alike for nodes that answer alike."""
        assert self._search is not None
        state = int(self._search.devices.states.of_rows(self._nodes)[row])
        return ("state", state) if state >= 0 else ("row", row)

    def with_devices(self, edit: AddNodeEdit) -> AddNodeEdit:
        """The new node with the devices of the node that it is as."""
        if self._search is None:
            return edit
        name = edit.node.name
        slices = []
        like = self._with_slices(edit.like)
        for one in self._own_slices.get(like, ()):
            spec = one.spec
            pool = replace(spec.pool, name=spec.pool.name.replace(like, name, 1))
            if pool.name == spec.pool.name:
                pool = replace(pool, name=f"{pool.name}-{name}")
            metadata = ObjectMeta(name=f"{one.name}-{name}")
            slices.append(ResourceSlice(metadata, replace(spec, node_name=name, pool=pool)))
        return replace(edit, slices=tuple(slices))

    def _with_slices(self, name: str) -> str:
        """A node like this one that has devices, else the node itself."""
        if name in self._own_slices or self._nodes.row(name) < 0:
            return name
        content = node_content(self._nodes.nodes[self._nodes.row(name)])
        alike = (
            node.name
            for node in self._nodes.nodes
            if node.name in self._own_slices and node_content(node) == content
        )
        return next(alike, name)

    @cached_property
    def _of_pool(self) -> dict[PoolId, list[ResourceSlice]]:
        found: dict[PoolId, list[ResourceSlice]] = {}
        for one in self._attempt.snapshot.object_store.all(ResourceSlice):
            found.setdefault(_pool_of(one), []).append(one)
        return found

    @cached_property
    def _own_slices(self) -> dict[str, list[ResourceSlice]]:
        """By node the slices of pools that only it reaches."""
        found: dict[str, list[ResourceSlice]] = {}
        for slices in self._of_pool.values():
            names = {one.spec.node_name or "" for one in slices if not one.spec.shared_counters}
            if len(names) == 1 and "" not in names:
                found.setdefault(names.pop(), []).extend(slices)
        return found

    # Claims.

    def _edits_of_claims(self, node: Node) -> Iterator[ObjectEdit]:
        assert self._search is not None
        pools = self._pools(node)
        for claim in self._search.to_allocate:
            template = self._template_of(claim)
            for place in device_edits.places_of(claim, template):
                yield from self._first(node, device_edits.lower_counts(place))
                for index in range(len(place.asked.selectors)):
                    yield from self._first(node, [device_edits.drop_selector(place, index)])
                for taint in _untolerated(place, pools):
                    edit = device_edits.add_device_toleration(place, taint)
                    yield from self._first(node, [edit])
                yield from self._first(node, self._lower_capacities(place, pools))
            for index in range(len(claim.spec.devices.constraints)):
                edit = device_edits.drop_constraint(claim, template, index)
                yield from self._first(node, [edit])

    def _first(self, node: Node, candidates: Iterable[ObjectEdit]) -> Iterator[ObjectEdit]:
        """The first that lets the node serve the claims."""
        assert self._search is not None
        for edit in candidates:
            changed = edit.change(edit.value)[0]
            assert isinstance(changed, ResourceClaim)
            claims = [
                changed if claim is edit.value else claim for claim in self._search.to_allocate
            ]
            if self._search.would_serve(node, claims):
                yield edit
                return

    def _template_of(self, claim: ResourceClaim) -> str:
        """Name of the template that a claim was made from, "" for none."""
        pod = self._attempt.pod
        made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for use in pod.spec.resource_claims:
            if use.resource_claim_template_name and made.get(use.name) == claim.name:
                return use.resource_claim_template_name
        return ""

    def _pools(self, node: Node) -> list[DevicePool]:
        assert self._search is not None
        try:
            pools = self._search.devices.slices.pools(node)
        except AllocationError:
            return []
        return [pool for pool in pools if not pool.is_incomplete and not pool.is_invalid]

    def _lower_capacities(
        self, place: RequestPlace, pools: Sequence[DevicePool]
    ) -> list[ObjectEdit]:
        """One capacity lowered to what a device has left of it, the largest amounts first."""
        assert self._search is not None
        capacity = place.asked.capacity
        allocated = self._search.devices.allocated
        found: dict[tuple[str, int], ObjectEdit] = {}
        for name, asked in (capacity.requests if capacity is not None else {}).items():
            need = amount_of(asked).nanos
            for one in _devices(pools):
                held = one.device.capacity.get(name)
                if held is None:
                    continue
                left = amount_of(held.value).nanos - allocated.capacity_of(one.id).get(name, 0)
                for value in _allowed_amounts(left, one.device, name):
                    nanos = amount_of(value).nanos
                    if 0 < nanos < need:
                        percent = -(-edits.REQUEST_MAX * (need - nanos) // need)
                        edit = device_edits.lower_capacity(place, name, value, percent)
                        found.setdefault((name, nanos), edit)
        return sorted(found.values(), key=lambda edit: edit.cost)


def _pool_of(one: ResourceSlice) -> PoolId:
    return one.spec.driver, one.spec.pool.name


def _devices(pools: Iterable[DevicePool]) -> Iterator[PoolDevice]:
    for pool in pools:
        yield from pool.devices()


def _untolerated(place: RequestPlace, pools: Iterable[DevicePool]) -> list[DeviceTaint]:
    """Taints of devices that the request does not tolerate, each once."""
    found: dict[tuple[str, str, str], DeviceTaint] = {}
    for one in _devices(pools):
        for taint in one.device.taints:
            if taint.effect in HARD and not any(
                tolerates_device_taint(toleration, taint) for toleration in place.asked.tolerations
            ):
                found.setdefault((taint.key, taint.value, taint.effect), taint)
    return list(found.values())


def _allowed_amounts(left: int, device: Device, name: str) -> list[Quantity]:
    """The largest amount of a capacity that may be requested where so much is left."""
    held = device.capacity[name]
    policy = held.request_policy
    if left <= 0:
        return []
    if policy is None or not device.allow_multiple_allocations:
        return [quantity_of(left)]
    fitting = [one for one in policy.valid_values if amount_of(one).nanos <= left]
    if policy.valid_values:
        return fitting
    limits = policy.valid_range
    if limits is None or limits.step is None:
        return [quantity_of(left)]
    step = amount_of(limits.step).nanos
    base = amount_of(limits.min).nanos if limits.min is not None else 0
    if left < base or step <= 0:
        return []
    value = quantity_of(base + (left - base) // step * step)
    return [value] if consumed_amount(value, held).nanos <= left else []


def _sets_of(places: Sequence[int]) -> Iterator[Sequence[int]]:
    """The places in sets, small ones first; of many sets of a size only the first one."""
    for size in range(1, len(places) + 1):
        if comb(len(places), size) <= SETS_MAX:
            yield from combinations(places, size)
        else:
            yield places[:size]


class CounterNeed(NamedTuple):
    """Of a counter, in billionths. step: devices take whole multiples of it. left: beside what is
    used. most: what as many devices as are asked for may take."""

    step: int
    left: int
    most: int


class NodeDeviceEdits:
    """Edits of the devices that only one node reaches."""

    def __init__(
        self,
        search: ClaimSearch,
        node: Node,
        slices: Sequence[ResourceSlice],
        others: Sequence[ResourceSlice],
    ) -> None:
        """slices: all of the pools that the node alone reaches. others: of those that it reaches
        beside other nodes."""
        self._search = search
        self._node = node
        self._slices = slices
        self._others = others
        self._n_most = sum(
            max(place.asked.count, 1)
            for claim in search.to_allocate
            for place in device_edits.places_of(claim, "")
        )

    def edits(self) -> Iterator[ObjectEdit]:
        """The edits with which the node serves the claims: of each taint, of each counter set, and
        of devices that are added."""
        for value in self._slices:
            yield from self._remove_taints(value)
            yield from self._raise_counters(value)
            yield from self._add_devices(value)

    def _serves(self, edit: ObjectEdit) -> bool:
        changed = edit.change(edit.value)[0]
        assert isinstance(changed, ResourceSlice)
        own = [changed if one is edit.value else one for one in self._slices]
        claims = self._search.to_allocate
        return self._search.would_serve(self._node, claims, [*self._others, *own])

    def _first(self, candidates: Iterable[ObjectEdit]) -> Iterator[ObjectEdit]:
        for edit in candidates:
            if self._serves(edit):
                yield edit
                return

    def _remove_taints(self, value: ResourceSlice) -> Iterator[ObjectEdit]:
        """Of as few devices as are enough."""
        places: dict[DeviceTaint, list[int]] = {}
        for at, device in enumerate(value.spec.devices):
            for taint in device.taints:
                if taint.effect in HARD:
                    places.setdefault(taint, []).append(at)
        for taint, those in places.items():
            without = partial(device_edits.remove_device_taints, value, self._node.name, taint)
            if self._serves(without(those)):
                yield from self._first(map(without, _sets_of(those)))

    def _raise_counters(self, value: ResourceSlice) -> Iterator[ObjectEdit]:
        """A counter of a set by what devices lack, else all of the set."""
        pool = next((one for one in self._pools() if one.id == _pool_of(value)), None)
        if pool is None:
            return
        for index, counters in enumerate(value.spec.shared_counters):
            found: list[ObjectEdit] = []
            needs = self._needs(pool, counters.name)
            for name in counters.counters:
                edit = self._raised(value, index, {name: needs[name]}) if name in needs else None
                found += [] if edit is None else [edit]
            if not found and len(needs) > 1:
                edit = self._raised(value, index, needs)
                found += [] if edit is None else [edit]
            yield from found

    def _needs(self, pool: DevicePool, counter_set: str) -> dict[str, CounterNeed]:
        """By counter of a set what devices might need of it."""
        takes: dict[str, list[int]] = {}
        for one in pool.all_devices():
            for where, name, nanos in one.counters:
                if where == counter_set and nanos > 0:
                    takes.setdefault(name, []).append(nanos)
        left = self._counters_left(pool)
        return {
            name: CounterNeed(
                gcd(*nanos), left[counter_set, name], sum(sorted(nanos)[-self._n_most :])
            )
            for name, nanos in takes.items()
        }

    def _raised(
        self, value: ResourceSlice, index: int, needs: Mapping[str, CounterNeed]
    ) -> ObjectEdit | None:
        """The set with each of these counters raised as little as is enough; None where nothing
        is."""

        def edit(raised: Mapping[str, int]) -> ObjectEdit:
            return device_edits.raise_counters(value, self._node.name, index, raised)

        raised = {name: need.most - need.left for name, need in needs.items()}
        raised = {name: nanos for name, nanos in raised.items() if nanos > 0}
        if not raised or not self._serves(edit(raised)):
            return None
        for name in tuple(raised):
            step, left, most = needs[name]
            low, high = left // step, -(-most // step)
            if len(raised) > 1:
                # This one may be enough as it is.
                low -= 1
            # More never serves less.
            while high - low > 1:
                middle = (low + high) // 2
                tried = {**raised, name: max(middle * step - left, 0)}
                low, high = (low, middle) if self._serves(edit(tried)) else (middle, high)
            raised[name] = max(high * step - left, 0)
        return edit({name: nanos for name, nanos in raised.items() if nanos})

    def _counters_left(self, pool: DevicePool) -> dict[tuple[str, str], int]:
        left = dict(pool.counters)
        for one in pool.all_devices():
            if self._search.devices.allocated.is_used(one.id):
                for counter_set, name, nanos in one.counters:
                    left[counter_set, name] -= nanos
        return left

    def _add_devices(self, value: ResourceSlice) -> Iterator[ObjectEdit]:
        """As few as are enough, of each kind of device in the slice."""
        kinds: dict[str, Device] = {}
        for device in value.spec.devices:
            kinds.setdefault(repr(replace(device, name="")), device)
        for device in list(kinds.values())[:LIKE_MAX]:
            most = min(self._n_most, DEVICES_MAX - len(value.spec.devices))

            def added(number: int, like: Device = device) -> ObjectEdit:
                return device_edits.add_devices(value, self._node.name, like, number)

            if most < 1 or not self._serves(added(most)):
                continue
            # More devices never serve less.
            low, high = 0, most
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._serves(added(middle)) else (middle, high)
            yield added(high)

    def _pools(self) -> list[DevicePool]:
        try:
            return list(self._search.devices.slices.pools(self._node))
        except AllocationError:
            return []
