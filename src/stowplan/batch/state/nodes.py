"""SessionNodes: the node table as one session sees and changes it.

Rows are those of the table, and amounts are columns of an overlay of it, so that a session has no
second account of nodes and every step is undone. Scores and filters read the same overlay.

Source: kube-batch v0.5, api/node_info.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from stowplan._deprecated import deprecated_method, deprecated_property
from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.session_cards import NoSessionCards, SessionCards
from stowplan.batch.state.task_requests import unit_of
from stowplan.columns import NodeTable, PodInfo, Rows
from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.columns.journal import Journal
from stowplan.columns.overlay import ALL, ReleasingOverlay
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_scalar

LOCAL_STORAGE = ("ephemeral-storage",)
READY_CONDITION = "Ready"
"""Type of the node condition."""


def is_node_ready(node: Node) -> bool:
    """False if a condition reports the node as not ready or unknown."""
    return all(c.status == "True" for c in node.status.conditions if c.type == READY_CONDITION)


class NodeFacts:
    """Readiness of a table's nodes, and the scalars that they name; kept with the table.

    ready: one per row. scalars: per row, the resources other than cpu, memory and pods that its
    node names, be it with 0.
    """

    def __init__(self) -> None:
        self.ready: list[bool] = []
        self.scalars: list[frozenset[str]] = []
        self._nodes: list[Node] = []

    @classmethod
    def of(cls, table: NodeTable) -> NodeFacts:
        """The facts of a table as it is now."""
        kept = table.extras.get(cls.__qualname__)
        if not isinstance(kept, cls):
            kept = table.extras[cls.__qualname__] = cls()
        kept._follow(table.nodes)
        return kept

    def _follow(self, nodes: list[Node]) -> None:
        known = self._nodes
        for values in (known, self.ready, self.scalars):
            del values[len(nodes) :]
        for row, node in enumerate(nodes):
            if row == len(known):
                known.append(node)
                self.ready.append(is_node_ready(node))
                self.scalars.append(scalars_of(node))
            elif known[row] is not node:
                known[row] = node
                self.ready[row], self.scalars[row] = is_node_ready(node), scalars_of(node)


def scalars_of(node: Node) -> frozenset[str]:
    """Resources other than cpu, memory and pods that a node names."""
    names = node.status.allocatable
    return frozenset(name for name in names if name in LOCAL_STORAGE or is_scalar(name))


class NodeTask(msgspec.Struct, frozen=True, gc=False):
    """A task on a node."""

    task: TaskInfo

    @property
    def status(self) -> TaskStatus:
        """The task's status."""
        return self.task.status


class ResourceColumn:
    """One kind of amount (idle, used, releasing) of every node, in session units.

    read: resource -> int64 (n_nodes,), base units.
    """

    def __init__(
        self,
        table: NodeTable,
        read: Callable[[str], Ints],
        named: Sequence[frozenset[str]] | None = None,
    ) -> None:
        """named: per row, scalars that the amount of a row names even if they are 0."""
        self._table = table
        self._read = read
        self._named = named

    def get(self, name: str, n_rows: int) -> Floats:
        """float64 (n_rows,), a new array: a resource; zeros if no row names it."""
        return self._read(name)[:n_rows].astype(np.float64) * unit_of(name)

    def amount(self, row: int) -> ResourceVector:
        """The amount of a row; it names scalars that are not 0, and those in `named`."""
        named = frozenset() if self._named is None else self._named[row]
        scalars = {}
        for name in counted_scalars(self._table):
            amount = int(self._read(name)[row])
            if amount or name in named:
                scalars[name] = amount * unit_of(name)
        cpu, memory = (float(self._read(name)[row]) for name in ("cpu", "memory"))
        return ResourceVector(cpu, memory, scalars or None)


