"""PodGroupPodsCount: prefers the placement that takes more pods of the group.

Source: kube-scheduler v1.36, plugins/podgrouppodscount.
"""

from __future__ import annotations

from stowplan.framework.plugin import SCORE_MAX, Plugin
from stowplan.framework.pod_groups.placements import (
    PlacementScorePlugin,
    PodGroupCycle,
    ProposedPlacement,
)


class PodGroupPodsCount(PlacementScorePlugin):
    """Scores placements by the number of pods, in percent of the highest."""

    name = "PodGroupPodsCount"
    declaration = Plugin(name=name, reads=())

    def score_placement(self, placement: ProposedPlacement, cycle: PodGroupCycle) -> int:
        """Pods of the group that have a node, with those that this placement takes."""
        return cycle.state.n_scheduled + len(placement.assignments)

    def normalize_placement_scores(self, scores: list[int]) -> list[int]:
        """Percent of the highest score, rounded down."""
        highest = max(scores, default=0)
        return [score * SCORE_MAX // highest if highest else 0 for score in scores]
