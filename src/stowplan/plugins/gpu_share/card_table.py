"""Nodes with their cards as columns that change by delta, a row per node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.columns.array_types import Ints, grow
from stowplan.objects.devices.gpu_cards import CARD_MILLI, CardState, GpuShareRequest
from stowplan.plugins.gpu_share.gpu_card_columns import NO_CARD, GpuCardColumns


class CardTable:
    """The cards of nodes. Rows are 0 .. n_rows-1.

    Amounts are exact: what a pod takes is given back when it is removed, card by card. Cards beyond
    those of the node are ignored.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._models: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._cpu_capacity: Ints = np.zeros(0, dtype=np.int64)
        self._cpu_used: Ints = np.zeros(0, dtype=np.int64)
        self._n_cards: Ints = np.zeros(0, dtype=np.int64)
        self._model: Ints = np.zeros(0, dtype=np.int64)
        self._used: Ints = np.zeros((0, 0), dtype=np.int64)
        self._kind_counts: Ints = np.zeros((0, 0), dtype=np.int64)

    # Rows.

    def add_rows(self, n: int) -> int:
        """Add empty rows; returns the number of the first."""
        row = self.n_rows
        self.n_rows += n
        if self.n_rows > self._cpu_capacity.shape[0]:
            self._cpu_capacity = grow(self._cpu_capacity, (self.n_rows,))
            self._cpu_used = grow(self._cpu_used, (self.n_rows,))
            self._n_cards = grow(self._n_cards, (self.n_rows,))
            self._model = grow(self._model, (self.n_rows,))
            self._used = grow(self._used, (self.n_rows, self._used.shape[1]))
            self._kind_counts = grow(self._kind_counts, (self.n_rows, self._kind_counts.shape[1]))
        for column in self._columns():
            column[row : self.n_rows] = 0
        self._model[row : self.n_rows] = self._models.setdefault("", len(self._models))
        return row

    def set_nodes(self, rows: Sequence[int], nodes: Sequence[tuple[int, int, str]]) -> None:
        """Set the nodes of rows, CPU capacity in milli, number of cards and model of each; their
        pods keep what they have."""
        if not rows:
            return
        capacities, counts, names = zip(*nodes, strict=True)
        models = self._models
        self._cpu_capacity[rows] = capacities
        self._n_cards[rows] = counts
        self._model[rows] = [models.setdefault(name, len(models)) for name in names]
        self._used = grow(self._used, (self._used.shape[0], max(counts)))

    def move_row(self, source: int, target: int) -> None:
        """Copy a row to another."""
        for column in self._columns():
            column[target] = column[source]

    def drop_row(self) -> None:
        """Remove the last row."""
        self.n_rows -= 1

    def _columns(self) -> tuple[Ints, ...]:
        return (
            self._cpu_capacity,
            self._cpu_used,
            self._n_cards,
            self._model,
            self._used,
            self._kind_counts,
        )

    # Pods.

    def add_pod(self, row: int, cpu: int, request: GpuShareRequest, cards: Sequence[int]) -> None:
        """Add a pod on these cards. cpu: milli that it requests of the node."""
        self._change(row, cpu, request, cards, 1)

    def remove_pod(
        self, row: int, cpu: int, request: GpuShareRequest, cards: Sequence[int]
    ) -> None:
        """Remove a pod that was added with the same figures."""
        self._change(row, cpu, request, cards, -1)

    def _change(
        self, row: int, cpu: int, request: GpuShareRequest, cards: Sequence[int], sign: int
    ) -> None:
        self._cpu_used[row] += sign * cpu
        if cards and max(cards) >= self._used.shape[1]:
            # Cards that a changed node no longer has are counted all the same.
            self._used = grow(self._used, (self._used.shape[0], max(cards) + 1))
        for card in cards:
            self._used[row, card] += sign * request.milli
        kind = request.kind
        if kind is not None:
            index = self.kind_index(kind)
            self._kind_counts[row, index] += sign

    def kind_index(self, kind: str) -> int:
        """The index of a kind of pods in `kind_counts`."""
        index = self._kinds.get(kind)
        if index is None:
            index = self._kinds[kind] = len(self._kinds)
            wanted = self._kind_counts.shape[0], len(self._kinds)
            self._kind_counts = grow(self._kind_counts, wanted)
        return index

    # Reading.

    @property
    def models(self) -> list[str]:
        """The models of cards, by number."""
        return list(self._models)

    def columns(self) -> GpuCardColumns:
        """All rows, with copies of what is computed and views of what is kept; read-only."""
        n = self.n_rows
        n_cards = self._n_cards[:n]
        width = int(n_cards.max(initial=0))
        exists = np.arange(width) < n_cards[:, None]
        left = np.where(exists, CARD_MILLI - self._used[:n, :width], NO_CARD)
        return GpuCardColumns(
            self._cpu_capacity[:n],
            self._cpu_capacity[:n] - self._cpu_used[:n],
            n_cards,
            left,
            self._model[:n],
            self.models,
            self._kind_counts[:n, : len(self._kinds)],
            list(self._kinds),
        )

    def state(self, row: int) -> CardState:
        """One row."""
        n_cards = int(self._n_cards[row])
        used = self._used[row, :n_cards].tolist()
        capacity = int(self._cpu_capacity[row])
        counts = {
            kind: int(self._kind_counts[row, index])
            for kind, index in self._kinds.items()
            if self._kind_counts[row, index]
        }
        return CardState(
            capacity,
            capacity - int(self._cpu_used[row]),
            tuple(CARD_MILLI - one for one in used),
            list(self._models)[int(self._model[row])],
            counts,
        )
