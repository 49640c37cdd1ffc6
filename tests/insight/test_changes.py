"""Changes of particular clusters: which are found, what they cost, what is said of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stowplan.cycle.change import PodChanges
from stowplan.forecast.explain import explain_changes, framework_for, snapshot_for
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.insight.changes import dry_run, search
from stowplan.simulation.scheduler_configuration import read_deciders
from tests.cli.run import run
from tests.insight.json_patch import PatchError, applied, patched
from tests.insight.test_changes_property import TAINT, check

Tree = dict[str, Any]


DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}


def node(name: str, cpu: str = "4", **more: Any) -> Tree:
    offered = {"cpu": cpu, "memory": "8Gi", "pods": "10"} | more.pop("offers", {})
    labels = {"kubernetes.io/hostname": name} | more.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": more,
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(name: str, cpu: str = "1", node: str = "", **more: Any) -> Tree:
    meta: Tree = {"name": name, "labels": more.pop("labels", {"app": name})}
    if "owners" in more:
        meta["ownerReferences"] = more.pop("owners")
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container | more.pop("container", {})], **more}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def write(path: Path, *objects: Tree) -> Path:
    path = path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def changes(folder: Path, *objects: Tree, key: str = "default/w") -> PodChanges:
    return explain_changes(key, read_cluster(write(folder, *objects), validate="ignore"))


def texts(found: PodChanges) -> dict[str, tuple[int, str]]:
    return {change.kind: (change.cost, change.text) for change in found.changes}


def test_freeing_moves_pods_where_another_node_takes_them(tmp_path: Path) -> None:
    objects = [node("n1"), node("n2", "2"), pod("a", "2", "n1"), pod("b", "2", "n1")]
    found = changes(tmp_path, *objects, pod("w", "3"))
    free = next(change for change in found.changes if change.kind == "free")
    assert (free.cost, free.text) == (
        400,
        "free 3 cpu on node n1 by moving default/a to n2 and ending default/b",
    )
    moved, ended = free.objects
    assert (moved.name, moved.patch) == (
        "a",
        ({"op": "replace", "path": "/spec/nodeName", "value": "n2"},),
    )
    assert (ended.name, ended.delete, ended.patch) == ("b", True, ())


def test_the_pods_to_free_are_the_cheapest(tmp_path: Path) -> None:
    cheap = [pod(f"low{i}", "1", "n1", priority=-1) for i in range(2)]
    objects = [node("n1"), *cheap, pod("equal", "2", "n1")]
    cost, text = texts(changes(tmp_path, *objects, pod("w", "2")))["free"]
    # Two of lower priority cost as much as one of equal priority.
    assert cost == 200
    cost, text = texts(changes(tmp_path, *objects, pod("w", "3")))["free"]
    assert (cost, text.count("ending")) == (300, 2)


@pytest.mark.parametrize(
    "stays",
    [
        {"owners": [DAEMON_SET]},
        {"priority": 2_000_000_000},
    ],
)
def test_pods_that_are_never_freed(tmp_path: Path, stays: Tree) -> None:
    found = changes(tmp_path, node("n1"), pod("a", "4", "n1", **stays), pod("w", "3"))
    assert "free" not in texts(found)


def test_pods_in_the_way_of_a_host_port_and_of_anti_affinity(tmp_path: Path) -> None:
    port = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    objects = [node("n1"), pod("a", node="n1"), pod("b", node="n1", container=port)]
    cost, text = texts(changes(tmp_path, *objects, pod("w", container=port)))["free"]
    assert (cost, text) == (200, "free a host port on node n1 by ending default/b")
    term = {
        "labelSelector": {"matchLabels": {"app": "b"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    found = texts(changes(tmp_path, *objects, pod("w", affinity={"podAntiAffinity": required})))
    assert found["free"] == (200, "free node n1 by ending default/b")
    assert found["affinity"][0] == 20


def test_a_taint_of_a_condition_is_not_for_pods_to_tolerate(tmp_path: Path) -> None:
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    found = changes(tmp_path, node("n1", taints=[taint]), pod("w"))
    assert set(texts(found)) == {"add-node"}
    assert found.changes[0].objects[0].manifest is not None
    assert "taints" not in found.changes[0].objects[0].manifest["spec"]
    assert "what taint node.kubernetes.io/not-ready refuses, on 1 node" in found.not_searched


def test_well_known_labels_are_not_set(tmp_path: Path) -> None:
    zone = {"topology.kubernetes.io/zone": "a"}
    found = texts(changes(tmp_path, node("n1"), pod("w", nodeSelector=zone)))
    assert found == {"affinity": (20, "drop topology.kubernetes.io/zone=a of nodeSelector")}


def test_an_extended_resource_is_lowered_with_its_limit(tmp_path: Path) -> None:
    asks = {"requests": {"example.com/gpu": "4"}, "limits": {"example.com/gpu": "4"}}
    found = changes(
        tmp_path,
        node("n1", offers={"example.com/gpu": "2"}),
        pod("w", container={"resources": asks}),
    )
    (change,) = found.changes
    (operation,) = change.objects[0].patch
    assert operation["value"] == {
        "requests": {"example.com/gpu": "2"},
        "limits": {"example.com/gpu": "2"},
    }


def test_a_request_of_an_init_container_counts_where_it_is_the_peak(tmp_path: Path) -> None:
    init = [{"name": "i", "image": "x", "resources": {"requests": {"cpu": "6"}}}]
    found = changes(tmp_path, node("n1"), pod("w", initContainers=init))
    (change,) = found.changes
    assert change.text == "lower the cpu request of container i from 6 to 4"
    assert change.objects[0].patch[0]["path"] == "/spec/initContainers/0/resources/requests/cpu"


def test_two_together_only_where_no_single_change_helps(tmp_path: Path) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    both = node("n1", taints=[taint])
    found = changes(tmp_path, both, pod("w", "8"))
    assert texts(found) == {
        "combined": (
            60,
            "add a toleration for taint team:NoSchedule and "
            "lower the cpu request of container c from 8 to 4",
        )
    }
    assert len(found.changes[0].objects) == 1
    single = changes(tmp_path, both, node("n2"), pod("w", "8"))
    assert set(texts(single)) == {"request"}


def test_what_three_changes_would_do_is_not_searched(tmp_path: Path) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in "abc"]
    found = changes(tmp_path, node("n1", taints=taints), pod("w"))
    assert found.changes == ()
    assert found.not_searched == (search.PAIRS_LEFT_OUT, "three or more changes together")


def test_new_nodes_are_of_the_smallest_kind_that_does(tmp_path: Path) -> None:
    pools = [("n1", "4", "small"), ("n2", "16", "large"), ("n3", "32", "huge")]
    nodes = [node(name, cpu, labels={"stowplan.dev/pool": pool}) for name, cpu, pool in pools]
    running = [pod(f"r{i}", cpu, name) for i, (name, cpu, _) in enumerate(pools)]
    cost, text = texts(changes(tmp_path, *nodes, *running, pod("w", "8")))["add-node"]
    assert (cost, text) == (1000, "add one node of pool large")


def test_pods_that_need_no_change(tmp_path: Path) -> None:
    for one in (pod("w"), pod("w", "8", "n1"), pod("w", "8", schedulingGates=[{"name": "g"}])):
        assert changes(tmp_path, node("n1"), one) == PodChanges("default/w", ())


def test_the_columns_are_as_before(tmp_path: Path) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}
    objects = [node("n1"), node("n2", taints=[taint]), pod("a", "3", "n1"), pod("w", "3")]
    cluster = read_cluster(write(tmp_path, *objects), validate="ignore")
    found = next(one for one in cluster.pods if one.name == "w")
    snapshot = snapshot_for(found, cluster)
    table = snapshot.nodes
    before = (list(table.names), list(table.nodes), [list(pods) for pods in table.pods])
    amounts = [table.requested("cpu").tolist(), table.unschedulable.tolist(), table.order.tolist()]
    framework = framework_for(found, read_deciders(None, ()), None)
    assert len(search.find_changes(found, snapshot, framework).changes) > 3
    assert before == (list(table.names), list(table.nodes), [list(pods) for pods in table.pods])
    assert amounts == [
        table.requested("cpu").tolist(),
        table.unschedulable.tolist(),
        table.order.tolist(),
    ]


def test_a_pod_of_an_imported_job_has_no_patch(tmp_path: Path) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "8"}}
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "minAvailable": 1,
            "schedulerName": "default-scheduler",
            "tasks": [{"name": "t", "replicas": 1, "template": template}],
        },
    }
    cluster = read_cluster(write(tmp_path, node("n1"), job), validate="ignore")
    (made,) = cluster.pods
    assert cluster.origins == {made.key: None}
    found = explain_changes(made.key, cluster)
    assert found.changes == ()
    assert "changes of the pod: the object that it was made from" in found.not_searched


def test_a_pod_of_a_cron_job_is_changed_in_the_job_template(tmp_path: Path) -> None:
    spec = {**pod("x", "8")["spec"], "restartPolicy": "Never"}
    template = {"spec": {"template": {"metadata": {"labels": {"app": "w"}}, "spec": spec}}}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "w", "uid": "u"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template},
    }
    objects = [node("n1", taints=[TAINT]), node("n2", cpu="8", taints=[TAINT]), cron_job]
    ran = run("explain", "cj/w", str(write(tmp_path, *objects)), "--changes", "-o", "json")
    found = json.loads(ran.out)["changes"]
    named = {one["kind"]: one["objects"][0] for one in found}
    assert named["toleration"]["kind"] == "CronJob"
    paths = [operation["path"] for operation in named["toleration"]["patch"]]
    assert paths == ["/spec/jobTemplate/spec/template/spec/tolerations"]
    for one in found:
        changed = write(tmp_path, *applied(objects, one["objects"]))
        assert run("explain", "cj/w", str(changed)).code == 0, one["text"]


def test_a_cron_job_with_pods_is_not_run_again(tmp_path: Path) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "w-29000000", "controller": True}
    there = pod("w-29000000-x", "8", owners=[owner])
    template = {"spec": {"template": {"spec": {**there["spec"], "restartPolicy": "Never"}}}}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "w"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template},
    }
    path = write(tmp_path, node("n1"), cron_job, there)
    cluster = read_cluster(path, next_run="default/w")
    assert [one.name for one in cluster.pods] == ["w-29000000-x"]


def test_a_pod_of_a_read_replica_set_is_changed_there(tmp_path: Path) -> None:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": pod("x", "8")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "controller": True}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "w-1", "labels": {"app": "w"}, "ownerReferences": [owner]},
        "spec": spec,
    }
    objects = [node("n1"), {**deployment, "spec": spec}, replica_set]
    found = changes(tmp_path, *objects, key="default/w-0")
    assert [(one.kind, one.name) for one in found.changes[0].objects] == [("ReplicaSet", "w-1")]


# Wrong variants, which the property must catch.


def test_a_search_that_does_not_try_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the node selector the constraint counts the other node, too, and refuses the pod.
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "b"}},
    }
    objects = [
        node("n0", labels={"disk": "ssd"}, taints=[TAINT]),
        node("n1"),
        pod("b0", node="n1", priority=0, labels={"app": "b"}),
        pod("b1", node="n1", priority=0, labels={"app": "b"}),
        pod("w", nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[constraint]),
    ]
    check(objects, tmp_path)
    monkeypatch.setattr(dry_run.DryRun, "lets_run", lambda self, edits: True)
    with pytest.raises(AssertionError):
        check(objects, tmp_path)


def test_a_dearer_change_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = [node("n0", "4"), node("n1", "2"), pod("w", "8")]
    assert texts(check(objects, tmp_path))["request"][0] == 50
    ordered = search.Candidate
    monkeypatch.setattr(search, "Candidate", lambda cost, rank, *rest: ordered(-rank, 0, *rest))
    with pytest.raises(AssertionError, match="request"):
        check(objects, tmp_path)


# The command.


@pytest.fixture
def cluster_file(tmp_path: Path) -> str:
    return str(write(tmp_path, node("n1"), pod("a", "2", "n1"), pod("w", "3")))


def test_the_command_prints_changes(cluster_file: str) -> None:
    plain = run("explain", "w", cluster_file)
    assert plain.code == 1
    assert "Smallest changes that let it run" in plain.out
    assert "lower the cpu request of container c from 3 to 2" in plain.out
    assert "Smallest changes" not in run("explain", "w", cluster_file, "--no-changes").out
    only = run("explain", "w", cluster_file, "--changes", "-o", "json")
    tree = json.loads(only.out)
    assert (only.code, set(tree)) == (0, {"pod", "changes"})
    assert all(set(one) == {"kind", "cost", "text", "objects"} for one in tree["changes"])
    beside = json.loads(run("explain", "w", cluster_file, "-o", "json").out)
    assert beside["changes"] == tree["changes"]
    assert beside["apiVersion"] == "stowplan.dev/explanation/v1"
    placed = run("explain", "a", cluster_file, "--changes", "-o", "json")
    assert (placed.code, json.loads(placed.out)) == (1, {"pod": "default/a", "changes": []})


def test_all_pending_pods_by_cause(tmp_path: Path) -> None:
    selecting = [pod(f"s{i}", nodeSelector={"disk": "ssd"}) for i in range(2)]
    path = str(write(tmp_path, node("n1"), pod("big", "8"), *selecting))
    ran = run("explain", "--all-pending", path, "-o", "json")
    causes = json.loads(ran.out)["causes"]
    assert [(one["cause"], one["pods"]) for one in causes] == [
        ("node(s) didn't match Pod's node affinity/selector", ["default/s0", "default/s1"]),
        ("Insufficient cpu", ["default/big"]),
    ]
    assert [one["changes"][0]["kind"] for one in causes] == ["affinity", "request"]
    table = run("explain", "--all-pending", path, "--no-changes")
    assert (table.code, "Insufficient cpu" in table.out, "lower" in table.out) == (1, True, False)


def test_causes_as_the_scheduler_recorded_them(tmp_path: Path) -> None:
    def event(name: str, when: str, message: str) -> Tree:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name}.{when[:4]}"},
            "reason": "FailedScheduling",
            "involvedObject": {"kind": "Pod", "name": name},
            "lastTimestamp": when,
            "message": message,
        }

    objects = [
        node("n1"), pod("a", "8"), pod("b", "8"), pod("c", "8"),
        event("a", "2026-01-02T00:00:00Z", "0/9 nodes are available: 9 Insufficient cpu."),
        event("a", "2026-01-01T00:00:00Z", "0/9 nodes are available: 9 Too many pods."),
        event("b", "2026-01-01T00:00:00Z", "0/4 nodes are available: 4 Insufficient cpu."),
    ]  # fmt: skip
    ran = run("explain", "--from-events", str(write(tmp_path, *objects)), "-o", "json")
    causes = json.loads(ran.out)["causes"]
    assert [(one["cause"], one["count"]) for one in causes] == [
        ("Insufficient cpu", 2),
        ("nothing recorded", 1),
    ]


def test_options_that_do_not_go_together(cluster_file: str) -> None:
    for arguments, part in (
        (["-f", cluster_file], "POD is required"),
        (["w", cluster_file, "--changes", "--after-simulation"], "--after-simulation"),
    ):
        ran = run("explain", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert part in ran.err


def test_the_applier_of_the_tests() -> None:
    tree = {"a": [1, 2], "b~/": {"c": 1}}
    assert patched(tree, [{"op": "add", "path": "/a/-", "value": 3}])["a"] == [1, 2, 3]
    assert patched(tree, [{"op": "add", "path": "/a/0", "value": 0}])["a"] == [0, 1, 2]
    assert patched(tree, [{"op": "remove", "path": "/a/0"}])["a"] == [2]
    assert patched(tree, [{"op": "replace", "path": "/b~0~1/c", "value": 2}])["b~/"] == {"c": 2}
    with pytest.raises(PatchError):
        patched(tree, [{"op": "test", "path": "/a/0", "value": 2}])
    with pytest.raises((KeyError, IndexError)):
        patched(tree, [{"op": "replace", "path": "/x", "value": 1}])
