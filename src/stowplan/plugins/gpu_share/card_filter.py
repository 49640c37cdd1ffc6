"""Filter by cards: which nodes have enough left on their cards for a pod.

Source: hkust-adsl/kubernetes-scheduler-simulator, plugin Open-Gpu-Share, Filter.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.objects.devices.gpu_cards import CardState, GpuRequest, is_accessible
from stowplan.plugins.gpu_share.card_columns import CardColumns


def fits_cards(state: CardState, request: GpuRequest) -> bool:
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


def fits_cards_column(columns: CardColumns, request: GpuRequest) -> Bools:
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
