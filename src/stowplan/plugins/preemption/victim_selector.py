"""Preemption dry runs node by node: the victims that a pod needs.

Remove every pod of lower priority, check whether the pod fits, then reprieve as many as possible,
the important ones first and those that a disruption budget protects before all.

Source: kube-scheduler v1.36, plugins/defaultpreemption SelectVictimsOnNode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stowplan.columns import NodeInfo, PodInfo
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import CycleState, Framework, Snapshot, Status
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import INT64_MAX
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.node_ports import NodePorts
from stowplan.plugins.preemption.disruption_budgets import filter_pods_with_pdb_violation
from stowplan.plugins.preemption.dry_runs import NO_VICTIMS, no_victim_error
from stowplan.plugins.preemption.ranked_pods import pod_importance
from stowplan.plugins.resources.fit import NodeResourcesFit, RequestedResources

Reprieve = Callable[[PodInfo], bool | Status]
"""Whether a pod may stay beside the preempting pod, or what failed."""


class RemainingResources:
    """Remaining pod slots and amounts, as integers: pods are reprieved while they suffice."""

    __slots__ = ("_left", "_slots")

    def __init__(
        self, wanted: RequestedResources, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> None:
        """wanted: requests of the pod. nominated: the nominated pods that count as placed. With
        both of them the node is not over-committed."""
        self._slots = node.pod_limit - len(node.pods) - len(nominated) - 1
        self._left = {
            name: node.free(name) - amount - _requested_sum(nominated, name)
            for name, amount in wanted
        }

    def takes(self, info: PodInfo) -> bool:
        """True when the pod is reprieved; its requests are then subtracted."""
        requested, left = info.footprint.requested, self._left
        if self._slots < 1:
            return False
        for name, amount in left.items():
            if requested.get(name, 0) > amount:
                return False
        self._slots -= 1
        for name in left:
            left[name] -= requested.get(name, 0)
        return True


def sums_fit_int64(wanted: RequestedResources, node: NodeInfo, pods: Sequence[PodInfo]) -> bool:
    """True where sums stay within 64 bits, whichever of `pods` are on `node`."""
    for name, amount in wanted:
        requests = [info.footprint.requested.get(name, 0) for info in pods]
        held = node.requested.get(name, 0)
        if min(requests, default=0) < 0 or held < 0 or amount + held + sum(requests) > INT64_MAX:
            return False
    return True


def _requested_sum(pods: Sequence[PodInfo], resource: str) -> int:
    return sum(info.footprint.requested.get(resource, 0) for info in pods)


class VictimSelector:
    """The dry runs of one attempt.

    filters: those that run, if each reads one row only; else None. fit: NodeResourcesFit, if by
    these filters the pods on a node count by resources and host ports only; else None.
    """

    def __init__(
        self,
        pod: Pod,
        snapshot: Snapshot,
        state: CycleState,
        framework: Framework,
        budgets: Sequence[PodDisruptionBudget],
        protected_uids: frozenset[str] = frozenset(),
    ) -> None:
        """protected_uids: uids of pods that must not be evicted."""
        self.pod = pod
        self.snapshot = snapshot
        self.state = state
        self.filters = framework.filters_by_row(state)
        own = state.row_signatures
        others = [m for m in self.filters or () if not m.node_only and m.name not in own]
        kinds = {type(m.plugin) for m in others}
        self.fit: RegisteredPlugin | None = None
        if kinds <= {NodeResourcesFit, NodePorts}:
            self.fit = next((m for m in others if type(m.plugin) is NodeResourcesFit), None)
        self._minds_ports = NodePorts in kinds
        self._framework = framework
        self._budgets = budgets
        self._protected_uids = protected_uids

    def is_resource_only(self, rows: Ints) -> Bools:
        """bool (n_rows,): rows where pods count by their requests only."""
        if self.fit is None:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        if not self._minds_ports:
            return np.ones(rows.shape[0], dtype=np.bool_)
        nodes, nominations = self.snapshot.nodes, self.snapshot.nominations
        names = nodes.names
        return np.array(
            [
                not any(i.footprint.ports for i in (*nodes.pods[row], *nominations.on(names[row])))
                for row in rows.tolist()
            ],
            dtype=np.bool_,
        )

    def at(self, row: int) -> PreemptionCandidate | Status:
        """The smallest set of victims on a row, or why there is none."""
        pod, state, framework = self.pod, self.state.clone(), self._framework
        node = self.snapshot.nodes.info(row).copy()
        evictable = [
            info
            for info in node.pods
            if info.pod.priority < pod.priority and info.uid not in self._protected_uids
        ]
        if not evictable:
            return NO_VICTIMS
        for info in evictable:
            node.remove_pod(info.uid)
            status = framework.run_remove_pod(pod, info, node, state)
            if not status.is_success:
                return status
        status = framework.filter_with_nominated(pod, node, self.snapshot, state)
        if not status.is_success:
            return status

        def reprieve_pod(info: PodInfo) -> bool | Status:
            node.add_pod(info)
            status = framework.run_add_pod(pod, info, node, state)
            if not status.is_success:
                return status
            if framework.filter_with_nominated(pod, node, self.snapshot, state).is_success:
                return True
            node.remove_pod(info.uid)
            status = framework.run_remove_pod(pod, info, node, state)
            return False if status.is_success else status

        return self._reprieve_pods(node, evictable, reprieve_pod)

    def select_resource_only(self, row: int) -> PreemptionCandidate | Status:
        """The same for a row where pods count by their requests only."""
        pod, snapshot = self.pod, self.snapshot
        assert self.fit is not None, "by room without NodeResourcesFit"
        info = snapshot.nodes.info(row)
        evictable = [i for i in info.pods if i.pod.priority < pod.priority]
        if not evictable:
            return NO_VICTIMS
        staying = [i for i in info.pods if i.pod.priority >= pod.priority]
        node = NodeInfo(info.node, staying, info.used_ports, info.images)
        nominated = snapshot.nominations.counted(node.name, pod)
        wanted = self.fit.plugin.wanted(pod)
        if not sums_fit_int64(wanted, node, (*evictable, *nominated)):
            return self.at(row)
        status = self._framework.filter_with_nominated(pod, node, snapshot, self.state)
        if not status.is_success:
            return status
        return self._reprieve_pods(
            node, evictable, RemainingResources(wanted, node, nominated).takes
        )

    def _reprieve_pods(
        self, node: NodeInfo, evictable: list[PodInfo], reprieve_pod: Reprieve
    ) -> PreemptionCandidate | Status:
        evictable.sort(key=pod_importance)
        protected, free = filter_pods_with_pdb_violation(evictable, self._budgets)
        victims: list[PodInfo] = []
        violations = 0
        for index, info in enumerate([*protected, *free]):
            answer = reprieve_pod(info)
            if isinstance(answer, Status):
                return answer
            if not answer:
                victims.append(info)
                violations += index < len(protected)
        if not victims:
            return no_victim_error(node.name)
        if protected and free:
            victims.sort(key=pod_importance)
        return PreemptionCandidate(node.name, tuple(victims), violations)
