"""`stowplan up` with KAI's configuration: its guide on NUMA zones, restated with its outcome.

Source: KAI-Scheduler, docs/numa.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.assembly.watched_kinds import kinds_read
from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from stowplan.objects.kai.node_topology import NodeResourceTopology
from tests.driver.embedded import Tree
from tests.driver.test_kai_guides_up import REQUESTS, placed, refused
from tests.driver.test_kai_up import PODS, QUEUES, on_nodes
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

ZONES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
PREDICTED = "kai.scheduler/numa-placement-predicted"
EXAMPLES = Path(__file__).parents[2] / "examples" / "queues" / "kai" / "numa"
"""The files of docs/kai-queues.md."""


def example(name: str) -> Tree:
    """An object of the examples."""
    tree: Tree = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return tree


async def guide(api: ApiClient) -> None:
    await create(api, QUEUES, example("queue"))
    (served,) = await listed(api, ZONES)
    assert [one["name"] for one in served["zones"]] == ["node-0", "node-1"]
    # Four CPUs beside the GPU, of one zone: it goes to the one with the GPU.
    await create(api, PODS, example("train"))
    pods = await until(api, PODS, on_nodes("train"))
    zones = [
        {"zone": "node-0", "amount": {"cpu": "4", "memory": "8589934592", "nvidia.com/gpu": "1"}}
    ]
    (request,) = await listed(api, REQUESTS)
    assert request["spec"]["predictedNUMAZones"] == zones
    assert request["spec"]["receivedResourceType"] == "Regular"
    assert json.loads(pods[0]["metadata"]["annotations"][PREDICTED]) == zones
    assert pods[0]["status"]["qosClass"] == "Guaranteed"
    # Six would fit the node, which offers 32, and no zone of it.
    await create(api, PODS, example("wide"))
    pods = await until(api, PODS, lambda found: "wide" in refused(found))
    assert "cannot NUMA-align" in waits_for(pods, "wide")
    # The other zone has room for one of these.
    await create(api, PODS, example("left"))
    await create(api, PODS, example("right"))
    await until(api, PODS, lambda found: refused(found) == {"wide", "right"})
    assert {*placed(await listed(api, PODS))} == {"train", "left"}
    # Zones are free again when their pod is gone.
    await api.send(ApiRequest("DELETE", f"{PODS}/train"))
    pods = await until(api, PODS, lambda found: {*placed(found)} == {"left", "right"})
    # With another report, as of a kubelet that admits every pod, the last one goes there too.
    (served,) = await listed(api, ZONES)
    served["attributes"][0]["value"] = "best-effort"
    body = json.dumps(served).encode()
    await api.send(ApiRequest("PUT", f"{ZONES}/gpu", body=body, content_type=JSON))
    await until(api, PODS, lambda found: {*placed(found)} == {"left", "right", "wide"})


def waits_for(pods: list[Any], name: str) -> str:
    """Why a pod waits, by its condition."""
    (found,) = (one for one in pods if one["metadata"]["name"] == name)
    (text,) = (
        condition["message"]
        for condition in found["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    )
    return str(text)


async def without_kinds(api: ApiClient) -> None:
    await create(api, PODS, example("train"))
    pods = await until(api, PODS, lambda found: "train" in refused(found))
    assert waits_for(pods, "train") == 'queues "default-queue" not found'


def follow_zones(
    tmp_path: Path,
    objects: Sequence[Tree],
    steps: Callable[[ApiClient], Awaitable[None]],
    serves_kai: bool = True,
) -> None:
    """Do these steps on a cluster with the plugin."""
    deciders = local_deciders([str(EXAMPLES / "kai.yaml")])
    kubeconfig = tmp_path / "k"

    async def run() -> None:
        settings = LocalClusterSettings(
            nodes=0, kubeconfig=kubeconfig, serves_kai=serves_kai, seed=1
        )
        service = local_scheduler_service(deciders)
        async with (
            running_local_cluster(settings, [("", one) for one in objects]) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(kubeconfig))) as api,
        ):
            await steps(api)

    asyncio.run(asyncio.wait_for(run(), 300))


def test_pods_go_to_numa_zones_and_wait_for_them(tmp_path: Path) -> None:
    follow_zones(tmp_path, [example("node"), example("zones")], guide)


def test_a_cluster_that_does_not_serve_the_kinds_is_followed(tmp_path: Path) -> None:
    follow_zones(tmp_path, [example("node")], without_kinds, serves_kai=False)


def test_zones_are_watched_only_with_the_plugin(tmp_path: Path) -> None:
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    with_it, without = (
        kinds_read(local_deciders([str(folder / "kai.yaml")])) for folder in (EXAMPLES, tmp_path)
    )
    assert {*with_it} - {*without} == {NodeResourceTopology}
