"""The pod-grouper's rules: names, queues, classes, minimums and sub-groups by owner.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stowplan.objects.kai.grouping.owner_pod_group import (
    group_name,
    owners_of,
    pod_group_of,
    sub_group_of,
)
from stowplan.objects.kai.grouping.workload_owners import GroupingError, Owner
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject, KaiSubGroup, KaiTopologyConstraint
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod, PodSpec

CLASSES = ("train", "build", "inference", "vip")


def refers(version: str, kind: str, name: str) -> OwnerReference:
    return OwnerReference(version, kind, name, f"u-{name}", controller=True)


def pod_of(reference: OwnerReference | None, name: str = "p", **meta: Any) -> Pod:
    owners = () if reference is None else (reference,)
    spec = PodSpec(scheduler_name="kai-scheduler", node_name=meta.pop("node", ""))
    made = ObjectMeta(name=name, namespace="ns", uid=f"u-{name}", owner_references=owners, **meta)
    return Pod(metadata=made, spec=spec)


class Owners:
    """Owners by kind and name."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], Owner] = {}

    def add(
        self,
        reference: OwnerReference,
        above: OwnerReference | None = None,
        spec: Mapping[str, Any] | None = None,
        status: Mapping[str, Any] | None = None,
        **meta: Any,
    ) -> OwnerReference:
        made = ObjectMeta(
            name=reference.name,
            namespace="ns",
            uid=reference.uid,
            owner_references=() if above is None else (above,),
            **meta,
        )
        self.found[reference.kind, reference.name] = Owner(
            reference.api_version, reference.kind, made, spec or {}, status or {}
        )
        return reference

    def find(self, reference: OwnerReference, namespace: str) -> Owner | None:
        assert namespace == "ns"
        return self.found.get((reference.kind, reference.name))

    def group(self, *pods: Pod) -> KaiPodGroupObject:
        return pod_group_of(pods, owners_of(pods[0], self.find), CLASSES)

    def sub_group(self, pod: Pod) -> str:
        return sub_group_of(pod, owners_of(pod, self.find))


JOB = refers("batch/v1", "Job", "job")


@pytest.mark.parametrize(
    ("of_owner", "of_pod", "queue"),
    [
        ({"kai.scheduler/queue": "a"}, {"kai.scheduler/queue": "b"}, "a"),
        ({}, {"kai.scheduler/queue": "b"}, "b"),
        ({"project": "a"}, {"project": "b"}, "a"),
        ({"project": "a"}, {"kai.scheduler/node-pool": "pool"}, "a-pool"),
        ({"project": "a"}, {"kai.scheduler/queue": "b"}, "b"),
        ({}, {}, "default-queue"),
    ],
)
def test_the_queue_is_that_of_the_owner_before_that_of_the_pod(
    of_owner: dict[str, str], of_pod: dict[str, str], queue: str
) -> None:
    owners = Owners()
    owners.add(JOB, labels=of_owner)
    assert owners.group(pod_of(JOB, labels=of_pod)).spec.queue == queue


def test_classes_that_do_not_exist_and_bad_texts_are_left_out() -> None:
    owners = Owners()
    labels = {"priorityClassName": "nobody", "kai.scheduler/preemptibility": "sometimes"}
    notes = {
        "kai.scheduler/preemption-delay": "-5s",
        "kai.scheduler/staleness-grace-period": "-1s",
    }
    owners.add(JOB, labels=labels, annotations=notes)
    of_pod = {"priorityClassName": "vip", "kai.scheduler/preemptibility": "preemptible"}
    found = owners.group(
        pod_of(JOB, labels=of_pod, annotations={"kai.scheduler/preemption-delay": "5m"})
    ).spec
    # The label of the owner counts, and that its class does not exist leaves the default.
    assert found.priority_class_name == "train"
    assert found.preemptibility == "preemptible"
    assert (found.preemption_delay, found.staleness_grace_period) == ("5m", "-1s")


def test_jobs_of_a_cron_job_have_groups_of_their_own_without_their_minimum() -> None:
    owners = Owners()
    cron = owners.add(refers("batch/v1", "CronJob", "cron"), labels={"project": "other"})
    owners.add(JOB, cron, annotations={"kai.scheduler/batch-min-member": "4"})
    found = owners.group(pod_of(JOB, labels={"project": "mine"}))
    assert found.name == "pg-job-u-job"
    assert (found.spec.min_member, found.spec.queue) == (1, "mine")


