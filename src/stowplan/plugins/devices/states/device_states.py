"""Free-device states: nodes with equal devices, of which the same are free, answer alike.

A state is a small number for what a search reads of a node: its usable devices in order, each by
its content, and what of it is in use. Claims that ask for the same thing then need one search per
state instead of one per node, and what the search found on one node says by position which devices
it finds on the others. Nodes where more than this counts have no state and are searched each:
unusable pools, pools that other nodes share, devices that select nodes one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from weakref import ref

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
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
    SliceIndex,
)

NO_STATE = -1
UNKNOWN, AVAILABLE, REFUSED, PER_NODE = -1, 0, 1, 2
"""Answers of a state: not searched yet, devices found, none found, each node has its own."""

_STATES_MAX = 1 << 16
_CLAIMS_MAX = 1 << 10


class UsableDevices(msgspec.Struct, frozen=True):
    """The usable devices of a node in order, with numbers for their content; None for a node
    without states."""

    ids: tuple[DeviceId, ...]
    kinds: tuple[int, ...] | None


NO_STATES = UsableDevices((), None)


class PlacedResult(msgspec.Struct, frozen=True):
    """A result of the search by positions of devices, for every node in the same state."""

    result: AllocationResult
    positions: tuple[int, ...]


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
        """Forget all states and answers."""
        self._numbers: dict[tuple[Hashable, ...], int] = {}
        self._answers: dict[Hashable, Ints] = {}
        self._found: dict[tuple[Hashable, int], tuple[PlacedResult, ...]] = {}
        self._devices: dict[str, tuple[Node, UsableDevices]] = {}
        self._shape = -1
        self._of_node: dict[str, int] = {}
        self._stale: dict[str, None] = {}
        self._rows: Ints = np.zeros(0, dtype=np.int64)

    def classes_changed(self) -> None:
        """Forget the answers."""
        self._answers.clear()
        self._found.clear()

    def devices_changed(self, pools: Iterable[PoolId]) -> None:
        """Devices of these pools are taken or given back."""
        if not self._slices.is_by_node:
            return
        for pool in pools:
            self._stale.update(dict.fromkeys(self._slices.nodes_of(pool) or ()))

    def of_rows(self, nodes: NodeTable) -> Ints | None:
        """int64 (n_nodes,): the state of each row, NO_STATE where it has none; None where slices
        are not each for one node."""
        if not self._slices.is_by_node:
            return None
        if len(self._numbers) > _STATES_MAX:
            self.slices_changed()
        table = None if self._table is None else self._table()
        if table is not nodes or self._shape != nodes.shape:
            self._table, self._shape = ref(nodes), nodes.shape
            for name in self._stale:
                self._of_node.pop(name, None)
            rows = [self._state_of(nodes, row) for row in range(nodes.n_nodes)]
            self._rows = np.array(rows, dtype=np.int64)
        else:
            for name in self._stale:
                row = nodes.row(name)
                self._of_node.pop(name, None)
                if row >= 0:
                    self._rows[row] = self._state_of(nodes, row)
        self._stale.clear()
        return self._rows

    def answers(self, claims: Hashable) -> Ints:
        """int64 (n_states + 1,): the answers of states to claims with this content, to be filled
        in; the last one is that of NO_STATE."""
        held = self._answers.get(claims)
        n_states = len(self._numbers)
        if held is not None and held.shape[0] == n_states + 1:
            return held
        grown = np.full(n_states + 1, UNKNOWN, dtype=np.int64)
        if held is not None:
            grown[: held.shape[0] - 1] = held[:-1]
        elif len(self._answers) >= _CLAIMS_MAX:
            self._answers.clear()
        grown[-1] = PER_NODE
        self._answers[claims] = grown
        return grown

    def _state_of(self, nodes: NodeTable, row: int) -> int:
        # Slices are for nodes by name, so no other change of a node counts.
        name = nodes.names[row]
        known = self._of_node.get(name)
        if known is None:
            known = self._of_node[name] = self._new_state(nodes.nodes[row])
        return known

    def _new_state(self, node: Node) -> int:
        devices = self._devices_of(node)
        if devices.kinds is None:
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
        return self._numbers.setdefault(tuple(key), len(self._numbers))

    def _devices_of(self, node: Node) -> UsableDevices:
        held = self._devices.get(node.name)
        if held is None or held[0] is not node:
            held = self._devices[node.name] = node, self._read_devices(node)
        return held[1]

    def _read_devices(self, node: Node) -> UsableDevices:
        try:
            pools = self._slices.pools(node)
        except AllocationError:
            return NO_STATES
        found: list[PoolDevice] = []
        kinds: list[int] = []
        names = [pool.id[1] for pool in pools]
        for pool in pools:
            if pool.is_incomplete or pool.is_invalid:
                return NO_STATES
            content = self._kind_of_pool(pool, names.index(pool.id[1]))
            for one in pool.devices():
                if one.slice.spec.per_device_node_selection or (one.counters and pool.others):
                    return NO_STATES
                found.append(one)
                kinds.append(self._kind(one, content))
        return UsableDevices(tuple(one.id for one in found), tuple(kinds))

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
        self._found[claims, state] = tuple(
            PlacedResult(
                result,
                tuple(place_of[one.driver, one.pool, one.device] for one in result.devices.results),
            )
            for result in results
        )

    def results_on(
        self, claims: Hashable, state: int, node: Node
    ) -> tuple[AllocationResult, ...] | None:
        """What the search finds on a node in this state; None where it was not kept."""
        found = self._found.get((claims, state))
        if found is None:
            return None
        ids = self._devices_of(node).ids
        return tuple(_on_node(one, ids, node.name) for one in found)


def _on_node(found: PlacedResult, ids: tuple[DeviceId, ...], name: str) -> AllocationResult:
    devices = []
    for one, position in zip(found.result.devices.results, found.positions, strict=True):
        driver, pool, device = ids[position]
        devices.append(msgspec.structs.replace(one, driver=driver, pool=pool, device=device))
    # Slices are for one node by its name.
    only = NodeSelectorRequirement(NODE_NAME_FIELD, "In", (name,))
    selector = NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
    allocation = DeviceAllocation(tuple(devices), found.result.devices.config)
    return AllocationResult(allocation, selector)
