"""`stowplan up` with KAI's configuration: further guides of KAI, restated with their outcome.

Sources: KAI-Scheduler, docs/batch, docs/elastic, docs/fairness, docs/gpu-sharing,
docs/preemption-delay and docs/topology.
"""

from __future__ import annotations

import asyncio
import datetime
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from tests.driver.embedded import Tree
from tests.driver.test_kai_up import JOBS, PODS, QUEUES, alone, on_nodes, pod, queue
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests"
RESERVED = "/api/v1/namespaces/kai-resource-reservation/pods"
TOPOLOGIES = "/apis/kai.scheduler/v1alpha1/topologies"
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"


def node(name: str, cards: int, **labels: str) -> Tree:
    offer = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": offer, "capacity": offer},
    }


def follow(
    tmp_path: Path, nodes: Sequence[Tree], guide: Callable[[ApiClient], Awaitable[None]]
) -> None:
    """Do what a guide does on a cluster with the queue of the quick start."""
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    deciders = local_deciders([str(tmp_path / "kai.yaml")])

    async def run() -> None:
        settings = LocalClusterSettings(nodes=0, kubeconfig=tmp_path / "k", serves_kai=True, seed=1)
        service = local_scheduler_service(deciders)
        async with (
            running_local_cluster(settings, [("", one) for one in nodes]) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await create(api, QUEUES, queue("default-parent-queue", "", 0, -1))
            await create(api, QUEUES, queue("default-queue", "default-parent-queue", 0, -1))
            await guide(api)

    asyncio.run(asyncio.wait_for(run(), 300))


def cards(name: str, number: int, of_queue: str = "default-queue", **labels: str) -> Tree:
    tree = alone(name, pod(of_queue, **labels))
    tree["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": str(number)}}
    return tree


def placed(pods: Sequence[Any]) -> dict[str, str]:
    """Pod -> node, of those that are not on their way out."""
    return {
        one["metadata"]["name"]: one["spec"]["nodeName"]
        for one in pods
        if one["spec"].get("nodeName") and "deletionTimestamp" not in one["metadata"]
    }


# Elastic workloads.


async def elastic(api: ApiClient) -> None:
    await create(api, PODS, cards("other", 2))
    await until(api, PODS, on_nodes("other"))
    # One worker is enough; up to three may run.
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "elastic", "namespace": "default"},
        "spec": {"queue": "default-queue", "minMember": 1, "priorityClassName": "train"},
    }
    await create(api, GROUPS, group)
    for number in range(3):
        worker = cards(f"worker-{number}", 1)
        worker["metadata"]["annotations"] |= {"pod-group-name": "elastic"}
        await create(api, PODS, worker)
    # It starts as soon as there is room for one,
    await until(api, PODS, on_nodes("other", "worker"))
    await api.send(ApiRequest("DELETE", f"{PODS}/other"))
    # takes more when they become free,
    await until(api, PODS, on_nodes("worker", "worker", "worker"))
    # and loses only a part of its pods to a job of higher priority.
    await create(api, PODS, cards("urgent", 2, priorityClassName="build-preemptible"))
    await until(api, PODS, on_nodes("urgent", "worker"))


def test_an_elastic_workload_grows_and_shrinks(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 3)], elastic)


# JobSets.

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


async def job_set(api: ApiClient) -> None:
    await create(api, PODS, cards("other", 1))
    await until(api, PODS, on_nodes("other"))
    template = {"spec": {"parallelism": 2, "completions": 2, "template": pod("default-queue")}}
    jobs = [{"name": name, "replicas": 1, "template": template} for name in ("a", "b")]
    meta = {"name": "set", "labels": {"kai.scheduler/queue": "default-queue"}}
    version = "jobset.x-k8s.io/v1alpha2"
    tree = {"apiVersion": version, "kind": "JobSet", "metadata": meta}
    await create(api, JOB_SETS, {**tree, "spec": {"replicatedJobs": jobs}})
    # One of its Jobs has room, and both are needed.
    pods = await until(api, PODS, lambda pods: len(refused(pods)) == 4)
    assert {*placed(pods)} == {"other"}
    groups = await until(api, GROUPS, lambda groups: len(groups) == 2)
    (group,) = (one for one in groups if one["metadata"]["name"].startswith("pg-set-"))
    assert group["spec"]["minSubGroup"] == 2
    names = ["a", "a-replica-0", "b", "b-replica-0"]
    assert [one["name"] for one in group["spec"]["subGroups"]] == names
    await api.send(ApiRequest("DELETE", f"{PODS}/other"))
    await until(api, PODS, on_nodes("set-a-0", "set-a-0", "set-b-0", "set-b-0"))


def test_a_job_set_starts_with_all_of_its_jobs(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 4)], job_set)


# Jobs of the training operator.

TORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