def test_a_deployment_is_found_above_its_replica_set() -> None:
    owners = Owners()
    deployment = owners.add(refers("apps/v1", "Deployment", "web"), labels={"project": "red"})
    replica_set = owners.add(refers("apps/v1", "ReplicaSet", "web-1"), deployment)
    found = owners.group(pod_of(replica_set))
    assert found.name == "pg-p-u-p"
    assert (found.spec.queue, found.spec.priority_class_name) == ("red", "inference")


def test_pods_of_a_spark_application_have_the_group_that_their_label_names() -> None:
    labels = {"spark-app-name": "pi", "spark-app-selector": "spark-7"}
    driver = pod_of(None, "driver", labels=labels)
    owners = Owners()
    reference = owners.add(refers("v1", "Pod", "driver"), labels=labels)
    executor = pod_of(reference, "executor", labels=labels)
    for pod in (driver, executor):
        assert owners.group(pod).name == "spark-7"
    assert owners.group(pod_of(None, "alone")).name == "pg-alone-u-alone"


def test_labels_of_a_train_job_count_for_its_job_set() -> None:
    owners = Owners()
    train = owners.add(
        refers("trainer.kubeflow.org/v1alpha1", "TrainJob", "t"), labels={"project": "red"}
    )
    jobs = {"replicatedJobs": [{"name": "node", "template": {"spec": {"parallelism": 3}}}]}
    job_set = owners.add(refers("jobset.x-k8s.io/v1alpha2", "JobSet", "t"), train, jobs)
    job = owners.add(refers("batch/v1", "Job", "t-node-0"), job_set)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node", "jobset.sigs.k8s.io/job-index": "0"}
    pod = pod_of(job, labels=labels)
    found = owners.group(pod)
    assert (found.name, found.spec.queue) == ("pg-t-u-t", "red")
    assert (found.spec.min_member, found.spec.min_sub_group) == (None, 1)
    assert owners.sub_group(pod) == "node-replica-0"
    assert found.spec.sub_groups == (
        KaiSubGroup("node", min_sub_group=1),
        KaiSubGroup("node-replica-0", "node", min_member=3),
    )


def test_an_mpi_job_that_delays_its_launcher_does_not_need_it_before_it_exists() -> None:
    owners = Owners()
    specs = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    spec = {"mpiReplicaSpecs": specs, "launcherCreationPolicy": "WaitForWorkersReady"}
    job = owners.add(refers("kubeflow.org/v1", "MPIJob", "m"), spec=spec)
    workers = [pod_of(job, f"w{i}") for i in range(2)]
    launcher = pod_of(job, "l", labels={"training.kubeflow.org/job-role": "launcher"})
    assert owners.group(*workers).spec.min_member == 2
    assert owners.group(*workers, launcher).spec.min_member == 3


def segments(kind: str, size: int, segment: int) -> tuple[Owners, OwnerReference]:
    owners = Owners()
    policy = {"subGroupSize": segment, "subGroupPolicyType": kind}
    spec = {"leaderWorkerTemplate": {"size": size, "subGroupPolicy": policy}}
    reference = refers("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l")
    return owners, owners.add(reference, spec=spec)


def member(owner: OwnerReference, index: int, node: str = "") -> Pod:
    labels = {
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
        "leaderworkerset.sigs.k8s.io/group-index": "1",
    }
    return pod_of(owner, f"l-1-{index}", labels=labels, node=node)


@pytest.mark.parametrize(
    ("kind", "size", "least", "places"),
    [
        # Four workers fill two segments: the leader comes on top of the first one.
        (
            "LeaderWorker",
            5,
            {"segment-0": None, "segment-1": 2, "leader": 1, "workers": 2},
            ["leader", "workers", "workers", "segment-1", "segment-1"],
        ),
        (
            "LeaderWorker",
            4,
            {"segment-0": None, "segment-1": 2, "leader": 1, "workers": 1},
            ["leader", "workers", "segment-1", "segment-1"],
        ),
        (
            "LeaderExcluded",
            5,
            {"leader": 1, "segment-0": 2, "segment-1": 2},
            ["leader", "segment-0", "segment-0", "segment-1", "segment-1"],
        ),
    ],
)
def test_segments_of_a_leader_worker_set(
    kind: str, size: int, least: dict[str, int | None], places: list[str]
) -> None:
    owners, reference = segments(kind, size, 2)
    found = owners.group(member(reference, 0))
    assert found.name == "pg-l-u-l-group-1"
    assert {one.name: one.min_member for one in found.spec.sub_groups} == least
    assert [owners.sub_group(member(reference, i)) for i in range(size)] == places


