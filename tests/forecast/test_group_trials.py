"""Preemption by and of PodGroups of Kubernetes in preempt-preview and what-if."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stowplan
from stowplan.assembly.deciders import deciders_of
from stowplan.forecast.what_if.preempt_preview import preview
from stowplan.forecast.what_if.questions import question_of
from stowplan.framework.feature_gates import FeatureGates
from stowplan.insight.what_if.result import PreemptionPreview
from stowplan.simulation.replay import ReplayOptions
from tests.cli.run import run

GANGS = FeatureGates(generic_workload=True, gang_scheduling=True)
WHOLE = FeatureGates(generic_workload=True, gang_scheduling=True, workload_aware_preemption=True)
NAMES = ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption")
FLAGS = ("--feature-gates", ",".join(f"{name}=true" for name in NAMES))
Tree = dict[str, Any]


def node(name: str) -> Tree:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "status": {"allocatable": amounts},
    }


def group(name: str, n_pods: int, priority: int, **spec: Any) -> Tree:
    policy = {"gang": {"minCount": n_pods}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy, "priority": priority, **spec},
    }


def pod(name: str, cpu: int, group: str = "", on: str = "", priority: int = 0, **meta: Any) -> Tree:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    spec: Tree = {"containers": [container], "priority": priority}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def owned() -> Tree:
    """What the metadata of a pod has that its owner creates again."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "old", "uid": "u", "controller": True}
    return {"ownerReferences": [owner]}


def cluster(mode: str = "PodGroup", **meta: Any) -> list[Tree]:
    """Three nodes with a group of two and a pod alone; a gang of two waits."""
    return [
        *(node(f"n{number}") for number in (1, 2, 3)),
        group("train", 2, 100),
        group("old", 2, 10, disruptionMode=mode),
        pod("o1", 3, "old", "n1", **meta),
        pod("o2", 3, "old", "n2", **meta),
        pod("lone", 2, "", "n3", 50),
        pod("a", 2, "train", priority=100),
        pod("b", 2, "train", priority=100),
    ]


def file_of(folder: Path, objects: list[Tree]) -> str:
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


def asked(
    folder: Path, objects: list[Tree], gates: FeatureGates = WHOLE, pod: str = ""
) -> PreemptionPreview:
    deciders = deciders_of((), (), (), gates)
    question = question_of(file_of(folder, objects), config=deciders)
    return preview(question, pod, group="" if pod else "default/train")


def victims(found: PreemptionPreview) -> list[str]:
    return sorted(one.pod.partition("/")[2] for step in found.steps for one in step.victims)


@pytest.mark.parametrize(("mode", "wanted"), [("PodGroup", ["o1", "o2"]), ("Pod", ["o2"])])
def test_a_group_that_is_preempted_whole_goes_whole(
    tmp_path: Path, mode: str, wanted: list[str]
) -> None:
    # One of the two would do: the other member fits beside the pod alone.
    found = asked(tmp_path, cluster(mode))
    assert victims(found) == wanted
    assert {one.preemptor for one in found.steps} == {"podgroup default/train"}
    assert all(one.node for one in found.pods)


def test_a_member_stands_for_its_group(tmp_path: Path) -> None:
    found = asked(tmp_path, cluster(), pod="default/a")
    assert [one.pod for one in found.pods] == ["default/a"]
    assert victims(found) == ["o1", "o2"]


def test_members_preempt_by_themselves_without_the_gate(tmp_path: Path) -> None:
    found = asked(tmp_path, cluster(), GANGS)
    assert len(victims(found)) == 1
    assert all(one.node for one in found.pods)


