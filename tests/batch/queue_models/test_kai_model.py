"""The queue model of KAI-Scheduler where the scheduler runs sessions: by `simulate`, on files."""

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

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def node(name: str, gpus: int) -> Tree:
    offer = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"allocatable": offer, "capacity": offer}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def queue(name: str, quota: int, limit: int = -1, parent: str = "") -> Tree:
    gpu = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec: Tree = {"resources": {"gpu": gpu, "cpu": FREE, "memory": FREE}}
    if parent:
        spec["parentQueue"] = parent
    version = "scheduling.run.ai/v2"
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, queue: str, least: int, **spec: Any) -> Tree:
    version = "scheduling.run.ai/v2alpha2"
    spec = {"queue": queue, "minMember": least, **spec}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def pod(name: str, of: str = "", gpus: int = 1, node: str = "", **meta: Any) -> Tree:
    notes = {"pod-group-name": of} if of else {}
    meta = {"name": name, "annotations": notes | meta.pop("annotations", {}), **meta}
    asked = {"cpu": "1"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    resources = {"requests": asked, "limits": asked}
    container = {"name": "c", "image": "i", "resources": resources}
    spec: Tree = {"schedulerName": "kai-scheduler", "containers": [container]}
    tree: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    if node:
        spec["nodeName"] = node
        tree["status"] = {"phase": "Running"}
    return tree


def deciders(text: str = "scheduler: kai") -> Deciders:
    return deciders_of([ConfigText(text, "kai.yaml")])


def simulated(tmp_path: Path, *objects: Tree, config: Deciders | None = None) -> JobSimulation:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return simulate_jobs(path, config=config or deciders())


def nodes_of(run: JobSimulation) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in run.placements if one.node}


def reasons(run: JobSimulation) -> dict[str, str]:
    return {job.name.removeprefix("default/"): job.message for job in run.jobs if job.message}


def test_a_gang_starts_whole_or_not_at_all(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("red", 4),
        group("fits", "red", 3),
        group("wide", "red", 2),
        *(pod(f"fits-{i}", "fits") for i in range(3)),
        *(pod(f"wide-{i}", "wide") for i in range(2)),
    )
    assert nodes_of(run) == {f"fits-{i}": "a" for i in range(3)}
    assert reasons(run)["wide"].startswith("1/1 nodes fit pod default/wide-0")


def test_a_job_over_a_limit_above_its_queue_waits_for_a_reason(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 8),
        queue("top", 8, limit=3),
        queue("red", 8, parent="top"),
        pod("first", gpus=2, labels={"kai.scheduler/queue": "red"}),
        pod("second", gpus=2, labels={"kai.scheduler/queue": "red"}),
        config=deciders(),
    )
    assert nodes_of(run) == {"first": "a"}
    assert reasons(run) == {"second": "queue top's limit nvidia.com/gpu 3, 2 in use, 2 asked"}


def test_a_job_that_may_not_be_preempted_stays_within_the_quota(tmp_path: Path) -> None:
    fixed = {"kai.scheduler/queue": "red", "kai.scheduler/preemptibility": "non-preemptible"}
    run = simulated(tmp_path, node("a", 8), queue("red", 1), pod("p", gpus=2, labels=fixed))
    assert nodes_of(run) == {}
    assert reasons(run) == {
        "p": "not preemptible, queue red's quota nvidia.com/gpu 1, 0 in use, 2 asked"
    }


def test_a_queue_below_its_quota_reclaims(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("rich", 2),
        queue("poor", 2),
        *(group(f"old-{i}", "rich", 1) for i in range(4)),
        *(pod(f"old-{i}", f"old-{i}", node="a") for i in range(4)),
        group("new", "poor", 2),
        *(pod(f"new-{i}", "new") for i in range(2)),
    )
    assert sorted(run.evicted.values()) == ["reclaim", "reclaim"]
    assert nodes_of(run) == {"new-0": "a", "new-1": "a"}


def test_a_queue_at_its_fair_share_reclaims_nothing(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("rich", 2),
        queue("poor", 2),
        *(group(name, name, 1) for name in ("rich", "poor")),
        *(pod(f"{name}-{i}", name, node="a") for name in ("rich", "poor") for i in range(2)),
        pod("more", labels={"kai.scheduler/queue": "poor"}),
    )
    assert not run.evicted
    assert reasons(run)["more"] == (
        "0/1 nodes fit pod default/more: 1 Insufficient nvidia.com/gpu; "
        "no reclaim: queue poor's fair share nvidia.com/gpu 2, 2 in use, 1 asked"
    )


def test_an_action_tries_only_so_many_jobs_of_a_queue(tmp_path: Path) -> None:
    objects = (
        node("a", 4),
        queue("red", 4),
        pod("wide", gpus=8, labels={"kai.scheduler/queue": "red", "priorityClassName": "build"}),
        pod("small", labels={"kai.scheduler/queue": "red"}),
    )
    assert nodes_of(simulated(tmp_path, *objects)) == {"small": "a"}
    text = "scheduler: kai\nqueueDepthPerAction: {allocate: 1}\n"
    assert nodes_of(simulated(tmp_path, *objects, config=deciders(text))) == {}


