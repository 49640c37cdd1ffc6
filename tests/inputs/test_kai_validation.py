"""Objects of KAI-Scheduler that its definitions and webhooks refuse, or that have no meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.inputs.cluster_reader import Cluster, read_cluster
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
        (
            {"subGroups": [{"name": "a", "minMember": 1}, {**LEAF, "name": "b", "parent": "a"}]},
            "spec.subGroups[0].minMember: Forbidden: a subGroup with children has minSubGroup",
        ),
        (
            {"subGroups": [{"name": "a", "minSubGroup": 1}]},
            "spec.subGroups[0].minSubGroup: Forbidden: a subGroup without children has minMember",
        ),
        (
            {"subGroups": [{**LEAF, "name": "A"}]},
            'spec.subGroups[0].name: Invalid value: "A": spec.subGroups[0].name in body should '
            "match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'",
        ),
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
        (
            [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "zone"}],
            'spec.levels[0].nodeLabel: Invalid value: "kubernetes.io/hostname": '
            "must be the lowest level",
        ),
        (
            [{"nodeLabel": "a", "alias": "b"}, {"nodeLabel": "b"}],
            'spec.levels[0].alias: Duplicate value: "b"',
        ),
    ],
)
def test_topologies(levels: Any, expected: str, tmp_path: Path) -> None:
    spec = {"levels": levels}
    assert problem(tmp_path, "kai.scheduler/v1alpha1", "Topology", spec) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"podName": "p", "selectedNode": "n", "receivedGPU": {"count": 1, "portion": "0.5"}}, ""),
        ({"podNam": "p"}, 'unknown field "spec.podNam" (did you mean "podName"?)'),
        (
            {"selectedGPUGroups": "a"},
            "spec.selectedGPUGroups: Invalid value: 'a': expected a list",
        ),
    ],
)
def test_bind_requests(spec: Any, expected: str, tmp_path: Path) -> None:
    assert problem(tmp_path, "scheduling.run.ai/v1alpha2", "BindRequest", spec) == expected


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}


def with_node(tmp_path: Path, tree: Any, validate: str = "auto") -> Cluster:
    """A cluster of a node and an object. Raises InputError."""
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump_all([NODE, tree]))
    return read_cluster([file], validate=validate)


@pytest.mark.parametrize("mode", ["auto", "strict", "warn"])
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"minSubGroup": 3, "subGroups": [LEAF, {**LEAF, "name": "b"}]},
            "spec.minSubGroup: 3 is more than the number of child subGroups (2)",
        ),
        (
            {"subGroups": [{"name": "a", "minSubGroup": 2}, {**LEAF, "name": "b", "parent": "a"}]},
            "spec.subGroups[0].minSubGroup: 2 is more than the number of child subGroups (1)",
        ),
        ({"minSubGroup": 1, "subGroups": [LEAF]}, ""),
    ],
)
def test_a_minimum_above_the_number_of_children_is_noted(
    spec: Any, expected: str, mode: str, tmp_path: Path
) -> None:
    """KAI's webhook warns as well: the children may come later."""
    version = "scheduling.run.ai/v2alpha2"
    tree = {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": "x"}, "spec": spec}
    notes = [note for note in with_node(tmp_path, tree, mode).notes if "minSubGroup" in note]
    assert [expected in note for note in notes] == ([True] if expected else [])


def pod_of(notes: Any, scheduler: str = "kai-scheduler", cards: int = 0) -> Any:
    limits = {"resources": {"limits": {"nvidia.com/gpu": cards}}} if cards else {}
    container = {"name": "c", "image": "x", **limits}
    spec = {"schedulerName": scheduler, "containers": [container]}
    meta = {"name": "x", "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


PART = {"gpu-fraction": "0.5"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (pod_of({**PART, "gpu-fraction-num-devices": "2"}), ""),
        (pod_of({"gpu-memory": "2000", "mps": "true"}), ""),
        (pod_of({**PART, "gpu-fraction-num-devices": "0"}, "default-scheduler"), ""),
        (
            pod_of({**PART, "gpu-fraction-num-devices": "0"}),
            '[gpu-fraction-num-devices]: Invalid value: "0": must be a whole number of at least 1',
        ),
        (
            pod_of({**PART, "gpu-fraction-num-devices": "two"}),
            '[gpu-fraction-num-devices]: Invalid value: "two": '
            "must be a whole number of at least 1",
        ),
        (
            pod_of({"gpu-fraction-num-devices": "2"}),
            "[gpu-fraction-num-devices]: Forbidden: needs gpu-fraction or gpu-memory",
        ),
        (
            pod_of({"gpu-fraction": "1"}),
            '[gpu-fraction]: Invalid value: "1": must be more than 0 and less than 1',
        ),
        (
            pod_of({"gpu-memory": "4Gi"}),
            '[gpu-memory]: Invalid value: "4Gi": must be MiB, a whole number of at least 1',
        ),
        (
            pod_of({**PART, "gpu-memory": "4"}),
            "[gpu-memory]: Forbidden: may not be set with gpu-fraction",
        ),
        (
            pod_of(PART, cards=1),
            "[gpu-fraction]: Forbidden: may not be set with a limit of nvidia.com/gpu",
        ),
        (pod_of({"mps": "true"}), "[mps]: Forbidden: needs gpu-fraction or gpu-memory"),
    ],
)
def test_annotations_about_cards(pod: Any, expected: str, tmp_path: Path) -> None:
    template = {key: pod[key] for key in ("metadata", "spec")}
    spec = {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}
    for tree, path in ((pod, "metadata"), (job, "spec.template.metadata")):
        try:
            with_node(tmp_path, tree)
            text = ""
        except InputError as error:
            text = str(error).partition("default/x: ")[2]
        assert text == (f"{path}.annotations{expected}" if expected else "")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("two", "spec: Invalid value: 'two': expected a mapping"),
        (
            {"levels": [{"nodeLabel": "rack"}, "two"]},
            "spec.levels[1]: Invalid value: 'two': expected a mapping",
        ),
    ],
)
def test_what_is_missing_below_a_wrong_type_is_no_mistake_of_its_own(
    tmp_path: Path, spec: Any, expected: str
) -> None:
    assert problem(tmp_path, "kai.scheduler/v1alpha1", "Topology", spec) == expected


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (
            {"name": "Red_1"},
            'metadata.name: Invalid value: "Red_1": a lowercase RFC 1123 subdomain',
        ),
        ({"name": "q", "labels": {"a b": "c"}}, 'metadata.labels: Invalid value: "a b": name part'),
        ({"name": "q", "namespace": "anywhere"}, ""),
    ],
)
def test_names_and_labels_are_those_of_any_object(
    tmp_path: Path, meta: dict[str, Any], expected: str
) -> None:
    tree = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": meta, "spec": {}}
    file = tmp_path / "x.yaml"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    file.write_text(yaml.safe_dump_all([node, tree]))
    found = ""
    try:
        read_cluster([file])
    except InputError as error:
        found = str(error)
    assert found.count("\n") == 0
    assert (expected in found) if expected else found == ""
