"""Scoring policies of shared GPUs by name, over one node and over columns."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest
from stowplan.plugins.gpu_share.card_choice import CardChoiceOptions
from stowplan.plugins.gpu_share.fragmentation import TypicalColumns
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.scores.dot_product import dot_product_score
from stowplan.plugins.gpu_share.scores.dot_product_columns import dot_product_column
from stowplan.plugins.gpu_share.scores.fgd import fgd_column, fgd_score
from stowplan.plugins.gpu_share.scores.packing_scores import (
    best_fit_column,
    best_fit_score,
    gpu_clustering_column,
    gpu_clustering_score,
    gpu_packing_column,
    gpu_packing_score,
    normalize_best_fit,
)


class GpuPolicy(StrEnum):
    """Which node a pod goes to."""

    FGD = "FGD"
    BEST_FIT = "BestFit"
    DOT_PRODUCT = "DotProd"
    GPU_PACKING = "GpuPacking"
    GPU_CLUSTERING = "GpuClustering"
    RANDOM = "Random"


def gpu_score(
    policy: GpuPolicy, state: CardState, request: GpuShareRequest, options: CardChoiceOptions
) -> int | None:
    """The score of one node before normalisation; None where the policy gives none. 0 for RANDOM,
    which draws a node."""
    match policy:
        case GpuPolicy.FGD:
            return fgd_score(state, request, options.typical)
        case GpuPolicy.BEST_FIT:
            return best_fit_score(state, request)
        case GpuPolicy.DOT_PRODUCT:
            return dot_product_score(state, request, options.extension, options.norm)
        case GpuPolicy.GPU_PACKING:
            return gpu_packing_score(state, request)
        case GpuPolicy.GPU_CLUSTERING:
            return gpu_clustering_score(state, request)
        case GpuPolicy.RANDOM:
            return 0


def gpu_score_column(
    policy: GpuPolicy, columns: GpuCardColumns, request: GpuShareRequest, options: CardChoiceOptions
) -> tuple[Ints, Bools]:
    """int64 (n_rows,), bool (n_rows,): `gpu_score` of each row, 0 where it is None; and where it
    is None."""
    n_rows = columns.n_cards.shape[0]
    refused = np.zeros(n_rows, dtype=np.bool_)
    match policy:
        case GpuPolicy.FGD:
            typical = TypicalColumns(options.typical, columns.models)
            scores = fgd_column(columns, request, typical)
        case GpuPolicy.BEST_FIT:
            scores, refused = best_fit_column(columns, request)
        case GpuPolicy.DOT_PRODUCT:
            scores = dot_product_column(columns, request, options.extension, options.norm)
        case GpuPolicy.GPU_PACKING:
            scores, refused = gpu_packing_column(columns, request)
        case GpuPolicy.GPU_CLUSTERING:
            scores = gpu_clustering_column(columns, request)
        case GpuPolicy.RANDOM:
            scores = np.zeros(n_rows, dtype=np.int64)
    return np.where(refused, 0, scores), refused


def normalize_gpu_scores(policy: GpuPolicy, scores: Ints) -> Ints:
    """int64 (n_rows,): what the policy makes of the scores of all feasible nodes."""
    return normalize_best_fit(scores) if policy is GpuPolicy.BEST_FIT else scores


def settle_ties(scores: Ints, names: Sequence[str]) -> None:
    """Leave one node with the highest score, the one with the smallest name, in place.

    scores: int64 (n_rows,), from 0 to 100, at least one. names: of the nodes.
    """
    highest = int(scores.max())
    tied = np.flatnonzero(scores == highest).tolist()
    if len(tied) < 2:
        return
    first = min(tied, key=names.__getitem__)
    scores[tied] = max(highest - 1, 0)
    scores[first] = max(highest, 1)
