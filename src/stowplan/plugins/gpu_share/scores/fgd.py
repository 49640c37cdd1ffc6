"""Fragmentation Gradient Descent: place a pod where it adds the least fragmentation.

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin/fgd_score.go (Weng et al.,
USENIX ATC 2023).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.framework import SCORE_MAX
from stowplan.objects.devices.gpu_cards import CARD_MILLI, CardState, GpuShareRequest
from stowplan.plugins.gpu_share.fragmentation import (
    TypicalColumns,
    TypicalPod,
    fragment_column,
    fragment_of,
    milli_by_category_column,
)
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns

UNCHANGED_SCORE = 50
"""Score of a node whose fragment stays the same."""


def fgd_scores(before: Floats, after: Floats) -> Ints:
    """int64 (n,): scores by the fragment before and after, in milli; 50 for no change."""
    saved = (before - after) / CARD_MILLI
    # Conversion to integers truncates towards zero.
    scores: Ints = ((1 / (1 + np.exp(-saved))) * SCORE_MAX).astype(np.int64)
    return scores


def cards_by_left(left: Sequence[int], request: GpuShareRequest) -> list[int]:
    """The cards that suffice, those with the least left first, the lowest index among equals."""
    if request.milli <= 0:
        return []
    return [
        card for _, card in sorted((m, card) for card, m in enumerate(left) if m >= request.milli)
    ]


def smallest_cards(left: Sequence[int], request: GpuShareRequest) -> list[int] | None:
    """As many of `cards_by_left` as requested; None where there are too few."""
    if request.milli <= 0:
        return []
    suiting = cards_by_left(left, request)
    return None if len(suiting) < request.num else suiting[: request.num]


def fgd_share_scores(
    state: CardState, request: GpuShareRequest, typical: Sequence[TypicalPod]
) -> list[tuple[int, int]]:
    """(score, card) for a part of a card, on each card that suffices."""
    before = fragment_of(state, typical)
    cards = [card for card, left in enumerate(state.left) if left >= request.milli]
    return [(_score_on(state, request, typical, before, [card]), card) for card in cards]


def _score_on(
    state: CardState,
    request: GpuShareRequest,
    typical: Sequence[TypicalPod],
    before: float,
    cards: Sequence[int],
) -> int:
    after = fragment_of(state.with_pod(request, cards), typical)
    return int(fgd_scores(np.array([before]), np.array([after]))[0])


def fgd_score(state: CardState, request: GpuShareRequest, typical: Sequence[TypicalPod]) -> int:
    """The score of a node. Where CPU or cards do not suffice nothing changes, which is worth 50;
    only for a part of a card CPU is not compared."""
    if request.cpu_milli == 0 and request.milli <= 0:
        return SCORE_MAX
    if request.is_share:
        scores = [score for score, _ in fgd_share_scores(state, request, typical)]
        return max(scores, default=UNCHANGED_SCORE)
    cards = smallest_cards(state.left, request)
    if cards is None or state.cpu_left < request.cpu_milli:
        return UNCHANGED_SCORE
    return _score_on(state, request, typical, fragment_of(state, typical), cards)


def fgd_column(columns: GpuCardColumns, request: GpuShareRequest, typical: TypicalColumns) -> Ints:
    """int64 (n_rows,): `fgd_score` of each row."""
    n_rows, n_cards = columns.left.shape
    if request.cpu_milli == 0 and request.milli <= 0:
        return np.full(n_rows, SCORE_MAX, dtype=np.int64)
    before = _fragments(columns, columns.cpu_left, columns.left, np.arange(n_rows), typical)
    cpu_left = columns.cpu_left - request.cpu_milli
    if not request.is_share:
        left, too_few = _after_smallest(columns.left, request)
        after = _fragments(columns, cpu_left, left, np.arange(n_rows), typical)
        return np.where(too_few | (cpu_left < 0), UNCHANGED_SCORE, fgd_scores(before, after))
    row, card = np.nonzero(columns.left >= request.milli)
    left = columns.left[row]
    left[np.arange(row.shape[0]), card] -= request.milli
    after = _fragments(columns, cpu_left[row], left, row, typical)
    scores = np.full((n_rows, n_cards), -1, dtype=np.int64)
    scores[row, card] = fgd_scores(before[row], after)
    best = scores.max(axis=1, initial=-1)
    return np.where(best < 0, UNCHANGED_SCORE, best)


def _fragments(
    columns: GpuCardColumns, cpu_left: Ints, left: Ints, row: Ints, typical: TypicalColumns
) -> Floats:
    """float64 (n,): fragments of states of these rows."""
    milli = milli_by_category_column(cpu_left, left, columns.model[row], typical)
    return fragment_column(milli)


def _after_smallest(left: Ints, request: GpuShareRequest) -> tuple[Ints, Bools]:
    """int64 (n_rows, n_cards), bool (n_rows,): what `smallest_cards` leave; where there are too
    few."""
    if request.milli <= 0:
        return left, np.zeros(left.shape[0], dtype=np.bool_)
    unusable = np.iinfo(np.int64).max
    keys = np.where(left >= request.milli, left, unusable)
    order = np.argsort(keys, axis=1, kind="stable")[:, : request.num]
    after = left.copy()
    chosen = np.take_along_axis(after, order, axis=1)
    np.put_along_axis(after, order, chosen - request.milli, axis=1)
    return after, (keys != unusable).sum(axis=1) < request.num
