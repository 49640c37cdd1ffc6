"""What the scheduler of a cluster has decided between two listings of it, and the cluster without
those decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.cycle.explanation import pending_form
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import key_of as tree_key
from stowplan.objects.pod import Pod, PodStatus
from stowplan.objects.podgroup import PodGroup, PodGroupStatus

Tree = dict[str, Any]

DISRUPTION_TARGET, BY_SCHEDULER = "DisruptionTarget", "PreemptionByScheduler"
"""Condition and reason by which Volcano, KAI-Scheduler and kube-scheduler mark victims."""
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
    scheduler's victim counts as evicted: pods are deleted for other reasons, too.
    """
    names = frozenset(scheduler_names)
    known = {pod.uid: pod for pod in before.pods}
    started, evicted = {}, {}
    for pod in after.pods:
        if pod.spec.scheduler_name not in names:
            continue
        earlier = known.get(pod.uid)
        if pod.node_name and (earlier is None or not earlier.node_name):
            started[pod.key] = pod.node_name
        if is_victim(pod) and (earlier is not None and not is_victim(earlier)):
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
    objects = [
        _with_earlier_status(one, groups.get(one.key)) if isinstance(one, PodGroup) else one
        for one in after.objects
    ]
    trees = workloads(before)
    kueue = [_earlier_workload(tree, trees, decided) for tree in after.kueue_objects]
    return replace(after, pods=pods, objects=objects, kueue_objects=kueue)


def _pending(pod: Pod, earlier: Pod | None) -> Pod:
    status = PodStatus(phase="Pending") if earlier is None else earlier.status
    return replace(pending_form(pod), status=status)


def _with_earlier_status(group: PodGroup, earlier: PodGroup | None) -> PodGroup:
    status = PodGroupStatus(phase="Pending") if earlier is None else earlier.status
    return replace(group, status=status)


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