def test_a_group_that_is_created_again_is_tried_as_a_group(tmp_path: Path) -> None:
    objects = cluster()
    changed = {"o1": 2, "o2": 3, "a": 3, "b": 3}
    for place, one in enumerate(objects):
        name = one["metadata"]["name"]
        if name in changed:
            spec = one["spec"]
            of, on = spec["schedulingGroup"]["podGroupName"], spec.get("nodeName", "")
            meta = owned() if of == "old" else {}
            objects[place] = pod(name, changed[name], of, on, spec["priority"], **meta)
    found = asked(tmp_path, objects)
    # One of them fits beside the pod alone, and does not get the place without its mate.
    assert sorted(one.pod for one in found.pending) == ["default/o1", "default/o2"]
    messages = {one.pod: one.message for one in found.pending}
    assert messages["default/o1"].startswith("pod group is unschedulable")
    assert "Insufficient cpu" in messages["default/o2"]


def test_no_pod_goes_for_a_group_that_does_not_fit_even_then(tmp_path: Path) -> None:
    objects = [*cluster(), pod("c", 5, "train", priority=100)]
    objects[3] = group("train", 3, 100)
    found = asked(tmp_path, objects)
    assert not victims(found)
    assert not any(one.node for one in found.pods)


def test_the_victims_are_those_of_a_replay(tmp_path: Path) -> None:
    found = asked(tmp_path, cluster())
    replayed = stowplan.simulate(
        file_of(tmp_path, cluster()),
        feature_gates=WHOLE,
        replay=ReplayOptions(until_s=600),
    )
    n_victims = len(victims(found))
    assert replayed.summary["preemption"] == {
        "victims": n_victims,
        "preemptors": 1,
        "causes": {"preemption": n_victims},
    }
    placed = {one.pod for one in replayed.placements if one.node}
    assert placed == {one.pod for one in found.pods if one.node}


def test_what_if_shows_whom_a_group_evicts(tmp_path: Path) -> None:
    objects = [one for one in cluster() if one["metadata"]["name"] not in ("a", "b")]
    new = tmp_path / "new.json"
    items = [pod("a", 2, "train", priority=100), pod("b", 2, "train", priority=100)]
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ran = run(
        "what-if", "-f", file_of(tmp_path, objects), "--submit", str(new), *FLAGS, "-o", "json"
    )
    found = json.loads(ran.out)
    effects = {one["pod"]: one["effect"] for one in found["pods"]}
    assert effects == {
        "default/a": "placed",
        "default/b": "placed",
        "default/o1": "evicted",
        "default/o2": "evicted",
    }
    assert not any("PodGroups" in note for note in found["notes"])


@pytest.mark.parametrize("has_controllers", [False, True])
def test_what_if_over_time_names_the_group_that_evicts(
    tmp_path: Path, *, has_controllers: bool
) -> None:
    objects = [one for one in cluster() if one["metadata"]["name"] not in ("a", "b")]
    templates = [{"name": "t", "schedulingPolicy": {"basic": {}}}]
    workload = group("w", 1, 0) | {"kind": "Workload", "spec": {"podGroupTemplates": templates}}
    objects.append(workload)
    if has_controllers:
        template = pod("j", 1)["spec"] | {"restartPolicy": "Never"}
        objects.append(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {"template": {"spec": template}},
            }
        )
    new = tmp_path / "new.json"
    items = [pod("a", 2, "train", priority=100), pod("b", 2, "train", priority=100)]
    new.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    file = file_of(tmp_path, objects)
    ran = run("what-if", "-f", file, "--submit", str(new), "--for", "10m", *FLAGS, "-o", "json")
    found = json.loads(ran.out)
    by = {one["pod"]: one.get("by") for one in found["pods"]}
    assert by["default/o1"] == by["default/o2"] == "podgroup default/train"


def test_the_command_names_a_group(tmp_path: Path) -> None:
    file = file_of(tmp_path, cluster())
    ran = run("preempt-preview", "podgroup/train", "-f", file, *FLAGS)
    assert ran.code == 0
    assert "podgroup default/train" in ran.out
    ran = run("preempt-preview", "pg/old", "-f", file, *FLAGS)
    assert "podgroup default/old: no pending pods" in ran.err
    ran = run("preempt-preview", "pg/train", "-f", file)
    assert "not scheduled as a group: the feature gate GenericWorkload is off" in ran.err
