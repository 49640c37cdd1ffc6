"""Preemption for a group as a whole, anywhere in the cluster; groups may be victims as a whole.

Remove every unit of lower priority, check whether the group is schedulable, then reprieve as many
as possible, the important ones first and those that a disruption budget protects before all.

Source: kube-scheduler v1.36, framework/preemption/podgrouppreemption.go and types.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from stowplan.columns import PodInfo
from stowplan.framework import OK, ObjectStore, Status, unresolvable, unschedulable
from stowplan.framework.pod_groups.placements import PodGroupTrial
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import WHOLE_GROUP, SchedulingGroup
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.preemption.disruption_budgets import pdb_counts_eviction

NOT_ELIGIBLE_POLICY_NEVER = "not eligible due to preemptionPolicy=Never."
NO_GROUP_VICTIMS = unresolvable("No preemption victims found for incoming preemptor")
NEVER_STARTED = datetime.datetime.max.replace(tzinfo=datetime.UTC)


class PreemptionUnit(msgspec.Struct, gc=True):
    """Pods that are evicted together, with their rows. is_group: the pods name a group.

    start: start time of the pod that was met first; it stands for the unit.
    """

    priority: int
    is_group: bool
    start: datetime.datetime
    pods: list[tuple[PodInfo, int]]

    @property
    def importance(self) -> tuple[object, ...]:
        """Sort key: the most important first."""
        size = len(self.pods) if self.is_group else 0
        return -self.priority, not self.is_group, -size, self.start


def find_group_victims(
    group: SchedulingGroup, trial: PodGroupTrial, *, has_defects: bool = False
) -> Status:
    """Fill `trial.victims`; a status that says why no eviction helps, else Success.

    Differs: in the original a group whose priority is higher than that of its pods evicts those of
    its own that run for those that wait; here with `compat` only.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in trial.pods):
        return unschedulable(NOT_ELIGIBLE_POLICY_NEVER)
    units = [
        one
        for one in preemption_units(trial)
        if one.priority < group.priority
        and (has_defects or group_key_of(one.pods[0][0].pod) != group.key)
    ]
    if not units:
        return NO_GROUP_VICTIMS
    for unit in units:
        _remove(unit, trial)
    refusal = trial.run()
    if refusal:
        return unschedulable(refusal)
    units.sort(key=lambda one: one.importance)
    lost = []
    protected, free = _by_budgets(units, trial.snapshot.object_store)
    for unit in (*protected, *free):
        mark = trial.overlay.mark()
        for info, row in unit.pods:
            trial.overlay.place(info, row)
        if trial.run():
            trial.overlay.rollback(mark)
            lost.append(unit)
    lost.sort(key=lambda one: one.importance)
    trial.victims.extend(info.pod for unit in lost for info, _ in unit.pods)
    return OK


def preemption_units(trial: PodGroupTrial) -> list[PreemptionUnit]:
    """All pods on nodes as units, in the order of the snapshot."""
    nodes, objects = trial.snapshot.nodes, trial.snapshot.object_store
    whole: dict[str, PreemptionUnit] = {}
    units = []
    for row in nodes.order.tolist():
        for info in nodes.pods[row]:
            group = _whole_group_of(info.pod, objects)
            unit = None if group is None else whole.get(group.key)
            if unit is not None:
                unit.pods.append((info, row))
                continue
            pod = info.pod
            priority = pod.priority if group is None else group.priority
            is_group = pod.spec.scheduling_group is not None
            start = pod.status.start_time or NEVER_STARTED
            unit = PreemptionUnit(priority, is_group, start, [(info, row)])
            units.append(unit)
            if group is not None:
                whole[group.key] = unit
    return units


def _whole_group_of(pod: Pod, objects: ObjectStore) -> SchedulingGroup | None:
    """The group of a pod, if it is preempted whole."""
    key = group_key_of(pod)
    group = objects.find(SchedulingGroup, key) if key else None
    if group is None or group.spec.disruption_mode != WHOLE_GROUP:
        return None
    return group


def _remove(unit: PreemptionUnit, trial: PodGroupTrial) -> None:
    for info, row in unit.pods:
        trial.overlay.take(info.uid, row)


def _by_budgets(
    units: Sequence[PreemptionUnit], objects: ObjectStore
) -> tuple[list[PreemptionUnit], list[PreemptionUnit]]:
    """(protected, free), each in the order given. A unit is protected from the first pod on whose
    eviction takes a budget below zero; the pods after it take nothing from budgets."""
    budgets = list(objects.all(PodDisruptionBudget))
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[PreemptionUnit] = []
    free: list[PreemptionUnit] = []
    for unit in units:
        violates = any(_takes_too_much(info.pod, budgets, allowed) for info, _ in unit.pods)
        (protected if violates else free).append(unit)
    return protected, free


def _takes_too_much(pod: Pod, budgets: Sequence[PodDisruptionBudget], allowed: list[int]) -> bool:
    """True when the eviction takes a budget below zero; the budgets after it are not counted."""
    for index, budget in enumerate(budgets):
        if pdb_counts_eviction(budget, pod):
            allowed[index] -= 1
            if allowed[index] < 0:
                return True
    return False
