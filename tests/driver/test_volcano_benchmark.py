"""Volcano's documented benchmark on `stowplan up`, by kubectl: its scheduler configuration, queue,
HyperNodes and gangs, and the statuses that `vcctl` prints.

Restated from volcano's benchmark/README.md and benchmark/testcases/gang: config/queue.yaml,
config/scheduler-config.yaml (here with network-topology-aware), cases/case-template.yaml
(`make test-gang-env`, here with 2 jobs of 5), cases/comprehensive.yaml, cases/net-topo.yaml (here
with 4 pods below tier 1), cases/vcjob-template.yaml, and scripts/create-hypernodes.sh (its kwok
nodes are nodes of `up` with their labels and taint).
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from tests.driver.embedded import Tree
from tests.driver.test_volcano_up import GROUPS, JOBS, SCHEDULING, listed, until

KUBECTL = os.environ.get("STOWPLAN_KUBECTL") or shutil.which("kubectl")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("embedded"),
    pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl"),
]

CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
  - plugins:
      - name: priority
      - name: gang
        enablePreemptable: false
      - name: conformance
  - plugins:
      - name: overcommit
      - name: drf
        enablePreemptable: false
      - name: predicates
      - name: proportion
      - name: nodeorder
      - name: binpack
      - name: network-topology-aware
"""
QUEUE: Tree = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "benchmark-queue"},
    "spec": {
        "reclaimable": False,
        "weight": 1,
        "capability": {"cpu": "10000", "memory": "10000Gi"},
    },
}
LABEL = {"volcano.sh/benchmark": "true"}
N_RACKS = 2


def config_map() -> Tree:
    meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    data = {"volcano-scheduler.conf": CONFIGURATION}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def task(name: str, replicas: int, cpu: str, memory: str, **more: Any) -> Tree:
    amounts = {"cpu": cpu, "memory": memory}
    container = {
        "name": name,
        "image": "busybox:1.36",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", "sleep 30"],
        "resources": {"requests": amounts, "limits": amounts},
    }
    tolerations = [{"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}]
    spec = {
        "schedulerName": "volcano",
        "containers": [container],
        "nodeSelector": {"type": "kwok"},
        "tolerations": tolerations,
    }
    # The annotation keeps the pods running until the test ends.
    meta = {"labels": LABEL, "annotations": {"stowplan.dev/run-seconds": "3600"}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"metadata": meta, "spec": spec},
        **more,
    }


def vcjob(name: str, least: int, *tasks: Tree, queue: str = "default", **spec: Any) -> Tree:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": LABEL},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": least,
            "queue": queue,
            "tasks": tasks,
            **spec,
        },
    }


def hyper_node(name: str, tier: int, title: str, member: Tree) -> Tree:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "tierName": title, "members": [member]},
    }


def hyper_nodes() -> list[Tree]:
    found = []
    for number in range(N_RACKS):
        labels = {"type": "kwok", "topology-rack": f"rack-{number}"}
        member = {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}
        found.append(hyper_node(f"rack-{number}", 1, "rack", member))
        member = {"type": "HyperNode", "selector": {"exactMatch": {"name": f"rack-{number}"}}}
        found.append(hyper_node(f"spine-{number}", 2, "spine", member))
    return found


def jobs() -> list[Tree]:
    basic = [vcjob(f"gang-test-{i}", 5, task("worker", 5, "1", "1Gi")) for i in range(2)]
    parts = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 5}}
    tasks = task("master", 1, "100m", "100Mi"), task("worker", 10, "50m", "50Mi", **parts)
    topology = {"mode": "hard", "highestTierAllowed": 1}
    return [
        *basic,
        vcjob("gang-comprehensive", 10, *tasks, queue="benchmark-queue"),
        vcjob("gang-net-topo", 4, task("worker", 4, "1", "1Gi"), networkTopology=topology),
    ]


def test_the_documented_benchmark_runs_by_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config_map()))

    def kubectl(*arguments: str, given: list[Tree] | None = None) -> str:
        assert KUBECTL is not None
        command = [KUBECTL, "--kubeconfig", str(tmp_path / "k"), *arguments]
        text = "" if given is None else yaml.safe_dump_all(given)
        ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def prepare() -> None:
        names = kubectl("get", "nodes", "-o", "name").split()
        for number, name in enumerate(names):
            kubectl("label", name, "type=kwok", f"topology-rack=rack-{number % N_RACKS}")
        kubectl("taint", "nodes", "--all", "kwok.x-k8s.io/node=fake:NoSchedule")
        kubectl("apply", "-f", "-", given=[QUEUE, *hyper_nodes(), *jobs()])

    async def steps() -> None:
        settings = LocalClusterSettings(
            nodes=2, kubeconfig=tmp_path / "k", serves_volcano=True, seed=1
        )
        service = local_scheduler_service(local_deciders([str(file)]))
        async with (
            running_local_cluster(settings) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await asyncio.to_thread(prepare)
            await until(api, JOBS, _all_run)
            await check_statuses(api)
            columns = await asyncio.to_thread(kubectl, "get", "vcjob,pg,q")
            assert "gang-net-topo" in columns
            assert "benchmark-queue" in columns

    asyncio.run(asyncio.wait_for(steps(), 300))


def _all_run(found: list[Any]) -> bool:
    states = [((job.get("status") or {}).get("state") or {}).get("phase") for job in found]
    counts = {job["metadata"]["name"]: (job.get("status") or {}).get("running") for job in found}
    wanted = {"gang-test-0": 5, "gang-test-1": 5, "gang-comprehensive": 11, "gang-net-topo": 4}
    return states == ["Running"] * len(wanted) and counts == wanted


async def check_statuses(api: ApiClient) -> None:
    """What `vcctl job list`, `vcctl podgroup list` and `vcctl queue list` read."""
    for job in await listed(api, JOBS):
        status = job["status"]
        assert status["minAvailable"] == job["spec"]["minAvailable"]
        assert {
            status.get(name) or 0 for name in ("pending", "succeeded", "failed", "unknown")
        } == {0}

    def groups_run(found: list[Any]) -> bool:
        return [(one.get("status") or {}).get("phase") for one in found] == ["Running"] * 4

    for group in await until(api, GROUPS, groups_run):
        (condition,) = [one for one in group["status"]["conditions"] if one["type"] == "Scheduled"]
        assert condition["reason"] == "tasks in gang are ready to be scheduled"
        assert condition["transitionID"]
        assert condition["lastTransitionTime"]

    def sums(found: list[Any]) -> dict[str, Any]:
        return {
            one["metadata"]["name"]: (one.get("status") or {}).get("allocated") for one in found
        }

    asked = {"cpu": "600m", "memory": "600Mi", "pods": "11"}
    whole = {"cpu": "14600m", "memory": "14936Mi", "pods": "25"}
    queues = await until(
        api,
        f"{SCHEDULING}/queues",
        lambda found: sums(found).get("benchmark-queue") == asked and sums(found)["root"] == whole,
    )
    (own,) = [one for one in queues if one["metadata"]["name"] == "benchmark-queue"]
    assert (own["status"]["state"], own["spec"]["parent"]) == ("Open", "root")
    pods = await listed(api, "/api/v1/namespaces/default/pods")
    nodes = {one["metadata"]["name"]: one for one in await listed(api, "/api/v1/nodes")}
    racks = {
        nodes[pod["spec"]["nodeName"]]["metadata"]["labels"]["topology-rack"]
        for pod in pods
        if pod["metadata"]["name"].startswith("gang-net-topo")
    }
    assert len(racks) == 1
