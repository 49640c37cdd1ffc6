"""Pod groups of pods that name none, as KAI's pod-grouper makes them.

Differs: labels and annotations of owners are not read, only those of the pod; a ReplicaSet counts
as one of a Deployment; owners of other kinds (JobSet, PyTorchJob, RayJob and so on) have a group
with a minimum of one pod.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins (defaultgrouper, job, deployment, podjob).
"""

from __future__ import annotations

from collections.abc import Collection

from stowplan.objects.kai.kai_kinds import (
    KaiPodGroupObject,
    KaiPodGroupSpec,
    KaiTopologyConstraint,
)
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod

DEFAULT_QUEUE = "default-queue"
QUEUE_LABEL = "kai.scheduler/queue"
TRAIN, INFERENCE = "train", "inference"
_FOR_EACH_POD = ("ReplicaSet", "Deployment")
_PREEMPTIBILITIES = ("preemptible", "non-preemptible")


def grouped_name(pod: Pod) -> str:
    """Name of the group: of the owner, or of the pod alone; without a uid where it has none."""
    owner = pod.controller
    if owner is None or owner.kind in _FOR_EACH_POD:
        own = "" if pod.uid == pod.key else f"-{pod.uid}"
        return f"pg-{pod.name}{own}"
    return f"pg-{owner.name}-{owner.uid}" if owner.uid else f"pg-{owner.name}"


def grouped(pod: Pod, classes: Collection[str]) -> KaiPodGroupObject:
    """The group. classes: names of the priority classes that there are."""
    meta, labels, notes = pod.metadata, pod.metadata.labels, pod.metadata.annotations
    owner = pod.controller
    fallback = INFERENCE if owner is not None and owner.kind in _FOR_EACH_POD else TRAIN
    wanted = labels.get("priorityClassName") or pod.spec.priority_class_name
    stated = labels.get("kai.scheduler/preemptibility", "")
    spec = KaiPodGroupSpec(
        queue=labels.get(QUEUE_LABEL) or labels.get("project") or DEFAULT_QUEUE,
        min_member=1,
        priority_class_name=wanted if wanted in classes else fallback,
        preemptibility=stated if stated in _PREEMPTIBILITIES else "",
        topology_constraint=KaiTopologyConstraint(
            notes.get("kai.scheduler/topology", ""),
            notes.get("kai.scheduler/topology-required-placement", ""),
            notes.get("kai.scheduler/topology-preferred-placement", ""),
        ),
    )
    named = ObjectMeta(
        name=grouped_name(pod),
        namespace=pod.namespace,
        creation_timestamp=meta.creation_timestamp,
    )
    return KaiPodGroupObject(metadata=named, spec=spec)
