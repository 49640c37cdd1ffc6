"""GPU reports as columns: all cards of all reports, and the report of each.

Changes are written in place: the report that changed, and the node whose reservations did. Only
where a report is added, removed, or changes its number of cards, all are laid out again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, Ints, grow
from stowplan.columns.pods.pod_watcher import PodWatcher
from stowplan.framework import NodeTable, ObjectStore, PodInfo, Rows
from stowplan.objects.devices.scv import Scv
from stowplan.plugins.yoda.gpu_ledger import GpuLedger
from stowplan.plugins.yoda.gpu_request import MEMORY_LABEL, parse_uint
from stowplan.plugins.yoda.scv_devices import GpuReport, ReportedCards, gpu_report_of

UInts = NDArray[np.uint64]
Numbers = TypeVar("Numbers", Ints, UInts)


class CardColumns:
    """The reports of an object store, for one table, with what the reservations of a ledger leave.

    Per card, (n_cards,): uint64 power, total, clock, free, core, bandwidth and left (what
    reservations leave of free), bool healthy and open. Per report, (n_reports,): uint64 n_cards,
    total_sum, free_sum and left_sum.
    """

    def __init__(self, ledger: GpuLedger, bound: int) -> None:
        """bound: see `gpu_report_of`."""
        self._ledger = ref(ledger)
        self._bound = bound
        self._object_store = ref(ObjectStore())
        self._version = -1
        self._marks = -1, -1
        self._held = -1
        self._scvs: list[Scv] = []
        self._reports: list[GpuReport] = []
        self._index: dict[str, int] = {}
        # Of each row, -1 for none.
        self._report_of: Ints = np.zeros(0, dtype=np.int64)
        self._lay_out([])

    @classmethod
    def of(cls, table: NodeTable, ledger: GpuLedger, bound: int) -> CardColumns:
        """The columns of a table, a ledger and a bound of amounts."""
        kept = _COLUMNS.setdefault(ledger, WeakKeyDictionary()).setdefault(table, {})
        columns = kept.get(bound)
        if columns is None:
            columns = kept[bound] = cls(ledger, bound)
        return columns

    def follow(self, table: NodeTable, object_store: ObjectStore) -> None:
        """Apply the changes of reports, nodes and reservations."""
        ledger = self._ledger()
        assert ledger is not None, "columns are kept with their ledger"
        touched = self._follow_reports(object_store)
        rows = table.rows_since(self._marks) if touched is not None else None
        self._marks = table.marks
        if rows is None or touched is None:
            self._report_of = self._map_all_rows(table)
            for row, name in enumerate(table.names):
                ledger.read_pods(name, table.pods[row])
            names = {*ledger.nodes(), *self._index} if touched is None else set(ledger.nodes())
        else:
            names = self._follow_rows(table, rows, ledger)
        names |= touched or set()
        names.update(ledger.changed_since(self._held))
        for name in names:
            index = self._index.get(name, -1)
            scv = self._scvs[index] if index >= 0 else None
            ledger.settle(name, table, scv)
        # `settle` may have ended reservations, on nodes that are among the names.
        self._held = ledger.version
        for name in names:
            if name in self._index:
                self._write_left(self._index[name], ledger)

    def on(self, per_report: Numbers, rows: Rows, absent: int) -> Numbers:
        """(n_rows,): a value per report, by row; `absent` where a node has none."""
        values = np.append(per_report, per_report.dtype.type(absent))
        return values[self._report_of[rows]]

    def count(self, cards: Bools) -> UInts:
        """uint64 (n_reports,): number of its cards that are selected."""
        return self.total(cards.astype(np.uint64))

    def total(self, amounts: UInts) -> UInts:
        """uint64 (n_reports,): the sum over the cards of each report; it wraps."""
        sums = np.zeros(amounts.shape[0] + 1, dtype=np.uint64)
        np.cumsum(amounts, out=sums[1:])
        return sums[self._starts[1:]] - sums[self._starts[:-1]]

    def spread(self, per_report: Bools) -> Bools:
        """bool (n_cards,): the value of each card's report."""
        return np.repeat(per_report, np.diff(self._starts))

    # Internals.

    def _follow_reports(self, object_store: ObjectStore) -> set[str] | None:
        """Names of the reports that changed; None when all were laid out again."""
        if self._object_store() is object_store and self._version == object_store.version:
            return set()
        self._object_store, self._version = ref(object_store), object_store.version
        scvs = list(object_store.all(Scv))
        if len(scvs) != len(self._scvs):
            self._lay_out(scvs)
            return None
        changed = [
            (index, scv)
            for index, (scv, before) in enumerate(zip(scvs, self._scvs, strict=True))
            if scv is not before
        ]
        for index, scv in changed:
            before = self._scvs[index]
            if scv.name != before.name or len(scv.status.card_list) != self._size(index):
                self._lay_out(scvs)
                return None
        for index, scv in changed:
            self._scvs[index] = scv
            self._reports[index] = gpu_report_of(scv, self._bound)
            self._write(index)
        return {scv.name for _, scv in changed}

    def _size(self, index: int) -> int:
        return int(self._starts[index + 1] - self._starts[index])

    def _lay_out(self, scvs: Sequence[Scv]) -> None:
        """Allocate the columns for all cards, and write them."""
        self._scvs = list(scvs)
        self._reports = [gpu_report_of(scv, self._bound) for scv in scvs]
        self._index = {scv.name: index for index, scv in enumerate(scvs)}
        gpus = [gpu for report in self._reports for gpu in report.gpus]
        sizes = np.array([0, *(len(report.gpus) for report in self._reports)], dtype=np.int64)
        self._starts: Ints = np.cumsum(sizes)

        def column(values: Iterable[int]) -> UInts:
            return np.fromiter(values, dtype=np.uint64)

        self.power = column(gpu.power for gpu in gpus)
        self.total_memory = column(gpu.total_memory for gpu in gpus)
        self.clock = column(gpu.clock for gpu in gpus)
        self.free = column(gpu.free for gpu in gpus)
        self.core = column(gpu.core for gpu in gpus)
        self.bandwidth = column(gpu.bandwidth for gpu in gpus)
        self.left = self.free.copy()
        self.healthy: Bools = np.fromiter((gpu.is_healthy for gpu in gpus), dtype=np.bool_)
        self.open: Bools = np.ones(len(gpus), dtype=np.bool_)
        self.n_cards = column(report.n_cards for report in self._reports)
        self.total_sum = column(report.total for report in self._reports)
        self.free_sum = column(report.free for report in self._reports)
        self.left_sum = self.free_sum.copy()

    def _write(self, index: int) -> None:
        """Write a report in place."""
        report, start = self._reports[index], int(self._starts[index])
        for place, gpu in enumerate(report.gpus, start):
            self.power[place] = gpu.power
            self.total_memory[place] = gpu.total_memory
            self.clock[place] = gpu.clock
            self.free[place] = gpu.free
            self.core[place] = gpu.core
            self.bandwidth[place] = gpu.bandwidth
            self.healthy[place] = gpu.is_healthy
        self.n_cards[index] = report.n_cards
        self.total_sum[index] = report.total
        self.free_sum[index] = report.free

    def _write_left(self, index: int, ledger: GpuLedger) -> None:
        """Write what the reservations on the node of a report leave."""
        report = self._reports[index]
        cards = slice(int(self._starts[index]), int(self._starts[index + 1]))
        name = self._scvs[index].name
        if not ledger.has(name):
            self.left[cards], self.open[cards] = self.free[cards], True
            self.left_sum[index] = report.free
            return
        cards_left = ReportedCards(report, ledger.shares_on(name)).left()
        self.left[cards] = [left.memory for left in cards_left]
        self.open[cards] = [left.is_open for left in cards_left]
        held = sum(left.gpu.free - left.memory for left in cards_left)
        self.left_sum[index] = max(0, report.free - held)

    def _map_all_rows(self, table: NodeTable) -> Ints:
        return np.array([self._index.get(name, -1) for name in table.names], dtype=np.int64)

    def _follow_rows(self, table: NodeTable, rows: Iterable[int], ledger: GpuLedger) -> set[str]:
        """Look up the reports of changed rows, and what their pods hold; returns the names of their
        nodes."""
        n_nodes = table.n_nodes
        if self._report_of.shape[0] != n_nodes:
            kept = self._report_of[:n_nodes]
            self._report_of = np.full(n_nodes, -1, dtype=np.int64)
            self._report_of[: kept.shape[0]] = kept
        names = set()
        for row in rows:
            if row < n_nodes:
                name = table.names[row]
                names.add(name)
                ledger.read_pods(name, table.pods[row])
                self._report_of[row] = self._index.get(name, -1)
        return names


