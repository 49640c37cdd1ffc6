"""Filter by cards: which nodes have enough left on their cards for a pod.

Source: hkust-adsl/kubernetes-scheduler-simulator, plugin Open-Gpu-Share, Filter.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest, is_accessible
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns


def fits_cards(state: CardState, request: GpuShareRequest) -> bool:
    """True when the cards of a node have enough left for the request.

    Parts of several cards may all be on one card here, as in the original, which then fails to
    choose cards.
    """
    if request.milli <= 0:
        return True
    if not state.left or not is_accessible(request.models, state.model) or request.num <= 0:
        return False
    if request.prescribed is not None:
        return all(
            card < len(state.left) and state.left[card] >= request.milli
            for card in request.prescribed
        )
    if request.num == 1:
        return any(left >= request.milli for left in state.left)
    return sum(max(left, 0) // request.milli for left in state.left) >= request.num


def fits_distinct_cards(state: CardState, request: GpuShareRequest) -> bool:
    """True when as many cards as requested have enough left.

    Differs: the original passes nodes where several parts fit on one card, and does not compare the
    number of prescribed cards.
    """
    if request.milli <= 0:
        return True
    if request.num <= 0 or not is_accessible(request.models, state.model):
        return False
    suiting = {card for card, left in enumerate(state.left) if left >= request.milli}
    if request.prescribed is not None:
        return len(set(request.prescribed)) == request.num and suiting.issuperset(
            request.prescribed
        )
    return len(suiting) >= request.num


def fits_distinct_cards_column(columns: GpuCardColumns, request: GpuShareRequest) -> Bools:
    """bool (n_rows,): `fits_distinct_cards` of each row."""
    n_rows = columns.n_cards.shape[0]
    if request.milli <= 0:
        return np.ones(n_rows, dtype=np.bool_)
    if request.prescribed is not None:
        if len(set(request.prescribed)) != request.num:
            return np.zeros(n_rows, dtype=np.bool_)
        return fits_cards_column(columns, request)
    enough = (columns.left >= request.milli).sum(axis=1) >= request.num
    found: Bools = enough & columns.access(request.models) & (request.num > 0)
    return found


def fits_cards_column(columns: GpuCardColumns, request: GpuShareRequest) -> Bools:
    """bool (n_rows,): `fits_cards` of each row."""
    n_rows, n_cards = columns.left.shape
    if request.milli <= 0:
        return np.ones(n_rows, dtype=np.bool_)
    if request.num <= 0:
        return np.zeros(n_rows, dtype=np.bool_)
    has_access: Bools = (columns.n_cards > 0) & columns.access(request.models)
    if request.prescribed is not None:
        for card in request.prescribed:
            if card >= n_cards:
                return np.zeros(n_rows, dtype=np.bool_)
            has_access &= columns.left[:, card] >= request.milli
        return has_access
    if request.num == 1:
        return has_access & (columns.left >= request.milli).any(axis=1)
    slots: Ints = (np.maximum(columns.left, 0) // request.milli).sum(axis=1)
    return has_access & (slots >= request.num)
