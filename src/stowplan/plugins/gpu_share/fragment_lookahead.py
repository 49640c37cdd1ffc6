"""Expected fragment of a node when typical pods keep coming to it.

A figure to report; no policy reads it.

Source: hkust-adsl/kubernetes-scheduler-simulator, NodeGpuFragBellman.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest
from stowplan.plugins.gpu_share.fragmentation import Q3, TypicalPod, shares_by_category
from stowplan.plugins.gpu_share.scores.fgd import smallest_cards

PROBABILITY_MIN = 1
"""Milli left times probability; below, the node counts as without fragment."""
HOPELESS_SHARE = 0.999
"""Share of typical pods that fit nowhere from which all that is left is a fragment."""


class LookAhead:
    """Look-ahead with these typical pods. Values are kept by what is left of a node, for whatever
    probability they were computed first."""

    def __init__(self, typical: Sequence[TypicalPod]) -> None:
        self._typical = tuple(typical)
        self._kept: dict[tuple[int, tuple[int, ...], str], float] = {}

    def fragment(self, state: CardState, probability: float = 1.0) -> float:
        """Milli; probability: of coming to this state."""
        key = state.cpu_left, tuple(sorted(state.left)), state.model
        if key not in self._kept:
            total = state.total_left
            if total == 0 or total * probability < PROBABILITY_MIN:
                return 0.0
            self._kept[key] = self._computed(state, probability)
        return self._kept[key]

    def _computed(self, state: CardState, probability: float) -> float:
        total = state.total_left
        shares = shares_by_category(state, self._typical)
        hopeless = 0.0
        for index, share in enumerate(shares):
            if index != Q3:
                hopeless += share
        if hopeless >= HOPELESS_SHARE:
            return float(total)
        expected = 0.0
        for typical in self._typical:
            after = _with_typical(state, typical)
            if after is None:
                expected += typical.share * total
            else:
                ahead = self.fragment(after, probability * typical.share)
                expected += typical.share * ahead
        return expected


def _with_typical(state: CardState, typical: TypicalPod) -> CardState | None:
    """The state with a typical pod, on the cards with the least left; None where it does not fit.
    Models are not compared."""
    if state.cpu_left < typical.cpu_milli or len(state.left) < typical.num:
        return None
    request = GpuShareRequest(typical.cpu_milli, typical.num, typical.milli)
    cards = smallest_cards(state.left, request)
    return None if cards is None else state.with_pod(request, cards)
