"""Objects of KAI-Scheduler that its definitions and webhooks refuse, or that have no meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError

NAN, INF = float("nan"), float("inf")
GROUP = {"queue": "q", "minMember": 1}
LEAF = {"name": "a", "minMember": 1}


def problem(tmp_path: Path, version: str, kind: str, spec: Any, validate: str = "auto") -> str:
    """The error of an object named x, "" for none."""
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(tree))
    try:
        read_cluster([file], validate=validate)
    except InputError as error:
        return "; ".join(line.partition("x: ")[2] for line in str(error).splitlines())
    return ""


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parentQueue": "p", "resources": {"gpu": {"quota": -1, "limit": 2.5}}}, ""),
        ({"resources": {"gpu": {"quota": 1, "overQuotaWeight": 0}}, "reclaimMinRuntime": "0s"}, ""),
        ({"parentQueu": "p"}, 'unknown field "spec.parentQueu" (did you mean "parentQueue"?)'),
        (
            {"parentQueue": "x"},
            'spec.parentQueue: Invalid value: "x": a queue is not its own parent',
        ),
        (
            {"resources": {"cpu": {"quota": -5}}},
            "spec.resources.cpu.quota: Invalid value: -5: "
            "expected a number of at least 0, or -1 for no limit",
        ),
        (
            {"resources": {"gpu": {"limit": NAN}}},
            "spec.resources.gpu.limit: Invalid value: nan: "
            "expected a number of at least 0, or -1 for no limit",
        ),
        (
            {"resources": {"gpu": {"overQuotaWeight": INF}}},
            "spec.resources.gpu.overQuotaWeight: Invalid value: inf: "
            "expected a number of at least 0",
        ),
        (
            {"resources": {"gpu": {"overQuotaWeight": -1}}},
            "spec.resources.gpu.overQuotaWeight: Invalid value: -1: "
            "expected a number of at least 0",
        ),
        (
            {"preemptMinRuntime": "soon"},
            'spec.preemptMinRuntime: Invalid value: "soon": '
            "expected a duration such as 300ms, 15s or 1h30m",
        ),
    ],
)
def test_queues(spec: Any, expected: str, tmp_path: Path) -> None:
    assert problem(tmp_path, "scheduling.run.ai/v2", "Queue", spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({**GROUP, "minMember": 0, "preemptibility": "non-preemptible"}, ""),
        ({"subGroups": [{"name": "a"}, {"name": "b", "parent": "a", "minMember": 2}]}, ""),
        (
            {"minMember": -1},
            "spec.minMember: Invalid value: -1: "
            "spec.minMember in body should be greater than or equal to 0",
        ),
        (
            {**GROUP, "minSubGroup": 1},
            "spec: Forbidden: minMember and minSubGroup are mutually exclusive",
        ),
        (
            {**GROUP, "preemptibility": "sometimes"},
            'spec.preemptibility: Unsupported value: "sometimes": '
            'supported values: "preemptible", "non-preemptible"',
        ),
        (
            {**GROUP, "stalenessGracePeriod": "1 minute"},
            'spec.stalenessGracePeriod: Invalid value: "1 minute": '
            "expected a duration such as 300ms, 15s or 1h30m",
        ),
        ({"subGroups": [LEAF, LEAF]}, 'spec.subGroups[1].name: Duplicate value: "a"'),
        (
            {"subGroups": [{**LEAF, "parent": "b"}]},
            'spec.subGroups[0].parent: Invalid value: "b": no subGroup has this name',
        ),
        (
            {"subGroups": [{**LEAF, "parent": "a"}]},
            'spec.subGroups[0].parent: Invalid value: "a": cycle detected in subgroups',
        ),
        ({"subGroups": [{"name": "a"}]}, "spec.subGroups[0].minMember: Required value"),
    ],
)
def test_pod_groups(spec: Any, expected: str, tmp_path: Path) -> None:
    assert problem(tmp_path, "scheduling.run.ai/v2alpha2", "PodGroup", spec) == expected


def test_a_sub_group_without_a_name_is_named_by_its_path(tmp_path: Path) -> None:
    spec = {"subGroups": [{"minMember": 1}]}
    text = problem(tmp_path, "scheduling.run.ai/v2alpha2", "PodGroup", spec)
    assert "spec.subGroups[0].name: Required value" in text
    assert "a time" not in text


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ([{"nodeLabel": "zone", "alias": "z"}], ""),
        ([], "spec.levels: Required value"),
        ([{"nodeLabel": "zone"}] * 2, 'spec.levels[1].nodeLabel: Duplicate value: "zone"'),
    ],
)
def test_topologies(levels: Any, expected: str, tmp_path: Path) -> None:
    spec = {"levels": levels}
    assert problem(tmp_path, "kai.scheduler/v1alpha1", "Topology", spec) == expected
