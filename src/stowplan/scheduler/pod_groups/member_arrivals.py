"""Member arrivals: pods of one template that name one group and come one after the other.

What happens is what happens for each of them in turn; the gate of their group is asked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from stowplan.framework.clusterevents import UNSCHEDULABLE_POD_ADD
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.messages.events import Event, PodAdded
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.queue import PodRecord
from stowplan.queue.member_passages import enter_gated, enter_opening
from stowplan.scheduler.context import SchedulerContext


class MembersAdded(msgspec.Struct, frozen=True):
    """Pods of one spec and namespace, which name a group, were added in this order."""

    pods: list[Pod]


def with_members_together(events: Iterable[Event]) -> Iterator[Event | MembersAdded]:
    """The events, with additions of members that follow each other as one."""
    run: list[PodAdded] = []
    for event in events:
        if type(event) is PodAdded and _names_group(event.pod):
            if run and not _are_alike(run[-1].pod, event.pod):
                yield from _one_piece(run)
                run = []
            run.append(event)
            continue
        if run:
            yield from _one_piece(run)
            run = []
        yield event
    if run:
        yield from _one_piece(run)


def _names_group(pod: Pod) -> bool:
    return pod.spec.scheduling_group is not None and not pod.spec.node_name


def _are_alike(pod: Pod, other: Pod) -> bool:
    return pod.spec is other.spec and pod.metadata.namespace == other.metadata.namespace


def _one_piece(run: list[PodAdded]) -> Sequence[Event | MembersAdded]:
    return run if len(run) == 1 else [MembersAdded([event.pod for event in run])]


def enter_together(context: SchedulerContext, pods: Sequence[Pod]) -> bool:
    """Add the pods of a `MembersAdded` to the queue; False, without effect, where they have to be
    taken one by one."""
    gate = _common_gate(context, pods)
    groups, key, now = context.pod_groups, group_key_of(pods[0]), context.now
    group = context.cache.object_store.find(SchedulingGroup, key)
    if not gate or groups is None or group is None or not group.min_count:
        return False
    before = groups.get(key)
    n_before = 0 if before is None else len(before.pods)
    groups.put_new(key, pods, now)
    entries: list[PodRecord] = []
    for pod in pods:
        pod_key = pod.key
        context.pods[pod_key] = pod
        entry = PodRecord(pod, now, pod_key)
        context.table.records[pod.metadata.uid or pod_key] = entry
        entries.append(entry)
    if n_before + len(pods) < group.min_count:
        enter_gated(context.queue, entries, gate)
    else:
        n_gated = max(0, group.min_count - 1 - n_before)
        enter_opening(context.queue, entries, gate, n_gated, now)
    return True


def _common_gate(context: SchedulerContext, pods: Sequence[Pod]) -> str:
    """The gate of groups where nothing else matters to any of the pods; "" where it may."""
    queue, first = context.queue, pods[0]
    gate = queue.gates.group_gate(first)
    others = [one for one in queue.hints.listeners(UNSCHEDULABLE_POD_ADD) if one != gate]
    if (
        not gate
        or context.has_defects
        or context.lanes.pod_watchers
        or len(queue.nominator)
        or not queue.options.hints
        or queue.unschedulable_index is not None
        or queue.unschedulable_pods.has_any(others)
    ):
        return ""
    uids = {pod.metadata.uid or pod.key: None for pod in pods}
    if len(uids) < len(pods) or queue.in_flight.has_any(uids):
        return ""
    known, requested = context.pods, context.outbox.requested_status
    for pod in pods:
        status = pod.status
        if pod.key in known or pod.is_finished or status.nominated_node_name:
            return ""
    return "" if not requested.keys().isdisjoint(uids) else gate
