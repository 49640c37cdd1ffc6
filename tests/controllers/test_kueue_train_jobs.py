"""Jobs of Kubeflow's trainer with a queue of Kueue: Workloads by their runtime.

Expected values: kueue.sigs.k8s.io/docs/tasks/run/kubeflow/trainjobs, and
pkg/controller/jobs/trainjob of Kueue of 2026-08-22.
"""

from __future__ import annotations

from typing import Any

from stowplan.controllers.kueue.kueue_kinds import PRIORITY_CLASSES, TOPOLOGIES, WORKLOADS
from tests.apiserver.small_cluster import JOBS, SmallCluster, Tree
from tests.controllers.test_kueue_conditions import events
from tests.controllers.test_kueue_jobs import (
    DEFINITIONS,
    HOST,
    QUEUE,
    KueueCluster,
    define,
    pod_spec,
)

TRAINER = "trainer.kubeflow.org"
PATCH_MANAGER = "kueue.x-k8s.io/manager"


def define_global(cluster: SmallCluster, group: str, version: str, kind: str) -> str:
    """As `define`, for a kind without namespaces."""
    path = define(cluster, group, version, kind)
    found = cluster.the(DEFINITIONS, f"{path.partition('/')[2]}.{group}")
    cluster.delete(DEFINITIONS, found["metadata"]["name"])
    cluster.settle()
    spec = found["spec"] | {"scope": "Cluster"}
    cluster.create(DEFINITIONS, {"metadata": {"name": found["metadata"]["name"]}, "spec": spec})
    cluster.settle()
    return path


