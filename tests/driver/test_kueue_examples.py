"""Kueue's documented examples on `stowplan up`, by kubectl: two queues that borrow in a cohort, a
job that starts with fewer pods, a group of plain pods, and a job that waits.

Restated from kueue's site/content/en/docs/tasks/manage/administer_cluster_quotas.md (multiple
ClusterQueues and borrowing cohorts) and site/static/examples: jobs/sample-job.yaml,
jobs/sample-job-partial-admission.yaml, pods-kueue/kueue-pod-group.yaml.
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
from tests.driver.test_kueue_up import IN_DEFAULT, kueue, sample_job
from tests.driver.test_volcano_up import until

KUBECTL = os.environ.get("STOWPLAN_KUBECTL") or shutil.which("kubectl")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("embedded"),
    pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl"),
]


def quota(name: str, cpu: int, memory: str, borrowed: tuple[int, str] | None = None) -> Tree:
    limits = ({}, {}) if borrowed is None else tuple({"borrowingLimit": n} for n in borrowed)
    resources = [
        {"name": "cpu", "nominalQuota": cpu, **limits[0]},
        {"name": "memory", "nominalQuota": memory, **limits[1]},
    ]
    flavors = [{"name": "default-flavor", "resources": resources}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "cohortName": "team-ab", "resourceGroups": groups}
    return kueue("ClusterQueue", name, **spec)


def local_queue(name: str, of: str) -> Tree:
    tree = kueue("LocalQueue", name, clusterQueue=of)
    return {**tree, "metadata": {"name": name, "namespace": "default"}}


def in_queue(tree: Tree, queue: str, **annotations: str) -> Tree:
    meta = tree["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), "kueue.x-k8s.io/queue-name": queue}
    meta["annotations"] = annotations
    return tree


def partial_job() -> Tree:
    job = sample_job("sample-job-partial-admission")
    job["spec"] |= {"parallelism": 20, "completions": 20}
    return in_queue(job, "team-a", **{"kueue.x-k8s.io/job-min-parallelism": "5"})


def group_pod(name: str) -> Tree:
    container = {"name": "sleep", "image": "busybox", "resources": {"requests": {"cpu": 3}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    meta = {"name": name, "labels": {"kueue.x-k8s.io/pod-group-name": "sample-group"}}
    pod: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    notes = {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "stowplan.dev/run-seconds": "3600",
    }
    return in_queue(pod, "team-b", **notes)


def state(workload: Tree) -> str:
    """Admitted, or why not."""
    conditions = {
        one["type"]: one for one in (workload.get("status") or {}).get("conditions") or ()
    }
    if (conditions.get("Admitted") or {}).get("status") == "True":
        return "Admitted"
    return str((conditions.get("QuotaReserved") or {}).get("reason"))


def states(workloads: list[Any]) -> dict[str, str]:
    return {
        one["metadata"]["ownerReferences"][0]["name"]: state(one)
        for one in workloads
        if one["metadata"].get("ownerReferences")
    }


def test_the_documented_cohort_runs_by_kubectl(tmp_path: Path) -> None:
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    deciders = local_deciders([str(tmp_path / "kueue.yaml")])

    def kubectl(*arguments: str, given: list[Tree] | None = None) -> str:
        assert KUBECTL is not None
        command = [KUBECTL, "--kubeconfig", str(tmp_path / "k"), *arguments]
        text = "" if given is None else yaml.safe_dump_all(given)
        ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    queues = [
        kueue("ResourceFlavor", "default-flavor"),
        quota("team-a-cq", 9, "36Gi", (6, "24Gi")),
        quota("team-b-cq", 12, "48Gi"),
        local_queue("team-a", "team-a-cq"),
        local_queue("team-b", "team-b-cq"),
    ]
    partial, waiting = "sample-job-partial-admission", "sample-job"

    async def steps() -> None:
        settings = LocalClusterSettings(
            nodes=3, kubeconfig=tmp_path / "k", kueue=deciders.kueue, seed=1
        )
        async with (
            running_local_cluster(settings) as cluster,
            local_scheduler_service(deciders)(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            apply = "apply", "-f", "-"
            await asyncio.to_thread(kubectl, *apply, given=[*queues, partial_job()])
            workloads = f"{IN_DEFAULT}/workloads"
            await until(api, workloads, lambda found: states(found) == {partial: "Admitted"})
            # Nine of its own, and six that it may borrow.
            job = ("get", "job", partial, "-o", "jsonpath={.spec.parallelism}")
            assert await asyncio.to_thread(kubectl, *job) == "15"
            more = [in_queue(sample_job(waiting), "team-a")]
            more += [group_pod("sample-leader"), group_pod("sample-worker")]
            await asyncio.to_thread(kubectl, *apply, given=more)

            def settled(found: list[Any]) -> bool:
                known = states(found)
                rest = {name: known.get(name) for name in (partial, waiting, "sample-leader")}
                return rest == {
                    partial: "Admitted",
                    waiting: "WaitingForQuota",
                    "sample-leader": "Admitted",
                }

            await until(api, workloads, settled)
            columns = await asyncio.to_thread(kubectl, "get", "clusterqueues,localqueues,workloads")
            assert "team-a-cq" in columns

    asyncio.run(asyncio.wait_for(steps(), 300))
