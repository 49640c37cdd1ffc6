"""Minimums and sub-groups of owners whose kinds have rules of their own.

Each function reads what the owner's `spec` says, and raises GroupingError where KAI's pod-grouper
makes no group. `pod` is one of the owner's pods.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins (kubeflow, jobset, ray, leaderworkerset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from stowplan.objects.kai.annotation_numbers import unsigned_number
from stowplan.objects.kai.grouping.workload_owners import GroupingError, Owner
from stowplan.objects.kai.kai_kinds import KaiSubGroup, KaiTopologyConstraint
from stowplan.objects.pod import Pod

MIN_MEMBER = "kai.scheduler/batch-min-member"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"

REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
JOBSET_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_INDEX = "jobset.sigs.k8s.io/job-index"
RAY_GROUP = "ray.io/group"
RAY_HEAD = "headgroup"
SEGMENTS_MAX = 10_000

Spec = Mapping[str, Any]
T = TypeVar("T")


def field_of(tree: Any, path: str, kind: type[T]) -> T | None:
    """A field by its path, None where it is absent. Raises GroupingError for another kind."""
    for step in path.split("."):
        if tree is None:
            return None
        if not isinstance(tree, Mapping):
            raise GroupingError(f"{path}: {step} of something that is no mapping")
        tree = tree.get(step)
    if tree is not None and (
        not isinstance(tree, kind) or isinstance(tree, bool) != (kind is bool)
    ):
        raise GroupingError(f"{path}: {tree!r} is no {kind.__name__}")
    return tree


def whole_number(text: str, what: str) -> int:
    """A number of an annotation or a label. Raises GroupingError."""
    try:
        return int(text)
    except ValueError:
        raise GroupingError(f"invalid {what}: {text!r} is no whole number") from None


def constraint_of(
    notes: Mapping[str, str], required: str = REQUIRED, preferred: str = PREFERRED
) -> KaiTopologyConstraint:
    """What annotations say about topology."""
    return KaiTopologyConstraint(
        notes.get(TOPOLOGY, ""), notes.get(required, ""), notes.get(preferred, "")
    )


def _notes(template: Spec) -> Mapping[str, str]:
    """Annotations of a template."""
    return field_of(template, "template.metadata.annotations", dict) or {}


# Kubeflow.

REPLICA_SPECS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "PyTorchJob": ("pytorchReplicaSpecs", ()),
    "TFJob": ("tfReplicaSpecs", ()),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker")),
}
"""Kind of Kubeflow -> field with its replicas, and the replicas that it must have."""


def kubeflow_minimum(owner: Owner, pods: Sequence[Pod]) -> int:
    """Pods that a job of Kubeflow needs. pods: those that exist."""
    minimum = _stated_minimum(owner)
    if minimum is None:
        minimum = sum(_replica_counts(owner).values())
    if owner.kind == "PyTorchJob":
        # The policy of a PyTorchJob counts before what it is elastic to.
        elastic = field_of(owner.spec, "elasticPolicy.minReplicas", int)
        if elastic is not None and _stated_minimum(owner) is None:
            minimum = elastic
    policy = field_of(owner.spec, "launcherCreationPolicy", str)
    if owner.kind == "MPIJob" and policy == "WaitForWorkersReady" and not _has_launcher(pods):
        minimum -= field_of(owner.spec, "mpiReplicaSpecs.Launcher.replicas", int) or 0
    return minimum


def _stated_minimum(owner: Owner) -> int | None:
    return field_of(owner.spec, "runPolicy.schedulingPolicy.minAvailable", int)


def _replica_counts(owner: Owner) -> dict[str, int]:
    name, required = REPLICA_SPECS[owner.kind]
    specs = field_of(owner.spec, name, dict)
    if specs is None:
        raise GroupingError(f"{owner.kind} {owner.title} has no {name}")
    for one in required:
        if one not in specs:
            raise GroupingError(f"{owner.kind} {owner.title} has no {name}.{one}")
    counts = {one: field_of(specs[one], "replicas", int) or 0 for one in specs}
    for one, number in counts.items():
        if not number:
            wanted = f"{name}.{one}.replicas must be above 0"
            raise GroupingError(f"{owner.kind} {owner.title}: {wanted}")
    if sum(counts.values()) <= 0:
        raise GroupingError(f"{owner.kind} {owner.title} has no replicas")
    return counts


def _has_launcher(pods: Sequence[Pod]) -> bool:
    return any(
        pod.metadata.labels.get(JOB_ROLE) == "launcher" and pod.metadata.deletion_timestamp is None
        for pod in pods
    )


def pytorch_sub_groups(owner: Owner, pod: Pod, minimum: int) -> tuple[KaiSubGroup, ...]:
    """Master, and workers or segments of workers, of a PyTorchJob."""
    specs = field_of(owner.spec, "pytorchReplicaSpecs", dict)
    if specs is None:
        raise GroupingError(f"PyTorchJob {owner.title} has no pytorchReplicaSpecs")
    masters = field_of(specs, "Master.replicas", int) or 0
    found = [KaiSubGroup("master", min_member=masters)] if masters else []
    if "Worker" not in specs:
        return tuple(found)
    needed = max(0, minimum - masters)
    size = _segment_size(specs, pod)
    workers = field_of(specs, "Worker.replicas", int)
    workers = 1 if workers is None else workers
    count = 0 if size is None else -(-workers // size)
    if size is None or not count:
        return (*found, KaiSubGroup("worker", min_member=needed))
    _check_segments(count)
    needed_segments = -(-needed // size)
    constraint = _segment_constraint(owner, pod, _notes(specs["Worker"]))
    found.append(KaiSubGroup("worker", min_sub_group=count))
    for i in range(count):
        is_last = i == count - 1 and workers % size
        least = 0 if i >= needed_segments else workers % size if is_last else size
        found.append(
            KaiSubGroup(f"worker-{i}", "worker", min_member=least, topology_constraint=constraint)
        )
    return tuple(found)


def pytorch_sub_group(owner: Owner, pod: Pod) -> str:
    """The sub-group of a pod of a PyTorchJob, "" for none."""
    specs = field_of(owner.spec, "pytorchReplicaSpecs", dict) or {}
    role = pod.metadata.labels.get(REPLICA_TYPE, "")
    if role == "master":
        return role if field_of(specs, "Master.replicas", int) else ""
    if role != "worker" or "Worker" not in specs:
        return ""
    size = _segment_size(specs, pod)
    if size is None or field_of(specs, "Worker.replicas", int) == 0:
        return role
    index = pod.metadata.labels.get(REPLICA_INDEX)
    if index is None:
        raise GroupingError(f"pod {pod.key} has no label {REPLICA_INDEX}")
    number = whole_number(index, f"label {REPLICA_INDEX} of pod {pod.key}")
    if number < 0:
        raise GroupingError(f"label {REPLICA_INDEX} of pod {pod.key} is below 0")
    return f"worker-{number // size}"


def _segment_size(specs: Spec, pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(SEGMENT_SIZE) or _notes(specs.get("Worker") or {}).get(
        SEGMENT_SIZE
    )
    if not text:
        return None
    size = whole_number(text, f"annotation {SEGMENT_SIZE}")
    if size <= 0:
        raise GroupingError(f"annotation {SEGMENT_SIZE} must be above 0")
    return size


def _check_segments(count: int) -> None:
    if count > SEGMENTS_MAX:
        raise GroupingError(f"{count} segments are more than {SEGMENTS_MAX}")


def _segment_constraint(
    owner: Owner, pod: Pod, template: Mapping[str, str]
) -> KaiTopologyConstraint | None:
    """Of each segment; what a pod says counts before its template, and that before its owner."""
    notes = {**template, **{key: text for key, text in pod.metadata.annotations.items() if text}}
    if not notes.get(TOPOLOGY):
        notes[TOPOLOGY] = owner.annotations.get(TOPOLOGY, "")
    found = constraint_of(notes, SEGMENT_REQUIRED, SEGMENT_PREFERRED)
    has_level = found.required_topology_level or found.preferred_topology_level
    return found if found.topology and has_level else None


# JobSet.


def job_set_minimum(owner: Owner) -> int:
    """Replicated jobs that a JobSet needs."""
    count = len(_replicated_jobs(owner))
    stated = owner.annotations.get(MIN_MEMBER)
    if stated is not None:
        number = whole_number(stated, f"annotation {MIN_MEMBER} of JobSet {owner.title}")
        if number < 1:
            raise GroupingError(f"annotation {MIN_MEMBER} of JobSet {owner.title} is below 1")
        return min(number, count)
    order = field_of(owner.spec, "startupPolicy.startupPolicyOrder", str)
    return 1 if order == "InOrder" else count


def _replicated_jobs(owner: Owner) -> list[Spec]:
    jobs = field_of(owner.spec, "replicatedJobs", list)
    if not jobs:
        raise GroupingError(f"JobSet {owner.title} has no replicatedJobs")
    return jobs


def job_set_sub_groups(owner: Owner) -> tuple[KaiSubGroup, ...]:
    """A sub-group for each replicated job, and in it one for each of its Jobs."""
    found = []
    for i, job in enumerate(_replicated_jobs(owner)):
        name = field_of(job, "name", str)
        if not name:
            raise GroupingError(f"JobSet {owner.title}: replicatedJobs[{i}] has no name")
        replicas = field_of(job, "replicas", int)
        replicas = 1 if replicas is None else replicas
        constraint = constraint_of(_notes(job))
        has_level = constraint.required_topology_level or constraint.preferred_topology_level
        found.append(KaiSubGroup(name, min_sub_group=replicas))
        found += [
            KaiSubGroup(
                f"{name}-replica-{k}",
                name,
                min_member=_pods_of_job(owner, job),
                topology_constraint=constraint if constraint.topology and has_level else None,
            )
            for k in range(replicas)
        ]
    return tuple(found)


def _pods_of_job(owner: Owner, job: Spec) -> int:
    stated = _notes(job).get(MIN_MEMBER)
    if not stated:
        parallelism = field_of(job, "template.spec.parallelism", int)
        return 1 if parallelism is None else parallelism
    number = whole_number(stated, f"annotation {MIN_MEMBER} in JobSet {owner.title}")
    if number < 1:
        raise GroupingError(f"annotation {MIN_MEMBER} in JobSet {owner.title} is below 1")
    return number


def job_set_sub_group(owner: Owner, pod: Pod) -> str:
    """The sub-group of a pod of a JobSet."""
    labels = pod.metadata.labels
    for name in (JOBSET_JOB, JOBSET_INDEX):
        if not labels.get(name):
            raise GroupingError(f"pod {pod.key} has no label {name}")
    name, index = labels[JOBSET_JOB], labels[JOBSET_INDEX]
    sub_group = f"{name}-replica-{index}"
    for job in _replicated_jobs(owner):
        replicas = field_of(job, "replicas", int)
        count = 1 if replicas is None else replicas
        number = unsigned_number(index)
        if field_of(job, "name", str) == name and number is not None and number < count:
            return sub_group
    raise GroupingError(f"JobSet {owner.title} has no sub-group {sub_group} for pod {pod.key}")


# Ray.


def ray_sub_groups(cluster: Owner) -> tuple[KaiSubGroup, ...]:
    """The head, and each group of workers, of a RayCluster."""
    head = field_of(cluster.spec, "headGroupSpec", dict) or {}
    found = [
        KaiSubGroup(
            RAY_HEAD, min_member=1, topology_constraint=_ray_constraint(head, "headGroupSpec")
        )
    ]
    for i, group in enumerate(field_of(cluster.spec, "workerGroupSpecs", list) or ()):
        least = _ray_workers(group, i)
        if least is None:
            continue
        name = field_of(group, "groupName", str) or f"worker-group-{i}"
        constraint = _ray_constraint(group, f"workerGroupSpecs.{name}")
        found.append(KaiSubGroup(name, min_member=least, topology_constraint=constraint))
    return tuple(found)


def _ray_workers(group: Spec, i: int) -> int | None:
    """Pods that a group of workers needs; None for a group without pods."""
    if field_of(group, "suspended", bool):
        return None
    wanted = field_of(group, "replicas", int) or 0
    least = field_of(group, "minReplicas", int) or 0
    if least > wanted:
        raise GroupingError(
            f"workerGroupSpecs[{i}]: {wanted} replicas are fewer than {least} minReplicas"
        )
    if not wanted:
        return None
    hosts = field_of(group, "numOfHosts", int)
    return (least if least > 0 else wanted) * (1 if hosts is None else hosts)


def _ray_constraint(group: Spec, name: str) -> KaiTopologyConstraint | None:
    found = constraint_of(_notes(group))
    if not found.required_topology_level and not found.preferred_topology_level:
        return None
    if not found.topology:
        raise GroupingError(f"{name} has a topology placement, and no annotation {TOPOLOGY}")
    return found


def ray_sub_group(cluster: Owner, pod: Pod) -> str:
    """The sub-group of a pod of a RayCluster, "" for none."""
    name = pod.metadata.labels.get(RAY_GROUP, "")
    return name if any(one.name == name for one in ray_sub_groups(cluster)) else ""


RAY_CLUSTER_OF: Mapping[str, tuple[str, ...]] = {
    "RayJob": ("rayClusterName",),
    "RayService": (
        "activeServiceStatus.rayClusterName",
        "pendingServiceStatus.rayClusterName",
    ),
}
"""Kind of Ray -> fields of its status with the name of its RayCluster."""


def ray_cluster_name(owner: Owner) -> str:
    """The RayCluster of a RayJob or RayService."""
    for path in RAY_CLUSTER_OF[owner.kind]:
        name = field_of(owner.status, path, str)
        if name:
            return name
    raise GroupingError(f"{owner.kind} {owner.title} names no RayCluster in its status yet")
