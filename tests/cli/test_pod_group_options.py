"""--feature-gates and --compat: what they change in the commands that have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import run

GANG = ("--feature-gates", "GenericWorkload=true,GangScheduling=true")
NODES = "\n---\n".join(
    f"apiVersion: v1\nkind: Node\nmetadata: {{name: n{i}}}\n"
    'status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}'
    for i in (1, 2)
)
GROUP = """
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: train}
spec: {schedulingPolicy: {gang: {minCount: 3}}}
---
apiVersion: scheduling.k8s.io/v1alpha2
kind: Workload
metadata: {name: w}
spec: {podGroupTemplates: [{name: t, schedulingPolicy: {gang: {minCount: 3}}}]}
"""
PENDING = "waiting for minCount pods from a gang to appear in scheduling queue"


def pod(name: str, cpu: int, group: str = "train") -> str:
    named = f"schedulingGroup: {{podGroupName: {group}}}, " if group else ""
    container = f'{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}'
    return (
        f"\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n"
        f"spec: {{{named}containers: [{container}]}}"
    )


def cluster(tmp_path: Path, *pods: str) -> str:
    file = tmp_path / "gang.yaml"
    file.write_text(NODES + GROUP + "".join(pods))
    return str(file)


def placed(*arguments: str) -> set[str]:
    ran = run("simulate", *arguments, "-o", "json")
    return {one["pod"] for one in json.loads(ran.out)["placements"] if one["node"]}


ALL = {"default/a", "default/b", "default/c"}


@pytest.mark.parametrize(
    ("cpu", "gates", "wanted"),
    [(2, GANG, ALL), (3, GANG, set()), (3, (), {"default/a", "default/b"})],
)
@pytest.mark.parametrize("replay", [(), ("--replay",)])
def test_a_gang_is_placed_whole_or_not_at_all(
    tmp_path: Path, cpu: int, gates: tuple[str, ...], wanted: set[str], replay: tuple[str, ...]
) -> None:
    file = cluster(tmp_path, pod("a", 2), pod("b", 2), pod("c", cpu))
    assert placed("-f", file, *gates, *replay) == wanted


def test_pods_of_groups_and_others_keep_their_places(tmp_path: Path) -> None:
    file = cluster(
        tmp_path, pod("a", 1), pod("x", 4, ""), pod("b", 1), pod("y", 4, ""), pod("c", 1)
    )
    ran = run("simulate", "-f", file, *GANG, "-o", "json")
    nodes = {one["pod"]: bool(one["node"]) for one in json.loads(ran.out)["placements"]}
    # The group is tried when its last pod has arrived.
    assert list(nodes.values()) == [False, True, False, True, False]


def test_the_reason_of_a_gang_that_is_not_complete(tmp_path: Path) -> None:
    ran = run("simulate", "-f", cluster(tmp_path, pod("a", 1)), *GANG, "-o", "wide")
    assert PENDING in ran.out


def test_the_note_for_groups_with_the_gates_off(tmp_path: Path) -> None:
    ran = run("simulate", "-f", cluster(tmp_path, pod("a", 1), pod("b", 1)))
    wanted = "2 pods are in PodGroups of scheduling.k8s.io and were tried alone"
    assert wanted in ran.out + ran.err


def test_an_unknown_gate_and_a_missing_one() -> None:
    for gate, text in (
        ("GenericWorklod=true", "unrecognized feature gate: GenericWorklod (did you mean"),
        ("GangScheduling=true", "depends on features that are disabled: [GenericWorkload]"),
    ):
        for command in ("simulate", "run", "up", "explain"):
            ran = run(command, "--feature-gates", gate)
            assert ran.code == 2
            assert f'error: invalid argument "{gate}" for "--feature-gates" flag: ' in ran.err
            assert text in ran.err


def test_a_compat_that_is_unknown(tmp_path: Path) -> None:
    ran = run("simulate", "-f", cluster(tmp_path, pod("a", 1)), "--compat", "kube-scheduler")
    assert "must be one of: kube-batch-0.5, kube-scheduler-1.36" in ran.err


def test_gates_of_cases_that_set_none(tmp_path: Path) -> None:
    member = {"metadata": {"name": "p"}, "spec": {"schedulingGroup": {"podGroupName": "g"}}}
    case = {"id": "one", "steps": [{"op": "addPod", "object": member}]}
    file = tmp_path / "cases.jsonl"
    file.write_text(json.dumps(case))

    def is_gated(*arguments: str) -> bool:
        answer = json.loads(run("evaluate", "--as", "podgroups", *arguments, str(file)).out)
        found = answer["result"]["steps"][0]["queue"]["default/p"]["in"]
        return bool(found == "gated")

    assert is_gated(*GANG)
    assert not is_gated()
    ran = run("evaluate", "--as", "queue", *GANG, str(file))
    assert "--feature-gates: not allowed with --as queue" in ran.err


def test_a_group_is_explained_member_by_member(tmp_path: Path) -> None:
    file = cluster(tmp_path, pod("a", 2), pod("b", 2), pod("c", 3))
    ran = run("explain", "podgroup/train", "-f", file, *GANG)
    assert ran.code == 1
    assert ran.out.startswith("podgroup default/train (default-scheduler, by profiles): pending\n")
    assert "gang, minCount 3; 3 pods, 0 running" in ran.out
    (line,) = (line for line in ran.out.splitlines() if line.startswith("default/c"))
    assert "2 Insufficient cpu" in line
    file = cluster(tmp_path, pod("a", 2), pod("b", 2), pod("c", 2))
    found = json.loads(run("explain", "pg/train", "-f", file, *GANG, "-o", "json").out)
    assert found["state"] == "scheduled"
    assert [one["state"] for one in found["members"]] == ["scheduled"] * 3
    ran = run("explain", "pg/train", "-f", file)
    assert "not scheduled as a group: the feature gate GenericWorkload is off" in ran.err


def test_a_member_is_explained_with_what_its_group_does(tmp_path: Path) -> None:
    file = cluster(tmp_path, pod("a", 2), pod("b", 2), pod("c", 3))
    ran = run("explain", "pod/a", "-f", file, *GANG)
    assert "profile default-scheduler schedules the pod with PodGroup default/train" in ran.out
    assert "`stowplan simulate` does not schedule it" in ran.out
    ran = run("explain", "pod/a", "-f", file, *GANG, "--after-simulation")
    assert "pod group is unschedulable, waiting for minCount pods" in ran.out
    ran = run("explain", "--all-pending", "-f", file, *GANG)
    assert "a node fits; not scheduled yet" in ran.out


def test_what_if_places_groups_whole(tmp_path: Path) -> None:
    file = cluster(tmp_path, pod("a", 2), pod("b", 2), pod("c", 2))
    ran = run("what-if", "-f", file, *GANG, "--cordon", "n1", "-o", "json")
    summary = json.loads(ran.out)["summary"]
    assert (summary["pending_before"], summary["pending"]) == (0, 3)


BOTH = """
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: Queue
metadata: {name: default}
spec: {weight: 1}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: old}
spec: {minMember: 2}
"""
SESSIONS = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]\n'
PROFILES = (
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    "profiles: [{schedulerName: default-scheduler}]\n"
)


def test_profiles_and_sessions_each_schedule_their_gangs(tmp_path: Path) -> None:
    of_session = [
        pod(name, 1, "")
        .replace(
            f"name: {name}", f"name: {name}, annotations: {{scheduling.k8s.io/group-name: old}}"
        )
        .replace("spec: {", "spec: {schedulerName: kube-batch, ")
        for name in ("x", "y")
    ]
    members = [pod(name, 1) for name in "abc"]
    file = cluster(tmp_path, BOTH, *of_session, *members)
    options = [*GANG]
    for name, text in (("sessions", SESSIONS), ("profiles", PROFILES)):
        (tmp_path / f"{name}.yaml").write_text(text)
        options += ["--config", str(tmp_path / f"{name}.yaml")]
    assert placed("-f", file, *options, "--replay") == {*ALL, "default/x", "default/y"}
    once = run("simulate", "-f", file, *options)
    assert "3 pending pods have another schedulerName" in once.out
    assert "simulate --replay and what-if --for schedule those of profiles, too" in once.out
    for what, wanted in (
        ("pod/x", "default/x (kube-batch, by sessions)"),
        ("podgroup/old", "(kube-batch, by sessions)"),
        ("podgroup/train", "(default-scheduler, by profiles)"),
        ("pod/a", "profile default-scheduler schedules the pod with PodGroup default/train"),
    ):
        assert wanted in run("explain", what, "-f", file, *options).out
    # Without a profile nobody decides these pods, and sessions do not either.
    alone = run("explain", "pod/a", "-f", file, *GANG, *options[2:4])
    assert "ignored by sessions; another scheduler decides it" in alone.out
    assert "sessions schedule it" not in alone.out
