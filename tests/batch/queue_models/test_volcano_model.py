"""The queue model of Volcano where the scheduler runs sessions: by `simulate`, on API objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.forecast.explain_job import explain_pod_group
from stowplan.forecast.queue_shares import shares_of
from stowplan.framework import ConfigError
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.simulation.session_runner import SessionRunner
from stowplan.simulation.simulate_jobs import JobSimulation, simulate_jobs

Tree = dict[str, Any]

SCHEDULING = "scheduling.volcano.sh/v1beta1"
CAPACITY = """
actions: "enqueue, allocate, backfill, preempt, reclaim"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: capacity
  - name: nodeorder
"""
WITHOUT_OVERCOMMIT = CAPACITY.replace("  - name: overcommit\n", "")


def node(name: str, cpu: int = 8) -> Tree:
    offer = {"cpu": str(cpu), "memory": "32Gi", "pods": "110"}
    status = {"allocatable": offer, "capacity": offer}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def queue(name: str, **spec: Any) -> Tree:
    spec = {"weight": 1, **spec}
    return {"apiVersion": SCHEDULING, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, least: int, queue: str, cpu: int) -> Tree:
    spec = {"minMember": least, "queue": queue, "minResources": {"cpu": str(cpu)}}
    return {"apiVersion": SCHEDULING, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pod(name: str, of: str = "", cpu: int = 1, node: str = "", **meta: Any) -> Tree:
    annotations = {"scheduling.k8s.io/group-name": of} if of else {}
    meta = {"name": name, "annotations": annotations | meta.pop("annotations", {}), **meta}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {"schedulerName": "volcano", "containers": [container]}
    tree: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    if node:
        spec["nodeName"] = node
        tree["status"] = {"phase": "Running"}
    return tree


def deciders(text: str = CAPACITY, compat: str = "") -> Deciders:
    return deciders_of([ConfigText(text, "volcano-scheduler.conf")], compat=compat)


def simulated(tmp_path: Path, *objects: Tree, **how: Any) -> JobSimulation:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return simulate_jobs(path, config=how.pop("config", None) or deciders(**how))


def reasons(run: JobSimulation) -> dict[str, str]:
    return {job.name: job.message for job in run.jobs if job.message}


def test_enqueue_keeps_a_job_out_that_its_queue_has_no_capability_for(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a"),
        node("b"),
        queue("research", capability={"cpu": "8"}),
        group("first", 3, "research", 6),
        group("second", 2, "research", 4),
        *(pod(f"first-{i}", "first", 2) for i in range(3)),
        *(pod(f"second-{i}", "second", 2) for i in range(2)),
    )
    assert reasons(run) == {
        "default/second": "not inqueue: queue research's capability cpu 8, 6 in use, 4 asked"
    }
    phases = {job.name: (job.phase, job.ready) for job in run.jobs}
    assert phases == {"default/first": ("Running", 3), "default/second": ("Pending", 0)}


def test_a_pod_without_a_group_has_one_for_its_controller(tmp_path: Path) -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}]
    run = simulated(
        tmp_path,
        node("a", 3),
        *(pod(f"web-{i}", ownerReferences=owner) for i in range(2)),
        pod("alone", annotations={"scheduling.volcano.sh/queue-name": "nowhere"}),
    )
    found = {job.name: (job.kind, job.queue, job.ready, job.reason) for job in run.jobs}
    assert found == {
        "default/ReplicaSet/web": ("Pods", "default", 2, ""),
        "default/alone": ("Pods", "nowhere", 0, "QueueNotFound"),
    }


def test_a_queue_takes_back_what_it_deserves(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("rich", deserved={"cpu": "2"}, reclaimable=True),
        queue("poor", deserved={"cpu": "2"}),
        group("old", 1, "rich", 1),
        group("new", 2, "poor", 2),
        *(pod(f"old-{i}", "old", node="a") for i in range(4)),
        *(pod(f"new-{i}", "new") for i in range(2)),
        config=deciders(WITHOUT_OVERCOMMIT),
    )
    assert sorted(run.evicted.values()) == ["reclaim", "reclaim"]
    assert {one.pod: one.node for one in run.placements} == {
        "default/new-0": "a",
        "default/new-1": "a",
    }


def rich_and_poor(**rich: Any) -> list[Tree]:
    """A node full of pods of a queue that borrows, and a job of one that has less than it
    deserves."""
    return [
        node("a", 4),
        queue("rich", **{"deserved": {"cpu": "2"}, **rich}),
        queue("poor", deserved={"cpu": "2"}),
        {**group("old", 1, "rich", 1), "status": {"phase": "Running"}},
        {**group("new", 2, "poor", 2), "status": {"phase": "Inqueue"}},
        *(pod(f"old-{i}", "old", node="a") for i in range(4)),
        *(pod(f"new-{i}", "new") for i in range(2)),
    ]


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (rich_and_poor(reclaimable=False), "of other queues may be evicted: rich is not reclaim"),
        (rich_and_poor(deserved={"cpu": "4"}), "plugins spare all 4 running pods"),
        (
            [*rich_and_poor(), pod("more", "newer", node="a"), group("newer", 1, "poor", 1)],
            "tier 1: gang, conformance; capacity would give up default/old-",
        ),
    ],
)
def test_what_reclaim_would_do_is_reported_and_why_not(
    tmp_path: Path, objects: list[Tree], text: str
) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump_all(objects))
    cluster = read_cluster(tmp_path / "c.yaml")
    config = deciders(WITHOUT_OVERCOMMIT)
    found = explain_pod_group("default/new", cluster, config=config, changes=False)
    assert any(line.startswith("reclaim: ") and text in line for line in found.evictions)


@pytest.mark.parametrize(
    ("rich", "actions", "wanted"),
    [({}, "allocate, reclaim", 2.0), ({"reclaimable": False}, "reclaim", 0.0), ({}, "allocate", 0)],
)
def test_a_loan_is_wanted_back_where_it_can_be_reclaimed(
    tmp_path: Path, rich: Tree, actions: str, wanted: float
) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump_all(rich_and_poor(**rich)))
    text = WITHOUT_OVERCOMMIT.replace("enqueue, allocate, backfill, preempt, reclaim", actions)
    shares = shares_of(SessionRunner(read_cluster(tmp_path / "c.yaml"), deciders(text)))
    (loan,) = shares.loans
    assert (loan.borrower, loan.lender, loan.amount) == ("rich", "poor", 2.0)
    assert loan.wanted_back == wanted


def test_a_file_chooses_the_model_by_name_or_by_its_parts() -> None:
    plain = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}]}]\n'

    def model(text: str, compat: str = "") -> str:
        batch = deciders(text, compat).batch
        assert batch is not None
        return "" if batch.queue_model is None else batch.queue_model.model

    assert model(plain) == ""
    assert model(f"scheduler: volcano\n{plain}") == "volcano"
    assert model("scheduler: volcano\n") == "volcano"
    assert model(plain, "volcano-1.15") == "volcano"
    assert model(CAPACITY) == "volcano"
    assert model(f"scheduler: kube-batch\n{CAPACITY}") == ""
    with pytest.raises(ConfigError, match="did you mean 'volcano'"):
        model("scheduler: volcan\n")
    with pytest.raises(ConfigError, match=r"overcommit-factr.*did you mean 'overcommit-factor'"):
        model(
            "tiers: [{plugins: [{name: overcommit, arguments: {overcommit-factr: 1}}]}]\n"
            "actions: allocate\n"
        )


def test_compat_alone_has_volcano_decide_by_its_default(tmp_path: Path) -> None:
    alone = deciders_of([], compat="volcano-1.15")
    assert alone.batch is not None
    assert alone.batch.actions == ("enqueue", "allocate", "backfill")
    run = simulated(tmp_path, node("a"), pod("p"), config=alone)
    assert [one.node for one in run.placements] == ["a"]


def scheduler_config_map(text: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
        "data": {"volcano-scheduler.conf": text},
    }


def test_a_dump_with_the_scheduler_s_config_map_is_cluster_and_configuration(
    tmp_path: Path,
) -> None:
    small = queue("small", capability={"cpu": "2"})
    items = [node("a"), small, group("g", 3, "small", 3), *(pod(f"g-{i}", "g") for i in range(3))]
    items.insert(1, scheduler_config_map(WITHOUT_OVERCOMMIT))
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    run = simulate_jobs(path, config=str(path))
    assert reasons(run) == {
        "default/g": "not inqueue: queue small's capability cpu 2, 0 in use, 3 asked"
    }
    broken = yaml.safe_dump(scheduler_config_map("actions: alocate"))
    where = r"cm.yaml: ConfigMap volcano-scheduler-configmap: volcano-scheduler.conf"
    with pytest.raises(ConfigError, match=where):
        deciders_of([ConfigText(broken, "cm.yaml")])


def hyper_node(name: str, tier: int, *members: Tree) -> Tree:
    spec = {"tier": tier, "members": list(members)}
    version = "topology.volcano.sh/v1alpha1"
    return {"apiVersion": version, "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


def member(kind: str, **selector: Any) -> Tree:
    return {"type": kind, "selector": selector}


def test_a_hard_network_topology_keeps_a_gang_below_one_hyper_node(tmp_path: Path) -> None:
    gang = group("g", 2, "default", 2)
    gang["spec"]["networkTopology"] = {"mode": "hard", "highestTierAllowed": 1}
    nodes = [node(name, 2) for name in ("a1", "a2", "b1", "b2")]
    run = simulated(
        tmp_path,
        *nodes,
        hyper_node("a", 1, member("Node", regexMatch={"pattern": "^a"})),
        hyper_node(
            "b",
            1,
            member("Node", exactMatch={"name": "b1"}),
            member("Node", exactMatch={"name": "b2"}),
        ),
        hyper_node("top", 2, member("HyperNode", regexMatch={"pattern": "^[ab]$"})),
        gang,
        # Three of the four nodes have room for one pod of the gang; only `b` for two.
        pod("blocks", cpu=2, node="a1"),
        *(pod(f"g-{i}", "g", 2) for i in range(2)),
        config=deciders(
            WITHOUT_OVERCOMMIT.replace("  - name: drf", "  - name: network-topology-aware")
        ),
    )
    assert sorted(one.node for one in run.placements) == ["b1", "b2"]
