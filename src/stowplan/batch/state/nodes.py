"""NodeLedger: idle, used and releasing resources of every node, as columns.

Each resource has a float64 column per kind of amount over dense rows.

Source: kube-batch v0.5, api/node_info.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan._deprecated import deprecated_method, deprecated_property
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.task_requests import EPSILON, node_allocatable_of
from stowplan.columns.array_types import Bools, Floats, grow
from stowplan.columns.journal import Journal
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.node import Node

Rows = slice | NDArray[np.int64]
ALL = slice(None)

READY_CONDITION = "Ready"
"""Type of the node condition."""


def is_node_ready(node: Node) -> bool:
    """False if a condition reports the node as not ready or unknown."""
    return all(c.status == "True" for c in node.status.conditions if c.type == READY_CONDITION)


class NodeTask:
    """A task on a node, with the status that it had when it was added."""

    __slots__ = ("status", "task")

    def __init__(self, task: TaskInfo, status: TaskStatus) -> None:
        self.task = task
        self.status = status


class ResourceColumn:
    """One kind of amount (idle, used, releasing) of every node.

    Indexed by resource it is float64 (n_rows,). named: scalars named by the amount of a row.
    """

    def __init__(self) -> None:
        self.of: dict[str, Floats] = {"cpu": _column(8), "memory": _column(8)}
        self.named: list[set[str]] = []

    def get(self, name: str, n_rows: int) -> Floats:
        """float64 (n_rows,): a resource; zeros if no row names it."""
        column = self.of.get(name)
        return _column(n_rows) if column is None else column[:n_rows]

    def amount(self, row: int) -> ResourceVector:
        """The amount of a row."""
        scalars = {name: float(self.of[name][row]) for name in sorted(self.named[row])}
        cpu, memory = float(self.of["cpu"][row]), float(self.of["memory"][row])
        return ResourceVector(cpu, memory, scalars or None)

    def write(self, row: int, amount: ResourceVector) -> None:
        """Replace the amount of a row."""
        for column in self.of.values():
            column[row] = 0.0
        self.named[row] = set(amount.scalars or ())
        for name, n in amount.pairs():
            self._resource(name)[row] = n

    def add(self, row: int, pairs: tuple[tuple[str, float], ...]) -> None:
        """Add to the amount of a row."""
        for name, n in pairs:
            self._resource(name)[row] += n
        if len(pairs) > 2:
            self.named[row].update(name for name, _ in pairs[2:])

    def take(self, row: int, pairs: tuple[tuple[str, float], ...]) -> None:
        """Subtract from the amount of a row."""
        for name, n in pairs:
            self._resource(name)[row] -= n
        if len(pairs) > 2:
            self.named[row].update(name for name, _ in pairs[2:])

    def make_room(self, n_rows: int) -> None:
        """Grow to a number of rows."""
        for name, column in self.of.items():
            self.of[name] = grow(column, (n_rows,))
        while len(self.named) < n_rows:
            self.named.append(set())

    def move(self, source: int, target: int) -> None:
        """Move the last row `source` to `target`; the last row is removed."""
        for column in self.of.values():
            column[target] = column[source]
        last = self.named.pop()
        if source != target:
            self.named[target] = last

    def _resource(self, name: str) -> Floats:
        column = self.of.get(name)
        if column is None:
            column = self.of[name] = _column(self.of["cpu"].shape[0])
        return column


def _close_gap(values: list[Any], row: int) -> None:
    """Move the last value to `row`."""
    last = values.pop()
    if row < len(values):
        values[row] = last


def _column(n_rows: int) -> Floats:
    return np.zeros(n_rows, dtype=np.float64)


class NodeLedger:
    """Nodes by name and row, and the tasks on them.

    nodes[row] is None while only pods of a node are known. A node with a not-ready condition keeps
    its tasks and offers no resources. touched: rows on which tasks were added or removed, in order.
    freed: revision token; grows whenever resources may have been freed. revision: identifies the
    tasks on all nodes; a caller that undoes all changes since may restore it.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.allocatable: list[ResourceVector] = []
        self.held: list[dict[str, NodeTask]] = []
        self.idle = ResourceColumn()
        self.used = ResourceColumn()
        self.releasing = ResourceColumn()
        self.touched = Journal()
        self.freed = 0
        self.version = 0
        self.revision = self._n_states = 0
        self._total = -1, ResourceVector()
        self._n_pipelined = 0
        self._n_releasing = 0
        self._has_ready_node: Bools = np.zeros(8, dtype=np.bool_)
        self._n_away = 0
        self._row_of: dict[str, int] = {}
        self._pod_count = np.zeros(8, dtype=np.int64)
        self._pod_limit = np.zeros(8, dtype=np.int64)

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return len(self.names)

    def row(self, name: str) -> int:
        """Row of a node, -1 for none."""
        return self._row_of.get(name, -1)

    @property
    def pod_count(self) -> NDArray[np.int64]:
        """int64 (n_nodes,): tasks on each node."""
        return self._pod_count[: self.n_nodes]

    @property
    def pod_limit(self) -> NDArray[np.int64]:
        """int64 (n_nodes,): maximum number of pods of each node."""
        return self._pod_limit[: self.n_nodes]

    def total(self) -> ResourceVector:
        """Allocatable resources of all nodes together."""
        version, total = self._total
        if version != self.version:
            total = ResourceVector()
            for amount, has_ready_node in zip(self.allocatable, self._has_ready_node, strict=False):
                if has_ready_node:
                    total.add(amount)
            self._total = self.version, total
        return total.copy()

    def tasks_on(self, row: int) -> Iterator[NodeTask]:
        """Tasks on a node, in order of arrival."""
        return iter(self.held[row].values())

    # Fit checks.

    def fits(self, column: ResourceColumn, task: TaskInfo, rows: Rows = ALL) -> Bools:
        """bool (n_rows,): rows whose idle or releasing amount covers the task's launch request.

        A resource that is not requested need not exist.
        """
        n_nodes = self.n_nodes
        result = self.has_ready_nodes(rows)
        for name, requested in task.ask.wants:
            result &= requested - column.get(name, n_nodes)[rows] < EPSILON
        return result

    def fits_idle(self, task: TaskInfo, rows: Rows = ALL) -> Bools:
        """bool (n_rows,): rows with enough idle resources; resources of pipelined tasks are not
        idle."""
        free = self.fits(self.idle, task, rows)
        if self.has_pipelined:
            free &= self.fits_future(task, rows)
        return free

    def fits_future(self, task: TaskInfo, rows: Rows = ALL) -> Bools:
        """bool (n_rows,): rows with enough resources once the releasing ones are free."""
        n_nodes = self.n_nodes
        result = self.has_ready_nodes(rows)
        for name, requested in task.ask.wants:
            idle, later = self.idle.get(name, n_nodes), self.releasing.get(name, n_nodes)
            result &= idle[rows] + later[rows] > requested - EPSILON
        return result

    @property
    def has_pipelined(self) -> bool:
        """True if some task is pipelined."""
        return self._n_pipelined > 0

    @property
    def has_releases(self) -> bool:
        """True if some resources are releasing."""
        return self._n_releasing > 0

    def has_ready_nodes(self, rows: Rows = ALL) -> Bools:
        """bool (n_rows,), a new array: rows with a ready node, rather than only pods of one."""
        return self._has_ready_node[: self.n_nodes][rows].copy()

    def has_ready_node(self, row: int) -> bool:
        """True if a row has a ready node; -1 stands for none."""
        return row >= 0 and bool(self._has_ready_node[row])

    is_there = deprecated_method("is_there", "has_ready_node")
    state = deprecated_property("state", "revision")

    @property
    def n_unready(self) -> int:
        """Number of known nodes that are not ready."""
        if not self._n_away:
            return 0
        pairs = zip(self.nodes, self._has_ready_node, strict=False)
        return sum(node is not None and not has_ready_node for node, has_ready_node in pairs)

    # Tasks.

    def add(self, row: int, task: TaskInfo) -> str:
        """Add a task to a node; returns an error message or ""."""
        held = self.held[row]
        if task.key in held:
            return f"task <{task.key}> already on node <{self.names[row]}>"
        ask, status = task.ask, task.status
        if self.nodes[row] is not None:
            if status is TaskStatus.PIPELINED:
                self.releasing.take(row, ask.running_pairs)
            else:
                self.idle.take(row, ask.running_pairs)
            if status is TaskStatus.RELEASING:
                self.releasing.add(row, ask.running_pairs)
            self.used.add(row, ask.running_pairs)
        held[task.key] = NodeTask(task, status)
        self._count_held(row, status, 1)
        return ""

    def remove(self, row: int, key: str) -> str:
        """Remove a task from a node; returns an error message or ""."""
        found = self.held[row].get(key)
        if found is None:
            return f"failed to find task <{key}> on host <{self.names[row]}>"
        ask = found.task.ask
        if self.nodes[row] is not None:
            if found.status is TaskStatus.RELEASING:
                self.releasing.take(row, ask.running_pairs)
            if found.status is TaskStatus.PIPELINED:
                self.releasing.add(row, ask.running_pairs)
            else:
                self.idle.add(row, ask.running_pairs)
            self.used.take(row, ask.running_pairs)
        del self.held[row][key]
        self._count_held(row, found.status, -1)
        return ""

    def update(self, row: int, task: TaskInfo) -> str:
        """Remove a task from a node and add it with its current status."""
        return self.remove(row, task.key) or self.add(row, task)

    def _count_held(self, row: int, status: TaskStatus, sign: int) -> None:
        self._pod_count[row] += sign
        self._n_pipelined += sign * (status is TaskStatus.PIPELINED)
        self._n_releasing += sign * (status is TaskStatus.RELEASING)
        self.freed += sign < 0 or status is TaskStatus.RELEASING
        self._moved()
        self.touched.touch(row)
        self.touched.trim(len(self.names))

    def _moved(self) -> None:
        self._n_states += 1
        self.revision = self._n_states

    # Nodes.

    def set_node(self, node: Node) -> int:
        """Add or update a node; returns its row."""
        offer = node_allocatable_of(node.status.allocatable)
        row = self.row(node.name)
        if row < 0:
            row = self._new_row(node.name)
        self._offer(row, node, offer)
        self.used.write(row, ResourceVector())
        self.releasing.write(row, ResourceVector())
        for held in self.held[row].values():
            pairs = held.task.ask.running_pairs
            if held.status is TaskStatus.RELEASING:
                self.releasing.add(row, pairs)
            (self.releasing if held.status is TaskStatus.PIPELINED else self.idle).take(row, pairs)
            self.used.add(row, pairs)
        return row

    def expect_node(self, name: str) -> int:
        """Row of a node, created if only a pod of it is known."""
        row = self.row(name)
        return self._new_row(name) if row < 0 else row

    def drop_node(self, name: str) -> bool:
        """Delete a node; False if it was not known. Its tasks count again when it returns."""
        row = self.row(name)
        if row < 0:
            return False
        if self.held[row]:
            self._keep_gone_node(row)
        else:
            self._drop_row(row)
        return True

    def forget_gone_node(self, row: int) -> None:
        """Forget a row without node and tasks."""
        if self.nodes[row] is None and not self.held[row]:
            self._drop_row(row)

    def _keep_gone_node(self, row: int) -> None:
        """Keep a row for the tasks of a deleted node."""
        self._set_ready(row, has_ready_node=False)
        self.nodes[row], self.allocatable[row] = None, ResourceVector()
        for column in (self.idle, self.used, self.releasing):
            column.write(row, ResourceVector())
        self._pod_limit[row] = 0
        self.freed += 1
        self.touched.touch(row)
        self.touched.trim(len(self.names))
        self.version += 1

    def _drop_row(self, row: int) -> None:
        name = self.names[row]
        del self._row_of[name]
        self._n_away -= not self._has_ready_node[row]
        for held in self.held[row].values():
            self._count_held(row, held.status, -1)
        last = self.n_nodes - 1
        for column in (self.idle, self.used, self.releasing):
            column.move(last, row)
        self._pod_count[row] = self._pod_count[last]
        self._pod_limit[row] = self._pod_limit[last]
        self._has_ready_node[row] = self._has_ready_node[last]
        if row != last:
            self._row_of[self.names[last]] = row
        for values in (self.names, self.nodes, self.allocatable, self.held):
            _close_gap(values, row)
        self.version += 1

    def _new_row(self, name: str) -> int:
        row = self.n_nodes
        for column in (self.idle, self.used, self.releasing):
            column.make_room(row + 1)
            column.write(row, ResourceVector())
        self._pod_count = grow(self._pod_count, (row + 1,))
        self._pod_limit = grow(self._pod_limit, (row + 1,))
        self._pod_count[row] = self._pod_limit[row] = 0
        self._has_ready_node = grow(self._has_ready_node, (row + 1,))
        self._has_ready_node[row] = False
        self._n_away += 1
        self.names.append(name)
        self.nodes.append(None)
        self.allocatable.append(ResourceVector())
        self.held.append({})
        self._row_of[name] = row
        self.version += 1
        return row

    def _offer(self, row: int, node: Node, offer: ResourceVector) -> None:
        self._set_ready(row, has_ready_node=is_node_ready(node))
        self.nodes[row] = node
        self.allocatable[row] = offer
        self._pod_limit[row] = offer.pods
        self.idle.write(row, offer)
        self._moved()
        self.freed += 1
        self.version += 1

    def _set_ready(self, row: int, *, has_ready_node: bool) -> None:
        self._n_away += int(self._has_ready_node[row]) - int(has_ready_node)
        self._has_ready_node[row] = has_ready_node