class SessionNodes:
    """Nodes by row, with the pods that the session places, pipelines and releases.

    cards: of GPUs, which are counted one by one. overlay: what the session has changed.
    touched: rows on which amounts changed, in order. freed: revision token; grows whenever
    resources may have been freed. revision: identifies the pods on all nodes; a caller that undoes
    all changes since may restore it.
    """

    def __init__(
        self,
        table: NodeTable,
        leaving: Iterable[TaskInfo] = (),
        task_of: Callable[[Pod], TaskInfo] | None = None,
    ) -> None:
        """leaving: terminating tasks. task_of: the task of a pod on a node."""
        self.table = table
        self.names = table.names
        self.nodes = table.nodes
        self.touched = Journal()
        self.freed = 0
        self.revision = self._n_states = 0
        self._task_of = task_of
        self.cards: SessionCards = NoSessionCards()
        self.overlay = self._overlay = overlay = ReleasingOverlay(table)
        self._facts = facts = NodeFacts.of(table)
        self._ready: Bools = np.array(facts.ready, dtype=np.bool_)
        self._placed: set[str] = set()
        self._held: dict[str, tuple[int, TaskInfo]] = {}
        # By row: uids of pods that will leave.
        self._leaving: dict[int, set[str]] = {}
        self._total: ResourceVector | None = None
        self.idle = ResourceColumn(table, overlay.idle, facts.scalars)
        self.used = ResourceColumn(table, table.requested)
        self.releasing = ResourceColumn(table, overlay.releasing)
        for task in leaving:
            row = table.row_of_pod(task.uid)
            if row >= 0:
                overlay.release(row, task.ask.amounts)
                self._leaving.setdefault(row, set()).add(task.uid)

    @property
    def n_nodes(self) -> int:
        """Number of rows."""
        return self.table.n_nodes

    def row(self, name: str) -> int:
        """Row of a node, -1 for none."""
        return self.table.row(name)

    @property
    def pod_count(self) -> Ints:
        """int64 (n_nodes,): pods on each node, with those that it is held for; read-only."""
        return self._overlay.pod_count()

    @property
    def pod_limit(self) -> Ints:
        """int64 (n_nodes,): maximum number of pods of each node."""
        return self.table.pod_limit

    def total(self) -> ResourceVector:
        """Allocatable resources of all ready nodes together; a copy."""
        if self._total is None:
            table, ready = self.table, self._ready
            cpu, memory = (float(table.allocatable(n)[ready].sum()) for n in ("cpu", "memory"))
            facts = zip(self._facts.ready, self._facts.scalars, strict=True)
            named = frozenset().union(*{scalars for is_ready, scalars in facts if is_ready})
            scalars = {
                name: int(table.allocatable(name)[ready].sum()) * unit_of(name)
                for name in counted_scalars(table)
                if name in named
            }
            self._total = ResourceVector(cpu, memory, scalars or None)
        return self._total.copy()

    def tasks_on(self, row: int) -> Iterator[NodeTask]:
        """Tasks on a node, those of other schedulers included."""
        if self._task_of is not None:
            for info in self.table.pods[row]:
                yield NodeTask(self._task_of(info.pod))

    # Fit checks.

    def fits_idle(self, task: TaskInfo, rows: Rows = ALL) -> Bools:
        """bool (n_rows,): rows with enough idle resources; resources of pipelined tasks are not
        idle. A resource that is not requested need not exist."""
        fits, overlay = self.has_ready_nodes(rows), self._overlay
        for name, requested in self.least(task):
            fits &= overlay.idle(name, rows) >= requested
        if overlay.n_pipelined:
            fits &= self._fits_amounts_later(task, rows)
        return self._with_cards(task, rows, fits, later=False)

    def fits_future(self, task: TaskInfo, rows: Rows = ALL) -> Bools:
        """bool (n_rows,): rows with enough resources once the releasing ones are free."""
        fits = self._fits_amounts_later(task, rows)
        return self._with_cards(task, rows, fits, later=True)

    def _fits_amounts_later(self, task: TaskInfo, rows: Rows) -> Bools:
        fits = self.has_ready_nodes(rows)
        for name, requested in self.least(task):
            fits &= self._overlay.future(name, rows) >= requested
        return fits

    def _with_cards(self, task: TaskInfo, rows: Rows, fits: Bools, *, later: bool) -> Bools:
        """`fits` without the rows whose cards do not suffice, in place."""
        if self.cards.request(task) is not None and fits.any():
            at = np.flatnonzero(fits)
            fits[at] = self.cards.fits(task, np.arange(self.n_nodes)[rows][at], later=later)
        return fits

    def least(self, task: TaskInfo) -> Sequence[tuple[str, int]]:
        """The amounts that a node must have for a task, without those that its cards have."""
        if self.cards.request(task) is None:
            return task.ask.least
        ignored = self.cards.ignored
        return [(name, amount) for name, amount in task.ask.least if name not in ignored]

    def wants(self, task: TaskInfo) -> Hashable:
        """Key of tasks with equal requests, for amounts and for cards."""
        cards = self.cards.request(task)
        return task.ask.wants if cards is None else (task.ask.wants, cards)

    def leaving_on(self, row: int) -> Collection[str]:
        """Uids of the pods of a row that will leave."""
        return self._leaving.get(row, ())

    def held_on(self, row: int) -> list[TaskInfo]:
        """Tasks for which a row is held."""
        return [task for at, task in self._held.values() if at == row]

    def rows_in_transition(self, *, later: bool) -> set[int]:
        """Rows on which pods differ from those of the table: held ones, and later without those
        that will leave."""
        held = {row for row, _ in self._held.values()}
        return held | {row for row, uids in self._leaving.items() if uids} if later else held

    def future(self, resource: str, rows: Rows = ALL) -> Ints:
        """int64 (n_rows,), base units: amount once the releasing resources are free."""
        return self._overlay.future(resource, rows)

    @property
    def has_pipelined(self) -> bool:
        """True if some task is pipelined, or a node held for one."""
        return self._overlay.n_pipelined > 0

    @property
    def held(self) -> Iterable[tuple[int, TaskInfo]]:
        """(row, task) for which releasing resources are held."""
        return self._held.values()

    @property
    def has_releases(self) -> bool:
        """True if some resources are releasing."""
        return self._overlay.n_released > 0

    def has_ready_nodes(self, rows: Rows = ALL) -> Bools:
        """bool (n_rows,), a new array: rows with a ready node."""
        ready: Bools = self._ready[rows]
        return ready.copy() if isinstance(rows, slice) else ready

    def has_ready_node(self, row: int) -> bool:
        """True if a row has a ready node; -1 stands for none."""
        return row >= 0 and bool(self._ready[row])

    is_there = deprecated_method("is_there", "has_ready_node")
    state = deprecated_property("state", "revision")

    @property
    def n_unready(self) -> int:
        """Number of nodes that are not ready."""
        return self.n_nodes - int(np.count_nonzero(self._ready))

    # Changes.

    def mark(self) -> int:
        """Current position in the overlay, for `undo`."""
        return self._overlay.mark()

    def place(self, row: int, task: TaskInfo, *, pipelined: bool = False) -> str:
        """Place a task on a node, on idle resources or onto releasing ones; returns an error
        message or ""."""
        uid = task.uid
        if uid in self._placed or self.table.row_of_pod(uid) == row:
            return f"task <{task.key}> already on node <{self.names[row]}>"
        problem = self.cards.take(task, row, later=pipelined)
        if problem:
            return problem
        info = PodInfo.of(task.pod)
        if pipelined:
            self._overlay.pipeline(info, row)
        else:
            self._overlay.place(info, row)
        self._placed.add(uid)
        self._changed(row)
        return ""

    def release(self, row: int, task: TaskInfo) -> None:
        """A task on a node is being evicted."""
        self._overlay.release(row, task.ask.amounts)
        self._leaving.setdefault(row, set()).add(task.uid)
        self.freed += 1
        self._changed(row)

    def undo(self, mark: int, row: int, task: TaskInfo) -> None:
        """Undo the step that `place` or `release` made for a task after `mark`."""
        if self._overlay.mark() > mark:
            self._overlay.rollback(mark)
            if task.uid in self._placed:
                self._placed.discard(task.uid)
                self.cards.give_back(task, row)
            else:
                self._leaving.get(row, set()).discard(task.uid)
            self.freed += 1
            self._changed(row)

    def hold(self, row: int, task: TaskInfo) -> bool:
        """Keep releasing resources of a node for a task; False if it is on that node."""
        if self.table.row_of_pod(task.uid) == row:
            return False
        self._overlay.hold(row, task.ask.amounts)
        self._held[task.uid] = row, task
        self._changed(row)
        return True

    def end_hold(self, row: int, task: TaskInfo) -> None:
        """End a hold."""
        self._overlay.hold(row, task.ask.amounts, -1)
        self._held.pop(task.uid, None)
        self.freed += 1
        self._changed(row)

    def close(self) -> None:
        """The session has ended: the table is as before."""
        self._overlay.rollback(0)
        self.cards.close()

    def _changed(self, row: int) -> None:
        self._n_states += 1
        self.revision = self._n_states
        self.touched.touch(row)
        self.touched.trim(self.n_nodes)


def counted_scalars(table: NodeTable) -> Iterator[str]:
    """Resources of a table other than cpu, memory and pods."""
    return (name for name in table.resources.values if name not in ("cpu", "memory", "pods"))
