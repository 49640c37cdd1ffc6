"""`stowplan run --act` on a `stowplan up` without Kueue's controllers, with the shipped rights."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from stowplan.client.requests import JSON, ApiRequest
from stowplan.controllers.kueue.kueue_kinds import PRIORITY_LABEL, kueue_definitions
from stowplan.driver.client.api_client import ApiClient
from tests.cli.run import run
from tests.driver.embedded import DEPLOY, Cluster, Tree, cluster
from tests.driver.kueue_cluster import CONFIG, cluster_queue, flavors_of, local_queue, states
from tests.driver.processes import replica
from tests.driver.test_kueue_up import IN_DEFAULT, JOBS, KUEUE, kueue, sample_job
from tests.driver.test_volcano_up import create, listed, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]


async def prepare(on: Cluster) -> None:
    """Kueue's kinds, the rights, and a queue with room for four of the pods of sample jobs."""
    for tree in kueue_definitions():
        await on.create(tree)
    for tree in yaml.safe_load_all((DEPLOY / "kueue.yaml").read_text()):
        await on.create(tree)
    flavor = kueue("ResourceFlavor", "f", nodeLabels={"pool": "batch"})
    groups = flavors_of(("f", {"cpu": 4, "memory": "36Gi"}))
    preemption = {"withinClusterQueue": "LowerPriority"}
    queue = cluster_queue("cluster-queue", groups, preemption=preemption)
    high = kueue("WorkloadPriorityClass", "high")
    high = {**{name: high[name] for name in high if name != "spec"}, "value": 1000}
    await created(on.api, f"{KUEUE}/resourceflavors", flavor)
    await created(on.api, f"{KUEUE}/clusterqueues", queue)
    await created(on.api, f"{KUEUE}/workloadpriorityclasses", high)
    await created(on.api, f"{IN_DEFAULT}/localqueues", local_queue("user-queue", "cluster-queue"))


async def created(api: ApiClient, path: str, tree: Tree) -> None:
    """Create an object of a kind that is served a moment after its definition was made."""
    await until_served(api, path)
    await create(api, path, tree)


async def until_served(api: ApiClient, path: str) -> None:
    while (await api.send(ApiRequest("GET", path))).status != 200:
        await asyncio.sleep(0.1)


async def until_states(api: ApiClient, wanted: dict[str, str]) -> None:
    await until(api, f"{IN_DEFAULT}/workloads", lambda found: states(found) == wanted)


async def job(api: ApiClient, name: str, holds: Any) -> Tree:
    """A job once a condition holds."""
    found = await until(
        api, JOBS, lambda jobs: any(holds(one) for one in jobs if one["metadata"]["name"] == name)
    )
    return next(one for one in found if one["metadata"]["name"] == name)


def is_suspended(one: Tree) -> bool:
    return bool(one["spec"].get("suspend"))


def selector(one: Tree) -> Tree | None:
    found: Tree | None = one["spec"]["template"]["spec"].get("nodeSelector")
    return found


async def check_admission(api: ApiClient) -> None:
    """A job runs, the next waits for quota, and one of a higher priority takes its place."""
    await create(api, JOBS, sample_job("first"))
    started = await job(api, "first", lambda one: not is_suspended(one))
    assert selector(started) == {"pool": "batch"}
    # Of two that were created in the same second either may come first.
    await asyncio.sleep(1.1)
    # One that is not created suspended is suspended.
    waiting = sample_job("second")
    waiting["spec"]["suspend"] = False
    await create(api, JOBS, waiting)
    await until_states(api, {"first": "Admitted", "second": "WaitingForQuota"})
    assert is_suspended(await job(api, "second", is_suspended))
    urgent = sample_job("urgent")
    urgent["metadata"]["labels"][PRIORITY_LABEL] = "high"
    await create(api, JOBS, urgent)
    wanted = {"first": "WaitingForQuota", "second": "WaitingForQuota", "urgent": "Admitted"}
    await until_states(api, wanted)
    stopped = await job(api, "first", lambda one: is_suspended(one) and not selector(one))
    assert not (stopped.get("status") or {}).get("active")
    await job(api, "urgent", lambda one: not is_suspended(one))
    (queue,) = await listed(api, f"{KUEUE}/clusterqueues")
    counts = queue["status"]
    assert (counts["admittedWorkloads"], counts["pendingWorkloads"]) == (1, 2)
    events = await listed(api, "/api/v1/namespaces/default/events")
    reasons = {one["reason"] for one in events}
    assert reasons >= {"CreatedWorkload", "QuotaReserved", "Admitted", "Started", "Stopped"}


