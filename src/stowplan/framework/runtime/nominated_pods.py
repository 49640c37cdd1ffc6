"""Verdicts that count nominated pods in, kept per class of pods until their row is touched.

Many pods that preempt wait for their nodes at a time, and each of these nodes has to be judged
with them as well as without. For filters that read one row each, what was found for one pod holds
for all that mean the same to them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.nodeinfo import wrapped
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.framework.snapshot import Nominations, Snapshot
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod

Ints = NDArray[np.int64]

CELLS_MAX = 4_000_000
"""Rows times classes of pods that are kept; the class that came up least recently goes first."""

MANY_ROWS = 4
"""From so many rows on, judging them at a time costs less than one by one."""

PRIORITIES_MAX = 16
"""Priorities for which nominated pods are counted per table."""

_EXTRA = "nominated verdicts"
_NOMINATED_PODS = "nominated pods"

RowFilter = Callable[[list[int]], Mapping[int, Status]]
"""Why some of these rows do not pass with the pods nominated to them, by row."""


class NominatedVerdicts:
    """The refusals of one class. statuses: those that came up, in that order."""

    def __init__(self) -> None:
        self.statuses: dict[Status, int] = {}
        # Of each row the number of its status, counted from 1; 0 where it passes.
        self._numbers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._touched = TouchedRows()
        # A row whose verdict is not that of the whole class.
        self._special = -1

    @classmethod
    def of(cls, table: NodeTable, key: Hashable) -> NominatedVerdicts:
        """The verdicts of a class of pods, made with the first question."""
        classes = table.extras.get(_EXTRA)
        if not isinstance(classes, OrderedDict):
            classes = table.extras[_EXTRA] = OrderedDict()
        kept: NominatedVerdicts | None = classes.get(key)
        if kept is None:
            kept = classes[key] = cls()
        classes.move_to_end(key)
        while len(classes) > max(1, CELLS_MAX // max(1, table.n_nodes)):
            classes.popitem(last=False)
        return kept

    def follow(self, snapshot: Snapshot, judge: RowFilter, own: int) -> tuple[Ints, Ints]:
        """(rows, which), both int64: the rows that do not pass, and the index in `statuses` of why.

        judge: is asked about rows that were touched, and about `own`: the row that the pod is
        nominated to itself, -1 for none, where it does not count itself.
        """
        asked = self._asked(snapshot, {own, self._special})
        self._numbers[asked] = 0
        for row, status in judge(asked).items():
            self._numbers[row] = self.statuses.setdefault(status, len(self.statuses)) + 1
        self._special = own
        rows = np.flatnonzero(self._numbers)
        return rows, self._numbers[rows].astype(np.int64) - 1

    def _asked(self, snapshot: Snapshot, too: set[int]) -> list[int]:
        """The rows to be judged, ascending. too: rows to be judged anyway."""
        touched, nodes = self._touched.take(snapshot), snapshot.nodes
        n_nodes, have = nodes.n_nodes, self._numbers.shape[0]
        if n_nodes != have:
            numbers, n_kept = np.zeros(n_nodes, dtype=np.int32), min(n_nodes, have)
            numbers[:n_kept] = self._numbers[:n_kept]
            self._numbers = numbers
        if touched is None:
            self._numbers[:] = 0
            touched = [nodes.row(name) for name in snapshot.nominations.nodes()]
        return [row for row in sorted(too.union(touched)) if 0 <= row < n_nodes]


# Many rows at a time.


class NominatedPodsByRow:
    """The nominated pods that a pod of one priority must count as placed, per row of one table.

    pod_count: int64 (n_nodes,), how many there are; never written into.
    """

    def __init__(self, priority: int) -> None:
        self.pod_count: Ints = np.zeros(0, dtype=np.int64)
        self._priority = priority
        self._pods: dict[int, list[PodInfo]] = {}
        self._requested: dict[str, Ints] = {}
        self._nominations: Nominations | None = None
        self._generation = 0
        self._shape = -1

    @classmethod
    def of(cls, snapshot: Snapshot, priority: int) -> NominatedPodsByRow:
        """Those of now, for pods of a priority."""
        kept = snapshot.nodes.extras.get(_NOMINATED_PODS)
        if not isinstance(kept, OrderedDict):
            kept = snapshot.nodes.extras[_NOMINATED_PODS] = OrderedDict()
        crowds: NominatedPodsByRow | None = kept.get(priority)
        if crowds is None:
            crowds = kept[priority] = cls(priority)
        kept.move_to_end(priority)
        if len(kept) > PRIORITIES_MAX:
            kept.popitem(last=False)
        crowds._follow(snapshot)
        return crowds

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,): what they request of a resource together, base units."""
        kept = self._requested.get(resource)
        if kept is None:
            kept = np.zeros_like(self.pod_count)
            for row, infos in self._pods.items():
                kept[row] = _sum(infos, resource)
            self._requested[resource] = kept
        return kept

    def _follow(self, snapshot: Snapshot) -> None:
        nodes, nominations = snapshot.nodes, snapshot.nominations
        names = None
        # With another shape, rows may be those of other nodes.
        if nominations is self._nominations and nodes.shape == self._shape:
            names = nominations.since(self._generation)
        if names is None:
            self.pod_count = np.zeros(nodes.n_nodes, dtype=np.int64)
            self._pods, self._requested = {}, {}
            names = list(nominations.nodes())
        self._nominations, self._shape = nominations, nodes.shape
        self._generation = nominations.generation
        for name in names:
            row = nodes.row(name)
            if row >= 0:
                self._take(row, nominations.on(name))

    def _take(self, row: int, nominated: Sequence[PodInfo]) -> None:
        infos = [info for info in nominated if info.pod.priority >= self._priority]
        if infos:
            self._pods[row] = infos
        else:
            self._pods.pop(row, None)
        self.pod_count[row] = len(infos)
        for resource, total in self._requested.items():
            total[row] = _sum(infos, resource)