class TrainingCluster(KueueCluster):
    """A cluster with the kinds of the trainer, a flavor on node-1 and a queue of six CPUs."""

    def __init__(self, **flavor: Any) -> None:
        super().__init__(**(flavor or {"nodeLabels": {HOST: "node-1"}}))
        self.path = define(self, TRAINER, "v1alpha1", "TrainJob")
        self.runtimes = define_global(self, TRAINER, "v1alpha1", "ClusterTrainingRuntime")
        self.queue("q", "6")

    def runtime(self, name: str = "torch", **template_meta: Any) -> None:
        """A runtime with an initializer and two nodes of the trainer."""
        jobs = [
            {"name": "dataset", "template": {"spec": {"template": {"spec": pod_spec()}}}},
            {
                "name": "node",
                "template": {
                    "spec": {"template": {"metadata": template_meta, "spec": node_spec()}}
                },
            },
        ]
        spec = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}}
        self.create(self.runtimes, {"metadata": {"name": name}, "spec": spec})
        self.run(1)

    def train(self, name: str, nodes: int | None = None, **more: Any) -> Tree:
        """Create a TrainJob; as it was created."""
        trainer = {} if nodes is None else {"numNodes": nodes}
        trainer |= {"resourcesPerNode": {"requests": {"cpu": "1"}}}
        labels = {QUEUE: "q", **more.pop("labels", {})}
        spec = {"runtimeRef": {"name": "torch"}, "trainer": trainer, **more}
        made = self.create(self.path, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        self.run(1)
        return made

    def pod_sets(self, name: str) -> dict[str, int]:
        """Name of a pod set of the Workload of a TrainJob -> its pods."""
        return {one["name"]: one["count"] for one in self.of(name)["spec"]["podSets"]}

    def of(self, name: str) -> Tree:
        """The Workload of a TrainJob."""
        return next(
            one
            for one in self.list(WORKLOADS)
            if one["metadata"]["name"].startswith(f"trainjob-{name}-")
        )

    def patches(self, name: str) -> list[Tree]:
        """What Kueue changes in the replicated jobs of a TrainJob."""
        for one in self.the(self.path, name)["spec"].get("runtimePatches", ()):
            if one["manager"] == PATCH_MANAGER:
                spec = one["trainingRuntimeSpec"]["template"]["spec"]
                found: list[Tree] = spec.get("replicatedJobs", [])
                return found
        return []

    def is_suspended(self, name: str) -> bool:
        """Whether it may not run."""
        return bool(self.the(self.path, name)["spec"]["suspend"])


def node_spec() -> Tree:
    return {"restartPolicy": "Never", "containers": [{"name": "node", "image": "torch"}]}


def test_a_train_job_starts_with_the_selectors_of_its_flavor() -> None:
    cluster = TrainingCluster()
    cluster.runtime()
    assert cluster.train("first", nodes=3)["spec"]["suspend"] is True
    assert cluster.pod_sets("first") == {"dataset": 1, "node": 3}
    (admitted,) = (
        one for one in cluster.of("first")["status"]["conditions"] if one["type"] == "Admitted"
    )
    assert admitted["status"] == "True"
    assert not cluster.is_suspended("first")
    assert [one["name"] for one in cluster.patches("first")] == ["dataset", "node"]
    for one in cluster.patches("first"):
        template = one["template"]["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {HOST: "node-1"}
    # The runtime asks for two nodes, beside the dataset's pod: two CPUs are left.
    cluster.train("second")
    assert cluster.pod_sets("second") == {"dataset": 1, "node": 2}
    assert cluster.is_suspended("second")
    job = cluster.the(cluster.path, "first")
    job["status"] = {"conditions": [{"type": "Complete", "status": "True", "message": "done"}]}
    cluster.api.update_status(cluster.path, job)
    cluster.run(2)
    assert not cluster.is_suspended("second")
    assert events(cluster, "TrainJob", "first").keys() >= {
        "CreatedWorkload",
        "Started",
        "FinishedWorkload",
    }


def test_a_train_job_that_is_evicted_is_as_it_was_once_its_pods_are_gone() -> None:
    cluster = TrainingCluster()
    cluster.runtime()
    cluster.train("a", nodes=3)
    job = cluster.the(cluster.path, "a")
    job["status"] = {"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}
    cluster.api.update_status(cluster.path, job)
    cluster.change(WORKLOADS, cluster.of("a")["metadata"]["name"], active=False)
    cluster.run(2)
    assert cluster.is_suspended("a")
    # As long as its Jobs run, so does its quota.
    assert "admission" in cluster.of("a")["status"]
    job = cluster.the(cluster.path, "a")
    job["status"] = {"jobsStatus": [{"name": "node", "active": 0}]}
    cluster.api.update_status(cluster.path, job)
    cluster.run(2)
    assert "admission" not in cluster.of("a")["status"]
    assert cluster.patches("a") == []


def test_a_train_job_waits_for_its_runtime() -> None:
    cluster = TrainingCluster()
    cluster.train("a")
    assert cluster.list(WORKLOADS) == []
    assert events(cluster, "TrainJob", "a")["ErrWorkloadCompose"] == "runtime 'torch' not found"
    cluster.runtime()
    cluster.run(1)
    assert cluster.pod_sets("a") == {"dataset": 1, "node": 2}


def test_pods_of_a_train_job_ask_for_places_by_its_runtime_and_its_patches() -> None:
    cluster = TrainingCluster(topologyName="hosts", nodeLabels={"kubernetes.io/os": "linux"})
    levels = [{"nodeLabel": HOST}]
    cluster.create(TOPOLOGIES, {"metadata": {"name": "hosts"}, "spec": {"levels": levels}})
    note = {"kueue.x-k8s.io/podset-required-topology": HOST}
    cluster.runtime(annotations=note)
    preferred = {"kueue.x-k8s.io/podset-preferred-topology": HOST}
    template = {"metadata": {"annotations": preferred}, "spec": {"nodeSelector": {"a": "b"}}}
    jobs = [{"name": "dataset", "template": {"spec": {"template": template}}}]
    patch = {"template": {"spec": {"replicatedJobs": jobs}}}
    cluster.train("a", runtimePatches=[{"manager": "me", "trainingRuntimeSpec": patch}])
    dataset, node = cluster.of("a")["spec"]["podSets"]
    assert node["topologyRequest"] == {"required": HOST}
    assert dataset["topologyRequest"] == {"preferred": HOST}
    assert dataset["template"]["spec"]["nodeSelector"] == {"a": "b"}


def test_jobs_that_a_train_job_made_follow_it() -> None:
    cluster = TrainingCluster()
    cluster.runtime()
    cluster.train("a", nodes=9)
    job = cluster.the(cluster.path, "a")
    owner = {
        "apiVersion": f"{TRAINER}/v1alpha1", "kind": "TrainJob", "name": "a",
        "uid": job["metadata"]["uid"], "controller": True,
    }  # fmt: skip
    meta = {"name": "a-node-0", "ownerReferences": [owner]}
    cluster.create(JOBS, {"metadata": meta, "spec": {"template": {"spec": pod_spec()}}})
    cluster.run(2)
    assert cluster.the(JOBS, "a-node-0")["spec"]["suspend"] is True
    text = "Kueue managed child job suspended"
    assert text in [one["message"] for one in cluster.list("events")]
    assert len(cluster.list(WORKLOADS)) == 1


def test_a_job_set_gives_quota_of_jobs_that_have_succeeded_back() -> None:
    cluster = KueueCluster()
    path = define(cluster, "jobset.x-k8s.io", "v1alpha2", "JobSet")
    cluster.queue("q", "4")
    template = {"spec": {"parallelism": 2, "template": {"spec": pod_spec()}}}
    jobs = [{"name": "workers", "replicas": 2, "template": template}]
    meta = {"name": "train", "labels": {QUEUE: "q"}}
    cluster.create(path, {"metadata": meta, "spec": {"replicatedJobs": jobs}})
    cluster.run(1)
    made = cluster.the(path, "train")
    made["status"] = {"replicatedJobsStatus": [{"name": "workers", "active": 1, "succeeded": 1}]}
    cluster.api.update_status(path, made)
    cluster.job("next", 2)
    (workload,) = (one for one in cluster.list(WORKLOADS) if "jobset-" in one["metadata"]["name"])
    assert workload["status"]["reclaimablePods"] == [{"name": "workers", "count": 2}]
    assert cluster.running() == {"next": 2}


def test_the_scheduling_policy_of_a_kubeflow_job_has_its_priority() -> None:
    cluster = KueueCluster()
    path = define(cluster, "kubeflow.org", "v1", "PyTorchJob")
    cluster.queue("q", "4")
    cluster.create("scheduling.k8s.io/priorityclasses", {"metadata": {"name": "p"}, "value": 7})
    replicas = {
        name: {"replicas": n, "template": {"spec": pod_spec()}}
        for name, n in (("Worker", 3), ("Master", 1))
    }
    spec = {
        "pytorchReplicaSpecs": replicas,
        "runPolicy": {"schedulingPolicy": {"priorityClass": "p"}},
    }
    cluster.create(path, {"metadata": {"name": "a", "labels": {QUEUE: "q"}}, "spec": spec})
    cluster.run(1)
    (workload,) = cluster.list(WORKLOADS)
    assert workload["spec"]["priority"] == 7
    # The master stands first, whatever the order in the manifest.
    assert [one["name"] for one in workload["spec"]["podSets"]] == ["master", "worker"]
    assert PRIORITY_CLASSES not in str(workload["spec"]["priorityClassRef"])
