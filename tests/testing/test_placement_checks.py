"""check_plugin for plugins that make and compare placements of groups."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from stowplan.assembly import registry
from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
    Status,
    unschedulable,
)
from stowplan.testing import CheckFailed, check_plugin, checks

Placements = list[GroupPlacement] | Status


class ByTeam:
    """Nodes with the same first letter of a label, and none without any."""

    name = "testing/ByTeam"

    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        teams: dict[str, list[int]] = {}
        for row in rows.tolist():
            for value in cycle.snapshot.nodes.nodes[row].labels.values():
                teams.setdefault(value[:1], []).append(row)
        placements = [
            GroupPlacement(team, np.array(sorted(set(own)), dtype=np.int64))
            for team, own in teams.items()
        ]
        return placements or unschedulable("no node has a label")

    def score_placement(self, placement: ProposedPlacement) -> int:
        return min(100, 10 * len(placement.assignments))


class NodesTwice(ByTeam):
    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        return [GroupPlacement("twice", np.repeat(rows, 2))]


class NodesByNumber(ByTeam):
    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        return [GroupPlacement("first", np.array([0]))]


class OtherNodes(ByTeam):
    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        return [GroupPlacement("all", rows + 1)]


class Succeeds(ByTeam):
    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        return OK


class SortsItsInput(ByTeam):
    def generate_placements(self, rows: Ints, cycle: PodGroupCycle) -> Placements:
        rows[:] = rows[::-1].copy()
        return super().generate_placements(rows, cycle)


class ScoresAbove(ByTeam):
    def score_placement(self, placement: ProposedPlacement) -> int:
        return 1 + 100 * len(placement.assignments)


class ScoresTruth(ByTeam):
    def score_placement(self, placement: ProposedPlacement) -> Any:
        return len(placement.assignments) > 1


class LosesOne(ByTeam):
    def normalize_placement_scores(self, scores: list[int]) -> list[int]:
        return scores[1:]


class PrefersTheFirst(ByTeam):
    def __init__(self) -> None:
        self._calls = count()

    def score_placement(self, placement: ProposedPlacement) -> int:
        return 100 - min(100, next(self._calls))


class KeepsAnother(ByTeam):
    def score_placement(self, placement: ProposedPlacement) -> int:
        known = placement.scores.get(self.name)
        if known is not None:
            return known
        placement.scores[self.name] = 0
        return super().score_placement(placement)


GENERATED, SCORED = "placements_are_valid", "placement_scores_are_valid"
MISTAKES: list[tuple[type[Any], str, str]] = [
    (NodesTwice, GENERATED, "expected some of the given rows, each once"),
    (NodesByNumber, GENERATED, "with nodes on other rows"),
    (OtherNodes, GENERATED, "expected some of the given rows, each once"),
    (Succeeds, GENERATED, "returned Success; expected placements"),
    (SortsItsInput, GENERATED, "changed `rows`"),
    (ScoresAbove, SCORED, "expected a score from 0 to 100"),
    (ScoresTruth, SCORED, "expected a whole number"),
    (LosesOne, SCORED, "scores"),
    (PrefersTheFirst, SCORED, "on the second call"),
    (KeepsAnother, SCORED, "on the second call"),
]


def test_sound_placements_pass() -> None:
    check_plugin(ByTeam)
    assert {GENERATED, SCORED} <= {each.name for each in checks(ByTeam)}


@pytest.mark.parametrize(
    "name", ["TopologyPlacementGenerator", "PodGroupPodsCount", "NodeResourcesFit"]
)
def test_the_plugins_that_ship_pass(name: str) -> None:
    entry = registry()[name]
    for each in checks(entry.plugin):
        if each.name in (GENERATED, SCORED):
            each()


@pytest.mark.parametrize(
    ("plugin", "check", "message"), MISTAKES, ids=[plugin.__name__ for plugin, _, _ in MISTAKES]
)
def test_a_mistake_is_noticed(plugin: type[Any], check: str, message: str) -> None:
    listed = {each.name: each for each in checks(plugin)}
    with pytest.raises(CheckFailed, match=message.replace("(", r"\(")) as caught:
        listed[check]()
    assert "(test_placement_checks.py:" in str(caught.value)