def _sum(infos: Sequence[PodInfo], resource: str) -> int:
    return wrapped(sum(info.footprint.requested.get(resource, 0) for info in infos))


class NodesWithNominatedPods:
    """A node table as if nominated pods were there, for filters that go by amounts only."""

    def __init__(self, nodes: NodeTable, crowds: NominatedPodsByRow) -> None:
        self._nodes = nodes
        self._crowds = crowds

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    @property
    def pod_count(self) -> Ints:
        """int64 (n_nodes,)."""
        return self._nodes.pod_count + self._crowds.pod_count

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,)."""
        return self._nodes.requested(resource) + self._crowds.requested(resource)


def can_filter_by_amounts(members: Sequence[RegisteredPlugin]) -> bool:
    """True where `refusals_with_nominated_pods` can be asked."""
    return all(member.node_only or _filters_by_amounts(member) for member in members)


def _filters_by_amounts(member: RegisteredPlugin) -> bool:
    """True for a filter whose column walk reads of pods only how many there are on a row and what
    they request."""
    return member.declaration.by_amounts and bool(member.calls["filter_column"])


def refusals_with_nominated_pods(
    pod: Pod,
    snapshot: Snapshot,
    asked: Sequence[int],
    own: int,
    members: Sequence[RegisteredPlugin],
    state: CycleState,
) -> dict[int, Status]:
    """Row -> why it does not pass with its crowd, where it does not.

    own: a row that is left out. members: see `can_filter_by_amounts`.
    """
    crowds, nodes = NominatedPodsByRow.of(snapshot, pod.priority), snapshot.nodes
    rows = np.array(asked, dtype=np.int64)
    rows = rows[(crowds.pod_count[rows] > 0) & (rows != own)]
    verdicts = NodeToStatus(rows, [m.name for m in members])
    crowded, places = NodesWithNominatedPods(nodes, crowds), np.arange(rows.shape[0])
    for index, member in enumerate(members):
        if member.node_only:
            answers = member.verdicts(pod, nodes, rows, state)
        else:
            answers = _by_amounts(member, pod, crowded, rows, state)
        verdicts.record(index, answers, places)
    return {row: status for status, some in verdicts.refusals() for row in some.tolist()}


def _by_amounts(
    member: RegisteredPlugin,
    pod: Pod,
    crowded: NodesWithNominatedPods,
    rows: Ints,
    state: CycleState,
) -> PluginVerdicts:
    """The member's answers, which are not kept: the crowd is not in the journal."""
    codes: NDArray[Any] = member.call("filter_column", pod, crowded, rows, state)

    def explain(code: int) -> Status:
        status: Status = member.rejected or member.call("filter_status", code, pod, crowded, state)
        return status

    return PluginVerdicts((~codes).astype(np.int64) if codes.dtype == np.bool_ else codes, explain)
