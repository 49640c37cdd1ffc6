"""DotProd over columns of nodes."""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.objects.devices.gpu_cards import CARD_MILLI, GpuShareRequest
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.scores.dot_product import (
    POD_NORM_SCALE,
    DotProductExtension,
    DotProductNorm,
    divisors,
    hyperbolic_tangent,
)


def dot_product_column(
    columns: GpuCardColumns,
    request: GpuShareRequest,
    extension: DotProductExtension,
    norm: DotProductNorm,
) -> Ints:
    """int64 (n_rows,): `dot_product_score` of each row."""
    # Void pairs are excluded below.
    with np.errstate(divide="ignore", invalid="ignore"):
        values, is_pair = _values(columns, request, extension, norm)
    best = np.where(is_pair & (values > -1.0), values, -1.0).max(axis=1, initial=-1.0)
    scores = (100 * np.where(best > -1.0, best, 0.0)).astype(np.int64)
    return np.where(columns.cpu_left < request.cpu_milli, 0, scores)


def _values(
    columns: GpuCardColumns,
    request: GpuShareRequest,
    extension: DotProductExtension,
    norm: DotProductNorm,
) -> tuple[Floats, Bools]:
    """float64 (n_rows, n_pairs), bool (n_rows, n_pairs): values of pairs, and which exist."""
    left, total = columns.left, request.total_milli
    idle = CARD_MILLI * (left == CARD_MILLI).sum(axis=1)
    cpu_left = columns.cpu_left[:, None].astype(np.float64)
    length: Ints | int = 2
    if extension is DotProductExtension.MERGE:
        gpu = columns.total_left()[:, None]
        is_pair = np.ones(gpu.shape, dtype=np.bool_)
    else:
        gpu = np.concatenate((left, idle[:, None]), axis=1)
        is_partly = (left >= 0) & (left < CARD_MILLI)
        if extension is DotProductExtension.EXTEND:
            is_partly &= left > 0
            exists = np.concatenate((is_partly, idle[:, None] > 0), axis=1)
            length = 1 + exists.sum(axis=1)[:, None]
            is_pair = exists & (gpu >= total)
        else:
            is_partly &= (left >= total) & (total < CARD_MILLI)
            is_pair = np.concatenate((is_partly, idle[:, None] >= total), axis=1)
    if extension is DotProductExtension.DIVIDE:
        whole = columns.total_left()[:, None]
        is_pair &= whole > 0
        cpu_left = cpu_left * gpu / whole
    cpu_divisor, gpu_divisor = divisors(
        columns.cpu_capacity[:, None], columns.n_cards[:, None] * CARD_MILLI, request, norm
    )
    product = _term(cpu_left, request.cpu_milli, cpu_divisor)
    product = (product + _term(gpu, total, gpu_divisor)) / length
    if norm is DotProductNorm.POD:
        product = hyperbolic_tangent(product / POD_NORM_SCALE)
    return 1 - product, is_pair


def _term(free: Floats | Ints, asked: int, divisor: Ints | int) -> Floats:
    """float64: the entry of a product; 0 where the divisor is 0."""
    term: Floats = np.where(
        np.equal(divisor, 0), 0.0, np.divide(free, divisor) * np.divide(asked, divisor)
    )
    return term
