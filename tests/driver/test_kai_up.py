"""`stowplan up` with KAI's configuration: what KAI's guides show, restated.

Sources: KAI-Scheduler, docs/quickstart, docs/batch and docs/priority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from tests.driver.embedded import Tree
from tests.driver.test_volcano_up import create, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

QUEUES = "/apis/scheduling.run.ai/v2/queues"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"

OFFER = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
NODE: Tree = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "gpu-node"},
    "status": {"allocatable": OFFER, "capacity": OFFER},
}


def queue(name: str, parent: str, quota: int, limit: int) -> Tree:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    cards = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec: Tree = {"resources": {"cpu": free, "memory": free, "gpu": cards}}
    if parent:
        spec["parentQueue"] = parent
    version = "scheduling.run.ai/v2"
    return {"apiVersion": version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def pod(of_queue: str, **labels: str) -> Tree:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {
            "labels": {"kai.scheduler/queue": of_queue, **labels},
            # It runs until the test ends.
            "annotations": {"stowplan.dev/run-seconds": "3600"},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "i", "resources": limits}],
        },
    }


def alone(name: str, tree: Tree) -> Tree:
    meta = {**tree["metadata"], "name": name}
    return {"apiVersion": "v1", "kind": "Pod", **tree, "metadata": meta}


def on_nodes(*names: str) -> Callable[[list[Any]], bool]:
    """Pods whose names begin so have nodes, and no others."""

    def holds(pods: list[Any]) -> bool:
        placed = sorted(one["metadata"]["name"] for one in pods if one["spec"].get("nodeName"))
        pairs = zip(placed, sorted(names), strict=False)
        return len(placed) == len(names) and all(a.startswith(b) for a, b in pairs)

    return holds


async def check_guides(api: ApiClient) -> None:
    # Quick start: two levels of queues without quotas, and a pod with one card.
    await create(api, QUEUES, queue("default-parent-queue", "", 0, -1))
    await create(api, QUEUES, queue("default-queue", "default-parent-queue", 0, -1))
    await create(api, PODS, alone("gpu-pod", pod("default-queue")))
    await until(api, PODS, on_nodes("gpu-pod"))
    # Batch: a Job of two pods.
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "batch-job"},
        "spec": {"parallelism": 2, "completions": 2, "template": pod("default-queue")},
    }
    await create(api, JOBS, job)
    await until(api, PODS, on_nodes("gpu-pod", "batch-job", "batch-job"))
    # Priority: in a queue with one card, `build` takes it from `train`.
    await create(api, QUEUES, queue("default", "", -1, -1))
    await create(api, QUEUES, queue("test", "default", 1, 1))
    await create(api, PODS, alone("train-pod", pod("test", priorityClassName="train")))
    await until(api, PODS, on_nodes("gpu-pod", "batch-job", "batch-job", "train-pod"))
    await create(api, PODS, alone("build-pod", pod("test", priorityClassName="build")))
    await until(api, PODS, on_nodes("gpu-pod", "batch-job", "batch-job", "build-pod"))


def test_the_guides_of_kai_end_as_they_say(tmp_path: Path) -> None:
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    deciders = local_deciders([str(tmp_path / "kai.yaml")])

    async def steps() -> None:
        settings = LocalClusterSettings(nodes=0, kubeconfig=tmp_path / "k", serves_kai=True, seed=1)
        service = local_scheduler_service(deciders)
        async with (
            running_local_cluster(settings, [("", NODE)]) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await check_guides(api)

    asyncio.run(asyncio.wait_for(steps(), 300))
