"""`stowplan up` with a configuration of Volcano: its Jobs run, and wait where its queues say so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.cli.runs.cluster_source import ClusterSource, read_cluster_source
from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.volcano_listing import list_volcano_cluster
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from stowplan.forecast.queue_comparison.queue_comparer import (
    AS_GOOD,
    SAME,
    STARTED,
    DecisionMismatch,
    QueueComparer,
)
from stowplan.inputs.importers.volcano_cluster import volcano_cluster_of
from tests.driver.embedded import Tree

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: gang}]
- plugins: [{name: predicates}, {name: capacity}]
"""
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = f"{SCHEDULING}/namespaces/default/podgroups"


def vcjob(name: str, n_pods: int) -> Tree:
    asks = {"requests": {"cpu": "1"}}
    # The annotation keeps the pods running until the test ends.
    template = {
        "metadata": {"annotations": {"stowplan.dev/run-seconds": "3600"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": asks}],
        },
    }
    task = {"name": "w", "replicas": n_pods, "template": template}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"queue": "small", "minAvailable": n_pods, "tasks": [task]},
    }


async def create(api: ApiClient, path: str, tree: Tree) -> None:
    answer = await api.send(ApiRequest("POST", path, (), json.dumps(tree).encode(), JSON))
    assert answer.status == 201, answer.body


async def listed(api: ApiClient, path: str) -> list[Any]:
    answer = await api.send(ApiRequest("GET", path))
    assert answer.status == 200, answer.body
    found: list[Any] = json.loads(answer.body)["items"]
    return found


async def until(api: ApiClient, path: str, holds: Callable[[list[Any]], bool]) -> list[Any]:
    """The objects of a path once a condition holds; the caller has the time limit."""
    while True:
        found = await listed(api, path)
        if holds(found):
            return found
        await asyncio.sleep(0.1)


def phases(jobs: list[Any]) -> dict[str, str]:
    return {
        job["metadata"]["name"]: ((job.get("status") or {}).get("state") or {}).get("phase", "")
        for job in jobs
    }


def test_a_job_runs_and_the_next_waits_for_the_capability_of_its_queue(tmp_path: Path) -> None:
    (tmp_path / "volcano.conf").write_text(CONFIGURATION)
    deciders = local_deciders([str(tmp_path / "volcano.conf")])
    comparer, differences = QueueComparer(deciders), list[DecisionMismatch]()
    source = ClusterSource((), str(tmp_path / "k"), "", is_live=True)

    async def look() -> None:
        listed = await asyncio.to_thread(read_cluster_source, source, deciders)
        differences.extend(comparer.next(listed))

    async def steps() -> None:
        settings = LocalClusterSettings(
            nodes=3, kubeconfig=tmp_path / "k", serves_volcano=True, seed=1
        )
        service = local_scheduler_service(deciders)
        async with (
            running_local_cluster(settings) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await check_two_jobs(api, look)
            # A comparison beside it has seen both jobs start as the model starts them.
            starts = {kind: n for (what, kind), n in comparer.counts.items() if what == STARTED}
            assert sum(starts.values()) == starts.get(SAME, 0) + starts.get(AS_GOOD, 0) == 4
            assert differences == []
            await asyncio.to_thread(check_import)

    def check_import() -> None:
        """What `stowplan import volcano` reads of this cluster."""
        listing = list_volcano_cluster(load_client_config(str(tmp_path / "k")))
        found = volcano_cluster_of(listing.trees)
        assert listing.refused == ""
        assert (found.counts["Node"], found.counts["Job"], found.counts["Queue"]) == (3, 1, 3)
        assert found.source == "default configuration of Volcano"

    asyncio.run(asyncio.wait_for(steps(), 300))


async def check_two_jobs(api: ApiClient, look: Callable[[], Awaitable[None]]) -> None:
    """look: called wherever nothing is under way."""
    meta, version = {"name": "small"}, "scheduling.volcano.sh/v1beta1"
    spec = {"weight": 1, "capability": {"cpu": "3"}}
    queue = {"apiVersion": version, "kind": "Queue", "metadata": meta, "spec": spec}
    await create(api, f"{SCHEDULING}/queues", queue)
    await look()
    await create(api, JOBS, vcjob("first", 2))
    await until(api, JOBS, lambda jobs: phases(jobs) == {"first": "Running"})
    await look()
    await create(api, JOBS, vcjob("second", 2))

    def refused(events: list[Any]) -> bool:
        texts = (one.get("message") or one.get("note") or "" for one in events)
        limit = "not inqueue: queue small's capability cpu 3, 2 in use, 2 asked"
        return any(text == limit for text in texts)

    await until(api, "/api/v1/namespaces/default/events", refused)
    assert phases(await listed(api, JOBS))["second"] == "Pending"

    def first_runs(groups: list[Any]) -> bool:
        found = (one for one in groups if one["metadata"]["name"].startswith("first-"))
        return all((one.get("status") or {}).get("phase") == "Running" for one in found)

    await until(api, GROUPS, first_runs)
    pods = await listed(api, "/api/v1/namespaces/default/pods")
    assert sorted(pod["metadata"]["name"] for pod in pods) == ["first-w-0", "first-w-1"]
    # Room for the second one: it starts without another change.
    await api.send(ApiRequest("DELETE", f"{JOBS}/first"))
    await until(api, JOBS, lambda jobs: phases(jobs) == {"second": "Running"})
    await look()
