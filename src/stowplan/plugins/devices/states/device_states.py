"""Free-device states: nodes with equal devices, of which the same are free, answer alike.

A state is a small number for what a search reads of a node. Of the node's own devices these are
their content, in order, and what of each is in use. Pools that several nodes reach count as
themselves: their part of a state is which of them the node sees and how often their devices were
taken or given back. Claims that ask for the same thing then need one search per state instead of
one per node, and what the search found on one node says by position which of their own devices it
finds on the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from weakref import ref

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints, grow
from stowplan.framework import NodeTable
from stowplan.objects.devices.device_claim import AllocationResult, DeviceAllocation
from stowplan.objects.node import Node
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import (
    AllocationError,
    DeviceId,
    DevicePool,
    PoolDevice,
    PoolId,
    PoolList,
    SliceIndex,
    is_same_to_slices,
    node_matches,
)

NO_STATE = -1
UNKNOWN, AVAILABLE, REFUSED, PER_NODE = -1, 0, 1, 2
"""Answers of a state: not searched yet, devices found, none found, each node has its own."""

_STATES_MAX = 1 << 15
_STATES_PER_NODE = 2
_CLAIMS_MAX = 1 << 10
_SPARE = 1 << 8
_OWN_ONLY = 0
"""Form of nodes that see their own devices only."""


class UsableDevices(msgspec.Struct, frozen=True):
    """The own devices of a node in order, with numbers for their content. form: number of the pools
    that others reach, too, and of where these stand; -1 for a node without states."""

    ids: tuple[DeviceId, ...]
    kinds: tuple[int, ...]
    form: int


NO_STATES = UsableDevices((), (), -1)


class PlacedResult(msgspec.Struct, frozen=True):
    """A result of the search for every node in the same state. positions: of own devices; -1 for
    the device itself. names_node: it can be used on this node only."""

    result: AllocationResult
    positions: tuple[int, ...]
    names_node: bool


class StateAnswers:
    """The answers of states to claims with one content, to be filled in. codes: int64 (n,), the
    last one is that of NO_STATE. points: int64 (n,), preference of the alternatives that were
    chosen. fitting: int64 (n,), how many such claims a state serves one after the other. after:
    int64 (n,), the state once one is served."""

    def __init__(self) -> None:
        """No state is known."""
        self.codes: Ints = np.zeros(0, dtype=np.int64)
        self.points: Ints = np.zeros(0, dtype=np.int64)
        self.fitting: Ints = np.zeros(0, dtype=np.int64)
        self.after: Ints = np.zeros(0, dtype=np.int64)

    def reach(self, n_states: int) -> StateAnswers:
        """Make room for so many states."""
        n_known = self.codes.shape[0]
        if n_known <= n_states:
            codes = np.full(2 * n_states + _SPARE, UNKNOWN, dtype=np.int64)
            codes[: max(n_known - 1, 0)] = self.codes[:-1]
            codes[-1] = PER_NODE
            self.codes, self.points = codes, grow(self.points, codes.shape)
            self.fitting = grow(self.fitting, codes.shape, fill=UNKNOWN)
            self.after = grow(self.after, codes.shape, fill=UNKNOWN)
        return self


class DeviceStates:
    """States of the nodes of one cluster, and the answers of states to claims."""

    def __init__(self, slices: SliceIndex, allocated: AllocatedDevices) -> None:
        """Both are followed; see `devices_changed`, `slices_changed`."""
        self._slices = slices
        self._allocated = allocated
        self._kinds: dict[Hashable, int] = {}
        self._table: ref[NodeTable] | None = None
        self.slices_changed()

    def slices_changed(self) -> None:
        """Forget all devices, states and answers."""
        self._devices: dict[str, tuple[Node, UsableDevices]] = {}
        self._forms: dict[tuple[Hashable, ...], int] = {(): _OWN_ONLY}
        self._forms_of_pool: dict[PoolId, list[int]] = {}
        # Changes of the devices of each form.
        self._revisions: list[int] = [0]
        self._has_shared_pools: list[bool] = [False]
        self._forget_states()

    def _forget_states(self) -> None:
        # What is in use of own devices, with a form, is a pair; the state of a pair changes with
        # the devices of its form.
        self._pairs: dict[tuple[Hashable, ...], int] = {}
        self._form_of: list[int] = []
        self._seen_at: list[int] = []
        self._state_of: Ints = np.full(_SPARE, NO_STATE, dtype=np.int64)
        self._n_states = 0
        self.classes_changed()
        self._shape = -1
        self._of_node: dict[str, tuple[Node, int]] = {}
        self._stale: dict[str, None] = {}
        self._has_stale_forms = False
        self._pair_of_row: Ints = np.zeros(0, dtype=np.int64)
        self._rows: Ints = np.zeros(0, dtype=np.int64)

    def classes_changed(self) -> None:
        """Forget the answers."""
        self._answers: dict[Hashable, StateAnswers] = {}
        self._found: dict[int, dict[Hashable, tuple[PlacedResult, ...]]] = {}

    def devices_changed(self, pools: Iterable[PoolId]) -> None:
        """Devices of these pools are taken or given back."""
        for pool in pools:
            self._stale.update(dict.fromkeys(self._slices.nodes_of(pool)))
            for form in self._forms_of_pool.get(pool, ()):
                self._revisions[form] += 1
                self._has_stale_forms = True

    def of_rows(self, nodes: NodeTable) -> Ints:
        """int64 (n_nodes,): the state of each row, NO_STATE where it has none."""
        if self._n_states > max(_STATES_MAX, _STATES_PER_NODE * nodes.n_nodes):
            self._forget_states()
        table = None if self._table is None else self._table()
        if table is not nodes or self._shape != nodes.shape:
            self._table, self._shape = ref(nodes), nodes.shape
            for name in self._stale:
                self._of_node.pop(name, None)
            pairs = [self._pair_of(nodes, row) for row in range(nodes.n_nodes)]
            self._pair_of_row = np.array(pairs, dtype=np.int64)
            self._follow_forms()
            self._rows = self._state_of[self._pair_of_row]
        else:
            for name in self._stale:
                row = nodes.row(name)
                self._of_node.pop(name, None)
                if row >= 0:
                    pair = self._pair_of_row[row] = self._pair_of(nodes, row)
                    self._rows[row] = self._state_of[pair]
            if self._has_stale_forms:
                self._follow_forms()
                self._rows[:] = self._state_of[self._pair_of_row]
        self._stale.clear()
        return self._rows

    def _follow_forms(self) -> None:
        """New states for the rows of forms whose devices have changed."""
        for pair in np.flatnonzero(np.bincount(self._pair_of_row + 1)[1:]).tolist():
            self._follow_form(pair)
        self._has_stale_forms = False

    def _follow_form(self, pair: int) -> None:
        revision = self._revisions[self._form_of[pair]]
        if self._seen_at[pair] != revision:
            self._seen_at[pair] = revision
            # No row has this state again.
            self._found.pop(int(self._state_of[pair]), None)
            self._state_of[pair] = self._n_states
            self._n_states += 1

    def answers(self, claims: Hashable) -> StateAnswers:
        """The answers of states to claims with this content."""
        held = self._answers.get(claims)
        if held is None:
            if len(self._answers) >= _CLAIMS_MAX:
                self._answers.clear()
            held = self._answers[claims] = StateAnswers()
        return held.reach(self._n_states)

    def _pair_of(self, nodes: NodeTable, row: int) -> int:
        name, node = nodes.names[row], nodes.nodes[row]
        known = self._of_node.get(name)
        if known is None or not is_same_to_slices(known[0], node):
            known = self._of_node[name] = node, self._find_pair(node)
        return known[1]

    def of_own_devices(self, node: Node) -> int:
        """The state of a node by what is in use now; NO_STATE where it has none, or where other
        nodes reach a device of it."""
        form = self._devices_of(node).form
        if form < 0 or self._has_shared_pools[form]:
            return NO_STATE
        return int(self._state_of[self._find_pair(node)])

    def _find_pair(self, node: Node) -> int:
        devices = self._devices_of(node)
        if devices.form < 0:
            return NO_STATE
        allocated = self._allocated
        is_dedicated = allocated.is_dedicated
        key: list[Hashable] = [
            2 * kind + is_dedicated(place)
            for kind, place in zip(devices.kinds, devices.ids, strict=True)
        ]
        if allocated.has_shares:
            key += [
                (i, tuple(sorted(allocated.capacity_of(place).items())))
                for i, place in enumerate(devices.ids)
                if allocated.is_shared(place)
            ]
        key.append((devices.form,))
        pair = self._pairs.setdefault(tuple(key), len(self._pairs))
        if pair == len(self._form_of):
            self._form_of.append(devices.form)
            self._seen_at.append(-1)
            # The last one stands for nodes without a state.
            self._state_of = grow(self._state_of, (pair + 2,), fill=NO_STATE)
        self._follow_form(pair)
        return pair

    def _devices_of(self, node: Node) -> UsableDevices:
        held = self._devices.get(node.name)
        if held is None or not is_same_to_slices(held[0], node):
            held = self._devices[node.name] = node, self._read_devices(node)
        return held[1]

    def _read_devices(self, node: Node) -> UsableDevices:
        """Devices and form of a node. What several nodes reach, and which pools are unusable, is
        part of the form."""
        form: list[Hashable] = []
        ids: list[DeviceId] = []
        kinds: list[int] = []
        shared: list[PoolId] = []
        try:
            pools = self._slices.pools(node)
            for place, pool in enumerate(pools):
                if pool.is_incomplete or pool.is_invalid:
                    form.append((len(ids), pool.is_invalid))
                elif pool.is_own(node.name):
                    content = self._kind_of_pool(pool, _first_of_name(pools, place))
                    ids += (one.id for one in pool.devices())
                    kinds += (self._kind(one, content) for one in pool.devices())
                else:
                    form.append((len(ids), pool.id, tuple(_seen_parts(pool, node))))
                    shared.append(pool.id)
        except AllocationError:
            return NO_STATES
        return UsableDevices(tuple(ids), tuple(kinds), self._number_of(tuple(form), shared))

    def _number_of(self, form: tuple[Hashable, ...], shared: Iterable[PoolId]) -> int:
        """Number of a form. shared: pools of which it has devices."""
        number = self._forms.setdefault(form, len(self._forms))
        if number == len(self._revisions):
            self._revisions.append(0)
            self._has_shared_pools.append(False)
            for pool in shared:
                self._has_shared_pools[number] = True
                self._forms_of_pool.setdefault(pool, []).append(number)
        return number

    def _kind_of_pool(self, pool: DevicePool, first: int) -> int:
        """Number of what a search reads of a pool. first: number of the first pool of this name,
        with which it shares counters."""
        if not pool.counters:
            return -1
        content = "pool", first, tuple(sorted(pool.counters.items()))
        return self._kinds.setdefault(content, len(self._kinds))

    def _kind(self, one: PoolDevice, pool: int) -> int:
        """Number of what a search reads of a device, and of what its result says. pool: number of
        what it reads of the pool."""
        device = one.device
        taints = tuple((taint.key, taint.value, taint.effect) for taint in device.taints)
        content = (
            one.shape, taints, tuple(device.capacity.items()), one.counters, pool,
            device.binding_conditions, device.binding_failure_conditions,
        )  # fmt: skip
        return self._kinds.setdefault(content, len(self._kinds))

    # What the search found, by position.

    def keep(
        self, claims: Hashable, state: int, node: Node, results: Iterable[AllocationResult]
    ) -> None:
        """Keep what the search has found on a node in this state for claims with this content."""
        place_of = {place: i for i, place in enumerate(self._devices_of(node).ids)}
        found = self._found.setdefault(state, {})
        if len(found) >= _CLAIMS_MAX:
            found.clear()
        found[claims] = tuple(
            PlacedResult(
                result,
                tuple(
                    place_of.get((one.driver, one.pool, one.device), -1)
                    for one in result.devices.results
                ),
                result.node_selector == _selector_of(node.name),
            )
            for result in results
        )

    def results_on(
        self, claims: Hashable, state: int, node: Node
    ) -> tuple[AllocationResult, ...] | None:
        """What the search finds on a node in this state; None where it was not kept."""
        found = self._found.get(state, {}).get(claims)
        if found is None:
            return None
        ids = self._devices_of(node).ids
        return tuple(_on_node(one, ids, node.name) for one in found)


def _first_of_name(pools: PoolList, place: int) -> int:
    """Number of the first pool of this one's name, with which it shares counters."""
    name = pools[place].id[1]
    return next(i for i, pool in enumerate(pools) if pool.id[1] == name)


def _seen_parts(pool: DevicePool, node: Node) -> Iterable[Hashable]:
    """What a node sees of a pool that others reach, too; raises AllocationError."""
    for one in pool.slices:
        yield one.slice.name
        if one.slice.spec.per_device_node_selection:
            for device in one.slice.spec.devices:
                yield node_matches(node, device.node_name, device.all_nodes, device.node_selector)


def _selector_of(name: str) -> NodeSelector:
    only = NodeSelectorRequirement(NODE_NAME_FIELD, "In", (name,))
    return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))


def _on_node(found: PlacedResult, ids: tuple[DeviceId, ...], name: str) -> AllocationResult:
    devices = []
    for one, position in zip(found.result.devices.results, found.positions, strict=True):
        if position >= 0:
            driver, pool, device = ids[position]
            one = msgspec.structs.replace(one, driver=driver, pool=pool, device=device)
        devices.append(one)
    selector = _selector_of(name) if found.names_node else found.result.node_selector
    allocation = DeviceAllocation(tuple(devices), found.result.devices.config)
    return AllocationResult(allocation, selector)
