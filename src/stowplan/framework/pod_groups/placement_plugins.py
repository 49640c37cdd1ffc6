"""Calls of the plugins that make and compare placements of a group.

Source: kube-scheduler v1.36, framework/runtime RunPlacementGeneratePlugins and
RunPlacementScorePlugins.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.columns.array_types import Ints
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
)
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.status import Status, unschedulable

NO_PLACEMENTS = "no feasible placements found"


def group_permit(framework: Framework) -> str:
    """The plugin for which members of groups wait at Permit, "" for none."""
    members = framework.at("permit")
    return next((one.name for one in members if one.declaration.permits_groups), "")


def run_placement_generate(
    framework: Framework, rows: Ints, cycle: PodGroupCycle
) -> Sequence[GroupPlacement] | Status:
    """The placements of a group: all nodes where the profile has no plugin for it. rows: int64, all
    nodes in the order of the snapshot."""
    members = framework.at("placementGenerate")
    if not members:
        return (GroupPlacement("", rows),)
    placements: Sequence[GroupPlacement] | Status = members[0].call(
        "generate_placements", cycle.group, rows, cycle
    )
    if isinstance(placements, Status):
        return placements.by(members[0].name)
    return placements or unschedulable(NO_PLACEMENTS).by(members[0].name)


def best_placement(
    framework: Framework, proposed: Sequence[ProposedPlacement], cycle: PodGroupCycle
) -> int:
    """The index of the placement with the highest score; of equal ones the first.

    Differs: the original takes a random one of equals.
    """
    total = [0] * len(proposed)
    weights = {use.name: use.weight for use in framework.profile.points.get("placementScore", ())}
    for member in framework.at("placementScore"):
        score = member.calls["score_placement"]
        assert score is not None, member.name
        scores = [int(score(one, cycle)) for one in proposed]
        if member.calls["normalize_placement_scores"] is not None:
            scores = member.call("normalize_placement_scores", scores)
        weight = weights.get(member.name, 1)
        total = [sum_ + score * weight for sum_, score in zip(total, scores, strict=True)]
    return total.index(max(total))
