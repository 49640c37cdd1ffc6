"""Extender review: the extenders' answer about preemption candidates.

The preempting plugin offers its candidates and returns Wait; it is called again when the extenders
have answered.
"""

from __future__ import annotations

import msgspec

from stowplan.columns import PodInfo
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.status import Status


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node where eviction helps. victims: most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int


class ExtenderReview:
    """offered: candidates in the order of the snapshot; empty while none were found.

    answer: the remaining candidates, or the failure; None while the extenders have not answered.
    """

    def __init__(self) -> None:
        self.offered: tuple[PreemptionCandidate, ...] = ()
        self.answer: tuple[PreemptionCandidate, ...] | Status | None = None

    @staticmethod
    def of(state: CycleState) -> ExtenderReview | None:
        """The review of an attempt; None where no extender supports preemption."""
        review: ExtenderReview | None = state.find(_KEY)
        return review

    def enter(self, state: CycleState) -> None:
        """Store it in the state of an attempt."""
        state.write(_KEY, self)


_KEY = "Review"