def test_higher_priority_preempts_within_its_queue(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 2),
        queue("red", 2),
        pod("low", gpus=2, node="a", labels={"kai.scheduler/queue": "red"}),
        pod("high", labels={"kai.scheduler/queue": "red", "priorityClassName": "build"}),
    )
    assert run.evicted == {"default/low": "preempt"}
    assert nodes_of(run) == {"high": "a"}


def test_pods_without_a_group_get_one_as_the_pod_grouper_makes_it(tmp_path: Path) -> None:
    def owned(name: str, kind: str, owner: str) -> Tree:
        version = "batch/v1" if kind == "Job" else "apps/v1"
        own = {"apiVersion": version, "kind": kind, "name": owner, "controller": True, "uid": "7"}
        labels = {"kai.scheduler/queue": "red"}
        return pod(name, gpus=0, ownerReferences=[own], labels=labels)

    run = simulated(
        tmp_path,
        node("a", 2),
        queue("red", 2),
        queue("default-queue", 2),
        owned("train-0", "Job", "train"),
        owned("train-1", "Job", "train"),
        owned("web-0", "ReplicaSet", "web"),
        owned("web-1", "ReplicaSet", "web"),
        pod("bare", gpus=0),
    )
    found = {
        job.name.removeprefix("default/"): (job.queue, job.priority, job.pods) for job in run.jobs
    }
    assert found == {
        "Job/train": ("red", 50, 2),
        "web-0": ("red", 125, 1),
        "web-1": ("red", 125, 1),
        "bare": ("default-queue", 50, 1),
    }
    assert len(nodes_of(run)) == 5


def test_a_group_with_too_few_pods_and_a_queue_above_others_start_nothing(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("top", 4),
        queue("red", 4, parent="top"),
        group("few", "red", 3),
        *(pod(f"few-{i}", "few") for i in range(2)),
        pod("high", labels={"kai.scheduler/queue": "top"}),
    )
    assert nodes_of(run) == {}
    assert reasons(run) == {
        "few": "minMember 3 not reached: 0 placed, 2 waiting, 0 gated",
        "high": "queue top has queues below it, and starts no jobs",
    }


def test_queues_and_groups_that_do_not_exist_are_named(tmp_path: Path) -> None:
    run = simulated(tmp_path, node("a", 2), pod("alone"), pod("member", "nowhere"))
    assert nodes_of(run) == {}
    assert reasons(run) == {
        "alone": 'queues "default-queue" not found',
        "nowhere": 'podgroups.scheduling.run.ai "nowhere" not found in namespace "default"',
    }


def test_queues_that_are_above_themselves_and_bad_durations_end_no_session(tmp_path: Path) -> None:
    loop = [queue("left", 2, parent="right"), queue("right", 2, parent="left")]
    red = queue("red", 2)
    red["spec"]["reclaimMinRuntime"] = "soon"
    # From a cluster whose definitions let it pass.
    red["metadata"]["uid"] = "red"
    run = simulated(
        tmp_path,
        node("a", 2),
        *loop,
        red,
        pod("lost", labels={"kai.scheduler/queue": "left"}),
        pod("found", labels={"kai.scheduler/queue": "red"}),
    )
    assert nodes_of(run) == {"found": "a"}
    assert reasons(run) == {"lost": "the parents of queue left lead to queue left again"}


def test_a_queue_below_one_that_does_not_exist_is_not_reported_as_missing(tmp_path: Path) -> None:
    below = queue("low", 1, parent="mid"), queue("mid", 1, parent="gone")
    run = simulated(tmp_path, node("a", 2), *below, pod("p", labels={"kai.scheduler/queue": "low"}))
    assert reasons(run) == {
        "p": 'queues "gone" not found, to which the parents of queue low lead',
    }


@pytest.mark.parametrize(
    ("required", "preferred", "levels", "expected"),
    [
        ("zone", "", ("zone",), "its pods need one domain of zone, topology t"),
        ("rack", "", ("zone",), 'topology t has no level "rack"'),
        ("", "rack", ("zone",), 'topology t has no level "rack"'),
        ("zone", "", (), 'topologies.kai.scheduler "t" not found'),
        (
            "",
            "",
            ("zone",),
            "its topology constraint names topology t and no level, neither required nor preferred",
        ),
        (
            "host",
            "zone",
            ("zone", "host"),
            "its preferred level zone of topology t is above the required level host: no domain is "
            "tried",
        ),
    ],
)
def test_a_job_that_waits_for_a_domain_names_it(
    required: str, preferred: str, levels: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    nodes = [node("a", 1), node("b", 1)]
    for one in nodes:
        one["metadata"]["labels"] = dict.fromkeys(("zone", "host"), one["metadata"]["name"])
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": label} for label in levels]},
    }
    constraint = {"topology": "t", "requiredTopologyLevel": required}
    constraint["preferredTopologyLevel"] = preferred
    wide = group("wide", "q", 2, topologyConstraint=constraint)
    given = [topology] if levels else []
    run = simulated(
        tmp_path, *nodes, queue("q", 2), *given, wide, pod("x", "wide"), pod("y", "wide")
    )
    assert nodes_of(run) == {}
    assert reasons(run) == {
        "wide": f"2/2 nodes fit pod default/x; its group needs 2 pods at once; {expected}"
    }


