"""Scores of BestFit, GpuPacking and GpuClustering.

Source: hkust-adsl/kubernetes-scheduler-simulator, pkg/simulator/plugin best_fit_score.go,
gpu_packing_score.go, gpu_clustering_score.go.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import SCORE_MAX
from stowplan.objects.devices.gpu_cards import CARD_MILLI, CardState, GpuShareRequest
from stowplan.plugins.arithmetic import divide_truncated
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns

CPU_MAX = 128_000
"""CPU milli of the largest node of the published cluster."""
MILLI_MAX = 8_000
"""GPU milli of the largest node of the published cluster."""

SHARE_SCORE_MIN = 50
IDLE_CARDS_SCORE_MIN = 33
"""GpuPacking: the least for a node that takes partly used cards; for one that takes idle ones."""

SAME_KIND_ONLY, SAME_KIND, NO_KIND, OTHER_KINDS = 75, 50, 25, 0
"""GpuClustering: bonus by the kinds of the pods on the node."""
CLUSTERING_BASE = 25


# BestFit.


def best_fit_score(state: CardState, request: GpuShareRequest) -> int | None:
    """The fewer left after the pod, the more; None where less is left than requested."""
    cpu = state.cpu_left - request.cpu_milli
    milli = state.total_left - request.total_milli
    return None if cpu < 0 or milli < 0 else int(_fullness(cpu, milli))


def _fullness(cpu: Any, milli: Any) -> Any:
    """In percent of the largest node; for numbers and arrays."""
    return (1.0 - (cpu / CPU_MAX * 0.5 + milli / MILLI_MAX * 0.5)) * 100


def best_fit_column(columns: GpuCardColumns, request: GpuShareRequest) -> tuple[Ints, Bools]:
    """int64 (n_rows,), bool (n_rows,): `best_fit_score` of each row, and where it is None."""
    cpu = columns.cpu_left - request.cpu_milli
    milli = columns.total_left() - request.total_milli
    # Conversion to integers truncates towards zero.
    return _fullness(cpu, milli).astype(np.int64), (cpu < 0) | (milli < 0)


def normalize_best_fit(scores: Ints) -> Ints:
    """int64 (n_rows,): from 0, the lowest, to 100; 0 for all where they are equal."""
    if not scores.shape[0]:
        return scores
    lowest, highest = int(scores.min()), int(scores.max())
    if lowest == highest:
        return np.zeros_like(scores)
    normalized: Ints = (scores - lowest) * SCORE_MAX // (highest - lowest)
    return normalized


# GpuPacking.


def gpu_packing_score(state: CardState, request: GpuShareRequest) -> int | None:
    """Partly used cards before idle cards of used nodes before idle nodes; None where too few
    cards suffice."""
    if request.milli <= 0:
        return 0
    n_cards = len(state.left)
    if all(left == CARD_MILLI for left in state.left):
        return max(IDLE_CARDS_SCORE_MIN - n_cards, n_cards)
    chosen = sorted(left for left in state.left if left >= request.milli)[: request.num]
    if len(chosen) < request.num:
        return None
    n_idle = sum(left == CARD_MILLI for left in chosen)
    if n_idle > 0:
        return max(SHARE_SCORE_MIN - n_idle, IDLE_CARDS_SCORE_MIN)
    return max(100 - sum(left * 100 // CARD_MILLI for left in chosen) // 10, SHARE_SCORE_MIN)


def gpu_packing_column(columns: GpuCardColumns, request: GpuShareRequest) -> tuple[Ints, Bools]:
    """int64 (n_rows,), bool (n_rows,): `gpu_packing_score` of each row, and where it is None."""
    n_rows = columns.n_cards.shape[0]
    if request.milli <= 0:
        return np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.bool_)
    is_idle = ((columns.left == CARD_MILLI) | (columns.left < 0)).all(axis=1)
    unusable = np.iinfo(np.int64).max
    chosen = np.sort(np.where(columns.left >= request.milli, columns.left, unusable), axis=1)
    chosen = chosen[:, : request.num]
    is_usable = chosen != unusable
    too_few = ~is_idle & (is_usable.sum(axis=1) < request.num)
    n_idle = (chosen == CARD_MILLI).sum(axis=1)
    percent_left = (np.where(is_usable, chosen, 0) * 100 // CARD_MILLI).sum(axis=1)
    partly = np.maximum(100 - percent_left // 10, SHARE_SCORE_MIN)
    idle_cards = np.maximum(SHARE_SCORE_MIN - n_idle, IDLE_CARDS_SCORE_MIN)
    scores = np.where(n_idle > 0, idle_cards, partly)
    idle_node = np.maximum(IDLE_CARDS_SCORE_MIN - columns.n_cards, columns.n_cards)
    return np.where(is_idle, idle_node, scores), too_few


# GpuClustering.


def gpu_clustering_score(state: CardState, request: GpuShareRequest) -> int:
    """Nodes with pods of the same kind first, and among equals those with fewer GPUs left."""
    kind = request.kind
    if kind is None:
        return 0
    present = {name for name, count in state.kinds.items() if count > 0}
    if kind in present:
        bonus = SAME_KIND_ONLY if len(present) == 1 else SAME_KIND
    else:
        bonus = OTHER_KINDS if present else NO_KIND
    return int(_clustering_base(np.array([state.total_left]))[0]) + bonus


def _clustering_base(total_left: Ints) -> Ints:
    """int64 (n_rows,): up to 25; negative for more than eight idle cards."""
    return divide_truncated(CLUSTERING_BASE * (MILLI_MAX - total_left), MILLI_MAX)


def gpu_clustering_column(columns: GpuCardColumns, request: GpuShareRequest) -> Ints:
    """int64 (n_rows,): `gpu_clustering_score` of each row."""
    kind = request.kind
    if kind is None:
        return np.zeros(columns.n_cards.shape[0], dtype=np.int64)
    is_present = columns.kind_counts > 0
    n_kinds = is_present.sum(axis=1)
    has_kind = np.zeros(n_kinds.shape[0], dtype=np.bool_)
    if kind in columns.kinds:
        has_kind = is_present[:, list(columns.kinds).index(kind)]
    bonus = np.where(
        has_kind,
        np.where(n_kinds == 1, SAME_KIND_ONLY, SAME_KIND),
        np.where(n_kinds == 0, NO_KIND, OTHER_KINDS),
    )
    return _clustering_base(columns.total_left()) + bonus