def torch_job(name: str, asks: Tree, policy: Tree | None = None, **replicas: int) -> Tree:
    """A PyTorchJob as in the guides: its queue is on the job alone. asks: of each pod."""
    specs = {}
    for role, number in replicas.items():
        template = pod("")
        del template["metadata"]["labels"], template["spec"]["restartPolicy"]
        template["spec"]["containers"][0] |= {"name": "pytorch", "resources": asks}
        specs[role] = {"replicas": number, "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "default-queue"}},
        "spec": {
            "pytorchReplicaSpecs": specs,
            **({} if policy is None else {"elasticPolicy": policy}),
        },
    }


def states(jobs: Sequence[Any]) -> set[str]:
    """What of jobs is true, beside that they are there."""
    return {
        one["type"]
        for job in jobs
        for one in (job.get("status") or {}).get("conditions") or ()
        if one["status"] == "True" and one["type"] != "Created"
    }


async def training(api: ApiClient) -> None:
    await create(api, PODS, cards("other", 1))
    await until(api, PODS, on_nodes("other"))
    name = "pytorch-dist-mnist-nccl"
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    await create(api, TORCH_JOBS, torch_job(name, limits, Master=1, Worker=2))
    roles = {f"{name}-{role}" for role in ("master-0", "worker-0", "worker-1")}
    # There is room for two of the three pods: none starts,
    pods = await until(api, PODS, lambda pods: roles <= refused(pods))
    assert {*placed(pods)} == {"other"}
    groups = await until(api, GROUPS, lambda groups: len(groups) == 2)
    (group,) = (one for one in groups if name in one["metadata"]["name"])
    assert (group["spec"]["queue"], group["spec"]["minMember"]) == ("default-queue", 3)
    # and then all do.
    await api.send(ApiRequest("DELETE", f"{PODS}/other"))
    await until(api, PODS, lambda pods: {*placed(pods)} == roles)
    await until(api, TORCH_JOBS, lambda jobs: states(jobs) == {"Running"})


def test_a_pytorch_job_starts_whole(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 3)], training)


async def elastic_training(api: ApiClient) -> None:
    asks = {"requests": {"cpu": "4"}}
    urgent = alone("urgent", pod("default-queue", priorityClassName="build-preemptible"))
    # Of the 32 CPUs of the node, one worker has room.
    urgent["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "28"}}
    await create(api, PODS, urgent)
    await until(api, PODS, on_nodes("urgent"))
    policy = {"rdzvBackend": "c10d", "minReplicas": 1, "maxReplicas": 3, "maxRestarts": 100}
    await create(api, TORCH_JOBS, torch_job("imagenet", asks, policy, Worker=2))
    # One worker is enough; the second one starts when there is room,
    await until(api, PODS, on_nodes("imagenet-worker", "urgent"))
    await until(api, TORCH_JOBS, lambda jobs: states(jobs) == {"Running"})
    await api.send(ApiRequest("DELETE", f"{PODS}/urgent"))
    await until(api, PODS, on_nodes("imagenet-worker", "imagenet-worker"))
    # and of both, a job of higher priority evicts one.
    await create(api, PODS, urgent)

    def has_one_worker(pods: list[Any]) -> bool:
        workers = {name for name in placed(pods) if name != "urgent"}
        return "urgent" in placed(pods) and len(workers) == 1

    await until(api, PODS, has_one_worker)
    await until(api, TORCH_JOBS, lambda jobs: states(jobs) == {"Running"})


def test_an_elastic_pytorch_job_runs_with_one_worker_and_loses_only_one(tmp_path: Path) -> None:
    follow(tmp_path, [node("cpu", 0)], elastic_training)


# Fairness.


async def fairness(api: ApiClient) -> None:
    for name, weight in (("one", 1), ("two", 2)):
        tree = queue(name, "", 1, -1)
        tree["spec"]["resources"]["gpu"]["overQuotaWeight"] = weight
        await create(api, QUEUES, tree)
    for number in range(8):
        await create(api, PODS, cards(f"one-{number}", 1, "one"))
    # What nobody else asks for may be used beyond the quota.
    await until(api, PODS, lambda pods: len(placed(pods)) == 8)
    for number in range(8):
        await create(api, PODS, cards(f"two-{number}", 1, "two"))

    def is_shared(pods: list[Any]) -> bool:
        return Counter(name.partition("-")[0] for name in placed(pods)) == {"one": 3, "two": 5}

    # Each has its quota of one, and of the other six a part by its weight.
    await until(api, PODS, is_shared)


def test_queues_reclaim_their_fair_shares(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 8)], fairness)


# Parts of GPUs.


def share(name: str, key: str, value: str) -> Tree:
    tree = alone(name, pod("default-queue"))
    tree["metadata"]["annotations"] |= {key: value}
    tree["spec"]["containers"][0]["resources"] = {}
    return tree


