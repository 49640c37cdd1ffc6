"""`stowplan up` with a configuration of Kueue: its documented first steps, and the live shadow.

Restated from kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas (one ClusterQueue with
9 CPUs and 36Gi, a LocalQueue) and docs/tasks/run/jobs (a Job of three pods, 1 CPU and 200Mi each).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.client.requests import ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.web.serving.live_source import LiveSource
from tests.cli.run import run
from tests.driver.embedded import Tree
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
IN_DEFAULT = f"{KUEUE}/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def kueue(kind: str, name: str, **spec: Any) -> Tree:
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def sample_job(name: str) -> Tree:
    requests = {"cpu": 1, "memory": "200Mi"}
    container = {"name": "dummy-job", "image": "agnhost", "resources": {"requests": requests}}
    # The annotation keeps the pods running until the test ends.
    notes = {"stowplan.dev/run-seconds": "3600"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "suspend": True,
            "template": {
                "metadata": {"annotations": notes},
                "spec": {"containers": [container], "restartPolicy": "Never"},
            },
        },
    }


def admitted(workloads: list[Any]) -> list[str]:
    """Jobs whose Workload is admitted."""
    return sorted(
        one["metadata"]["ownerReferences"][0]["name"]
        for one in workloads
        for condition in (one.get("status") or {}).get("conditions") or ()
        if condition["type"] == "Admitted" and condition["status"] == "True"
    )


async def check_documented_steps(api: ApiClient) -> None:
    resources = [{"name": "cpu", "nominalQuota": 9}, {"name": "memory", "nominalQuota": "36Gi"}]
    flavors = [{"name": "default-flavor", "resources": resources}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    queue = kueue("ClusterQueue", "cluster-queue", namespaceSelector={}, resourceGroups=groups)
    await create(api, f"{KUEUE}/clusterqueues", queue)
    await create(api, f"{KUEUE}/resourceflavors", kueue("ResourceFlavor", "default-flavor"))
    local = kueue("LocalQueue", "user-queue", clusterQueue="cluster-queue")
    await create(api, f"{IN_DEFAULT}/localqueues", local)
    for number in range(4):
        await create(api, JOBS, sample_job(f"sample-{number}"))
        if number < 3:
            wanted = [f"sample-{k}" for k in range(number + 1)]
            await until(
                api, f"{IN_DEFAULT}/workloads", lambda found, w=wanted: admitted(found) == w
            )

    def three_run(jobs: list[Any]) -> bool:
        return sum((job.get("status") or {}).get("ready") == 3 for job in jobs) == 3

    await until(api, JOBS, three_run)

    def one_waits(queues: list[Any]) -> bool:
        status = queues[0].get("status") or {}
        return (status.get("admittedWorkloads"), status.get("pendingWorkloads")) == (3, 1)

    await until(api, f"{KUEUE}/clusterqueues", one_waits)


def check_forecasts(directory: Path) -> None:
    """When the last one starts, and how many more would be admitted, of the live cluster."""
    live = "--kubeconfig", str(directory / "k"), "--config", str(directory / "kueue.yaml")
    found = json.loads(run("eta", "--all", *live, "-o", "json").out)
    times = {one["job"]: one for one in found["workloads"]}
    # The pods of the others run for an hour.
    assert 3000 < times["job/sample-3"]["admittedS"] < 3700
    assert times["job/sample-3"]["startedS"] >= times["job/sample-3"]["admittedS"]
    assert times["job/sample-0"]["admittedS"] <= 0
    file = directory / "more.yaml"
    file.write_text(yaml.safe_dump(sample_job("more")))
    answer = run("capacity", str(file), *live, "-o", "json")
    (one,) = json.loads(answer.out)["jobs"]
    assert (answer.code, one["count"], one["position"]) == (1, 0, 2)
    assert one["shortages"][0]["available"] == "0"


def test_documented_jobs_are_admitted_within_the_quota(tmp_path: Path) -> None:
    config = tmp_path / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    deciders = local_deciders([str(config)])

    async def steps() -> None:
        settings = LocalClusterSettings(
            nodes=3, kubeconfig=tmp_path / "k", kueue=deciders.kueue, seed=1
        )
        sources: list[LiveSource] = []
        service = local_scheduler_service(
            deciders, None, lambda server: sources.append(LiveSource(server, 1))
        )
        async with (
            running_local_cluster(settings) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await check_documented_steps(api)
            await asyncio.to_thread(check_listing)
            await asyncio.to_thread(check_forecasts, tmp_path)
            check_page(await sources[0].cluster(), await sources[0].queues(0.0))
            # Room for the last one: it starts without another change.
            background = (("propagationPolicy", "Background"),)
            await api.send(ApiRequest("DELETE", f"{JOBS}/sample-1", background))
            wanted = ["sample-0", "sample-2", "sample-3"]
            await until(api, f"{IN_DEFAULT}/workloads", lambda found: admitted(found) == wanted)
            events = await listed(api, "/api/v1/namespaces/default/events")
            reasons = {one["reason"] for one in events}
            assert reasons >= {
                "CreatedWorkload",
                "QuotaReserved",
                "Admitted",
                "Started",
                "WaitingForQuota",
            }

    def check_page(cluster: Tree, found: Tree) -> None:
        """The page has the same."""
        assert cluster["admission"] == "kueue"
        assert cluster["can"]["queues"]
        (queue,) = found["schedulers"][0]["queues"]
        assert (queue["deserved"]["cpu"], queue["allocated"]["cpu"]) == (9, 9)
        assert (queue["podsPlaced"], queue["podsPending"]) == (9, 3)
        (waiting,) = [one for one in found["gangs"] if one["message"]]
        assert (waiting["gang"], waiting["missing"]) == ("default/job/sample-3", 3)
        assert waiting["message"].startswith("WaitingForQuota: ")
        assert {one["running"] for one in found["gangs"]} == {0, 3}

    def check_listing() -> None:
        """What Kueue would decide, from one listing of the live cluster."""
        source = ClusterSource((), str(tmp_path / "k"), "", is_live=True)
        cluster = read_cluster_source(source, deciders)
        assert deciders.kueue is not None
        report = admit_jobs(cluster, deciders.kueue).report
        assert report is not None
        (waiting,) = report.pending()
        assert (waiting.job, waiting.reason) == ("job/sample-3", "WaitingForQuota")
        (queue,) = report.queues
        assert (queue.admitted, queue.pending, queue.quotas[0].used) == (3, 1, "9")

    asyncio.run(asyncio.wait_for(steps(), 300))
