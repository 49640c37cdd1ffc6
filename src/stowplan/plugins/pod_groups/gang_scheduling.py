"""GangScheduling: pods of a gang wait until enough of them are there, and until enough have a node.

Source: kube-scheduler v1.36, plugins/gangscheduling.
"""

from __future__ import annotations

from stowplan.framework import OK, CycleState, Handle, PermitWait, Status, error, unresolvable
from stowplan.framework.clusterevents import (
    POD,
    POD_GROUP,
    QUEUE_SKIP,
    Action,
    EventKeys,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.framework.plugin import Plugin
from stowplan.framework.pod_groups.pod_group_states import (
    PodGroupState,
    group_key_of,
)
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.plugins.pod_hints import queueing_hint

PERMIT_TIMEOUT_S = 300.0
WAITING_FOR_PODS = unresolvable(
    "waiting for minCount pods from a gang to appear in scheduling queue"
)
WAITING_FOR_NODES = PermitWait(
    PERMIT_TIMEOUT_S, "waiting for minCount pods from a gang to be scheduled"
)
NO_NAME = unresolvable("schedulingGroup has no podGroupName")


class GangScheduling:
    """PreEnqueue by the number of pods, Permit by the number of pods with a node.

    Differs: a pod whose `schedulingGroup` has no name ends the original's process; here it is kept
    out of the queue.
    """

    name = "GangScheduling"
    declaration = Plugin(
        name=name, reads=(SchedulingGroup,), permits_groups=True, gates_by_outline=True
    )

    def __init__(self, handle: Handle) -> None:
        self._shared = handle.shared

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without a group."""
        return pod.spec.scheduling_group is not None

    def pre_enqueue(self, pod: Pod) -> Status:
        """Keep the pods of a gang out of the queue until `minCount` of them exist."""
        if pod.spec.scheduling_group is None:
            return OK
        key = group_key_of(pod)
        if not key:
            return NO_NAME
        shared = self._shared
        group = shared.object_store.find(SchedulingGroup, key)
        if group is None:
            name = pod.spec.scheduling_group.pod_group_name
            return unresolvable(
                f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            )
        n_needed = group.min_count
        if n_needed is None:
            return OK
        state = None if shared.pod_groups is None else shared.pod_groups.get(key)
        if state is None:
            return error(f"pod group state not found for pod group {key}")
        return WAITING_FOR_PODS if len(state.pods) < n_needed else OK

    def permit(self, pod: Pod, node_name: str, state: CycleState) -> Status | PermitWait:
        """Wait until `minCount` pods of a gang have a node; the last of them allows the others."""
        scheduling_group = pod.spec.scheduling_group
        key = group_key_of(pod)
        if scheduling_group is None or not key:
            return OK
        group = self._shared.object_store.find(SchedulingGroup, key)
        if group is None:
            name = scheduling_group.pod_group_name
            return error(
                f'failed to get podGroup {key}: podgroup.scheduling.k8s.io "{name}" not found'
            )
        if group.min_count is None:
            return OK
        members = self._state(pod)
        if members is None:
            return error(f"pod group state not found for pod group {key}")
        shared = self._shared
        if members.n_scheduled < group.min_count:
            if shared.has_group_defects or not state.is_group_cycle:
                # In a cycle all members that may be attempted are attempted already.
                shared.to_activate.update({one.uid: one for one in members.unscheduled_pods()})
            return WAITING_FOR_NODES
        for uid in members.assumed:
            waiting = shared.waiting.get(uid)
            if waiting is not None:
                waiting.allow(self.name)
        return OK

    def _state(self, pod: Pod) -> PodGroupState | None:
        groups = self._shared.pod_groups
        return None if groups is None else groups.of(pod)

    def events_to_register(self) -> RegisteredEvents:
        """Another pod of the group, or the group itself, was added, or the group has changed."""
        return (
            on(POD, Action.ADD, _after_pod_added, keys=_GROUP_KEYS),
            on(POD_GROUP, Action.ADD | Action.UPDATE, self._after_group_changed, keys=_GROUP_KEYS),
        )

    def _after_group_changed(self, pod: Pod, old: Object | None, new: Object) -> QueueingHint:
        # Groups of kube-batch and Volcano have events of the same name.
        if not isinstance(new, SchedulingGroup):
            return QUEUE_SKIP
        # Differs: the original looks at new groups only; here so with `compat` only.
        if isinstance(old, SchedulingGroup) and (
            self._shared.has_group_defects or old.spec == new.spec
        ):
            return QUEUE_SKIP
        return queueing_hint(group_key_of(pod) == new.key)


def _after_pod_added(pod: Pod, old: Pod | None, new: Pod) -> QueueingHint:
    key = group_key_of(pod)
    return queueing_hint(key != "" and key == group_key_of(new))


def _named_group(pod: Pod) -> tuple[str, ...]:
    key = group_key_of(pod)
    return (key,) if key else ()


def _changed_group(old: Object | None, new: Object | None) -> str:
    """The group of a new pod, or a group itself; "" for groups of others."""
    if isinstance(new, Pod):
        return group_key_of(new)
    return new.key if isinstance(new, SchedulingGroup) else ""


_GROUP_KEYS = EventKeys(_changed_group, _named_group)
