"""Free-device states: nodes with equal devices, of which the same are free, answer alike.

A state is a small number for what a search reads of a node: its usable devices in order, each by
its content, and whether it is in use. Claims that ask for the same thing then need one search per
state instead of one per node. Nodes where more than this counts have no state and are searched
each: counters, shared devices, unusable pools, slices that are not for one node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from weakref import ref

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import NodeTable
from stowplan.objects.node import Node
from stowplan.plugins.devices.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.device_pools import (
    AllocationError,
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
        self._numbers: dict[tuple[int, ...], int] = {}
        self._answers: dict[Hashable, Ints] = {}
        self._shape = -1
        self._of_node: dict[str, int] = {}
        self._stale: dict[str, None] = {}
        self._rows: Ints = np.zeros(0, dtype=np.int64)

    def classes_changed(self) -> None:
        """Forget the answers."""
        self._answers.clear()

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
        try:
            pools = self._slices.pools(node)
        except AllocationError:
            return NO_STATE
        key: list[int] = []
        for pool in pools:
            if not self._add_pool(key, pool):
                return NO_STATE
        return self._numbers.setdefault(tuple(key), len(self._numbers))

    def _add_pool(self, key: list[int], pool: DevicePool) -> bool:
        """Add the devices of a pool to the key; False where more counts than the key says."""
        if pool.is_incomplete or pool.is_invalid:
            return False
        for one in pool.devices():
            if (
                one.counters
                or one.device.allow_multiple_allocations
                or one.slice.spec.per_device_node_selection
                or one.id in self._allocated.capacities
            ):
                return False
            key.append(2 * self._kind(one) + self._allocated.is_dedicated(one.id))
        return True

    def _kind(self, one: PoolDevice) -> int:
        """Number of what a search reads of a device that is not shared."""
        device = one.device
        taints = tuple((taint.key, taint.value, taint.effect) for taint in device.taints)
        content = one.shape, taints, tuple(device.capacity.items())
        return self._kinds.setdefault(content, len(self._kinds))