_COLUMNS: WeakKeyDictionary[GpuLedger, WeakKeyDictionary[NodeTable, dict[int, CardColumns]]] = (
    WeakKeyDictionary()
)


class RequestedGpuMemory(PodWatcher):
    """GPU memory that the pods of each row request by their labels. A watcher of one table."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._sums: UInts = np.zeros(0, dtype=np.uint64)

    @classmethod
    def of(cls, table: NodeTable, bound: int) -> RequestedGpuMemory:
        """The sums of `table`, watched from the first use on. bound: the maximum that one pod
        counts for."""
        key = f"{cls.__name__}/{bound}"
        kept = table.extras.get(key)
        if not isinstance(kept, cls):
            kept = table.extras[key] = cls(bound)
            table.watch(kept)
        return kept

    def column(self, rows: Rows, n_nodes: int) -> UInts:
        """uint64 (n_rows,): MiB, not times the number of cards, as in the original; it wraps."""
        return self._sums[:n_nodes][rows]

    def pod_added(self, row: int, info: PodInfo) -> None:
        self._sums[row : row + 1] += self._asked(info)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self._sums[row : row + 1] -= self._asked(info)

    def _asked(self, info: PodInfo) -> int:
        text = info.pod.labels.get(MEMORY_LABEL)
        return 0 if text is None else min(parse_uint(text), self._bound)

    def row_added(self, row: int) -> None:
        self._sums = grow(self._sums, (row + 1,))
        self._sums[row] = 0

    def row_moved(self, source: int, target: int) -> None:
        self._sums[target] = self._sums[source]

    def row_dropped(self, row: int) -> None:
        self._sums[row] = 0
