"""What the scheduler of a cluster has decided between two listings of it, and the cluster without
those decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.batch.queue_models.kai.model.kai_memory import LAST_EVICTION, LAST_START
from stowplan.cycle.explanation import pending_form
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import key_of as tree_key
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KaiPodGroupObject
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod, PodStatus
from stowplan.objects.podgroup import PodGroup, PodGroupStatus

Tree = dict[str, Any]

DISRUPTION_TARGET, BY_SCHEDULER = "DisruptionTarget", "PreemptionByScheduler"
"""Condition and reason by which Volcano and kube-scheduler mark victims, and KAI-Scheduler with
`--update-pod-eviction-condition`."""
_TIMES = (LAST_START, LAST_EVICTION)
WAITING_PHASES = ("", "Pending")
"""Phases of a PodGroup that is not admitted."""
QUOTA_RESERVED, EVICTED, PREEMPTED = "QuotaReserved", "Evicted", "Preempted"
"""Conditions of a Workload of Kueue, and the reason of the second one."""


class ClusterDecisions(msgspec.Struct, frozen=True):
    """Decisions by key.

    started: pod -> node. evicted: victims -> why, "" if unknown. admitted: PodGroups and Workloads,
    with their kind before the key. reasons: why others wait.
    """

    started: Mapping[str, str] = {}
    evicted: Mapping[str, str] = {}
    admitted: frozenset[str] = frozenset()
    reasons: Mapping[str, str] = {}

    @property
    def is_empty(self) -> bool:
        """True where nothing was decided."""
        return not (self.started or self.evicted or self.admitted)


def decisions_between(
    before: Cluster, after: Cluster, scheduler_names: Iterable[str]
) -> ClusterDecisions:
    """What has been decided about the pods of these schedulers, and by Kueue.

    A pod that has come and got its node since `before` counts as started. Only what is marked as a
    scheduler's victim counts as evicted: pods are deleted for other reasons, too. KAI-Scheduler
    marks the PodGroup, and by default not the pod.
    """
    names = frozenset(scheduler_names)
    known = {pod.uid: pod for pod in before.pods}
    started, evicted = {}, {}
    evicting = _evicting_groups(before, after)
    for pod in after.pods:
        if pod.spec.scheduler_name not in names:
            continue
        earlier = known.get(pod.uid)
        if pod.node_name and (earlier is None or not earlier.node_name):
            started[pod.key] = pod.node_name
        if is_victim(pod) and (earlier is not None and not is_victim(earlier)):
            evicted[pod.key] = ""
        if _kai_group(pod) in evicting and earlier is not None and _has_begun_to_end(earlier, pod):
            evicted[pod.key] = ""
    groups = {one.key: one for one in before.objects if isinstance(one, PodGroup)}
    admitted = {
        f"podgroup {one.key}"
        for one in after.objects
        if isinstance(one, PodGroup)
        and one.status.phase not in WAITING_PHASES
        and (one.key not in groups or groups[one.key].status.phase in WAITING_PHASES)
    }
    earlier_trees = workloads(before)
    for key, tree in workloads(after).items():
        was = earlier_trees.get(key, {})
        if has_condition(tree, QUOTA_RESERVED) and not has_condition(was, QUOTA_RESERVED):
            admitted.add(f"workload {key}")
        if is_preempted(tree) and not is_preempted(was):
            evicted[f"workload {key}"] = ""
    return ClusterDecisions(started, evicted, frozenset(admitted))


def without_decisions(before: Cluster, after: Cluster, decided: ClusterDecisions) -> Cluster:
    """The cluster as it is now, but for what was decided: so the other scheduler has found it, with
    everything that has come and ended since."""
    known = {pod.uid: pod for pod in before.pods}
    pods = []
    for pod in after.pods:
        earlier = known.get(pod.uid)
        if pod.key in decided.evicted and earlier is not None:
            pod = earlier
        elif pod.key in decided.started:
            pod = _pending(pod, earlier)
        pods.append(pod)
    groups = {one.key: one for one in before.objects if isinstance(one, PodGroup)}
    of_kai = {one.key: one for one in before.objects if isinstance(one, KaiPodGroupObject)}
    objects: list[Object] = []
    for one in after.objects:
        if isinstance(one, PodGroup):
            one = _with_earlier_status(one, groups.get(one.key))
        elif isinstance(one, KaiPodGroupObject) and one.key in of_kai:
            one = _with_earlier_times(one, of_kai[one.key])
        objects.append(one)
    trees = workloads(before)
    kueue = [_earlier_workload(tree, trees, decided) for tree in after.kueue_objects]
    return replace(after, pods=pods, objects=objects, kueue_objects=kueue)


def _pending(pod: Pod, earlier: Pod | None) -> Pod:
    status = PodStatus(phase="Pending") if earlier is None else earlier.status
    return replace(pending_form(pod), status=status)


def _with_earlier_status(group: PodGroup, earlier: PodGroup | None) -> PodGroup:
    status = PodGroupStatus(phase="Pending") if earlier is None else earlier.status
    return replace(group, status=status)


def _with_earlier_times(group: KaiPodGroupObject, earlier: KaiPodGroupObject) -> KaiPodGroupObject:
    """Without the times that go with what was decided since."""
    notes = {k: v for k, v in group.metadata.annotations.items() if k not in _TIMES}
    notes |= {k: v for k, v in earlier.metadata.annotations.items() if k in _TIMES}
    return replace(group, metadata=replace(group.metadata, annotations=notes))


def _evicting_groups(before: Cluster, after: Cluster) -> set[str]:
    """Groups of which KAI-Scheduler has evicted a pod: the time of that is another one."""
    times = {
        one.key: one.metadata.annotations.get(LAST_EVICTION)
        for one in before.objects
        if isinstance(one, KaiPodGroupObject)
    }
    return {
        one.key
        for one in after.objects
        if isinstance(one, KaiPodGroupObject)
        and one.key in times
        and one.metadata.annotations.get(LAST_EVICTION) not in (None, times[one.key])
    }


def _kai_group(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, '')}"


def _has_begun_to_end(earlier: Pod, pod: Pod) -> bool:
    """Whether a pod on a node has been deleted in the meantime."""
    return (
        bool(earlier.node_name)
        and not earlier.is_finished
        and earlier.metadata.deletion_timestamp is None
        and pod.metadata.deletion_timestamp is not None
    )


def _earlier_workload(tree: Tree, trees: Mapping[str, Tree], decided: ClusterDecisions) -> Tree:
    key = tree_key(tree)
    if tree.get("kind") != "Workload":
        return tree
    if not {f"workload {key}"} & (decided.admitted | decided.evicted.keys()):
        return tree
    return trees.get(key) or {**tree, "status": {}}


def is_victim(pod: Pod) -> bool:
    """True for a pod that a scheduler has evicted, or is evicting."""
    return any(
        (one.type, one.status, one.reason) == (DISRUPTION_TARGET, "True", BY_SCHEDULER)
        for one in pod.status.conditions
    )


def workloads(cluster: Cluster) -> dict[str, Tree]:
    """The Workloads of Kueue by key."""
    return {tree_key(tree): tree for tree in cluster.kueue_objects if tree["kind"] == "Workload"}


def has_condition(tree: Tree, kind: str) -> bool:
    """True where a condition of an object holds."""
    return any(
        one.get("type") == kind and one.get("status") == "True"
        for one in (tree.get("status") or {}).get("conditions") or ()
    )


def is_preempted(tree: Tree) -> bool:
    """True for a Workload that Kueue has evicted for another one."""
    return any(
        one.get("type") == EVICTED
        and one.get("status") == "True"
        and one.get("reason") == PREEMPTED
        for one in (tree.get("status") or {}).get("conditions") or ()
    )
