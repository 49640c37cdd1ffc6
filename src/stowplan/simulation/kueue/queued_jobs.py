"""Jobs and pods with Kueue's queue label, and the Workloads that they ask quota with.

Differs: where the WorkloadPriorityClass of a job is not in the files, its pods' priority counts;
Kueue makes no Workload then. A dump need not have all classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.apis.machinery.timestamps import parse_time
from stowplan.batch.queue_models.kueue.kueue_objects import (
    KueuePodTemplate,
    KueueWorkloadSpec,
    PodSet,
    PodSetTopologyRequest,
    Workload,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import QUEUE_LABEL, namespace_of
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PriorityClass
from stowplan.simulation.kueue.kueue_manifests import KueueManifests

Tree = dict[str, Any]

PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
POD_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
_TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
_JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_REPLICATED_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_OF_JOB_SETS = ("JobSet", "TrainJob")
POD_GROUP = "PodGroup"

OwnerKey = tuple[str, str, str]
"""Kind, namespace and name."""


class QueuedJob:
    """A job with a queue. pod_sets: its pods by pod set of the workload, in order."""

    def __init__(self, owner: OwnerKey, pod_sets: dict[str, list[Pod]], workload: Workload) -> None:
        self.owner, self.pod_sets, self.workload = owner, pod_sets, workload

    @property
    def title(self) -> str:
        """As `kubectl` names it: `job/train`."""
        return f"{self.owner[0].lower()}/{self.owner[2]}"

    @property
    def pods(self) -> list[Pod]:
        """All pods."""
        return [pod for pods in self.pod_sets.values() for pod in pods]


def queued_jobs(cluster: Cluster, manifests: KueueManifests) -> list[QueuedJob]:
    """The jobs of a cluster that Kueue manages and that need pods, in the order of their pods."""
    trees = {owner_of_tree(tree): tree for tree in cluster.queued}
    written = {
        (ref.kind, one.metadata.namespace, ref.name): one
        for one in manifests.all(Workload)
        for ref in one.metadata.owner_references
    }
    for one in manifests.all(Workload):
        owners = one.metadata.owner_references
        if owners and all(ref.kind == "Pod" for ref in owners):
            # That of a group, which has its name.
            written[POD_GROUP, one.metadata.namespace, one.name] = one
    pods: dict[OwnerKey, list[Pod]] = {}
    for pod in cluster.pods:
        owner = owner_of_pod(pod, trees)
        refs = pod.metadata.owner_references
        if owner is not None and any((ref.kind, owner[1], ref.name) in written for ref in refs):
            # Of a live cluster: the Workload is known, and the job is not.
            owner = owner if owner in trees else None
        if owner is not None and not pod.is_finished and not pod.metadata.deletion_timestamp:
            pods.setdefault(owner, []).append(pod)
    now = time_of(cluster)
    found = []
    for position, (owner, held) in enumerate(pods.items()):
        sets = _pod_sets(held)
        workload = written.get(owner)
        if workload is None:
            tree = trees.get(owner, {})
            workload = _workload(owner, tree, sets, position, now, cluster, manifests)
        names = [one.name for one in workload.spec.pod_sets]
        sets = dict(zip(names, sets.values(), strict=False))
        found.append(QueuedJob(owner, sets, workload))
    return found


def time_of(cluster: Cluster) -> datetime:
    """The latest time of creation; that of objects without one."""
    times = [pod.metadata.creation_timestamp for pod in cluster.pods]
    times += map(_created, cluster.queued)
    return max((one for one in times if one is not None), default=datetime(2000, 1, 1, tzinfo=UTC))


def _created(tree: Tree) -> datetime | None:
    """When an object was created, as far as that is known."""
    text = tree["metadata"].get("creationTimestamp")
    return datetime.fromtimestamp(parse_time(text), UTC) if isinstance(text, str) and text else None


def owner_of_tree(tree: Tree) -> OwnerKey:
    """Kind, namespace and name."""
    return str(tree["kind"]), namespace_of(tree), str(tree["metadata"].get("name"))


def owner_of_pod(pod: Pod, trees: dict[OwnerKey, Tree]) -> OwnerKey | None:
    """The job that asks quota for a pod; None for a pod that Kueue does not manage."""
    labels, namespace = pod.metadata.labels, pod.metadata.namespace
    for ref in pod.metadata.owner_references:
        if (ref.kind, namespace, ref.name) in trees:
            return ref.kind, namespace, ref.name
    for kind in _OF_JOB_SETS:
        key = (kind, namespace, labels.get(_JOB_SET_LABEL, ""))
        if key in trees:
            return key
    if not labels.get(QUEUE_LABEL):
        return None
    if POD_GROUP_LABEL in labels:
        return POD_GROUP, namespace, labels[POD_GROUP_LABEL]
    return "Pod", namespace, pod.metadata.name


def is_of_pod_group(owners: Sequence[OwnerReference]) -> bool:
    """Whether a Workload with these owners is that of a group of pods, whose name it has."""
    return len(owners) > 1 and all(one.kind == "Pod" for one in owners)


def _pod_sets(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Pods by pod set: a replicated job of a JobSet, else pods with the same spec."""
    found: dict[Any, list[Pod]] = {}
    for pod in pods:
        key: Any = pod.metadata.labels.get(_REPLICATED_LABEL)
        if key is None:
            key = msgspec.msgpack.encode(replace(pod.spec, node_name=""))
        found.setdefault(key, []).append(pod)
    if len(found) == 1 and not isinstance(next(iter(found)), str):
        return {"main": next(iter(found.values()))}
    return {
        key if isinstance(key, str) else f"set-{i}": held
        for i, (key, held) in enumerate(found.items())
    }


