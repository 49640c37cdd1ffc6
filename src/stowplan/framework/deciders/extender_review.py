"""Review: what extenders make of the nodes on which a preemption would help.

The plugin that preempts offers its candidates and answers Wait; it is called again when the
extenders have been asked, and then finds their answer.
"""

from __future__ import annotations

import msgspec

from stowplan.columns import PodInfo
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.status import Status


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node where eviction helps. victims: the most important first."""

    node_name: str
    victims: tuple[PodInfo, ...]
    pdb_violations: int


class ExtenderReview:
    """offered: the candidates, in the order of the snapshot; none while none were found.

    answer: what is left of them, or the failure; None while the extenders have not been asked.
    """

    def __init__(self) -> None:
        self.offered: tuple[PreemptionCandidate, ...] = ()
        self.answer: tuple[PreemptionCandidate, ...] | Status | None = None

    @staticmethod
    def of(state: CycleState) -> ExtenderReview | None:
        """That of an attempt; None where no extender has a say in preemption."""
        review: ExtenderReview | None = state.find(_KEY)
        return review

    def enter(self, state: CycleState) -> None:
        """Have it found by the plugins of an attempt."""
        state.write(_KEY, self)


_KEY = "Review"
