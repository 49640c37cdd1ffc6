"""Groups of pods by their owners, as KAI's pod-grouper makes them, by `simulate` on manifests.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stowplan.simulation.simulate_jobs import JobSimulation
from tests.batch.queue_models.test_kai_model import (
    Tree,
    node,
    nodes_of,
    queue,
    reasons,
    simulated,
)

RED = {"kai.scheduler/queue": "red"}


def template(gpus: int = 1, **meta: Any) -> Tree:
    asked = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    container = {"name": "c", "image": "i", "resources": {"requests": asked, "limits": asked}}
    spec: Tree = {"schedulerName": "kai-scheduler", "containers": [container]}
    return {"metadata": {"labels": {"app": "x"}, **meta}, "spec": spec}


def owner(version: str, kind: str, spec: Tree, name: str = "train", **meta: Any) -> Tree:
    meta = {"name": name, "labels": RED, **meta}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def run_of(tmp_path: Path, cards: int, *objects: Tree) -> JobSimulation:
    return simulated(
        tmp_path, node("a", cards), queue("red", 16), queue("default-queue", 16), *objects
    )


def jobs_of(run: JobSimulation) -> dict[str, tuple[str, int, int, int]]:
    """Name -> (queue, priority, pods needed, pods)."""
    return {
        job.name.removeprefix("default/"): (job.queue, job.priority, job.min_member, job.pods)
        for job in run.jobs
    }


def job(pods: int, **meta: Any) -> Tree:
    spec = {"parallelism": pods, "completions": pods, "template": template()}
    spec["template"]["spec"]["restartPolicy"] = "Never"
    return owner("batch/v1", "Job", spec, **meta)


def test_a_job_has_the_queue_the_class_and_the_minimum_of_its_own_labels(tmp_path: Path) -> None:
    labels = {**RED, "priorityClassName": "build", "kai.scheduler/preemptibility": "preemptible"}
    notes = {"kai.scheduler/batch-min-member": "3"}
    run = run_of(tmp_path, 2, job(4, labels=labels, annotations=notes))
    assert jobs_of(run) == {"Job/train": ("red", 100, 3, 4)}
    # A gang of three finds no two cards enough; without the minimum two of the pods start.
    assert not nodes_of(run)
    assert len(nodes_of(run_of(tmp_path, 2, job(4)))) == 2


def test_a_job_with_a_minimum_that_is_no_number_starts_nothing(tmp_path: Path) -> None:
    run = run_of(tmp_path, 4, job(2, annotations={"kai.scheduler/batch-min-member": "all"}))
    assert not nodes_of(run)
    text = "invalid min-member annotation value: 'all' is no whole number"
    assert set(reasons(run).values()) == {text}


def replicas(**counts: int) -> Tree:
    return {name: {"replicas": n, "template": template()} for name, n in counts.items()}


@pytest.mark.parametrize(
    ("kind", "field", "counts"),
    [
        ("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 3}),
        ("TFJob", "tfReplicaSpecs", {"Chief": 1, "PS": 1, "Worker": 2}),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 3}),
        ("JAXJob", "jaxReplicaSpecs", {"Worker": 4}),
        ("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 3}),
    ],
)
def test_a_job_of_kubeflow_needs_all_its_replicas(
    tmp_path: Path, kind: str, field: str, counts: dict[str, int]
) -> None:
    made = owner("kubeflow.org/v1", kind, {field: replicas(**counts)})
    assert not nodes_of(run_of(tmp_path, 3, made))
    run = run_of(tmp_path, 4, made)
    assert len(nodes_of(run)) == 4
    assert jobs_of(run) == {f"{kind}/train": ("red", 50, 4, 4)}


def test_an_elastic_pytorch_job_needs_its_least_replicas(tmp_path: Path) -> None:
    spec = {
        "pytorchReplicaSpecs": replicas(Master=1, Worker=3),
        "elasticPolicy": {"minReplicas": 2},
    }
    run = run_of(tmp_path, 3, owner("kubeflow.org/v1", "PyTorchJob", spec))
    # The master, and one worker that is needed, before others.
    assert jobs_of(run) == {"PyTorchJob/train": ("red", 50, 2, 4)}
    assert "train-master-0" in nodes_of(run)
    assert len(nodes_of(run)) == 3


def test_segments_of_workers_stay_in_their_domain(tmp_path: Path) -> None:
    notes = {
        "kai.scheduler/topology": "racks",
        "kai.scheduler/segment-size": "2",
        "kai.scheduler/segment-topology-required-placement": "rack",
    }
    specs = replicas(Worker=4)
    specs["Worker"]["template"] = template(annotations=notes)
    racks = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    nodes = [node(name, 1) for name in "pqrs"]
    for one, rack in zip(nodes, "1122", strict=True):
        name = one["metadata"]["name"]
        one["metadata"]["labels"] = {"rack": rack, "kubernetes.io/hostname": name}
    made = owner("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": specs})
    run = simulated(tmp_path, queue("red", 16), racks, *nodes, made)
    rack_of = dict(zip("pqrs", "1122", strict=True))
    found = {name: rack_of[place] for name, place in nodes_of(run).items()}
    assert len(found) == 4
    assert found["train-worker-0"] == found["train-worker-1"]
    assert found["train-worker-2"] == found["train-worker-3"]


def test_a_job_without_replicas_that_it_must_have_is_refused(tmp_path: Path) -> None:
    made = owner("kubeflow.org/v1", "XGBoostJob", {"xgbReplicaSpecs": replicas(Worker=1)})
    run = run_of(tmp_path, 4, made)
    assert not nodes_of(run)
    text = "XGBoostJob default/train has no xgbReplicaSpecs.Master"
    assert set(reasons(run).values()) == {text}


def job_set(order: str = "AnyOrder", **meta: Any) -> Tree:
    def replicated(name: str, count: int, parallelism: int) -> Tree:
        pods = template()
        pods["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": parallelism, "completions": parallelism, "template": pods}
        return {"name": name, "replicas": count, "template": {"spec": spec}}

    spec = {
        "startupPolicy": {"startupPolicyOrder": order},
        "replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 2)],
    }
    return owner("jobset.x-k8s.io/v1alpha2", "JobSet", spec, **meta)


def test_a_job_set_needs_all_its_jobs_or_in_order_one_kind_of_them(tmp_path: Path) -> None:
    assert not nodes_of(run_of(tmp_path, 4, job_set()))
    assert len(nodes_of(run_of(tmp_path, 5, job_set()))) == 5
    # The Jobs that it makes are not what the user has written.
    assert set(jobs_of(run_of(tmp_path, 4, job_set()))) == {"JobSet/train"}
    # In order, one of the replicated jobs is enough to begin, and each of its Jobs is whole.
    assert len(nodes_of(run_of(tmp_path, 1, job_set("InOrder")))) == 1
    stated = {"kai.scheduler/batch-min-member": "1"}
    assert nodes_of(run_of(tmp_path, 1, job_set(annotations=stated)))


def ray_cluster(**meta: Any) -> Tree:
    workers = [
        {"groupName": "small", "replicas": 2, "template": template()},
        {"groupName": "big", "replicas": 3, "minReplicas": 1, "template": template()},
    ]
    spec = {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": workers}
    return owner("ray.io/v1", "RayCluster", spec, **meta)


def test_a_ray_cluster_needs_its_head_and_the_least_of_each_group(tmp_path: Path) -> None:
    assert not nodes_of(run_of(tmp_path, 2, ray_cluster()))
    run = run_of(tmp_path, 3, ray_cluster())
    assert jobs_of(run) == {"RayCluster/train": ("red", 50, 4, 6)}
    placed = sorted(nodes_of(run))
    assert placed[1:] == ["train-head", "train-small-worker-0", "train-small-worker-1"]


def test_a_ray_job_is_grouped_by_its_cluster(tmp_path: Path) -> None:
    spec = {"rayClusterSpec": ray_cluster()["spec"]}
    labels = {**RED, "ray.io/priority-class-name": "build"}
    run = run_of(tmp_path, 8, owner("ray.io/v1", "RayJob", spec, labels=labels))
    assert {name: found[:3] for name, found in jobs_of(run).items()} == {
        "RayJob/train": ("red", 100, 4)
    }
    assert len(nodes_of(run)) == 6


def test_what_an_elastic_job_has_that_counts_is_not_called_unmodelled(tmp_path: Path) -> None:
    spec = {"elasticPolicy": {"minReplicas": 2}, "pytorchReplicaSpecs": replicas(Worker=4)}
    run = run_of(tmp_path, 2, owner("kubeflow.org/v1", "PyTorchJob", spec))
    assert len(nodes_of(run)) == 2
    notes = " ".join(run.summary["notes"])
    assert "not modelled" not in notes
    text = "PyTorchJob: spec.elasticPolicy.minReplicas is a job's minimum with KAI-Scheduler alone"
    assert text in notes
    spec["elasticPolicy"]["maxReplicas"] = 6
    run = run_of(tmp_path, 2, owner("kubeflow.org/v1", "PyTorchJob", spec))
    assert "not modelled: spec.elasticPolicy.maxReplicas" in " ".join(run.summary["notes"])


def test_each_group_of_a_leader_worker_set_is_a_gang(tmp_path: Path) -> None:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()}}
    run = run_of(tmp_path, 5, owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec))
    assert sorted(nodes_of(run)) == ["train-0", "train-0-1", "train-0-2"]
    assert len(run.jobs) == 2


def test_pods_of_a_deployment_have_groups_of_their_own_and_those_of_a_set_one(
    tmp_path: Path,
) -> None:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()}
    run = run_of(tmp_path, 8, owner("apps/v1", "Deployment", spec))
    assert list(jobs_of(run).values()) == [("red", 125, 1, 1)] * 2
    run = run_of(tmp_path, 8, owner("apps/v1", "ReplicaSet", spec))
    assert jobs_of(run) == {"train-0": ("red", 50, 1, 2)}
    notebook = {"template": {"spec": template()["spec"]}}
    run = run_of(tmp_path, 8, owner("kubeflow.org/v1beta1", "Notebook", notebook))
    assert list(jobs_of(run).values()) == [("red", 100, 1, 1)]


def test_pods_that_are_not_grouped_say_why(tmp_path: Path) -> None:
    run = run_of(tmp_path, 4, job(1, annotations={"kai.scheduler/skip-podgrouper": "true"}))
    assert not nodes_of(run)
    (text,) = set(reasons(run).values())
    assert text.startswith("Job default/train has the annotation kai.scheduler/skip-podgrouper")
