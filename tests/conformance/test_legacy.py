"""Every recorded answer of Kubernetes 1.13's functions: by both walks, and by PrioritizeNodes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.assembly import registry
from stowplan.columns.nodetable import table_of
from stowplan.conformance import v1_13_cases
from stowplan.framework import FeatureGates, Framework, Snapshot
from stowplan.framework.runtime.prioritize_nodes import Prioritized, priorities_of, prioritize_nodes
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from tests.conformance.compare import SHARES, WALKS, differences, recorded

DATA = Path(__file__).parent / "data" / "legacy"
FAMILIES = sorted(path.name.removesuffix(".jsonl.gz") for path in DATA.glob("*.jsonl.gz"))
EACH = pytest.mark.parametrize("family", FAMILIES)


def comparable(tree: Any) -> Any:
    """The tree with error texts replaced by true."""
    if isinstance(tree, dict):
        prose = ("configError", "error")
        return {k: True if k in prose else comparable(v) for k, v in tree.items() if v is not None}
    return [comparable(item) for item in tree] if isinstance(tree, list) else tree


def differing(want: dict[str, Any], got: dict[str, Any]) -> list[str]:
    return list(differences(comparable(want), comparable(got)))[:3]


@WALKS
@EACH
def test_every_answer_is_the_originals(family: str, columns: bool, one_in: int) -> None:
    wrong = {}
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        case = v1_13_cases.read_case(line)
        found = differing(want, v1_13_cases.answer(case, columns=columns))
        if found:
            wrong[case.id] = found
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


class Silent:
    """A configured extender that is never called."""

    weight = 1

    def is_interested(self, pod: Pod) -> bool:
        return False

    def prioritize(self, pod: Pod, node_names: Sequence[str]) -> dict[str, int]:
        raise AssertionError


def prioritized(case: v1_13_cases.LegacyCase, feasible: list[str]) -> Prioritized:
    """PrioritizeNodes over feasible nodes, by the scalar walk."""
    configuration = v1_13_cases.configuration_of(case)
    profile = configuration.profiles[DEFAULT_SCHEDULER]
    framework = Framework(profile, registry(), FeatureGates())
    snapshot = Snapshot(table_of(case.nodes, case.placed()), case.object_store())
    nodes = snapshot.nodes
    rows = np.array([nodes.row(name) for name in feasible], dtype=np.int64)
    priorities = priorities_of(framework, snapshot)
    extenders = [Silent() for _ in configuration.extenders]
    return prioritize_nodes(case.pod, nodes, priorities, rows=rows, extenders=extenders)


@SHARES
@EACH
def test_prioritize_nodes_agrees(family: str, one_in: int) -> None:
    wrong = {}
    n_asked = 0
    for line, want in recorded(DATA / f"{family}.jsonl.gz", one_in):
        if "totals" not in want.get("scoring", {}):
            continue
        n_asked += 1
        case = v1_13_cases.read_case(line)
        found = prioritized(case, want["feasible"])
        got = {"totals": found.totals.tolist(), "top": list(found.top)}
        given = {name: scores.tolist() for name, scores in found.scores.items()}
        scored = want["scoring"]["priorities"]
        if any(given[name] != entry["score"] for name, entry in scored.items()):
            wrong[case.id] = given
        if got != {key: want["scoring"][key] for key in got}:
            wrong[case.id] = got
    assert n_asked
    assert not wrong, json.dumps(wrong, indent=1)[:4000]


def test_all_families_are_here() -> None:
    assert len(FAMILIES) == 39


def test_a_changed_answer_is_noticed() -> None:
    line, want = next(recorded(DATA / "pri-leastrequested.jsonl.gz"))
    got = v1_13_cases.answer(v1_13_cases.read_case(line))
    got["scoring"]["totals"][0] += 1
    assert differing(want, got) == [
        f".scoring.totals: want {want['scoring']['totals']}, got {got['scoring']['totals']}"
    ]
    refused = {"configError": "x"}
    assert differing(refused, {"configError": "y"}) == []
    assert differing(refused, want)