async def sharing(api: ApiClient) -> None:
    await create(api, PODS, share("half", "gpu-fraction", "0.5"))
    await create(api, PODS, share("half-2", "gpu-fraction", "0.5"))
    # Together they have the only card of the node, which a pod of KAI's binder holds for them.
    pods = await until(api, PODS, lambda pods: {*placed(pods)} == {"half", "half-2"})
    (card,) = {one["metadata"]["labels"]["runai-gpu-group"] for one in pods}
    (holder,) = await listed(api, RESERVED)
    assert holder["metadata"]["labels"]["runai-gpu-group"] == card
    asked = await until(api, REQUESTS, lambda found: len(found) == 2)
    for one in asked:
        assert one["spec"] == {
            "podName": one["metadata"]["name"],
            "selectedNode": "gpu",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 1, "portion": "0.50"},
            "selectedGPUGroups": [card],
        }
    await create(api, PODS, share("third", "gpu-fraction", "0.5"))
    await create(api, PODS, cards("whole", 1))
    waiting = {"third", "whole"}

    def are_refused(pods: list[Any]) -> bool:
        return waiting <= refused(pods)

    pods = await until(api, PODS, are_refused)
    assert {*placed(pods)} == {"half", "half-2"}
    for name in ("half", "half-2", *waiting):
        await api.send(ApiRequest("DELETE", f"{PODS}/{name}"))
    await until(api, PODS, lambda pods: not pods)
    await until(api, RESERVED, lambda pods: not pods)
    # By memory: of a card of 8,000 MiB, four pods of 2,000.
    for number in range(5):
        await create(api, PODS, share(f"memory-{number}", "gpu-memory", "2000"))
    waiting = {"memory-4"}
    await until(api, PODS, are_refused)
    four = {f"memory-{number}" for number in range(4)}
    await until(api, PODS, lambda pods: {*placed(pods)} == four)


def test_pods_share_a_card_by_parts_and_by_memory(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 1, **{"nvidia.com/gpu.memory": "8000"})], sharing)


# A delay before a job may evict.

DELAY_S = 4


async def delay(api: ApiClient) -> None:
    await create(api, PODS, cards("running", 1))
    await until(api, PODS, on_nodes("running"))
    urgent = cards("urgent", 1, priorityClassName="build-preemptible")
    urgent["metadata"]["annotations"]["kai.scheduler/preemption-delay"] = f"{DELAY_S}s"
    await create(api, PODS, urgent)
    # It waits out its window, with a condition, while the other one runs,
    await until(api, PODS, lambda pods: "urgent" in refused(pods))
    # and then preempts it.
    pods = await until(api, PODS, lambda pods: {*placed(pods)} == {"urgent"})
    (made,) = (one for one in pods if one["metadata"]["name"] == "urgent")
    events = await until(
        api, EVENTS, lambda found: any(one.get("reason") == "Evict" for one in found)
    )
    (evicted,) = (one for one in events if one.get("reason") == "Evict")
    since = moment(evicted["eventTime"]) - moment(made["metadata"]["creationTimestamp"])
    assert since >= DELAY_S


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def refused(pods: Sequence[Any]) -> set[str]:
    return {
        one["metadata"]["name"]
        for one in pods
        for condition in (one.get("status") or {}).get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }


def test_a_job_with_a_delay_evicts_after_it(tmp_path: Path) -> None:
    follow(tmp_path, [node("gpu", 1)], delay)


# Topology.


def racks() -> list[Tree]:
    """Zone a: a rack of two nodes and three of one; zone b: three racks of two."""
    sizes = {"a": (2, 1, 1, 1), "b": (2, 2, 2)}
    return [
        node(f"{zone}{rack}-{number}", 1, **{ZONE: zone, RACK: f"{zone}{rack}"})
        for zone, racks_ in sizes.items()
        for rack, size in enumerate(racks_)
        for number in range(size)
    ]


async def topology(api: ApiClient) -> None:
    levels = [{"nodeLabel": label} for label in (ZONE, RACK, "kubernetes.io/hostname")]
    await create(
        api,
        TOPOLOGIES,
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "cluster-topology"},
            "spec": {"levels": levels},
        },
    )
    notes = {
        "kai.scheduler/topology": "cluster-topology",
        "kai.scheduler/topology-required-placement": ZONE,
        "kai.scheduler/topology-preferred-placement": RACK,
        # Differs: the guide leaves it out, and looks at the three pods together. Without it KAI's
        # pod-grouper makes groups of Jobs that start with one pod, and places them one by one.
        "kai.scheduler/batch-min-member": "3",
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "training", "annotations": notes},
        "spec": {"parallelism": 3, "completions": 3, "template": pod("default-queue")},
    }
    await create(api, JOBS, job)
    pods = await until(api, PODS, lambda pods: len(placed(pods)) == 3)
    nodes = sorted(placed(pods).values())
    # In the zone with less free, on the rack of two and one other: two racks instead of three.
    assert nodes[:2] == ["a0-0", "a0-1"]
    assert nodes[2].startswith("a")


def test_a_job_is_packed_into_a_zone_and_as_few_racks_as_possible(tmp_path: Path) -> None:
    follow(tmp_path, racks(), topology)
