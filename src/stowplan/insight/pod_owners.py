"""Owners of pods: controllers of a pod, and pods of `deploy/web`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.workloads.next_run import scheduling_cron_job
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.objects.workload import HASH_LABEL

NO_OWNER = "<none>"
JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
POD_GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"

POD_NAMES = frozenset({"pod", "pods", "po"})
POD_GROUP_NAMES = ("podgroup", "podgroups", "pg")
"""Resource names of PodGroups of any scheduler."""
OWNER_KINDS: dict[str, str] = {
    name: kind
    for kind, names in {
        "Deployment": "deployment deployments deploy deployment.apps deployments.apps",
        "ReplicaSet": "replicaset replicasets rs replicaset.apps replicasets.apps",
        "StatefulSet": "statefulset statefulsets sts statefulset.apps statefulsets.apps",
        "DaemonSet": "daemonset daemonsets ds daemonset.apps daemonsets.apps",
        "ReplicationController": "replicationcontroller replicationcontrollers rc",
        "Job": "job jobs job.batch jobs.batch vcjob vcjobs vj",
        "CronJob": "cronjob cronjobs cj cronjob.batch cronjobs.batch",
    }.items()
    for name in names.split()
}
"""Kubectl's names and short names of the kinds that own pods -> the kind."""


def pod_group_of(pod: Pod) -> str:
    """Key of the PodGroup of any scheduler that the pod's annotations name, "" for none."""
    of_kai = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION)
    return group_of(pod) or (f"{pod.namespace}/{of_kai}" if of_kai else "")


def owners_of(pod: Pod) -> list[tuple[str, str]]:
    """Kind and name of the pod's controllers, the direct one first.

    Deployments and CronJobs are derived from names, since a dump of pods has neither ReplicaSets
    nor Jobs.
    """
    owner = pod.controller
    if owner is None:
        return []
    found = [(owner.kind, owner.name)]
    suffix = f"-{pod.labels.get(HASH_LABEL)}"
    if owner.kind == "ReplicaSet" and owner.name.endswith(suffix):
        found.append(("Deployment", owner.name.removesuffix(suffix)))
    scheduled = scheduling_cron_job(pod)
    if scheduled:
        found.append(("CronJob", scheduled))
    return found


def job_titles(pod: Pod) -> list[str]:
    """What may be the job that asks Kueue for the quota of a pod, as `jobset/train`: of those that
    have a Workload the first is."""
    labels, owner = pod.metadata.labels, pod.controller
    found = [] if owner is None else [f"{owner.kind.lower()}/{owner.name}"]
    if JOB_SET_LABEL in labels:
        found += [f"{kind}/{labels[JOB_SET_LABEL]}" for kind in ("trainjob", "jobset")]
    if POD_GROUP_LABEL in labels:
        found.append(f"podgroup/{labels[POD_GROUP_LABEL]}")
    return [*found, f"pod/{pod.name}"]


def owner_text(pod: Pod) -> str:
    """The top-level owner in kubectl's notation, `deployment/web`; `<none>` without one."""
    owners = owners_of(pod)
    if not owners:
        return NO_OWNER
    kind, name = owners[-1]
    return f"{kind.lower()}/{name}"


def pod_in_question(pods: Sequence[Pod]) -> Pod:
    """Which pod of an owner a question is about, of one or more: the last one that waits, else the
    last that runs, that is being deleted, that succeeded, or that failed."""
    return min(reversed(pods), key=_rank)


def _rank(pod: Pod) -> int:
    if pod.is_finished:
        return 3 + (pod.status.phase == "Failed")
    if pod.metadata.deletion_timestamp is not None:
        return 2
    return int(bool(pod.node_name) or pod.status.phase not in ("", "Pending"))


def pods_of_owner(pods: Iterable[Pod], kind: str, name: str, namespace: str | None) -> list[Pod]:
    """Pods of an owner, in order. namespace: None for any."""
    return [
        pod for pod in pods if (kind, name) in owners_of(pod) and namespace in (None, pod.namespace)
    ]


def groups_of_owner(
    objects: Iterable[Object], kind: str, name: str, namespace: str | None
) -> list[PodGroup]:
    """PodGroups of an owner, in order; it need not have pods yet. kind: "" for any. namespace:
    None for any."""
    return [
        one
        for one in objects
        if isinstance(one, PodGroup)
        and namespace in (None, one.metadata.namespace)
        and any(
            ref.controller and ref.name == name and kind in ("", ref.kind)
            for ref in one.metadata.owner_references
        )
    ]
