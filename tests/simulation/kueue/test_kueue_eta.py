"""`stowplan eta` where Kueue admits jobs: when each is admitted, from files and from a dump."""

from __future__ import annotations

import json
from pathlib import Path

from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from stowplan.controllers.kueue.kueue_kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOADS
from stowplan.controllers.kueue.train_jobs import TRAIN_JOBS
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import simulate
from tests.apiserver.small_cluster import JOBS
from tests.cli.run import Ran, check_one_line, run
from tests.controllers.test_job_sets import replicated
from tests.controllers.test_kueue_job_sets import QueuedJobSets, TorchJobs, torch
from tests.simulation.kueue.test_job_admission import (
    QUEUE,
    Tree,
    flavor,
    job,
    kueue,
    node,
    queue,
    written,
)
from tests.simulation.kueue.test_replayed_jobs import timed


def asked(directory: Path, *arguments: str, objects: list[Tree | list[Tree]]) -> Ran:
    (directory / "kueue.yaml").write_text("scheduler: kueue\n")
    file = written(directory, node(), flavor(), *objects)
    return run("eta", *arguments, "-f", str(file), "--config", str(directory / "kueue.yaml"))


def test_a_job_is_admitted_when_the_one_before_it_ends(tmp_path: Path) -> None:
    jobs = timed("a", "one", 3, 600), timed("b", "one", 2, 60, minute=1), timed("c", "one", 9, 60)
    objects: list[Tree | list[Tree]] = [queue("one", "4"), *jobs]
    found = asked(tmp_path, "job/b", "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["workloads"]
    assert found.code == 0
    assert (one["job"], one["createdS"], one["status"]) == ("job/b", 60.0, "Finished")
    assert 600 < one["admittedS"] < one["startedS"] < 610
    assert one["startedS"] + 60 <= one["finishedS"] <= one["startedS"] + 65
    (first,) = json.loads(asked(tmp_path, "job/c", "-o", "json", objects=objects).out)["workloads"]
    # It was created before b, which Kueue asks afterwards.
    assert first["now"]["position"] == 1
    never = asked(tmp_path, "job/c", objects=objects)
    assert (
        "job/c in default waits now: position 1 in the queue; short: cpu in flavor f" in never.out
    )
    assert never.code == 1
    assert "job/c in default: ExceedsMaxQuota" in never.out
    check_one_line(asked(tmp_path, "job/d", objects=objects), '"job/d" not found', "job/a, job/c")


CREATED, TAKEN = "2026-05-01T12:00:00Z", "2026-05-01T12:05:00Z"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u-a", "controller": True}


def stored(tree: Tree, uid: str, **meta: object) -> Tree:
    tree["metadata"] |= {"uid": uid, "creationTimestamp": CREATED, **meta}
    return tree


def running_job() -> list[Tree]:
    """A Job, its Workload and its pod, as a dump has them five minutes after the start."""
    job = stored(timed("a", "one", 1, 600), "u-a")
    template = job["spec"]["template"]
    template["metadata"]["labels"] = labels = {"batch.kubernetes.io/controller-uid": "u-a"}
    job["spec"] |= {"suspend": False, "selector": {"matchLabels": labels}}
    meta = {**template["metadata"], "name": "a-0", "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    pod["spec"] = {**template["spec"], "nodeName": node()["metadata"]["name"]}
    state = {"name": "c", "state": {"running": {"startedAt": CREATED}}}
    pod["status"] = {"phase": "Running", "startTime": CREATED, "containerStatuses": [state]}
    finalizers = ["batch.kubernetes.io/job-tracking"]
    stored(pod, "u-pod", finalizers=finalizers, ownerReferences=[OWNER])
    workload = stored(kueue("Workload", "job-a"), "u-w", ownerReferences=[OWNER])
    pod_set = {"name": "main", "count": 1, "template": template}
    workload["spec"] = {"queueName": "one", "podSets": [pod_set]}
    condition = {"status": "True", "reason": "r", "message": "", "lastTransitionTime": CREATED}
    used = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    assigned = [{"name": "main", "count": 1, **used}]
    workload["status"] = {
        "admission": {"clusterQueue": "one", "podSetAssignments": assigned},
        "conditions": [{"type": kind, **condition} for kind in ("QuotaReserved", "Admitted")],
    }
    return [job, workload, pod]


def test_the_pods_of_a_dump_have_run_for_a_while(tmp_path: Path) -> None:
    waits = timed("b", "one", 4, 60)
    waits["metadata"]["creationTimestamp"] = TAKEN
    objects: list[Tree | list[Tree]] = [queue("one", "4"), running_job(), waits]
    found = asked(tmp_path, "--all", "-o", "json", objects=objects)
    times = {one["job"]: one for one in json.loads(found.out)["workloads"]}
    # It has run for five of its ten minutes.
    assert times["job/a"]["createdS"] == -300
    assert 295 < times["job/a"]["finishedS"] < 310
    assert times["job/b"]["admittedS"] >= times["job/a"]["finishedS"] - 1


def test_a_job_of_a_dump_without_a_selector_knows_its_pods(tmp_path: Path) -> None:
    """As in dumps that a tool has cleaned up, or that were written by hand."""
    made = running_job()
    del made[0]["spec"]["selector"]
    del made[0]["spec"]["template"]["metadata"]["labels"]
    objects: list[Tree | list[Tree]] = [queue("one", "4"), made]
    config = tmp_path / "kueue.yaml"
    config.write_text("scheduler: kueue\n")
    file = written(tmp_path, node(), flavor(), *objects)
    result = simulate(file, config=config, replay=ReplayOptions(until_s=900.0))
    # Its only pod was there already.
    assert result.placements == []
    (workload,) = result.summary["workloads"]
    assert workload["status"] == "Finished"


def test_run_times_that_finished_pods_show(tmp_path: Path) -> None:
    """Of a job whose pods declare nothing, and of one that has none that finished."""
    done = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-0", "namespace": "default"}}
    stored(done, "u-done", ownerReferences=[{**OWNER, "uid": "u-gone"}])
    done["spec"] = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-05-01T12:02:00Z"}}
    states = [{"name": "c", "state": ended}]
    done["status"] = {"phase": "Succeeded", "startTime": CREATED, "containerStatuses": states}
    limited = job("b", "one", 1)
    limited["spec"]["activeDeadlineSeconds"] = 30
    objects: list[Tree | list[Tree]] = [queue("one", "9"), done, job("a", "one", 1), limited]
    found = asked(tmp_path, "--all", "-o", "json", objects=objects)
    answer = json.loads(found.out)
    lasted = {
        one["job"]: one["finishedS"] - one["startedS"]
        for one in answer["workloads"]
        if one["startedS"] is not None
    }
    assert 119 <= lasted["job/a"] <= 125
    assert 29 <= lasted["job/b"] <= 35
    assert "finished pods of the same owner" in answer["assumptions"][1]


def service_pod(name: str, owner: Tree, **status: object) -> Tree:
    """A pod whose containers start again when they end."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}
    stored(pod, f"u-{name}", ownerReferences=[owner] if owner else [])
    pod["spec"] = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    pod["spec"]["restartPolicy"] = "Always"
    pod["status"] = {"phase": "Running", "startTime": CREATED, **status}
    return pod


def test_pods_of_services_do_not_end(tmp_path: Path) -> None:
    """Nor does one that was evicted say how long jobs run."""
    done = service_pod("a-0", {**OWNER, "uid": "u-gone"}, phase="Succeeded")
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-05-01T12:02:00Z"}}
    done["status"]["containerStatuses"] = [{"name": "c", "state": ended}]
    sets = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web"}
    late = {"terminated": {"exitCode": 1, "finishedAt": "2026-05-01T22:00:00Z"}}
    evicted = service_pod("web-1", {**sets, "controller": True}, phase="Failed")
    evicted["status"]["containerStatuses"] = [{"name": "c", "state": late}]
    running = service_pod("web-0", {**sets, "controller": True}), service_pod("alone", {})
    objects: list[Tree | list[Tree]] = [queue("one", "9"), done, evicted, *running]
    found = asked(tmp_path, "--all", "-o", "json", objects=[*objects, job("b", "one", 1)])
    assert found.code == 0, found.err
    (one,) = json.loads(found.out)["workloads"]
    assert 119 <= one["finishedS"] - one["startedS"] <= 125


def test_a_train_job_of_files_has_its_own_name_and_start(tmp_path: Path) -> None:
    trainer = {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "2"}}}
    meta = {"name": "t", "namespace": "default", "labels": {QUEUE: "one"}}
    train = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta}
    train["spec"] = {"runtimeRef": {"name": "torch"}, "trainer": trainer, "suspend": True}
    objects: list[Tree | list[Tree]] = [queue("one", "4"), train]
    found = asked(tmp_path, "trainjob/t", "-o", "json", objects=objects)
    (one,) = json.loads(found.out)["workloads"]
    assert (one["job"], one["status"]) == ("trainjob/t", "Finished")
    assert one["startedS"] is not None


TORCH_JOBS = "kubeflow.org/pytorchjobs"


def dump(cluster: QueuedJobSets, directory: Path) -> Path:
    """The objects of a cluster as its API server has stored them."""
    runtimes = "trainer.kubeflow.org/clustertrainingruntimes"
    queues = WORKLOADS, CLUSTER_QUEUES, LOCAL_QUEUES, FLAVORS
    for path in ("nodes", "pods", JOBS, JOB_SETS, TRAIN_JOBS, TORCH_JOBS, runtimes, *queues):
        resource = cluster.server.registry.by_path(path)
        assert resource is not None
        for one in cluster.list(path):
            one |= {"apiVersion": resource.api_version, "kind": resource.kind}
            file = directory / f"{resource.kind}-{one['metadata']['name']}.json"
            file.write_text(json.dumps(one))
    return directory


def test_job_sets_of_a_dump_run_on(tmp_path: Path) -> None:
    cluster = TorchJobs("5")
    cluster.runtime("torch", nodes=2, run=300)
    cluster.torch_job("torch", torch(1, 9000))
    cluster.queued("first", replicated("workers", 3, run=600))
    cluster.train("then", "torch")
    cluster.queued("last", replicated("workers", 3, run=60))
    cluster.run(120)
    (tmp_path / "dump").mkdir()
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    file, config = str(dump(cluster, tmp_path / "dump")), str(tmp_path / "kueue.yaml")
    found = run("eta", "--all", "-f", file, "--config", config, "-o", "json")
    times = {one["job"]: one for one in json.loads(found.out)["workloads"]}
    assert {one["status"] for one in times.values()} == {"Finished"}
    first, then, last = (times[name] for name in ("jobset/first", "trainjob/then", "jobset/last"))
    # Its pods have run for about two of their ten minutes.
    assert first["startedS"] == 0
    assert 450 < first["finishedS"] < 610
    assert first["finishedS"] <= then["admittedS"] < then["startedS"] < first["finishedS"] + 10
    assert 290 < then["finishedS"] - then["startedS"] < 310
    assert then["finishedS"] <= last["admittedS"] < then["finishedS"] + 5
    running = times["pytorchjob/torch"]
    assert running["startedS"] == 0
    assert 8850 < running["finishedS"] < 9010


def test_explain_finds_a_workload_by_its_name_and_by_its_pods(tmp_path: Path) -> None:
    cluster = QueuedJobSets("3")
    cluster.queued("first", replicated("workers", 3, run=600))
    cluster.queued("last", replicated("workers", 3, run=60))
    cluster.run(10)
    (tmp_path / "dump").mkdir()
    (tmp_path / "kueue.yaml").write_text("scheduler: kueue\n")
    file, config = str(dump(cluster, tmp_path / "dump")), str(tmp_path / "kueue.yaml")
    options = "-f", file, "--config", config
    pod = f"pod/{cluster.pods()[0]['metadata']['name']}"
    admitted = run("explain", pod, *options)
    assert admitted.code == 0
    assert admitted.out.startswith("jobset/first in default: Admitted\n")
    # Its pods are placed by the scheduler, whose answer follows.
    assert f"\ndefault/{pod.removeprefix('pod/')} (default-scheduler): on " in admitted.out
    name = cluster.workload("last")["metadata"]["name"]
    waiting = run("explain", f"workload/{name}", *options)
    assert waiting.code == 1
    assert waiting.out.startswith("jobset/last in default: Pending\n")
    check_one_line(run("explain", "pod/none", *options), '"pod/none" not found', "jobset/first")
