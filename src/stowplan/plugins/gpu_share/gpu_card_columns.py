"""Columns of nodes and their cards, kept by delta.

Source: own form of the state that hkust-adsl/kubernetes-scheduler-simulator keeps per node.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.objects.devices.gpu_cards import CardState, is_accessible

NO_CARD = -1
"""What is left of a card that a node does not have."""


class GpuCardColumns(msgspec.Struct, frozen=True):
    """Columns of GPU cards for selected rows of nodes.

    cpu_capacity, cpu_left, n_cards: int64 (n_rows,). left: int64 (n_rows, n_cards), milli, NO_CARD
    where the node has no such card. model: int64 (n_rows,), index into models. kind_counts: int64
    (n_rows, n_kinds), pods of each of `kinds`.
    """

    cpu_capacity: Ints
    cpu_left: Ints
    n_cards: Ints
    left: Ints
    model: Ints
    models: Sequence[str]
    kind_counts: Ints
    kinds: Sequence[str]

    @classmethod
    def of(cls, states: Sequence[CardState]) -> GpuCardColumns:
        """The columns of these states, in their order."""
        models = sorted({state.model for state in states})
        kinds = sorted({kind for state in states for kind in state.kinds})
        width = max((len(state.left) for state in states), default=0)
        left = np.full((len(states), width), NO_CARD, dtype=np.int64)
        for row, state in enumerate(states):
            left[row, : len(state.left)] = state.left
        counts = [[state.kinds.get(kind, 0) for kind in kinds] for state in states]
        return cls(
            np.array([state.cpu_capacity for state in states], dtype=np.int64),
            np.array([state.cpu_left for state in states], dtype=np.int64),
            np.array([len(state.left) for state in states], dtype=np.int64),
            left,
            np.array([models.index(state.model) for state in states], dtype=np.int64),
            models,
            np.array(counts, dtype=np.int64).reshape(len(states), len(kinds)),
            kinds,
        )

    def take(self, rows: Ints | slice) -> GpuCardColumns:
        """The selected rows."""
        return GpuCardColumns(
            self.cpu_capacity[rows],
            self.cpu_left[rows],
            self.n_cards[rows],
            self.left[rows],
            self.model[rows],
            self.models,
            self.kind_counts[rows],
            self.kinds,
        )

    def state(self, row: int) -> CardState:
        """One row."""
        counts = dict(zip(self.kinds, self.kind_counts[row].tolist(), strict=True))
        return CardState(
            int(self.cpu_capacity[row]),
            int(self.cpu_left[row]),
            tuple(self.left[row, : self.n_cards[row]].tolist()),
            self.models[self.model[row]],
            {kind: count for kind, count in counts.items() if count},
        )

    def access(self, models: str) -> Bools:
        """bool (n_rows,): rows whose model serves a request for `models`."""
        serves = np.array([is_accessible(models, model) for model in self.models], dtype=np.bool_)
        found: Bools = serves[self.model]
        return found

    def total_left(self) -> Ints:
        """int64 (n_rows,): milli left on all cards."""
        total: Ints = np.maximum(self.left, 0).sum(axis=1)
        return total
