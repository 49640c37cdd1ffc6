"""Jobs that Kueue admits, in `simulate`, `queues` and `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.framework.problems import ConfigError
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.inputs.input_error import InputError
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.simulation.simulate import Simulation, simulate
from tests.cli.run import run

Tree = dict[str, Any]
QUEUE = "kueue.x-k8s.io/queue-name"


def node(name: str = "n1", pool: str = "a", **more: Any) -> Tree:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"pool": pool}},
        "spec": more,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def kueue(kind: str, name: str, version: str = "v1beta2", **spec: Any) -> Tree:
    meta = {"name": name, "namespace": "default"}
    head = {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": meta}
    return {**head, "spec": spec} if spec else head


def flavor(name: str = "f", pool: str = "a", **more: Any) -> Tree:
    return kueue("ResourceFlavor", name, nodeLabels={"pool": pool}, **more)


def queue(name: str, cpu: str, limit: str | None = None, **more: Any) -> list[Tree]:
    """A ClusterQueue and its LocalQueue of the same name."""
    quota = {"name": "cpu", "nominalQuota": cpu} | ({"borrowingLimit": limit} if limit else {})
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}
    own = {"namespaceSelector": {}, "resourceGroups": [group], **more}
    return [kueue("ClusterQueue", name, **own), kueue("LocalQueue", name, clusterQueue=name)]


def job(name: str, in_queue: str, pods: int, cpu: str = "1", minute: int = 0, **more: Any) -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"restartPolicy": "Never", "containers": [container], **more.pop("spec", {})}
    labels = {QUEUE: in_queue, **more.pop("labels", {})}
    created = f"2026-01-01T12:{minute:02}:00Z"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name, "namespace": "default", "labels": labels, "creationTimestamp": created,
        },
        "spec": {
            "suspend": True, "parallelism": pods, "completions": pods, "template": {"spec": spec},
            **more,
        },
    }  # fmt: skip


def written(directory: Path, *objects: Tree | list[Tree]) -> Path:
    every = [one for held in objects for one in (held if isinstance(held, list) else [held])]
    file = directory / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(every))
    return file


def simulated(directory: Path, *objects: Tree | list[Tree], config: str = "") -> Simulation:
    file = directory / "kueue.yaml"
    file.write_text(config or "scheduler: kueue\n")
    return simulate(written(directory, *objects), config=file)


def placed(result: Simulation) -> set[str]:
    return {one.pod.removeprefix("default/") for one in result.placements if one.node}


def workload_of(result: Simulation, name: str) -> Tree:
    return next(one for one in result.summary["workloads"] if one["job"] == name)


@pytest.mark.parametrize(("limit", "runs"), [(None, {"a-0", "a-1"}), ("1", set())])
def test_a_queue_borrows_as_far_as_its_limit(
    tmp_path: Path, limit: str | None, runs: set[str]
) -> None:
    queues = queue("one", "2", limit, cohortName="all"), queue("two", "4", cohortName="all")
    result = simulated(tmp_path, node(), flavor(), *queues, job("a", "one", 2, "2"))
    assert placed(result) == runs
    found = workload_of(result, "job/a")
    if limit:
        assert found["reason"] == "ExceedsMaxQuota"
        assert "current podset request (4) > maximum capacity (3)" in found["message"]


def test_a_job_waits_while_another_queue_borrows(tmp_path: Path) -> None:
    queues = queue("one", "2", cohortName="all"), queue("two", "2", cohortName="all")
    taken = job("a", "one", 3, minute=0), job("a-own", "one", 1, minute=1)
    result = simulated(tmp_path, node(), flavor(), *queues, *taken, job("b", "two", 2, minute=2))
    # Heads are ordered by what they borrow: b takes its own quota before a borrows.
    assert placed(result) == {"b-0", "b-1", "a-own-0"}
    found = workload_of(result, "job/a")
    assert (found["status"], found["reason"]) == ("Pending", "WaitingForQuota")
    assert found["message"].startswith(
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for cpu in flavor f, 2 more needed"
    )
    failed = next(one for one in result.placements if one.pod == "default/a-0")
    assert failed.reason == "Kueue: WaitingForQuota"
    assert result.summary["pods"] == 6
    assert any(note.startswith("Kueue: 2 of 3 workloads") for note in result.summary["notes"])
    assert not any("count as admitted" in note for note in result.summary["notes"])


def admitted_workload(of: str, in_queue: str, pods: int, priority: int) -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    made = kueue(
        "Workload",
        f"job-{of}",
        queueName=in_queue,
        priority=priority,
        podSets=[{"name": "main", "count": pods, "template": template}],
    )
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": of, "uid": "u", "controller": True}
    ]
    since = "2026-01-01T11:00:00Z"
    assigned = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(pods)}}
    made["status"] = {
        "admission": {
            "clusterQueue": in_queue, "podSetAssignments": [{**assigned, "count": pods}],
        },
        "conditions": [
            {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": since}
            for kind in ("QuotaReserved", "Admitted")
        ],
    }  # fmt: skip
    return made


@pytest.mark.parametrize("policy", ["LowerPriority", "Never"])
def test_a_job_preempts_an_admitted_one_of_lower_priority(tmp_path: Path, policy: str) -> None:
    high = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 9}
    high["metadata"] = {"name": "high"}
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    result = simulated(
        tmp_path,
        node(),
        flavor(),
        queue("one", "2", preemption={"withinClusterQueue": policy}),
        high,
        job("low", "one", 2),
        admitted_workload("low", "one", 2, 0),
        job("urgent", "one", 2, minute=5, labels=labels),
    )
    if policy == "Never":
        assert placed(result) == {"low-0", "low-1"}
        return
    assert placed(result) == {"urgent-0", "urgent-1"}
    assert workload_of(result, "job/low")["preempted_by"] == "default/job-urgent"


def test_a_job_that_fits_no_flavor(tmp_path: Path) -> None:
    tainted = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    result = simulated(
        tmp_path, node(), flavor(nodeTaints=[tainted]), queue("one", "9"), job("a", "one", 1)
    )
    found = workload_of(result, "job/a")
    assert not placed(result)
    assert found["reason"] == "NoMatchingFlavor"
    assert "untolerated taint {gpu yes NoSchedule <nil>} in flavor f" in found["message"]


def test_the_pods_of_admitted_jobs_go_to_the_nodes_of_their_flavor(tmp_path: Path) -> None:
    tainted = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    tolerated = {"key": "spot", "operator": "Exists"}
    result = simulated(
        tmp_path,
        node("other", "b"),
        node("mine", "a", taints=[tainted]),
        flavor(nodeTaints=[tainted], tolerations=[tolerated]),
        queue("one", "9"),
        job("a", "one", 3),
    )
    assert {one.node for one in result.placements} == {"mine"}


@pytest.mark.parametrize(
    ("left_out", "reason", "problem"),
    [
        (
            "ResourceFlavor", "Suspended",
            "ClusterQueue one is inactive: ResourceFlavor f not found",
        ),
        ("ClusterQueue", "Misconfigured", "ClusterQueue one doesn't exist"),
        ("LocalQueue", "Misconfigured", "LocalQueue one doesn't exist"),
    ],
)  # fmt: skip
def test_an_object_that_is_missing(
    tmp_path: Path, left_out: str, reason: str, problem: str
) -> None:
    objects = [node(), flavor(), *queue("one", "9"), job("a", "one", 1)]
    result = simulated(tmp_path, *[one for one in objects if one["kind"] != left_out])
    found = workload_of(result, "job/a")
    assert not placed(result)
    assert (found["reason"], found["message"]) == (reason, problem)


@pytest.mark.parametrize(("strategy", "runs"), [("StrictFIFO", set()), ("BestEffortFIFO", {"b-0"})])
def test_whether_a_later_job_passes_the_first_one(
    tmp_path: Path, strategy: str, runs: set[str]
) -> None:
    # The first one needs what an admitted job holds.
    objects = [job("held", "one", 2), admitted_workload("held", "one", 2, 0)]
    jobs = [job("a", "one", 3, minute=1), job("b", "one", 1, minute=2)]
    own = queue("one", "4", queueingStrategy=strategy)
    result = simulated(tmp_path, node(), flavor(), own, *objects, *jobs)
    assert placed(result) == runs | {"held-0", "held-1"}
    assert workload_of(result, "job/a")["status"] == "Pending"


def test_the_shapes_of_v1beta1_mean_the_same(tmp_path: Path) -> None:
    objects = [node(), flavor(), *queue("one", "1"), *queue("two", "1"), job("a", "one", 2)]
    for one in objects:
        if one["kind"] == "ClusterQueue":
            one["apiVersion"] = "kueue.x-k8s.io/v1beta1"
            one["spec"]["cohort"] = "all"
            one["spec"]["flavorFungibility"] = {"whenCanBorrow": "Borrow"}
    assert placed(simulated(tmp_path, *objects)) == {"a-0", "a-1"}


def test_a_pod_with_a_queue_and_jobs_without_one(tmp_path: Path) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    pods: list[Tree] = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [container]},
        }
        for name, labels in (("first", {QUEUE: "one"}), ("next", {QUEUE: "one"}), ("free", {}))
    ]
    result = simulated(tmp_path, node(), flavor(), queue("one", "1"), pods)
    assert placed(result) == {"first", "free"}


def test_pods_of_a_namespace_that_the_queue_does_not_take(tmp_path: Path) -> None:
    own = queue("one", "9", namespaceSelector={"matchLabels": {"team": "x"}})
    assert not placed(simulated(tmp_path, node(), flavor(), own, job("a", "one", 1)))
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    namespace["metadata"] = {"name": "default", "labels": {"team": "x"}}  # type: ignore[assignment]
    assert placed(simulated(tmp_path, node(), flavor(), own, namespace, job("a", "one", 1)))


def test_queues_and_explain(tmp_path: Path) -> None:
    queues = queue("one", "2", cohortName="all"), queue("two", "2", cohortName="all")
    jobs = job("a", "one", 3), admitted_workload("a", "one", 3, 0), job("b", "two", 2, minute=1)
    file = str(written(tmp_path, node(), flavor(), *queues, *jobs))
    config = tmp_path / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    chosen = ("-f", file, "--config", str(config))
    root, one, two = json.loads(run("queues", *chosen, "-o", "json").out)["queues"]
    assert (root["kind"], root["name"], root["depth"]) == ("Cohort", "all", 0)
    amounts = ("nominal", "used", "borrowed", "used_by_others", "available")
    assert [one["quotas"][0][name] for name in amounts] == ["2", "3", "1", "0", "1"]
    assert [two["quotas"][0][name] for name in amounts] == ["2", "0", "0", "1", "1"]
    # A thousandth of what can be lent: 1 of 4 is borrowed.
    assert (one["share"], two["share"]) == (250.0, 0.0)
    assert (one["admitted"], two["pending"]) == (1, 1)
    table = run("queues", *chosen).out
    assert "cohort/all" in table
    assert "  two" in table
    result = run("explain", "job/b", *chosen)
    assert result.code == 1
    assert "available 1 in cohort all, at most 4; borrowed by one 1" in result.out
    assert run("explain", "job/a", *chosen).code == 0
    missing = run("explain", "job/c", *chosen)
    assert (missing.code, "job/a, job/b" in missing.err) == (2, True)


def test_where_kueue_does_not_decide_yet(tmp_path: Path) -> None:
    config = tmp_path / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    with pytest.raises(ConfigError, match="nothing is admitted elsewhere"):
        read_deciders(config)
    with pytest.raises(InputError, match="no objects of Kueue"):
        simulate(written(tmp_path, node()), config=config)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fairShare: {}", "fairSharing"),
        ("featureGates: {PartialAdmision: true}", "PartialAdmission"),
        ("featureGates: {PartialAdmission: 1}", "true or false"),
        ("fairSharing: {preemptionStrategies: [No]}", "LessThanInitialShare"),
    ],
)
def test_a_configuration_with_a_mistake(tmp_path: Path, text: str, problem: str) -> None:
    config = tmp_path / "kueue.yaml"
    config.write_text(f"scheduler: kueue\n{text}\n")
    with pytest.raises(ConfigError, match=problem):
        read_deciders(config, admits=True)


def test_an_object_with_a_mistake(tmp_path: Path) -> None:
    broken = queue("one", "2")
    broken[0]["spec"]["resourceGroups"] = 3
    with pytest.raises(InputError, match="ClusterQueue"):
        simulated(tmp_path, node(), flavor(), broken, job("a", "one", 1))
    with pytest.raises(InputError, match="abc"):
        simulated(tmp_path, node(), flavor(), queue("one", "abc"), job("a", "one", 1))
    file = written(tmp_path, node(), flavor(), queue("one", "2"), job("a", "one", 1))
    assert len(read_cluster(file).queued) == 1


def test_jobs_are_ordered_by_creation_whatever_the_order_of_the_files(tmp_path: Path) -> None:
    jobs = job("late", "one", 3, minute=5), job("early", "one", 3, minute=1)
    result = simulated(tmp_path, node(), flavor(), queue("one", "4"), *jobs)
    assert placed(result) == {"early-0", "early-1", "early-2"}


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        (None, ""),
        ([{"type": "MemoryPressure", "status": "False"}], ""),
        ([{"type": "Ready", "status": "False"}], "TopologyPlacementFailed"),
        ([{"type": "Ready", "status": "Unknown"}], "TopologyPlacementFailed"),
    ],
)
def test_nodes_of_files_without_a_ready_condition_are_ready(
    tmp_path: Path, conditions: list[Tree] | None, reason: str
) -> None:
    host = node()
    host["metadata"]["labels"]["rack"] = "r1"
    if conditions is not None:
        host["status"]["conditions"] = conditions
    racks = kueue("Topology", "racks", levels=[{"nodeLabel": "rack"}])
    placed = job("a", "one", 2)
    notes = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    placed["spec"]["template"]["metadata"] = {"annotations": notes}
    objects = host, racks, flavor(topologyName="racks"), *queue("one", "4"), placed
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    found = run(
        "explain", "job/a", "-f", str(written(tmp_path, *objects)),
        "--config", str(tmp_path / "kueue.yaml"), "-o", "json",
    )  # fmt: skip
    assert json.loads(found.out)["reason"] == reason, found.err


def test_explain_of_a_job_that_has_finished(tmp_path: Path) -> None:
    ended, failed, runs = job("a", "one", 3), job("b", "one", 2), job("c", "one", 1)
    ended["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    over = {"type": "Finished", "status": "True", "reason": "Failed", "message": "deadline"}
    failed["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    runs["status"] = {"conditions": [{"type": "Failed", "status": "False"}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": "u", "controller": True}
    workload = kueue("Workload", "job-b", queueName="one", podSets=[])
    workload["metadata"]["ownerReferences"] = [owner]
    workload["status"] = {"conditions": [over]}
    objects = node(), flavor(), *queue("one", "4"), ended, failed, runs, workload
    file = written(tmp_path, *objects)
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")

    def explained(name: str) -> tuple[str, int]:
        found = run("explain", name, "-f", str(file), "--config", str(tmp_path / "kueue.yaml"))
        return found.out or found.err, found.code

    text, code = explained("job/a")
    assert text.startswith("job/a in default: Finished\nQueue: one, ")
    assert "Pods: 3\nReason: Complete" in text
    assert code == 0
    for name in ("job/b", "b", "workload/job-b"):
        text, code = explained(name)
        assert text.startswith("job/b in default: Finished\n")
        assert "Reason: Failed: deadline" in text
        assert code == 0
    assert explained("job/c")[0].startswith("job/c in default: Admitted\n")
    assert "not found among the workloads" in explained("job/d")[0]
