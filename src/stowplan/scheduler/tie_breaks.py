"""Tie-break numbers of attempts: each pod keeps the one that it was given first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stowplan.columns.engine.tie_break import (
    NO_TIE_BREAKS,
    TieBreakSource,
    draw_tie_break,
    draw_tie_breaks,
)
from stowplan.queue import PodRecord


class TieBreaks:
    """Tie-break numbers of a run. A pod keeps the number of its first attempt, so retries do not
    change the numbers of other pods.

    numbers: uint64, one per entry; empty without an rng.
    """

    __slots__ = ("_before", "_entries", "_new", "_rng", "numbers")

    def __init__(self, entries: Sequence[PodRecord], rng: np.random.Generator | None) -> None:
        self._entries = entries
        self._rng = rng
        self._new: list[int] = []
        self._before: Any = None
        self.numbers = NO_TIE_BREAKS
        if rng is None:
            return
        self._new = [i for i, entry in enumerate(entries) if entry.tie_break is None]
        self.numbers = np.array([entry.tie_break or 0 for entry in entries], dtype=np.uint64)
        if self._new:
            self._before = rng.bit_generator.state
            self.numbers[self._new] = draw_tie_breaks(rng, len(self._new))

    def of(self, place: int) -> int | None:
        """Tie-break number of the entry at an index."""
        return None if self._rng is None else int(self.numbers[place])

    def of_entry(self, entry: PodRecord, place: int) -> int | None:
        """Tie-break number of an entry of the run, at its index, or of one that follows the run
        when all of its entries were tried."""
        return self.of(place) if place < len(self.numbers) else tie_break_of(entry, self._rng)

    def settle(self, n_tried: int) -> None:
        """Keep the numbers of the first `n_tried` entries and rewind the rng for the others."""
        tried = [i for i in self._new if i < n_tried]
        for i in tried:
            self._entries[i].tie_break = int(self.numbers[i])
        if self._rng is not None and len(tried) < len(self._new):
            self._rng.bit_generator.state = self._before
            draw_tie_breaks(self._rng, len(tried))


def tie_break_of(entry: PodRecord, rng: TieBreakSource) -> int | None:
    """Tie-break number of a pod that is decided alone; see `TieBreaks`."""
    if rng is not None and entry.tie_break is None:
        entry.tie_break = draw_tie_break(rng)
    return entry.tie_break
