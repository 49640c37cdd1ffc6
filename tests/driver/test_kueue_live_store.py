"""Kueue's controllers over a live cluster's store: what is known, and quota in spite of faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controller_runtime.resource_paths import JOBS, PODS
from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from stowplan.controllers.kueue.kueue_kinds import (
    CLUSTER_QUEUES,
    FLAVORS,
    LOCAL_QUEUES,
    QUEUE_LABEL,
    WORKLOADS,
)
from stowplan.controllers.kueue.queued_job_kinds import KINDS_BY_NAME
from stowplan.controllers.kueue.train_jobs import TRAIN_JOBS
from stowplan.controllers.kueue.workload_status import is_true
from stowplan.driver.live.kueue.live_controllers import LiveControllers
from stowplan.driver.live.kueue.live_store import LiveStore
from stowplan.driver.live.kueue.object_replica import ObjectReplica
from tests.driver.kueue_server import KueueServer

Tree = dict[str, Any]
QUOTA = 5
N_STEPS = 60
SEEDS = (0, 3, 5, 13, 14)


def encoded(version: int, uid: str = "u", **more: Any) -> bytes:
    meta = {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return json.dumps({"metadata": meta, **more}).encode()


def test_what_is_older_than_an_own_write_is_dropped() -> None:
    replica = ObjectReplica()
    assert replica.put("p", encoded(3)) is not None
    written = replica.put("p", encoded(7, spec=1))
    assert written is not None
    assert (written.type, written.previous) == ("MODIFIED", encoded(3))
    # The watch shows them later.
    assert replica.put("p", encoded(5)) is None
    assert replica.put("p", encoded(7, spec=1)) is None
    assert replica.get("p", "n", "a") == encoded(7, spec=1)


def test_a_late_answer_does_not_revive_a_deleted_object() -> None:
    replica = ObjectReplica()
    replica.put("p", encoded(3))
    gone = replica.remove("p", "n", "a", "u", 9)
    assert gone is not None
    assert gone.type == "DELETED"
    assert replica.put("p", encoded(8)) is None
    again = replica.put("p", encoded(10, "other"))
    assert again is not None
    assert again.type == "ADDED"
    # The deletion of the one before it is shown late.
    assert replica.remove("p", "n", "a", "u", 9) is None
    assert list(replica.list("p", "n")) == [encoded(10, "other")]


def kueue(kind: str, name: str, spec: Tree, namespace: str = "") -> Tree:
    meta = {"name": name, "labels": {}} | ({"namespace": namespace} if namespace else {})
    version = "kueue.x-k8s.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def workload(name: str, cpu: int, priority: int) -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    pod_sets = [{"name": "main", "count": 1, "template": template}]
    spec = {"queueName": "q", "podSets": pod_sets, "priority": priority, "active": True}
    tree = kueue("Workload", name, spec, "default")
    tree["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return tree


def cluster_queue() -> Tree:
    quotas = [{"name": "cpu", "nominalQuota": str(QUOTA)}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": quotas}]}
    return kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": [group]})


def cpus(one: Tree) -> int:
    (container,) = one["spec"]["podSets"][0]["template"]["spec"]["containers"]
    return int(container["resources"]["requests"]["cpu"])


class Run:
    """Controllers on a faulty server. now: Unix seconds."""

    def __init__(self, seed: int, store: type[LiveStore] = LiveStore) -> None:
        self.server = KueueServer(seed)
        self.controllers = LiveControllers(KueueOptions())
        self.store = store(ObjectReplica(), self.server.send, self.controllers.changed)
        self.controllers.attach(self.store)
        self.now = 1_770_000_000.0
        self.server.put("namespaces", {"metadata": {"name": "default"}})
        self.server.put(FLAVORS, kueue("ResourceFlavor", "f", {}))
        self.server.put(CLUSTER_QUEUES, cluster_queue())
        local = kueue("LocalQueue", "q", {"clusterQueue": "cq"}, "default")
        self.server.put(LOCAL_QUEUES, local)

    def work(self, n_changes: int) -> None:
        """Time passes, the watch shows some changes, and the controllers work."""
        self.now += 2.0
        self.server.show(self.store, n_changes)
        if self.store.read_unsure():
            self.controllers.step(self.now)

    def workloads(self) -> list[Tree]:
        return [tree for (path, *_), tree in self.server.objects.items() if path == WORKLOADS]

    def used(self) -> int:
        """CPUs of what holds quota, as it is stored."""
        return sum(
            cpus(one)
            for one in self.workloads()
            if is_true(one, "QuotaReserved") and not is_true(one, "Finished")
        )

    def disturb(self, number: int) -> None:
        """Others create a Workload, finish one, and touch one."""
        rng = self.server.rng
        if number < 40:
            cpu = int(rng.integers(2, 5))
            self.server.put(WORKLOADS, workload(f"w{number}", cpu, number))
        held = [one for one in self.workloads() if is_true(one, "Admitted")]
        held = [one for one in held if not is_true(one, "Finished")]
        if held and rng.random() < 0.5:
            one = json.loads(json.dumps(held[int(rng.integers(len(held)))]))
            ended = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
            one["status"]["conditions"].append(ended)
            self.server.put(WORKLOADS, one)
        if rng.random() < 0.4 and self.workloads():
            every = self.workloads()
            one = json.loads(json.dumps(every[int(rng.integers(len(every)))]))
            one["metadata"]["labels"]["touched"] = str(number)
            self.server.put(WORKLOADS, one)


def largest_use(run: Run) -> int:
    """The largest use of quota while answers are lost, others write and the watch lags."""
    run.work(run.server.n_unseen)
    run.server.is_faulty = True
    largest = 0
    for number in range(N_STEPS):
        run.disturb(number)
        run.work(int(run.server.rng.integers(4)))
        largest = max(largest, run.used())
    return largest


@pytest.mark.parametrize("seed", SEEDS)
def test_quota_holds_though_answers_are_lost_and_others_write(seed: int) -> None:
    run = Run(seed)
    assert 0 < largest_use(run) <= QUOTA
    assert run.server.n_lost > 0
    assert run.server.n_conflicts > 0
    # Once answers arrive again, what waits is admitted as far as the quota goes.
    run.server.is_faulty = False
    for _ in range(60):
        run.work(run.server.n_unseen)
    waiting = [one for one in run.workloads() if not is_true(one, "QuotaReserved")]
    assert waiting
    assert min(map(cpus, waiting)) > QUOTA - run.used()


class ForgetfulStore(LiveStore):
    """Takes a write whose answer was lost for one that was not made."""

    def read_unsure(self) -> bool:
        self._unsure.clear()
        return True


def test_without_reading_again_quota_would_be_given_twice() -> None:
    assert max(largest_use(Run(seed, ForgetfulStore)) for seed in SEEDS) > QUOTA


def test_a_conflict_is_read_again_and_its_object_taken_over() -> None:
    run = Run(0)
    run.server.put(WORKLOADS, workload("w", 1, 0))
    run.server.show(run.store, run.server.n_unseen)
    tree = run.store.get(WORKLOADS, "default", "w")
    assert tree is not None
    other = json.loads(json.dumps(run.server.objects[WORKLOADS, "default", "w"]))
    other["metadata"]["labels"][QUEUE_LABEL] = "elsewhere"
    run.server.put(WORKLOADS, other)
    with pytest.raises(ApiError) as refused:
        run.store.update_status(WORKLOADS, tree)
    assert refused.value.code == 409
    assert run.store.is_unsure
    assert run.store.read_unsure()
    assert not run.store.is_unsure
    found = run.store.get(WORKLOADS, "default", "w")
    assert found is not None
    assert found["metadata"]["labels"][QUEUE_LABEL] == "elsewhere"
    run.store.update_status(WORKLOADS, found)


def test_a_status_that_conflicts_is_written_later() -> None:
    run = Run(0)
    run.work(run.server.n_unseen)
    run.server.put(WORKLOADS, workload("w", 1, 0))
    n_seen = run.server.n_unseen
    # A change that decides nothing, which is read only once the write of the status has failed.
    queue = run.server.objects[CLUSTER_QUEUES, "", "cq"]
    notes = {"annotations": {"touched": "yes"}}
    run.server.put(CLUSTER_QUEUES, {**queue, "metadata": {**queue["metadata"], **notes}})
    run.work(n_seen)
    assert run.server.n_conflicts == 1
    for _ in range(3):
        run.work(run.server.n_unseen)
    stored = run.server.objects[CLUSTER_QUEUES, "", "cq"]
    assert stored["status"]["admittedWorkloads"] == 1


def queued_job() -> Tree:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    labels = {QUEUE_LABEL: "q"}
    return {
        "metadata": {"name": "j", "namespace": "default", "labels": labels},
        "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": {"spec": spec}},
    }


def test_a_job_that_is_stopped_loses_its_start_time_before_its_template_changes() -> None:
    run = Run(0)
    run.server.put(FLAVORS, kueue("ResourceFlavor", "f", {"nodeLabels": {"pool": "x"}}))
    queue = cluster_queue()
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    run.server.put(CLUSTER_QUEUES, queue)
    run.server.put(JOBS, queued_job())

    def settled() -> Tree:
        for _ in range(10):
            run.work(run.server.n_unseen)
        return run.server.objects[JOBS, "default", "j"]

    started = settled()
    assert started["spec"]["suspend"] is False
    assert started["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "x"}
    run.server.put(JOBS, {**started, "status": {"startTime": "2026-01-01T00:00:00Z"}})
    run.server.put(WORKLOADS, workload("urgent", 4, 1000))
    stopped = settled()
    assert stopped["spec"]["suspend"] is True
    assert "nodeSelector" not in stopped["spec"]["template"]["spec"]
    assert "startTime" not in stopped["status"]
    assert run.used() == 4


def owned(name: str, owner: Tree, kind: str, **more: Any) -> Tree:
    """An object with a controller."""
    uid = owner["metadata"]["uid"]
    reference = {"kind": kind, "name": owner["metadata"]["name"], "uid": uid, "controller": True}
    meta = {"name": name, "namespace": "default", "ownerReferences": [reference]}
    return {"metadata": meta, **more}


def is_begun_after_its_pods(outer: str, path: str) -> bool:
    """Whether a job with a queue gets its Workload though the end of its pods, which belong to a
    Job of its JobSet, is the last change that the watches show."""
    run = Run(0)
    template = queued_job()["spec"]["template"]
    jobs = {"parallelism": 1, "completions": 1, "template": template}
    spec: Tree = {"replicatedJobs": [{"name": "w", "template": {"spec": jobs}}], "suspend": True}
    if outer == "TrainJob":
        runtime = {"template": {"spec": {**spec, "suspend": False}}}
        meta = {"name": "r"}
        run.server.put(
            "trainer.kubeflow.org/clustertrainingruntimes", {"metadata": meta, "spec": runtime}
        )
        spec = {"runtimeRef": {"name": "r"}, "suspend": True}
    labels = {QUEUE_LABEL: "q"}
    meta = {"name": "outer", "namespace": "default", "labels": labels}
    owner = run.server.put(path, {"metadata": meta, "spec": spec})
    kind = outer
    if outer == "TrainJob":
        owner, kind = run.server.put(JOB_SETS, owned("set", owner, kind, spec={})), "JobSet"
    job = run.server.put(JOBS, owned("job", owner, kind, spec={**jobs, "suspend": True}))
    pod = run.server.put(PODS, owned("pod", job, "Job", spec={}, status={"phase": "Running"}))
    for _ in range(3):
        run.work(run.server.n_unseen)
    assert run.workloads() == []
    meta = pod["metadata"]
    run.store.observe_deleted(PODS, "default", "pod", meta["uid"], meta["resourceVersion"])
    for _ in range(3):
        run.work(run.server.n_unseen)
    return bool(run.workloads())


@pytest.mark.parametrize(("outer", "path"), [("JobSet", JOB_SETS), ("TrainJob", TRAIN_JOBS)])
def test_a_job_begins_though_the_end_of_its_pods_is_known_last(
    outer: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_begun_after_its_pods(outer, path)
    # Were only pods of a job's own followed, it would wait for ever.
    monkeypatch.setattr(KINDS_BY_NAME[outer], "owns_jobs", False)
    assert not is_begun_after_its_pods(outer, path)
