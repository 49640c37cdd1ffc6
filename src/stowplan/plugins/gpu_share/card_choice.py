"""The cards of a node that a pod is given.

Source: hkust-adsl/kubernetes-scheduler-simulator, plugin Open-Gpu-Share, Reserve and its
allocation methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest
from stowplan.plugins.gpu_share.fragmentation import TypicalPod
from stowplan.plugins.gpu_share.scores.dot_product import (
    DotProductExtension,
    DotProductNorm,
    best_pair,
)
from stowplan.plugins.gpu_share.scores.fgd import fgd_share_scores


class CardSelection(StrEnum):
    """How the card for a part of a card is chosen."""

    BEST = "best"
    WORST = "worst"
    RANDOM = "random"
    FGD = "FGDScore"
    DOT_PRODUCT = "DotProductScore"


class CardChoiceOptions(msgspec.Struct, frozen=True):
    """selection: for a part of a card. extension, norm: for DotProductScore. typical: for
    FGDScore."""

    selection: CardSelection = CardSelection.BEST
    extension: DotProductExtension = DotProductExtension.SHARE
    norm: DotProductNorm = DotProductNorm.MAX
    typical: tuple[TypicalPod, ...] = ()


def candidate_cards(
    state: CardState, request: GpuShareRequest, options: CardChoiceOptions
) -> list[tuple[int, ...]]:
    """The cards that a pod may be given: one choice, or for RANDOM one per card, each as likely;
    none where cards do not suffice. One choice without cards for a pod without GPU.

    Whole cards are the first that suffice, under every selection. Parts of several cards are on as
    many cards, those with the least left: the original fails to choose any.
    """
    if request.milli <= 0:
        return [()]
    if request.prescribed is not None:
        return [request.prescribed]
    suiting = [card for card, left in enumerate(state.left) if left >= request.milli]
    if len(suiting) < request.num or request.num <= 0:
        return []
    if request.is_share:
        return _cards_for_share(state, request, suiting, options)
    if request.is_several_shares:
        suiting.sort(key=lambda card: state.left[card])
    return [tuple(suiting[: request.num])]


def _cards_for_share(
    state: CardState, request: GpuShareRequest, suiting: Sequence[int], options: CardChoiceOptions
) -> list[tuple[int, ...]]:
    match options.selection:
        case CardSelection.RANDOM:
            return [(card,) for card in suiting]
        case CardSelection.FGD:
            scores = fgd_share_scores(state, request, options.typical)
            return [(max(scores, key=lambda one: one[0])[1],)]
        case CardSelection.DOT_PRODUCT:
            _, pair = best_pair(state, request, options.extension, options.norm)
            return [] if pair is None or not pair.cards else [pair.cards]
        case CardSelection.WORST:
            return [(max(suiting, key=lambda card: state.left[card]),)]
        case CardSelection.BEST:
            return [(min(suiting, key=lambda card: state.left[card]),)]
