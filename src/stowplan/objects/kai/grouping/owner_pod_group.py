"""The PodGroup of a pod as KAI-Scheduler's pod-grouper makes it from the pod and its owners.

Labels and annotations of the top owner count before those of the pod. What a kind of owner does
differently is in `sub_groups` and `leader_worker_set`; a kind without rules has one group of a
minimum of one pod.

Differs: PodGangs of Grove, and AzureML's and Run:ai's own jobs, have no rules of their own;
defaults by kind from a ConfigMap are not read; groups that earlier releases have made are not
looked for. A ReplicaSet whose object is not found counts as one of a Deployment.

Source: KAI-Scheduler, pkg/podgrouper/podgrouper/plugins and pkg/podgrouper/podgroup/handler.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from stowplan.objects.encoding import duration
from stowplan.objects.kai.annotation_numbers import unsigned_number
from stowplan.objects.kai.grouping.leader_worker_set import (
    group_suffix,
    leader_worker_minimum,
    leader_worker_sub_group,
    leader_worker_sub_groups,
)
from stowplan.objects.kai.grouping.sub_groups import (
    MIN_MEMBER,
    REPLICA_SPECS,
    constraint_of,
    job_set_minimum,
    job_set_sub_group,
    job_set_sub_groups,
    kubeflow_minimum,
    pytorch_sub_group,
    pytorch_sub_groups,
    ray_cluster_name,
    ray_sub_group,
    ray_sub_groups,
    whole_number,
)
from stowplan.objects.kai.grouping.workload_owners import (
    FindOwner,
    GroupingError,
    Owner,
    check_not_skipped,
    owner_chain,
    owner_of_pod,
)
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject, KaiPodGroupSpec, KaiSubGroup
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod

DEFAULT_QUEUE = "default-queue"
QUEUE_LABEL, PROJECT_LABEL = "kai.scheduler/queue", "project"
NODE_POOL_LABEL = "kai.scheduler/node-pool"
PRIORITY_LABEL = "priorityClassName"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
PREEMPTION_DELAY = "kai.scheduler/preemption-delay"
STALENESS_GRACE = "kai.scheduler/staleness-grace-period"
RAY_PRIORITY_LABEL = "ray.io/priority-class-name"
SPARK_APP, SPARK_SELECTOR = "spark-app-name", "spark-app-selector"
MIN_SCALE = "autoscaling.knative.dev/min-scale"
TRAIN, BUILD, INFERENCE = "train", "build", "inference"
_PREEMPTIBILITIES = ("preemptible", "non-preemptible", "")
_CLASS_OF_KIND = {"Deployment": INFERENCE, "Notebook": BUILD, "SPOTRequest": INFERENCE,
                  "Revision": INFERENCE}  # fmt: skip
_SKIPPED = (
    ("trainer.kubeflow.org", "TrainJob"),
    ("argoproj.io", "Workflow"),
    ("nvidia.com", "DynamoGraphDeployment"),
    *(("run.ai", f"{kind}Workload") for kind in ("Training", "Interactive", "Distributed",
      "Inference", "DistributedInference")),
)  # fmt: skip
"""Owners that only pass their labels and annotations to the owner below."""
_RAY = ("RayCluster", "RayJob", "RayService")
_OWN_RULES = {
    ("apps", "Deployment"), ("batch", "Job"), ("batch", "CronJob"), ("", "Pod"),
    ("kubeflow.org", "Notebook"), ("jobset.x-k8s.io", "JobSet"), ("egx.nvidia.io", "SPOTRequest"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"), ("serving.knative.dev", "Revision"),
    *(("kubeflow.org", kind) for kind in REPLICA_SPECS), *(("ray.io", kind) for kind in _RAY),
}  # fmt: skip
"""Kinds whose rules look at the top owner alone; others look at all owners."""


class PodOwners(msgspec.Struct, frozen=True):
    """The owners of a pod as the rules see them.

    top: the one whose rules apply. owners: those whose labels count, the nearest first. cluster:
    the RayCluster of a Ray workload.
    """

    top: Owner
    owners: tuple[Owner, ...]
    cluster: Owner | None = None

    @property
    def kind(self) -> tuple[str, str]:
        """Group and kind of the top owner."""
        return self.top.group, self.top.kind


def owners_of(pod: Pod, find: FindOwner) -> PodOwners:
    """The owners of a pod. Raises GroupingError."""
    chain = owner_chain(pod, find)
    check_not_skipped(pod, chain)
    chain = _without_skipped(chain, pod)
    chain = _up_to_revision(chain)
    top = chain[-1]
    if top.kind == "ReplicaSet" and top.group == "apps" and not top.is_known:
        top = replace(top, kind="Deployment")
    if (top.group, top.kind) == ("batch", "CronJob") and len(chain) > 1:
        # Each Job of a CronJob has a group of its own, without the minimum that it states.
        top = replace(chain[-2], kind="CronJob")
    own = (top.group, top.kind) in _OWN_RULES
    cluster = None
    if top.group == "ray.io" and top.kind in _RAY and top.is_known:
        cluster = top if top.kind == "RayCluster" else _ray_cluster(top, find)
    return PodOwners(top, (top,) if own else (*chain[:-1], top), cluster)


def _ray_cluster(top: Owner, find: FindOwner) -> Owner:
    name = ray_cluster_name(top)
    reference = OwnerReference(top.api_version, "RayCluster", name)
    found = find(reference, top.metadata.namespace or "default")
    if found is None:
        raise GroupingError(f'RayCluster "{name}" of {top.kind} {top.title} not found')
    return found


def _without_skipped(chain: tuple[Owner, ...], pod: Pod) -> tuple[Owner, ...]:
    while (chain[-1].group, chain[-1].kind) in _SKIPPED:
        skipped = chain[-1].metadata if chain[-1].is_known else ObjectMeta()
        last = chain[-2] if len(chain) > 1 else owner_of_pod(pod)
        meta = replace(
            last.metadata,
            labels={**skipped.labels, **last.labels},
            annotations={**skipped.annotations, **last.annotations},
        )
        chain = (*chain[:-2], replace(last, metadata=meta))
    return chain


def _up_to_revision(chain: tuple[Owner, ...]) -> tuple[Owner, ...]:
    """Services of Knative have a group for each of their revisions."""
    for i, owner in enumerate(chain):
        if (owner.group, owner.kind) == ("serving.knative.dev", "Revision"):
            return chain[: i + 1]
    return chain


# Names.


def group_name(pod: Pod, owners: PodOwners) -> str:
    """The name of the group of a pod."""
    top = owners.top
    labels = pod.metadata.labels
    if owners.kind == ("", "Pod") and SPARK_APP in labels and SPARK_SELECTOR in labels:
        return labels[SPARK_SELECTOR]
    if owners.kind == ("apps", "Deployment"):
        top = owner_of_pod(pod)
    # Objects of files have no uid, nor the key in its place.
    uid = "" if top.metadata.uid in ("", top.title) else f"-{top.metadata.uid}"
    suffix = group_suffix(pod) if owners.kind == _LEADER_WORKER_SET else ""
    return f"pg-{top.metadata.name}{uid}{suffix}"


_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")


def sub_group_of(pod: Pod, owners: PodOwners) -> str:
    """The sub-group of a pod, "" for none. Raises GroupingError."""
    top = owners.top
    if not top.is_known:
        return ""
    if owners.kind == ("kubeflow.org", "PyTorchJob"):
        return pytorch_sub_group(top, pod)
    if owners.kind == ("jobset.x-k8s.io", "JobSet"):
        return job_set_sub_group(top, pod)
    if owners.kind == _LEADER_WORKER_SET:
        return leader_worker_sub_group(top, pod, leader_worker_minimum(top, (pod,)))
    return "" if owners.cluster is None else ray_sub_group(owners.cluster, pod)


# The group.


def pod_group_of(
    pods: Sequence[Pod], owners: PodOwners, classes: Collection[str]
) -> KaiPodGroupObject:
    """The group of pods, which have the same owners; the first one's labels count.

    classes: names of the priority classes that there are. Raises GroupingError.
    """
    pod, top = pods[0], owners.top
    minimum, min_sub_group = _minimum(pods, owners)
    spec = KaiPodGroupSpec(
        queue=_queue(pod, top),
        min_member=minimum if min_sub_group is None else None,
        min_sub_group=min_sub_group,
        sub_groups=_sub_groups(pod, owners, minimum),
        priority_class_name=_priority_class(pod, owners, classes),
        preemptibility=_preemptibility(pod, owners),
        preemption_delay=_duration(pod, owners, PREEMPTION_DELAY, least=timedelta()),
        staleness_grace_period=_duration(pod, owners, STALENESS_GRACE, least=None),
        topology_constraint=constraint_of(top.annotations),
    )
    meta = ObjectMeta(
        name=group_name(pod, owners),
        namespace=pod.namespace,
        labels=dict(top.labels) if top.is_known else {},
        annotations=dict(top.annotations) if top.is_known else {},
        creation_timestamp=pod.metadata.creation_timestamp,
    )
    return KaiPodGroupObject(metadata=meta, spec=spec)


def _minimum(pods: Sequence[Pod], owners: PodOwners) -> tuple[int, int | None]:
    """Pods that the group needs; and, of a group of sub-groups, how many of those."""
    top, (group, kind) = owners.top, owners.kind
    if owners.kind == ("serving.knative.dev", "Revision"):
        # Pods have the annotations of their revision.
        scale = unsigned_number(top.annotations.get(MIN_SCALE))
        return 1 if scale is None else scale, None
    if not top.is_known:
        return 1, None
    if group == "kubeflow.org" and kind in REPLICA_SPECS:
        return kubeflow_minimum(top, pods), None
    if owners.kind == ("jobset.x-k8s.io", "JobSet"):
        return 0, job_set_minimum(top)
    if owners.kind == _LEADER_WORKER_SET:
        return leader_worker_minimum(top, pods), None
    if owners.cluster is not None:
        return sum(one.min_member or 0 for one in ray_sub_groups(owners.cluster)), None
    if owners.kind == ("batch", "Job") and MIN_MEMBER in top.annotations:
        return whole_number(top.annotations[MIN_MEMBER], "min-member annotation value"), None
    return 1, None


def _sub_groups(pod: Pod, owners: PodOwners, minimum: int) -> tuple[KaiSubGroup, ...]:
    top = owners.top
    if not top.is_known:
        return ()
    if owners.kind == ("kubeflow.org", "PyTorchJob"):
        return pytorch_sub_groups(top, pod, minimum)
    if owners.kind == ("jobset.x-k8s.io", "JobSet"):
        return job_set_sub_groups(top)
    if owners.kind == _LEADER_WORKER_SET:
        return leader_worker_sub_groups(top, pod, minimum)
    return () if owners.cluster is None else ray_sub_groups(owners.cluster)


def _queue(pod: Pod, top: Owner) -> str:
    for labels in (top.labels, pod.metadata.labels):
        if QUEUE_LABEL in labels:
            return labels[QUEUE_LABEL]
    labels = pod.metadata.labels
    project = top.labels.get(PROJECT_LABEL, labels.get(PROJECT_LABEL, ""))
    if not project:
        return DEFAULT_QUEUE
    pool = labels.get(NODE_POOL_LABEL)
    return project if pool is None else f"{project}-{pool}"


def _priority_class(pod: Pod, owners: PodOwners, classes: Collection[str]) -> str:
    if owners.top.group == "ray.io" and RAY_PRIORITY_LABEL in owners.top.labels:
        return owners.top.labels[RAY_PRIORITY_LABEL]
    of_pod = pod.metadata.labels.get(PRIORITY_LABEL, pod.spec.priority_class_name)
    for owner in owners.owners:
        name = owner.labels.get(PRIORITY_LABEL, of_pod)
        if name in classes:
            return name
    return _CLASS_OF_KIND.get(owners.top.kind, TRAIN)


def _stated(pod: Pod, owners: PodOwners, field: str, key: str) -> Iterator[str]:
    """What owners and the pod say, in the order in which it counts."""
    metas = (*(owner.metadata for owner in owners.owners), pod.metadata)
    for meta in metas:
        found: Mapping[str, str] = getattr(meta, field)
        if key in found:
            yield found[key]


def _preemptibility(pod: Pod, owners: PodOwners) -> str:
    stated = _stated(pod, owners, "labels", PREEMPTIBILITY_LABEL)
    return next((text for text in stated if text in _PREEMPTIBILITIES), "")


def _duration(pod: Pod, owners: PodOwners, key: str, least: timedelta | None) -> str | None:
    for text in _stated(pod, owners, "annotations", key):
        try:
            length = duration.parse(text)
        except ValueError:
            continue
        if least is None or length >= least:
            return text
    return None


def owner_reference(pod: Pod, owners: PodOwners) -> OwnerReference:
    """The owner of the group."""
    top = owners.top
    if owners.kind in (("apps", "Deployment"), ("", "Pod")) and top.metadata.name != pod.name:
        top = owner_of_pod(pod)
    kind = "Job" if owners.kind == ("batch", "CronJob") else top.kind
    return OwnerReference(top.api_version, kind, top.metadata.name, top.metadata.uid)
