"""`stowplan up` with KAI's model: groups that its pod-grouper makes, reclaim, elastic and stale
gangs, nested sub-groups, and the statuses of queues and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_deciders, local_scheduler_service
from tests.driver.embedded import Tree
from tests.driver.test_kai_up import JOBS, NODE, PODS, QUEUES, alone, on_nodes, pod, queue
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GROUPS = "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups"


def job(name: str, of_queue: str, pods: int, least: int, **labels: str) -> Tree:
    """A Job whose queue is on the Job alone."""
    template = pod(of_queue)
    del template["metadata"]["labels"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": {"kai.scheduler/queue": of_queue, **labels},
            "annotations": {"kai.scheduler/batch-min-member": str(least)},
        },
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def group(name: str, of_queue: str, **spec: Any) -> Tree:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queue": of_queue, **spec},
    }


def reports_reclaim(event: Tree) -> bool:
    """An event about a PodGroup of which pods were evicted for the gang."""
    notes = event["metadata"].get("annotations") or {}
    return (
        event.get("reason") == "Evict"
        and event["regarding"]["name"].startswith("pg-grows")
        and notes["evictor-action-type"] == "reclaim"
        and notes["evictor-pod-group-name"].startswith("pg-gang")
        and "was preempted by workload default/pg-gang" in event["note"]
    )


def has_times(group: Tree) -> bool:
    """The group of the elastic gang, with the times of its start and of the eviction."""
    notes = group["metadata"].get("annotations") or {}
    names = {f"kai.scheduler/last-{what}-timestamp" for what in ("start", "eviction")}
    return group["metadata"]["name"].startswith("pg-grows") and names <= notes.keys()


def member(name: str, of: str, sub_group: str = "") -> Tree:
    tree = alone(name, pod("red"))
    tree["metadata"]["annotations"] = {**tree["metadata"]["annotations"], "pod-group-name": of}
    if sub_group:
        tree["metadata"]["labels"]["kai.scheduler/subgroup-name"] = sub_group
    return tree


def status_of(objects: list[Any], name: str) -> Any:
    return next(one for one in objects if one["metadata"]["name"] == name).get("status") or {}


def conditions_of(groups: list[Any], name: str) -> list[Any]:
    """Of the first group whose name begins so."""
    found = [one for one in groups if one["metadata"]["name"].startswith(name)]
    status = (found[0].get("status") or {}) if found else {}
    conditions: list[Any] = status.get("schedulingConditions") or []
    return conditions


def with_status(name: str, **fields: Any) -> Callable[[list[Any]], bool]:
    """An object has these fields in its status."""

    def holds(objects: list[Any]) -> bool:
        found = status_of(objects, name)
        return all(found.get(field) == value for field, value in fields.items())

    return holds


def without_terminating(holds: Callable[[list[Any]], bool]) -> Callable[[list[Any]], bool]:
    """Evicted pods of a Job stay until its controller has counted them."""
    return lambda pods: holds([one for one in pods if "deletionTimestamp" not in one["metadata"]])


def run_on_up(tmp_path: Path, steps: Callable[[ApiClient], Awaitable[None]]) -> None:
    (tmp_path / "kai.yaml").write_text("scheduler: kai\n")
    deciders = local_deciders([str(tmp_path / "kai.yaml")])

    async def run() -> None:
        settings = LocalClusterSettings(nodes=0, kubeconfig=tmp_path / "k", serves_kai=True, seed=1)
        service = local_scheduler_service(deciders)
        async with (
            running_local_cluster(settings, [("", NODE)]) as cluster,
            service(cluster),
            ApiClient(load_client_config(str(tmp_path / "k"))) as api,
        ):
            await create(api, QUEUES, queue("top", "", -1, -1))
            await create(api, QUEUES, queue("red", "top", 4, -1))
            await create(api, QUEUES, queue("blue", "top", 4, -1))
            await steps(api)

    asyncio.run(asyncio.wait_for(run(), 300))


def test_a_job_is_grouped_by_its_labels_and_its_queue_shows_what_it_has(tmp_path: Path) -> None:
    async def steps(api: ApiClient) -> None:
        await create(api, JOBS, job("train", "red", 3, 3))
        await until(api, PODS, on_nodes("train", "train", "train"))
        (made,) = await listed(api, GROUPS)
        assert made["metadata"]["ownerReferences"][0]["kind"] == "Job"
        assert made["spec"] | {"topologyConstraint": {}} == {
            "queue": "red",
            "minMember": 3,
            "priorityClassName": "train",
            "topologyConstraint": {},
        }
        name = made["metadata"]["name"]
        assert {
            one["metadata"]["annotations"]["pod-group-name"] for one in await listed(api, PODS)
        } == {name}
        has = {"nvidia.com/gpu": "3"}
        resources = {"allocated": has, "requested": has}
        await until(api, GROUPS, with_status(name, resourcesStatus=resources))
        # What a queue has is also that of the queue above it.
        for of in ("red", "top"):
            await until(api, QUEUES, with_status(of, allocated=has, requested=has))
        assert status_of(await listed(api, QUEUES), "top")["childQueues"] == ["blue", "red"]
        # A class that may not be preempted counts apart.
        await create(api, JOBS, job("serve", "blue", 1, 1, priorityClassName="build"))
        one = {"nvidia.com/gpu": "1"}
        await until(api, QUEUES, with_status("blue", allocatedNonPreemptible=one))
        # A gang that finds no room has a condition, and keeps what its controller writes.
        await create(api, JOBS, job("wide", "red", 9, 9))
        wide = await until(api, GROUPS, lambda found: bool(conditions_of(found, "pg-wide")))
        (condition,) = conditions_of(wide, "pg-wide")
        assert (condition["type"], condition["nodePool"], condition["reason"]) == (
            "UnschedulableOnNodePool",
            "default",
            "Unschedulable",
        )

    run_on_up(tmp_path, steps)


def test_a_gang_reclaims_what_another_queue_has_beyond_its_quota(tmp_path: Path) -> None:
    async def steps(api: ApiClient) -> None:
        # An elastic gang grows over the quota of its queue, and gives back down to its minimum.
        await create(api, JOBS, job("grows", "red", 8, 2))
        await until(api, PODS, on_nodes(*["grows"] * 8))
        await create(api, JOBS, job("gang", "blue", 4, 4))
        await until(api, PODS, without_terminating(on_nodes(*["gang"] * 4, *["grows"] * 4)))
        # The events say by whom, and the group when.
        await until(api, EVENTS, lambda events: any(map(reports_reclaim, events)))
        await until(api, GROUPS, lambda groups: any(map(has_times, groups)))

    run_on_up(tmp_path, steps)


def test_nested_sub_groups_start_together_and_a_stale_gang_is_evicted(tmp_path: Path) -> None:
    async def steps(api: ApiClient) -> None:
        sub_groups = [
            {"name": "left", "minSubGroup": 2},
            {"name": "left-a", "parent": "left", "minMember": 1},
            {"name": "left-b", "parent": "left", "minMember": 1},
            {"name": "right", "minMember": 1},
        ]
        spec = {"minSubGroup": 2, "subGroups": sub_groups, "stalenessGracePeriod": "1s"}
        await create(api, GROUPS, group("nested", "red", **spec))
        for name in ("left-a", "right"):
            await create(api, PODS, member(f"nested-{name}", "nested", name))
        # Another job shows that sessions have run since: the gang waits for its third pod.
        await create(api, PODS, alone("other", pod("blue")))
        await until(api, PODS, on_nodes("other"))
        await create(api, PODS, member("nested-left-b", "nested", "left-b"))
        await until(api, PODS, on_nodes(*["nested"] * 3, "other"))
        # Without one of its pods it is stale, and after its grace period all are evicted.
        gone = await api.send(ApiRequest("DELETE", f"{PODS}/nested-right"))
        assert gone.status == 200
        await until(api, PODS, on_nodes("other"))

    run_on_up(tmp_path, steps)
