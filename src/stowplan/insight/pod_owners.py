"""Owners of pods: controllers of a pod, and pods of `deploy/web`."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.inputs.workloads.next_run import scheduling_cron_job
from stowplan.objects.pod import Pod
from stowplan.objects.workload import HASH_LABEL

NO_OWNER = "<none>"

POD_NAMES = frozenset({"pod", "pods", "po"})
OWNER_KINDS: dict[str, str] = {
    name: kind
    for kind, names in {
        "Deployment": "deployment deployments deploy deployment.apps deployments.apps",
        "ReplicaSet": "replicaset replicasets rs replicaset.apps replicasets.apps",
        "StatefulSet": "statefulset statefulsets sts statefulset.apps statefulsets.apps",
        "DaemonSet": "daemonset daemonsets ds daemonset.apps daemonsets.apps",
        "ReplicationController": "replicationcontroller replicationcontrollers rc",
        "Job": "job jobs job.batch jobs.batch",
        "CronJob": "cronjob cronjobs cj cronjob.batch cronjobs.batch",
    }.items()
    for name in names.split()
}
"""Kubectl's names and short names of the kinds that own pods -> the kind."""


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


def owner_text(pod: Pod) -> str:
    """The top-level owner in kubectl's notation, `deployment/web`; `<none>` without one."""
    owners = owners_of(pod)
    if not owners:
        return NO_OWNER
    kind, name = owners[-1]
    return f"{kind.lower()}/{name}"


def pods_of_owner(pods: Iterable[Pod], kind: str, name: str, namespace: str | None) -> list[Pod]:
    """Pods of an owner, in order. namespace: None for any."""
    return [
        pod for pod in pods if (kind, name) in owners_of(pod) and namespace in (None, pod.namespace)
    ]
