"""What a change of a group, or the loss of a pending member, means for its other members.

Differs: in the original neither wakes a pod. A group whose minCount is lowered, or that is
deleted, leaves its members gated, or waiting at Permit with their resources, and a member that is
deleted, or bound by another client, does not wake those that may fit without it; with `compat` it
is so here, too.
"""

from __future__ import annotations

from stowplan.framework.pod_groups.pod_group_states import PodGroupState
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.queue import PodRecord, SubQueue
from stowplan.scheduler.context import SchedulerContext

_TO_BE_ATTEMPTED = (SubQueue.ACTIVE, SubQueue.BACKOFF, SubQueue.UNSCHEDULABLE)


def group_changed(context: SchedulerContext, key: str, after: SchedulingGroup | None) -> None:
    """Let members that wait at Permit go on if the group is complete now; reject them if it was
    deleted. Members in the queue are woken by the plugin's hint. after: None for a deleted one."""
    groups = context.pod_groups
    state = None if groups is None or context.has_defects else groups.get(key)
    if state is None:
        return
    is_complete = after is not None and state.n_scheduled >= (after.min_count or 0)
    for uid in list(state.assumed):
        waiting = context.shared.waiting.get(uid)
        framework = context.frameworks.get(state.pods[uid].spec.scheduler_name)
        if waiting is None or framework is None:
            continue
        if is_complete:
            waiting.allow(framework.group_permit)
        elif after is None:
            name = key.partition("/")[2]
            waiting.reject(framework.group_permit, f'pod group "{name}" was deleted')


def member_deleted(context: SchedulerContext, pod: Pod) -> None:
    """Attempt the pending members again after a pending one was deleted."""
    groups = context.pod_groups
    state = None if groups is None or context.has_defects else groups.of(pod)
    if state is not None and not pod.node_name:
        context.shared.to_activate.update({one.uid: one for one in state.unscheduled_pods()})


def member_bound(context: SchedulerContext, pod: Pod) -> None:
    """Attempt the pending members again after another client bound one that was pending: another
    one may fit where it was placed in the latest attempt, which was refused. One of them is woken,
    unless one is to be attempted anyway; it takes the others along."""
    groups = context.pod_groups
    state = None if groups is None or context.has_defects else groups.of(pod)
    if state is None:
        return
    for uid in state.unscheduled:
        one = state.pods[uid]
        place = context.queue.place_of(one.key)
        if place is SubQueue.UNSCHEDULABLE:
            context.shared.to_activate[uid] = one
        if place in _TO_BE_ATTEMPTED:
            return


def may_wake_others(
    context: SchedulerContext, record: PodRecord, state: PodGroupState | None
) -> bool:
    """False for a new member of a gang that is short of pods even so: its mates are kept out of the
    queue still, and looking at each of them would take quadratic time for a large gang. record: of
    the member, which has been queued. state: of its group."""
    if state is None or context.has_defects or record.pod.status.nominated_node_name:
        return True
    if record.gated_by in context.queue.gates.of_groups:
        return False
    group = context.shared.object_store.find(SchedulingGroup, state.key)
    return group is not None and len(state.pods) >= (group.min_count or 0)