def _workload(
    owner: OwnerKey,
    tree: Tree,
    sets: dict[str, list[Pod]],
    position: int,
    now: datetime,
    cluster: Cluster,
    manifests: KueueManifests,
) -> Workload:
    first = next(iter(sets.values()))[0]
    meta = tree.get("metadata") or {}
    labels = meta.get("labels") or first.metadata.labels
    annotations = meta.get("annotations") or {}
    fewest = annotations.get(MIN_PARALLELISM, "") if owner[0] == "Job" else ""
    # What reading makes of a Job has no time of its own.
    created = (_created(tree) if tree else None) or first.metadata.creation_timestamp or now
    pod_sets = tuple(
        PodSet(
            name,
            len(pods),
            int(fewest) if fewest.isdecimal() else None,
            KueuePodTemplate(replace(pods[0].spec, node_name="")),
            _topology_request(pods[0].metadata.annotations),
        )
        for name, pods in sets.items()
    )
    priority = manifests.priority_of(labels.get(PRIORITY_LABEL, ""))
    return Workload(
        metadata=ObjectMeta(
            name=f"{owner[0].lower()}-{owner[2]}",
            namespace=owner[1],
            uid=f"{position:08d}",
            creation_timestamp=created,
        ),
        spec=KueueWorkloadSpec(
            labels[QUEUE_LABEL],
            pod_sets,
            _priority(first, cluster) if priority is None else priority,
        ),
    )


def _priority(pod: Pod, cluster: Cluster) -> int:
    """The priority of a pod: its own, that of its PriorityClass, or the default one."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    classes = [one for one in cluster.objects if isinstance(one, PriorityClass)]
    name = pod.spec.priority_class_name
    found = [one for one in classes if (one.name == name if name else one.global_default)]
    return found[0].value if found else 0


def _topology_request(annotations: dict[str, str]) -> PodSetTopologyRequest | None:
    required = annotations.get(_TOPOLOGY.format("required"))
    preferred = annotations.get(_TOPOLOGY.format("preferred"))
    is_unconstrained = annotations.get(_TOPOLOGY.format("unconstrained")) == "true"
    if not (required or preferred or is_unconstrained):
        return None
    return PodSetTopologyRequest(required, preferred, True if is_unconstrained else None)