def test_jobs_are_admitted_wait_and_are_preempted(tmp_path: Path) -> None:
    (tmp_path / "kueue.yaml").write_text(CONFIG)

    async def steps() -> None:
        async with cluster(tmp_path, 1) as on:
            await prepare(on)
            given = "--act", "--config", str(tmp_path / "kueue.yaml"), "--kubeconfig", on.kubeconfig
            given = *given, "--lease-namespace", "stowplan-system"
            async with replica(*given) as first, replica(*given) as second:
                await check_admission(on.api)
                # The one that leads ends, and the other goes on.
                for one in (first, second):
                    if one.has_logged("Successfully acquired lease"):
                        one.signal(signal.SIGTERM)
                        assert await one.ended() == 0
                        break
                background = (("propagationPolicy", "Background"),)
                await on.api.send(ApiRequest("DELETE", f"{JOBS}/urgent", background))
                await until_states(on.api, {"first": "Admitted", "second": "WaitingForQuota"})
                again = await job(on.api, "first", lambda one: not is_suspended(one))
                assert selector(again) == {"pool": "batch"}
                left = second if first.process.returncode is not None else first
                assert left.process.returncode is None
                await check_refusal(on, *given)
                # Kueue's manager has been started beside it.
                assert await left.ended() == 1

    asyncio.run(asyncio.wait_for(steps(), 600))


JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
TORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
ADMISSION_GATE = {"name": "kueue.x-k8s.io/admission"}


def queued(api_version: str, kind: str, name: str, spec: Tree, **labels: str) -> Tree:
    """An object in the queue."""
    marks = {"kueue.x-k8s.io/queue-name": "user-queue", **labels}
    meta: Tree = {"name": name, "namespace": "default", "labels": marks}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def pods_of(name: str, pods: list[Tree]) -> list[Tree]:
    """The pods of a JobSet."""
    label = "jobset.sigs.k8s.io/jobset-name"
    return [one for one in pods if one["metadata"]["labels"].get(label) == name]


