"""JobSets and TrainJobs with a queue of Kueue where their controllers run: their pods follow their
Workloads.

Expected values: kueue.sigs.k8s.io/docs/tasks/run/jobsets, docs/tasks/run/kubeflow/trainjobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controllers.job_sets.job_set_kinds import JOB_SETS
from stowplan.controllers.kueue.kueue_kinds import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, WORKLOADS
from stowplan.controllers.kueue.train_jobs import TRAIN_JOBS
from tests.apiserver.small_cluster import JOBS, Tree
from tests.controllers.test_job_sets import JobSetCluster, replicated

QUEUE = "kueue.x-k8s.io/queue-name"
HOST = "kubernetes.io/hostname"


class QueuedJobSets(JobSetCluster):
    """A cluster with Kueue and a queue, whose flavors are node-1 and node-2."""

    def __init__(self, cpu: str = "6", *, second: str = "0") -> None:
        super().__init__(KueueOptions())
        flavors = []
        for name, quota in (("node-1", cpu), ("node-2", second)):
            labels = {"nodeLabels": {HOST: name}}
            self.create(FLAVORS, {"metadata": {"name": name}, "spec": labels})
            amounts = [{"name": "cpu", "nominalQuota": quota}]
            flavors.append({"name": name, "resources": amounts})
        groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups}
        self.create(CLUSTER_QUEUES, {"metadata": {"name": "q"}, "spec": spec})
        self.create(LOCAL_QUEUES, {"metadata": {"name": "q"}, "spec": {"clusterQueue": "q"}})

    def queued(self, name: str, *jobs: Tree, **more: Any) -> Tree:
        """Create a JobSet in the queue."""
        return self.job_set(name, *jobs, meta={"labels": {QUEUE: "q"}}, **more)

    def runtime(self, name: str, nodes: int, run: int) -> None:
        """A runtime with a dataset's pod and nodes of the trainer."""
        step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
        jobs = [replicated("dataset", run=run), replicated("node", run=run)]
        jobs[1]["template"]["metadata"] = step
        spec = {"mlPolicy": {"numNodes": nodes}, "template": {"spec": {"replicatedJobs": jobs}}}
        path = "trainer.kubeflow.org/clustertrainingruntimes"
        self.create(path, {"metadata": {"name": name}, "spec": spec})

    def train(self, name: str, runtime: str) -> None:
        """Create a TrainJob in the queue, and let a second pass."""
        meta = {"name": name, "labels": {QUEUE: "q"}}
        self.create(TRAIN_JOBS, {"metadata": meta, "spec": {"runtimeRef": {"name": runtime}}})
        self.run(1)

    def where(self) -> dict[str, dict[str, int]]:
        """JobSet -> node -> pods that run or are to run there."""
        found: dict[str, dict[str, int]] = {}
        for one in self.pods():
            if one["status"].get("phase") not in ("Succeeded", "Failed"):
                owner = one["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]
                node = one["spec"].get("nodeName", "")
                held = found.setdefault(owner, {})
                held[node] = held.get(node, 0) + 1
        return found

    def workload(self, owner: str) -> Tree:
        """The Workload of a job."""
        return next(
            one
            for one in self.list(WORKLOADS)
            if one["metadata"]["ownerReferences"][0]["name"] == owner
        )


def keeps_quota(name: str) -> Callable[[QueuedJobSets], None]:
    """Checks, at each moment, that a job with pods has its quota."""

    def check(cluster: QueuedJobSets) -> None:
        assert name not in cluster.where() or "admission" in cluster.workload(name)["status"]

    return check


def test_jobsets_run_one_after_the_other_within_the_quota() -> None:
    cluster = QueuedJobSets("5")
    jobs = replicated("driver"), replicated("workers", 2, 2)
    made = cluster.queued("first", *jobs)
    assert made["spec"]["suspend"] is True
    cluster.queued("next", *jobs)
    cluster.run(20)
    assert cluster.where() == {"first": {"node-1": 5}}
    ready = {one["type"]: one for one in cluster.workload("first")["status"]["conditions"]}
    assert ready["PodsReady"]["status"] == "True"
    # Jobs of the one that waits are there, suspended, and are none of Kueue's.
    assert cluster.the(JOBS, "next-driver-0")["spec"]["suspend"] is True
    assert len(cluster.list(WORKLOADS)) == 2
    cluster.run(80)
    assert cluster.where() == {"next": {"node-1": 5}}
    ends = [one["type"] for one in cluster.workload("first")["status"]["conditions"]]
    assert "Finished" in ends
    cluster.run(100)
    assert cluster.state("next")["Completed"] == ("True", "AllJobsCompleted")
    assert cluster.the(CLUSTER_QUEUES, "q")["status"]["admittedWorkloads"] == 0


def test_a_jobset_that_is_evicted_starts_again_in_another_flavor() -> None:
    cluster = QueuedJobSets("4", second="2")
    cluster.queued("a", replicated("workers", 2, 2, run=9000))
    cluster.run(10)
    assert cluster.where() == {"a": {"node-1": 4}}
    name = cluster.workload("a")["metadata"]["name"]
    cluster.change(WORKLOADS, name, active=False)
    cluster.run(60, keeps_quota("a"))
    assert cluster.the(JOB_SETS, "a")["spec"]["suspend"] is True
    assert cluster.where() == {}
    assert "admission" not in cluster.workload("a")["status"]
    queue = cluster.the(CLUSTER_QUEUES, "q")
    first, second = queue["spec"]["resourceGroups"][0]["flavors"]
    first["resources"][0]["nominalQuota"], second["resources"][0]["nominalQuota"] = "0", "4"
    cluster.api.update(CLUSTER_QUEUES, queue)
    cluster.change(WORKLOADS, name, active=True)
    cluster.run(30)
    assert cluster.where() == {"a": {"node-2": 4}}


def test_a_train_job_runs_as_its_runtime_declares() -> None:
    cluster = QueuedJobSets("3")
    cluster.runtime("torch", nodes=2, run=60)
    for name in ("first", "next"):
        cluster.train(name, "torch")
    cluster.run(10)
    assert cluster.where() == {"first": {"node-1": 3}}
    assert cluster.the(JOB_SETS, "next")["spec"]["suspend"] is True
    # One that is evicted keeps its quota until its pods are gone, two owners below it.
    name = cluster.workload("first")["metadata"]["name"]
    cluster.change(WORKLOADS, name, active=False)
    cluster.run(20, keeps_quota("first"))
    assert "admission" not in cluster.workload("first")["status"]
    assert cluster.where() == {"next": {"node-1": 3}}
    cluster.run(100)
    conditions = cluster.the(TRAIN_JOBS, "next")["status"]["conditions"]
    states = {one["type"]: one["status"] for one in conditions}
    assert states == {"Suspended": "False", "Complete": "True"}
    done = [one["type"] for one in cluster.workload("next")["status"]["conditions"]]
    assert "Finished" in done
    cluster.change(WORKLOADS, name, active=True)
    cluster.run(120)
    conditions = cluster.the(TRAIN_JOBS, "first")["status"]["conditions"]
    assert {one["type"] for one in conditions} == {"Suspended", "Complete"}


def torch(workers: int, run: int, **policy: Any) -> Tree:
    """`spec` of a PyTorchJob of a master and workers with one CPU each, which run for a time."""
    template = replicated("x", run=run)["template"]["spec"]["template"]
    replicas = {
        "Master": {"template": template},
        "Worker": {"replicas": workers, "template": template},
    }
    return {"pytorchReplicaSpecs": replicas, "runPolicy": policy}


class TorchJobs(QueuedJobSets):
    """The same with PyTorchJobs."""

    path = "kubeflow.org/pytorchjobs"

    def torch_job(self, name: str, spec: Tree) -> None:
        """Create a PyTorchJob in the queue, and let a second pass."""
        self.create(self.path, {"metadata": {"name": name, "labels": {QUEUE: "q"}}, "spec": spec})
        self.run(1)

    def conditions(self, name: str) -> dict[str, str]:
        """Type -> status."""
        conditions = self.the(self.path, name)["status"]["conditions"]
        return {one["type"]: one["status"] for one in conditions}

    def placed(self) -> dict[str, str]:
        """Pod that has not ended -> its node."""
        return {
            one["metadata"]["name"]: one["spec"].get("nodeName", "")
            for one in self.pods()
            if one["status"].get("phase") not in ("Succeeded", "Failed")
        }


def test_a_job_of_kubeflow_runs_and_ends_with_its_master() -> None:
    cluster = TorchJobs("3")
    cluster.torch_job("first", torch(2, 60, cleanPodPolicy="Running"))
    cluster.torch_job("next", torch(1, 30))
    cluster.run(10)
    names = "first-master-0", "first-worker-0", "first-worker-1"
    assert cluster.placed() == dict.fromkeys(names, "node-1")
    assert cluster.conditions("first") == {
        "Created": "True",
        "Suspended": "False",
        "Running": "True",
    }
    assert cluster.conditions("next") == {"Created": "True", "Suspended": "True"}
    master = cluster.the("pods", "first-master-0")["metadata"]["labels"]
    assert master["training.kubeflow.org/job-role"] == "master"
    # A pod that is deleted is created again.
    cluster.delete("pods", "first-worker-0")
    cluster.run(20)
    assert cluster.placed() == dict.fromkeys(names, "node-1")
    cluster.run(50)
    assert cluster.conditions("first")["Succeeded"] == "True"
    assert cluster.conditions("first")["Running"] == "False"
    assert set(cluster.placed()) == {"next-master-0", "next-worker-0"}
    cluster.run(60)
    assert cluster.conditions("next")["Succeeded"] == "True"
    assert cluster.the(CLUSTER_QUEUES, "q")["status"]["admittedWorkloads"] == 0


def test_a_job_of_kubeflow_that_is_evicted_has_no_pods_until_it_starts_again() -> None:
    cluster = TorchJobs("3")
    cluster.torch_job("a", torch(2, 900))
    cluster.run(10)
    name = cluster.workload("a")["metadata"]["name"]
    cluster.change(WORKLOADS, name, active=False)

    def check(now: QueuedJobSets) -> None:
        assert not now.pods() or "admission" in now.workload("a")["status"]

    cluster.run(60, check)
    assert cluster.pods() == []
    assert "admission" not in cluster.workload("a")["status"]
    template = cluster.the(cluster.path, "a")["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert "nodeSelector" not in template["spec"]
    cluster.change(WORKLOADS, name, active=True)
    cluster.run(20)
    assert set(cluster.placed().values()) == {"node-1"}
    assert len(cluster.placed()) == 3


def test_a_replica_that_fails_ends_a_job_of_kubeflow_or_is_created_again() -> None:
    cluster = TorchJobs("6")
    cluster.torch_job("a", torch(1, 900))
    spec = torch(1, 900, ttlSecondsAfterFinished=100)
    spec["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    cluster.torch_job("b", spec)
    cluster.run(10)
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in cluster.pods()}
    for name, code in (("a-worker-0", 1), ("b-worker-0", 137)):
        pod = cluster.the("pods", name)
        ended = {"name": "c", "state": {"terminated": {"exitCode": code}}}
        pod["status"] |= {"phase": "Failed", "containerStatuses": [ended]}
        cluster.api.update_status("pods", pod)
    cluster.run(30)
    assert cluster.conditions("a")["Failed"] == "True"
    assert cluster.conditions("b")["Running"] == "True"
    assert cluster.the("pods", "b-worker-0")["metadata"]["uid"] != uids["b-worker-0"]
    pod = cluster.the("pods", "b-master-0")
    pod["status"]["phase"] = "Failed"
    cluster.api.update_status("pods", pod)
    cluster.run(200)
    # With its pods it goes after its time to live.
    assert [one["metadata"]["name"] for one in cluster.list(cluster.path)] == ["a"]
    assert not any(name.startswith("b-") for name in cluster.placed())
