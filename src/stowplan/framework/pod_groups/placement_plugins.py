"""Calls of the plugins that make and compare placements of a group.

Source: kube-scheduler v1.36, framework/runtime RunPlacementGeneratePlugins and
RunPlacementScorePlugins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework.plugin import SCORE_MAX
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
)
from stowplan.framework.problems import ContractError
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import Status, error, unschedulable

NO_PLACEMENTS = "no feasible placements found"


def run_placement_generate(
    framework: Framework, rows: Ints, cycle: PodGroupCycle
) -> Sequence[GroupPlacement] | Status:
    """The placements of a group: all nodes where the profile has no plugin for it. rows: int64, all
    nodes in the order of the snapshot. A plugin that breaks its contract is an error."""
    members = framework.at("placementGenerate")
    if not members:
        return (GroupPlacement("", rows),)
    plugin = members[0]
    try:
        placements = plugin.call("generate_placements", cycle.group, rows, cycle)
        if not plugin.in_tree:
            check_placements(placements, rows, plugin)
    except ContractError as fault:
        return error(str(fault)).by(plugin.name)
    if isinstance(placements, Status):
        return placements.by(plugin.name)
    return placements or unschedulable(NO_PLACEMENTS).by(plugin.name)


def best_placement(
    framework: Framework, proposed: Sequence[ProposedPlacement], cycle: PodGroupCycle
) -> int | Status:
    """The index of the placement with the highest score; of equal ones the first. A plugin that
    breaks its contract is an error.

    Differs: the original takes a random one of equals.
    """
    total = [0] * len(proposed)
    weights = {use.name: use.weight for use in framework.profile.points.get("placementScore", ())}
    for member in framework.at("placementScore"):
        try:
            scores = placement_scores(member, proposed, cycle)
        except ContractError as fault:
            return error(str(fault)).by(member.name)
        weight = weights.get(member.name, 1)
        total = [sum_ + score * weight for sum_, score in zip(total, scores, strict=True)]
    return total.index(max(total))


def placement_scores(
    plugin: RegisteredPlugin, proposed: Sequence[ProposedPlacement], cycle: PodGroupCycle
) -> Sequence[int]:
    """The scores of one plugin; raises ContractError for others than whole numbers from 0 to
    SCORE_MAX."""
    score = plugin.calls["score_placement"]
    assert score is not None, plugin.name
    scores: Sequence[int] = [score(one, cycle) for one in proposed]
    if plugin.calls["normalize_placement_scores"] is None:
        if not plugin.in_tree:
            _check_scores(scores, len(proposed), "score_placement", plugin, SCORE_MAX)
        return scores
    if not plugin.in_tree:
        _check_scores(scores, len(proposed), "score_placement", plugin)
    scores = plugin.call("normalize_placement_scores", scores)
    if not plugin.in_tree:
        _check_scores(scores, len(proposed), "normalize_placement_scores", plugin, SCORE_MAX)
    return scores


def check_placements(placements: Any, rows: Ints, plugin: RegisteredPlugin) -> None:
    """Raise ContractError for anything but placements on the given rows, or a refusal."""

    def wrong(what: str, expected: str) -> ContractError:
        written_at = plugin.place("generate_placements")
        text = f"generate_placements{written_at} returned {what}; expected {expected}"
        return ContractError(f"plugin {plugin.name!r}: {text}")

    if isinstance(placements, Status):
        if placements.is_success:
            raise wrong("Success", "placements, or a Status that is no success")
        return
    if not isinstance(placements, Sequence):
        raise wrong(repr(placements), "a sequence of GroupPlacement, or a Status")
    known = set(rows.tolist())
    for one in placements:
        if not isinstance(one, GroupPlacement):
            raise wrong(f"an entry {one!r}", "a GroupPlacement")
        own = np.asarray(one.rows)
        if own.ndim != 1 or own.dtype != np.int64 or not own.size:
            raise wrong(
                f"rows {one.rows!r} in {one.name!r}", "an int64 array with at least one row"
            )
        listed: list[int] = own.tolist()
        if len(set(listed)) != len(listed) or not known.issuperset(listed):
            raise wrong(f"rows {listed} in {one.name!r}", "some of the given rows, each once")


def _check_scores(
    scores: Any, n_placements: int, method: str, plugin: RegisteredPlugin, most: int | None = None
) -> None:
    """Raise ContractError for anything but a whole number for each placement. most: of each; None
    for any number."""

    def wrong(what: str, expected: str) -> ContractError:
        text = f"{method}{plugin.place(method)} returned {what}; expected {expected}"
        return ContractError(f"plugin {plugin.name!r}: {text}")

    if not isinstance(scores, Sequence) or len(scores) != n_placements:
        raise wrong(repr(scores), f"a list of {n_placements} scores")
    for score in scores:
        if isinstance(score, bool) or not isinstance(score, int | np.integer):
            raise wrong(repr(score), "a whole number")
        if most is not None and not 0 <= score <= most:
            raise wrong(repr(score), f"a score from 0 to {most}")