async def check_other_jobs(api: ApiClient) -> None:
    """A JobSet, whose controller runs here, a job of Kubeflow, whose does not, and a pod group."""
    pod = sample_job("x")["spec"]["template"]["spec"]
    jobs = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    spec = {"replicatedJobs": [{"name": "workers", "template": {"spec": jobs}}]}
    for name in ("first", "second"):
        # Neither is created suspended: nothing here changes them while they are.
        made = queued("jobset.x-k8s.io/v1alpha2", "JobSet", name, spec)
        await created(api, JOB_SETS, made)
        await until(api, f"{IN_DEFAULT}/workloads", lambda found, n=name: n in states(found))
    running = await until(
        api, PODS, lambda pods: len(pods_of("first", pods)) == len(pods_of("second", pods)) == 2
    )
    assert {one["spec"]["nodeSelector"]["pool"] for one in running} == {"batch"}
    replicas = {"Worker": {"replicas": 2, "template": {"spec": pod}}}
    torch = queued("kubeflow.org/v1", "PyTorchJob", "torch", {"pytorchReplicaSpecs": replicas})
    await created(api, TORCH_JOBS, torch)
    # Of two that were created in the same second either may come first.
    await asyncio.sleep(1.1)
    marks = {"kueue.x-k8s.io/pod-group-name": "group", "kueue.x-k8s.io/managed": "true"}
    for name in ("g0", "g1"):
        one = queued("v1", "Pod", name, {**pod, "schedulingGates": [ADMISSION_GATE]}, **marks)
        one["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        await create(api, PODS, one)
    full = {"first": "Admitted", "second": "Admitted"}
    waiting = full | {"torch": "WaitingForQuota", "g0": "WaitingForQuota"}
    await until_states(api, waiting)
    (held,) = await until(api, TORCH_JOBS, lambda found: found[0]["spec"]["runPolicy"]["suspend"])
    # Room for one of them, which was first, and then for the other.
    background = (("propagationPolicy", "Background"),)
    await api.send(ApiRequest("DELETE", f"{JOB_SETS}/first", background))
    await until(api, TORCH_JOBS, lambda found: not found[0]["spec"]["runPolicy"]["suspend"])
    (held,) = await listed(api, TORCH_JOBS)
    template = held["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert template["nodeSelector"] == {"pool": "batch"}
    held["status"] = {"conditions": [{"type": "Succeeded", "status": "True", "message": "done"}]}
    done = ApiRequest("PUT", f"{TORCH_JOBS}/torch/status", (), json.dumps(held).encode(), JSON)
    assert (await api.send(done)).is_done

    def are_released(pods: list[Tree]) -> bool:
        group = [one for one in pods if one["metadata"]["name"] in ("g0", "g1")]
        return len(group) == 2 and not any(one["spec"].get("schedulingGates") for one in group)

    await until(api, PODS, are_released)
    events = await listed(api, "/api/v1/namespaces/default/events")
    # Its own controller has stopped the Jobs of a JobSet, and was not worked against.
    n_deleted = sum(one.get("count", 1) for one in events if one["reason"] == "SuccessfulDelete")
    assert n_deleted <= 8


def test_jobs_of_other_kinds_are_admitted(tmp_path: Path) -> None:
    (tmp_path / "kueue.yaml").write_text(CONFIG)
    gates = "GenericWorkload=true,WorkloadWithJob=true"

    async def steps() -> None:
        async with cluster(tmp_path, 1, gates=gates) as on:
            await prepare(on)
            given = "--act", "--config", str(tmp_path / "kueue.yaml"), "--kubeconfig", on.kubeconfig
            async with replica(*given, "--lease-namespace", "stowplan-system") as acting:
                await check_other_jobs(on.api)
                assert acting.process.returncode is None

    asyncio.run(asyncio.wait_for(steps(), 300))


async def check_refusal(on: Cluster, *given: str) -> None:
    """Beside Kueue's own manager nothing is admitted."""
    about = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
    pod = {
        "metadata": {"labels": about},
        "spec": {"containers": [{"name": "manager", "image": "x"}]},
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager", "namespace": "default", "labels": about},
        "spec": {"replicas": 1, "selector": {"matchLabels": about}, "template": pod},
    }
    await on.create(deployment)
    async with replica(*given) as refused:
        assert await refused.ended() == 1
        assert any("Kueue's own manager is deployed as default/" in line for line in refused.raw)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "a configuration of Kueue needs --act (admit jobs in place of Kueue's own manager) or "
         "--compare (write nothing, compare with it)"),
        (["--act", "--compare"], "--act cannot be used with --compare"),
        (["--act", "--dry-run"], "--dry-run cannot be used with --act"),
        (["--act", "--seed", "1"], "--seed cannot be used with --act"),
        (["--act", "--record", "r.rec"], "--record cannot be used with --act"),
        (["--act", "--web"], "--web cannot be used with --act"),
        (["--act", "--burst", "3"], "--burst cannot be used with --act"),
    ],
)  # fmt: skip
def test_what_to_do_with_kueue_has_to_be_given(arguments: list[str], text: str) -> None:
    found = run("run", "--compat", "kueue", *arguments)
    assert found.code == 2
    assert text in found.err


def test_acting_needs_kueue_and_no_scheduler(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    found = run("run", "--act", "--config", str(file))
    assert (found.code, "--act needs a --config of Kueue" in found.err) == (2, True)
    found = run("run", "--act", "--compat", "kueue", "--config", str(file))
    assert (found.code, "places no pods" in found.err) == (2, True)