def test_a_group_that_fits_pod_by_pod_reports_how_many_it_needs(tmp_path: Path) -> None:
    members = [pod("x", "g"), pod("y", "g")]
    run = simulated(tmp_path, node("a", 1), queue("q", 9), group("g", "q", 2), *members)
    text = "1/1 nodes fit pod default/x; its group needs 2 pods at once"
    assert reasons(run) == {"g": text}


def test_shares_fill_a_card_and_stay_on_it(tmp_path: Path) -> None:
    share = {"gpu-fraction": "0.5"}
    labels = {"kai.scheduler/queue": "red"}
    names = ("one", "two", "three", "four", "five")
    run = simulated(
        tmp_path,
        node("a", 2),
        queue("red", 4),
        *(pod(name, gpus=0, annotations=share, labels=labels) for name in names),
    )
    assert len(nodes_of(run)) == 4
    assert set(nodes_of(run).values()) == {"a"}


def test_groups_of_one_name_in_two_namespaces_are_two(tmp_path: Path) -> None:
    def there(tree: Tree, namespace: str) -> Tree:
        return {**tree, "metadata": {**tree["metadata"], "namespace": namespace}}

    run = simulated(
        tmp_path,
        node("a", 4),
        queue("red", 4),
        *(there(group("g", "red", 2), space) for space in ("one", "two")),
        *(there(pod(f"p-{i}", "g"), "one") for i in range(2)),
        there(pod("p-0", "g"), "two"),
    )
    assert {one.pod for one in run.placements if one.node} == {"one/p-0", "one/p-1"}


def test_explain_and_queues_name_quota_fair_share_and_limit(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    objects = (
        node("a", 8),
        queue("top", 8),
        queue("red", 2, limit=3, parent="top"),
        queue("blue", 2, parent="top"),
        group("runs", "red", 1),
        *(pod(f"runs-{i}", "runs", node="a") for i in range(2)),
        group("waits", "red", 2),
        *(pod(f"waits-{i}", "waits") for i in range(2)),
    )
    path.write_text(yaml.safe_dump_all(objects))
    cluster = read_cluster(path)
    found = explain_pod_group("default/waits", cluster, config=deciders())
    assert found.state == "pending"
    assert found.job is not None
    assert found.job.reason == "OverLimit"
    assert found.job.message == "queue red's limit nvidia.com/gpu 3, 2 in use, 2 asked"
    assert found.nodes_of == "default/waits-0"
    shares = {one.name: one for one in shares_of(SessionRunner(cluster, deciders())).queues}
    cards = "nvidia.com/gpu"
    red = shares["red"]
    assert (red.guarantee[cards], red.deserved and red.deserved[cards]) == (2, 3)
    assert (red.capability[cards], red.allocated[cards], red.pending[cards]) == (3, 2, 2)
    assert (shares["top"].pods_placed, shares["top"].pods_pending) == (2, 2)
    assert cards not in shares["blue"].capability
    # By weight, those below another one of its part.
    assert {name: one.part[cards] for name, one in shares.items()} == {
        "top": 8,
        "red": 4,
        "blue": 4,
    }


def test_the_name_of_another_scheduler_chooses_the_model_without_a_file(tmp_path: Path) -> None:
    run = simulated(
        tmp_path,
        node("a", 1),
        pod("alone"),
        queue("default-queue", 1),
        config=deciders_of([], compat="kai"),
    )
    assert nodes_of(run) == {"alone": "a"}


def test_mistakes_of_the_file_are_named_with_path_and_hint() -> None:
    text = """
scheduler: kai
actions: allocate, reclam
tiers:
- plugins:
  - name: proportoin
  - name: nodeplacement
    arguments: {gpu: spred}
  - name: minruntime
    arguments: {defaultReclaimMinRuntme: 10m}
"""
    with pytest.raises(ConfigError) as refused:
        deciders(text)
    lines = str(refused.value)
    for part in (
        "actions: ",
        "tiers[0].plugins[0].name",
        "proportion",
        "tiers[0].plugins[1].arguments.gpu",
        "binpack or spread",
        "defaultReclaimMinRuntime",
    ):
        assert part in lines


def test_without_gpu_sharing_pods_that_ask_for_a_part_of_a_card_wait(tmp_path: Path) -> None:
    part = {"gpu-fraction": "0.5"}
    run = simulated(
        tmp_path,
        node("a", 4),
        queue("default-queue", 4),
        pod("part", gpus=0, annotations=part),
        pod("whole"),
        config=deciders("scheduler: kai\ngpuSharing: false"),
    )
    assert nodes_of(run) == {"whole": "a"}
    waiting = simulated(
        tmp_path,
        node("a", 4),
        queue("default-queue", 4),
        pod("part", gpus=0, annotations=part),
        config=deciders("scheduler: kai\ngpuSharing: true"),
    )
    assert nodes_of(waiting) == {"part": "a"}
