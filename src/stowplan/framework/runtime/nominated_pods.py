"""Verdicts with nominated pods counted, cached per class of pods until their row changes.

Many preemptors wait for their nodes at a time, and each of these nodes is filtered with them as
well as without. For row-local filters the result of one pod holds for all pods of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.array_types import Ints
from stowplan.columns.nodeinfo import wrapped
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts
from stowplan.framework.runtime.kept_in_table import kept_in
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.runtime.touched_rows import TouchedRows
from stowplan.framework.snapshot import Nominations, Snapshot
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod

CELLS_MAX = 4_000_000
"""Cached verdicts, in rows times classes; the least recently used class is evicted first."""

MANY_ROWS = 4
"""From this number of rows on, filtering them together is cheaper than one by one."""

PRIORITIES_MAX = 16
"""Number of priorities per table for which nominated pods are counted."""

_EXTRA = "nominated verdicts"
_NOMINATED_PODS = "nominated pods"

RowFilter = Callable[[list[int]], Mapping[int, Status]]
"""Rejection by row, with nominated pods counted."""


class NominatedVerdicts:
    """The rejections of one class of pods. statuses: distinct ones, in order of first use."""

    def __init__(self) -> None:
        self.statuses: dict[Status, int] = {}
        # Per row the index of its status plus 1; 0 where it passes.
        self._numbers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._touched = TouchedRows()
        # Rows whose verdict is not that of the whole class.
        self._special = -1

    @classmethod
    def of(cls, table: NodeTable, key: Hashable) -> NominatedVerdicts:
        """The verdicts of a class of pods, created on first use."""
        return kept_in(table, _EXTRA, key, cls, CELLS_MAX // max(1, table.n_nodes))

    def follow(self, snapshot: Snapshot, filter_rows: RowFilter, own: int) -> tuple[Ints, Ints]:
        """(rows, which), both int64: the rows that do not pass, and the index of their status.

        filter_rows: is called for changed rows, and for `own`: the row that the pod itself is
        nominated to, -1 for none, where it does not count itself.
        """
        asked = self._asked(snapshot, {own, self._special})
        self._numbers[asked] = 0
        for row, status in filter_rows(asked).items():
            self._numbers[row] = self.statuses.setdefault(status, len(self.statuses)) + 1
        self._special = own
        rows = np.flatnonzero(self._numbers)
        return rows, self._numbers[rows].astype(np.int64) - 1

    def _asked(self, snapshot: Snapshot, too: set[int]) -> list[int]:
        """The rows to filter, ascending. too: rows to add."""
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


# Many rows at once.


class NominatedPodsByRow:
    """Nominated pods that a pod of one priority counts as placed, per row of one table.

    pod_count: int64 (n_nodes,), their number; read-only.
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
        """The current ones, for pods of a priority."""
        nominated_pods = kept_in(
            snapshot.nodes, _NOMINATED_PODS, priority, lambda: cls(priority), PRIORITIES_MAX
        )
        nominated_pods._follow(snapshot)
        return nominated_pods

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,): their total request of a resource, base units."""
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
        # With another shape, rows may be of other nodes.
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
    """A node table with nominated pods added, for filters that read amounts only."""

    def __init__(self, nodes: NodeTable, nominated_pods: NominatedPodsByRow) -> None:
        self._nodes = nodes
        self._nominated_pods = nominated_pods

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nodes, name)

    @property
    def pod_count(self) -> Ints:
        """int64 (n_nodes,)."""
        return self._nodes.pod_count + self._nominated_pods.pod_count

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,)."""
        return self._nodes.requested(resource) + self._nominated_pods.requested(resource)


def can_filter_by_amounts(members: Sequence[RegisteredPlugin]) -> bool:
    """True when `refusals_with_nominated_pods` may be called."""
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
    """Row -> rejection with its nominated pods counted, where it does not pass.

    own: a row that is left out. members: see `can_filter_by_amounts`.
    """
    nominated_pods, nodes = NominatedPodsByRow.of(snapshot, pod.priority), snapshot.nodes
    rows = np.array(asked, dtype=np.int64)
    rows = rows[(nominated_pods.pod_count[rows] > 0) & (rows != own)]
    verdicts = NodeToStatus(rows, [m.name for m in members])
    node_table, places = NodesWithNominatedPods(nodes, nominated_pods), np.arange(rows.shape[0])
    for index, member in enumerate(members):
        if member.node_only:
            answers = member.verdicts(pod, nodes, rows, state)
        else:
            answers = _by_amounts(member, pod, node_table, rows, state)
        verdicts.record(index, answers, places)
    return {row: status for status, some in verdicts.refusals() for row in some.tolist()}


def _by_amounts(
    member: RegisteredPlugin,
    pod: Pod,
    node_table: NodesWithNominatedPods,
    rows: Ints,
    state: CycleState,
) -> PluginVerdicts:
    """The plugin's verdicts, which are not cached: nominated pods are not in the journal."""
    codes: NDArray[Any] = member.call("filter_column", pod, node_table, rows, state)

    def explain(code: int) -> Status:
        status: Status = member.rejected or member.call(
            "filter_status", code, pod, node_table, state
        )
        return status

    return PluginVerdicts((~codes).astype(np.int64) if codes.dtype == np.bool_ else codes, explain)