def test_an_excluded_leader_needs_whole_segments() -> None:
    owners, reference = segments("LeaderExcluded", 4, 2)
    with pytest.raises(GroupingError, match="LeaderExcluded needs a multiple of 2 workers, not 3"):
        owners.group(member(reference, 0))


def test_workers_that_wait_for_their_leader_are_needed_once_it_has_a_node() -> None:
    owners = Owners()
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
    reference = owners.add(refers("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l"), spec=spec)
    assert owners.group(member(reference, 0)).spec.min_member == 1
    assert owners.group(member(reference, 0, node="a")).spec.min_member == 3
    assert owners.group(member(reference, 0), member(reference, 1)).spec.min_member == 3


def test_groups_of_ray_without_pods_and_with_topologies() -> None:
    notes = {
        "kai.scheduler/topology": "t",
        "kai.scheduler/topology-preferred-placement": "rack",
    }
    group = {"replicas": 2, "numOfHosts": 4, "template": {"metadata": {"annotations": notes}}}
    owners = Owners()
    spec = {"workerGroupSpecs": [{"groupName": "none"}, group]}
    cluster = owners.add(refers("ray.io/v1", "RayCluster", "c"), spec=spec)
    found = owners.group(pod_of(cluster)).spec
    assert found.min_member == 9
    assert found.sub_groups == (
        KaiSubGroup("headgroup", min_member=1),
        KaiSubGroup(
            "worker-group-1",
            min_member=8,
            topology_constraint=KaiTopologyConstraint("t", "", "rack"),
        ),
    )
    job = owners.add(refers("ray.io/v1", "RayJob", "j"))
    with pytest.raises(GroupingError, match="RayJob ns/j names no RayCluster in its status yet"):
        owners.group(pod_of(job))
    owners.add(job, status={"rayClusterName": "c"})
    assert owners.group(pod_of(job)).spec.min_member == 9


def test_owners_with_several_owners_and_circles_are_refused() -> None:
    owners = Owners()
    own = owners.found
    for name in "ab":
        owners.add(refers("x/v1", "Y", name), refers("x/v1", "Y", "b" if name == "a" else "a"))
    with pytest.raises(GroupingError, match="owners of pod ns/p form a circle"):
        owners.group(pod_of(refers("x/v1", "Y", "a")))
    two = (refers("x/v1", "Y", "a"), refers("x/v1", "Y", "b"))
    own["Job", "job"] = Owner("batch/v1", "Job", ObjectMeta(name="job", owner_references=two))
    with pytest.raises(GroupingError, match="found Job default/job with multiple owners"):
        owners.group(pod_of(JOB))


def test_an_owner_that_is_not_found_is_known_by_the_reference() -> None:
    owners = Owners()
    pod = pod_of(
        refers("kubeflow.org/v1", "PyTorchJob", "gone"),
        labels={"project": "red"},
        annotations={"kai.scheduler/topology": "t"},
    )
    found = owners.group(pod)
    assert group_name(pod, owners_of(pod, owners.find)) == "pg-gone-u-gone"
    assert (found.spec.queue, found.spec.min_member) == ("red", 1)
    assert found.spec.topology_constraint.topology == "t"


def test_a_revision_of_knative_needs_its_least_scale() -> None:
    owners = Owners()
    service = refers("serving.knative.dev/v1", "Service", "s")
    revision = owners.add(
        refers("serving.knative.dev/v1", "Revision", "s-1"),
        service,
        annotations={"autoscaling.knative.dev/min-scale": "2"},
    )
    deployment = owners.add(refers("apps/v1", "Deployment", "d"), revision)
    found = owners.group(pod_of(deployment))
    assert found.name == "pg-s-1-u-s-1"
    assert (found.spec.min_member, found.spec.priority_class_name) == (2, "inference")
