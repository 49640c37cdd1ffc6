"""Session lane: when sessions run and how their results are applied.

A session starts one period after the previous one has ended, once all informers are synced and if
anything has changed since. Before the sync no gang is known to be complete.

After a refused binding or eviction the pod is read, with a delay that grows with each refusal;
until then the request counts as accepted.

Source: kube-batch v0.5, scheduler.go, cache/cache.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from stowplan.framework import ContractError, Framework
from stowplan.framework.clusterevents import node_update_events
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.deciders.lane import BindingCycleFailed, PodAssumed, PodForgotten
from stowplan.framework.deciders.session_decider import (
    NodeAssignment,
    PodGroupReport,
    PodReport,
    SessionDecider,
    SessionResult,
    SessionVictim,
)
from stowplan.messages.events import (
    ConfigurationChanged,
    EvictDone,
    EvictFailed,
    LeaderElected,
    LeaderLost,
    PatchFailed,
    PodRead,
    SessionEnded,
    Synced,
)
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject, KaiQueueObject
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.timing.due_times import DueHeap, exponential_backoff
from stowplan.queue import PodRecord
from stowplan.queue.options import seconds_to_ns
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext, nominated_to
from stowplan.scheduler.failure_handler import SCHEDULER_ERROR, UNSCHEDULABLE, is_condition_new

TASK_LATENCY = "volcano_task_scheduling_latency_microseconds"


class SessionLaneFactory(msgspec.Struct, frozen=True):
    """Makes the lane of a session decider; see `LaneFactory`."""

    decider: SessionDecider

    @property
    def frameworks(self) -> dict[str, Framework]:
        """The decider's framework, by each of its scheduler names."""
        return dict.fromkeys(self.decider.scheduler_names, self.decider.framework)

    def __call__(self, context: SchedulerContext, bindings: BindingCycles) -> SessionLane:
        """Make the lane."""
        return SessionLane(context, bindings, self.decider)


class SessionLane:
    """Starts sessions and keeps their pending evictions and nominations.

    decider: runs the sessions. number: of sessions so far.
    """

    def __init__(
        self, context: SchedulerContext, bindings: BindingCycles, decider: SessionDecider
    ) -> None:
        self._context = context
        self._bindings = bindings
        self.decider = decider
        self.number = 0
        self._is_synced = context.options.synced
        self._has_changes = True
        self._due = 0
        # When time alone may let a session decide more.
        self._again_at: int | None = None
        self._changed: ConfigurationChanged | None = None
        self._arrived_at: dict[str, int] = {}
        self._nominations: dict[str, str] = {}
        # Evictions without an outcome; refused evictions, by uid; consecutive refusals per pod.
        self._pending_evictions: dict[int, Pod] = {}
        self._refused_evictions: dict[str, Pod] = {}
        self._n_refused: dict[str, int] = {}
        self._deadlines: DueHeap[str, int] = DueHeap()
        # By uid of a group or queue: the effect that last wrote its status, its namespace and name.
        self._written: dict[str, tuple[int, str, str]] = {}
        # The same for annotations of a group.
        self._annotated: dict[str, tuple[int, str, str]] = {}
        self._outcome_table = self._outcomes_handled()
        decider.attach(context.shared, context.cache.snapshot)

    # As `Lane` declares. Pods wait in the decider's inventory.

    is_queued = False
    follows_pods = True

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Those of the decider."""
        return self.decider.scheduler_names

    @property
    def outcomes(self) -> frozenset[type[Any]]:
        """See `_outcome_table`."""
        return frozenset(self._outcome_table)

    @property
    def n_waiting(self) -> int:
        """Number of pods that wait for a session."""
        return self.decider.n_waiting

    def on_event(self, before: Object | None, after: Object | None) -> None:
        """Follow a change; the next session takes it into account."""
        value = before if after is None else after
        if isinstance(value, Pod):
            if after is None:
                self._pod_deleted(value.uid)
            else:
                self._pod_updated(value, before if isinstance(before, Pod) else None)
        elif isinstance(value, Node):
            if after is None:
                self._node_deleted(value.name)
            else:
                self._node_updated(value, before if isinstance(before, Node) else None)
        elif value is not None:
            if after is None:
                self._object_deleted(value)
            else:
                self._object_updated(value, before)

    def on_outcome(self, outcome: Any) -> None:
        """See `_outcome_table`."""
        self._outcome_table[type(outcome)](outcome)

    def _outcomes_handled(self) -> dict[type[Any], Callable[[Any], None]]:
        decider = self.decider
        return {
            PodAssumed: lambda e: decider.assumed(e.pod, e.node),
            PodForgotten: lambda e: self._forgotten(e.uid),
            BindingCycleFailed: lambda e: self._bind_failed(e.pod, e.message, e.reason),
            PodRead: self._pod_read,
            PatchFailed: self._patch_failed,
            EvictDone: self._evict_done,
            EvictFailed: self._evict_failed,
            LeaderElected: lambda e: self._elected(),
            LeaderLost: lambda e: self._step_down(),
            Synced: lambda e: self._synced(),
            ConfigurationChanged: self._configuration_changed,
            SessionEnded: lambda e: self._session_ended(),
        }

    # What the watch shows.

    def _pod_updated(self, pod: Pod, before: Pod | None) -> None:
        """A pod was added or updated; includes finished pods."""
        self.decider.pod_updated(pod)
        if before is None or _is_relevant_to_sessions(before, pod):
            self._has_changes = True
        if before is None and not pod.node_name:
            self._arrived_at[pod.uid] = self._context.now
        if pod.node_name:
            self._nominations.pop(pod.uid, None)
        elif pod.spec.scheduler_name in self.decider.scheduler_names:
            self._restore_nomination(pod, before)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            self._settle_eviction(pod.uid)

    def _restore_nomination(self, pod: Pod, before: Pod | None) -> None:
        """Restore the nomination of a pod that another scheduler, or an earlier process, wrote."""
        node, uid = pod.status.nominated_node_name, pod.uid
        is_new = before is None or before.status.nominated_node_name != node
        if node and is_new and uid not in self._nominations and uid not in self._bindings:
            self._nominations[uid] = node
            self._context.queue.nominator.add(pod, node)

    def _pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""
        self._has_changes = True
        self._settle_eviction(uid)
        self._nominations.pop(uid, None)
        self._arrived_at.pop(uid, None)
        self.decider.pod_deleted(uid)

    def _node_updated(self, node: Node, before: Node | None) -> None:
        """A node was added or updated; a heartbeat is no change."""
        helps = before is None or bool(node_update_events(before, node))
        self._has_changes |= helps
        # A cordon makes no pod schedulable, but the decider must know the new spec.
        if helps or (before is not None and before.spec != node.spec):
            self.decider.node_updated(node)

    def _node_deleted(self, name: str) -> None:
        """A node was deleted."""
        self._has_changes = True
        self.decider.node_deleted(name)

    def _object_updated(self, value: Object, before: Object | None) -> None:
        """Any other object was added or updated; a pure status update of a PodGroup, or of what a
        queue has, triggers no session, nor does one of KAI's kinds."""
        is_status_update = (
            isinstance(value, PodGroup)
            and isinstance(before, PodGroup)
            and value.spec == before.spec
        )
        is_sum = (
            isinstance(value, Queue)
            and isinstance(before, Queue)
            and (value.spec, value.status.state) == (before.spec, before.status.state)
        )
        is_status_update |= (
            isinstance(value, KaiPodGroupObject | KaiQueueObject)
            and isinstance(before, KaiPodGroupObject | KaiQueueObject)
            and value.spec == before.spec
            and value.metadata.annotations == before.metadata.annotations
        )
        self._has_changes |= not (is_status_update or is_sum)
        self.decider.object_updated(value)

    def _object_deleted(self, value: Object) -> None:
        """Any other object was deleted."""
        self._has_changes = True
        for written in (self._written, self._annotated):
            written.pop(value.metadata.uid, None)
        self.decider.object_deleted(value)

    def _forgotten(self, uid: str) -> None:
        """The pod is no longer assumed."""
        self._has_changes = True
        self.decider.forgotten(uid)

    def _synced(self) -> None:
        """All informers are synced."""
        self._is_synced = True

    def _configuration_changed(self, event: ConfigurationChanged) -> None:
        """The configuration has changed; the next session loads it unless it is invalid."""
        if event.has_sessions:
            self._changed = event
            self._has_changes = True

    # Sessions.

    @property
    def is_idle(self) -> bool:
        """True if no change is waiting for a session and no eviction is pending."""
        return not (self._has_changes or self._pending_evictions or self._refused_evictions)

    @property
    def nominations(self) -> dict[str, str]:
        """uid -> node of the pods nominated to nodes where resources are being freed."""
        return self._nominations

    @property
    def is_again_due(self) -> bool:
        """True if there is a time from which on another session may decide more."""
        return self._again_at is not None

    @property
    def due(self) -> int:
        """The earliest start of the next session."""
        return self._due

    def next_deadline(self) -> int | None:
        """The next time at which a session or a read is due; None if there is none."""
        times = [self._deadlines.next_at()]
        if self._is_synced and self._context.outbox.leads:
            if self._has_changes:
                times.append(self._due)
            if self._again_at is not None:
                times.append(max(self._due, self._again_at))
        return min((at for at in times if at is not None), default=None)

    def _session_ended(self) -> None:
        """A session has ended; the next one starts one period from now."""
        self._due = self._context.now + seconds_to_ns(self.decider.period_s)

    def decide(self, n_max: int) -> None:
        """Run a session if one is due; a session is never divided."""
        context = self._context
        self._read_refused()
        again = self._again_at is not None and self._again_at <= context.now
        ready = (self._has_changes or again) and self._is_synced and context.outbox.leads
        if not ready or self._due > context.now:
            return
        self._reload()
        self._has_changes = False
        self.number += 1
        name = f"{context.options.identity}-{context.outbox.term}-{self.number}"
        now = context.now + context.options.unix_offset_ns
        result = self.decider.run_session(name, self._nominated_by_others(), now)
        self._session_ended()
        again_in = result.again_in_s
        self._again_at = None if again_in is None else context.now + seconds_to_ns(again_in)
        if result.fault:
            context.outbox.report("session", result.fault, is_fault=True)
            return
        self._has_changes = bool(result.binds or result.victims) or result.continues
        self._apply_result(result)

    def _nominated_by_others(self) -> list[NodeAssignment]:
        """Nominated pods of other schedulers and profiles."""
        nominator = self._context.queue.nominator
        mine = self.decider.scheduler_names
        return [
            NodeAssignment(info.pod, node)
            for node in nominator.nodes()
            if node
            for info in nominator.on(node)
            if info.pod.spec.scheduler_name not in mine
        ]

    def _apply_result(self, result: SessionResult) -> None:
        self._nominate({place.pod.uid: place for place in result.nominations}, result.binds)
        for victim in result.victims:
            self._evict(victim)
        # A group's status may have to be reverted when its pods are bound.
        for group in result.groups:
            self._report_group(group)
        for queue in result.queues:
            effect = self._context.outbox.patch_queue(queue)
            self._written[queue.uid] = (effect, "", queue.name)
        gangs: dict[str, list[NodeAssignment]] = {}
        for place in result.binds:
            gangs.setdefault(place.gang or place.pod.uid, []).append(place)
        for places in gangs.values():
            self._bind(places)
        for report in result.pods:
            self._report_pod(report)

    def _bind(self, places: Sequence[NodeAssignment]) -> None:
        """Bind pods that start together; bind none of them if a plugin refuses one."""
        context, framework = self._context, self.decider.framework
        states, failed = self._cycle_states(places)
        if failed is not None:
            refused, reason = failed
            for place in places:
                if place is not refused:
                    self.decider.forgotten(place.pod.uid)
            self._has_changes = True
            self._bind_failed(refused.pod, reason, UNSCHEDULABLE)
            return
        for place, state in zip(places, states, strict=True):
            pod = place.pod
            since = self._arrived_at.pop(pod.uid, context.now)
            self.decider.metrics.observe(TASK_LATENCY, (context.now - since) / 1000)
            record = PodRecord(pod, context.now, pod.key, PodState.AWAITING_SESSION)
            context.table.records[pod.uid] = record
            self._bindings.begin(record, Decision(node_name=place.node, state=state), framework)

    def _cycle_states(
        self, places: Sequence[NodeAssignment]
    ) -> tuple[list[CycleState], tuple[NodeAssignment, str] | None]:
        """Cycle state of each pod; with the first pod that a plugin refuses, and the reason.

        Pods of a gang depend on each other, so all are reserved on trial: together they may need
        more volumes than exist.
        """
        framework = self.decider.framework
        states: list[CycleState] = []
        tried: list[tuple[NodeAssignment, CycleState]] = []
        reason, place = "", places[0]
        try:
            for place in places:
                state = self.decider.state_for(place)
                if isinstance(state, str):
                    reason = state
                    break
                states.append(state)
                if len(places) > 1 and not framework.binds_directly(state):
                    tried.append((place, state))
                    status = framework.run_reserve(place.pod, place.node, state)
                    if not status.is_success:
                        reason = status.message
                        break
            for one, state in reversed(tried):
                framework.run_unreserve(one.pod, one.node, state)
        except ContractError as fault:
            reason = str(fault)
        return states, (place, reason) if reason else None

    def _nominate(
        self, nominations: dict[str, NodeAssignment], binds: Iterable[NodeAssignment]
    ) -> None:
        """Nominate the pods whose resources are being freed and clear all other nominations."""
        context = self._context
        nominator = context.queue.nominator
        bound = {place.pod.uid for place in binds}
        before, self._nominations = self._nominations, {u: p.node for u, p in nominations.items()}
        given_up = [
            nominated_to(info.pod, node)
            for uid, node in before.items()
            if uid not in bound and self._nominations.get(uid) != node
            for info in nominator.on(node)
            if info.pod.uid == uid
        ]
        for uid in [u for u in before if u not in nominations and u not in bound]:
            nominator.drop(uid)
        for uid, place in nominations.items():
            if nominator.node_of(uid) != place.node:
                nominator.nominate(place.pod, place.node)
            pod = context.pods[place.pod.key]
            if pod.status.nominated_node_name != place.node:
                context.outbox.patch_status(pod, place.node)
        for pod in given_up:
            context.requeue_lower_priority(pod)

    def _reload(self) -> None:
        event, self._changed = self._changed, None
        if event is None:
            return
        refused = self.decider.reload(event.text, event.source)
        self._context.outbox.report_reload(event.source, refused)

    # Reports.

    def _report_group(self, group: PodGroupReport) -> None:
        outbox = self._context.outbox
        if group.status is not None:
            effect = outbox.patch_group(group)
            self._written[group.uid] = (effect, group.namespace, group.name)
        if group.annotations:
            effect = outbox.annotate_group(group)
            self._annotated[group.uid] = (effect, group.namespace, group.name)
        for note in group.notes:
            outbox.record_group(group, self.decider.scheduler_name, note)

    def _report_pod(self, report: PodReport) -> None:
        context = self._context
        pod = context.pods.get(report.pod.key)
        if pod is None or pod.uid != report.pod.uid or pod.metadata.deletion_timestamp is not None:
            return
        nominated = self._nominations.get(pod.uid, "")
        requested_status = context.outbox.requested_status.get(pod.uid)
        if is_condition_new(pod, UNSCHEDULABLE, report.message, nominated, requested_status):
            context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", report.message)
            context.outbox.patch_status(pod, nominated, UNSCHEDULABLE, report.message)

    # Failed bindings.

    def _bind_failed(self, pod: Pod, message: str, reason: str = SCHEDULER_ERROR) -> None:
        """A pod was not bound and its resources were released; report it."""
        context = self._context
        self._has_changes = True
        retry = self.decider.bind_failed(pod, message, counts=context.outbox.leads)
        known = context.pods.get(pod.key)
        if known is None or known.uid != pod.uid:
            return
        if is_condition_new(
            known, reason, message, None, context.outbox.requested_status.get(known.uid)
        ):
            context.outbox.record(known, "Warning", "FailedScheduling", "Binding", message)
            context.outbox.patch_status(known, "", reason, message)
        for group in retry.groups:
            self._report_group(group)
        for victim in retry.victims:
            self._evict(victim)

    def read_delay(self, uid: str) -> int:
        """See `Lane.read_delay`; it grows with each refusal."""
        return self._retry_delay(self.decider.failures(uid))

    def _retry_delay(self, times: int) -> int:
        options = self._context.options
        return seconds_to_ns(exponential_backoff(times, options.resync_s, options.resync_max_s))

    # Evictions.

    def _evict(self, victim: SessionVictim) -> None:
        pod = victim.pod
        scheduler = self.decider.scheduler_name
        target = f" for {victim.group}" if victim.group else ""
        rules = f" ({victim.decided_by})" if victim.decided_by else ""
        text = f"{scheduler}: {victim.why}{target}{rules}"
        preemptor = "" if victim.preemptor is None else victim.preemptor.uid
        effect = self._context.outbox.evict(pod, preemptor, text, victim.why, victim.member)
        self._pending_evictions[effect] = pod
        self._context.outbox.record(pod, "Normal", "Preempted", "Preempting", text)

    def _evict_done(self, event: EvictDone) -> None:
        """The API server accepted an eviction; the watch shows the deletion later."""
        self._pending_evictions.pop(event.effect, None)
        self._n_refused.pop(event.uid, None)

    def _evict_failed(self, event: EvictFailed) -> None:
        """An eviction failed or has an unknown outcome: read the pod."""
        pod = self._pending_evictions.pop(event.effect, None)
        if pod is None:
            return
        times = self._n_refused.get(pod.uid, 0)
        self._n_refused[pod.uid] = times + 1
        self._refused_evictions[pod.uid] = pod
        self._deadlines.set(pod.uid, self._context.now + self._retry_delay(times))

    def _read_refused(self) -> None:
        for uid in self._deadlines.due(self._context.now):
            self._context.outbox.read(self._refused_evictions[uid])
            self._deadlines.set(
                uid, self._context.now + seconds_to_ns(self._context.options.read_again_s)
            )

    def _pod_read(self, event: PodRead) -> None:
        """Settle a refused eviction with the pod as read; the watch reports a deletion."""
        if event.uid not in self._refused_evictions:
            return
        n_refused = self._n_refused.get(event.uid, 0)
        self._settle_eviction(event.uid)
        pod = event.pod
        if pod is None or pod.uid != event.uid or pod.metadata.deletion_timestamp is not None:
            return
        self._n_refused[event.uid] = n_refused
        self._pod_not_evicted(event.uid)

    def _pod_not_evicted(self, uid: str) -> None:
        self._has_changes = True
        self.decider.pod_not_evicted(uid)

    def _settle_eviction(self, uid: str) -> None:
        self._refused_evictions.pop(uid, None)
        self._n_refused.pop(uid, None)
        self._deadlines.clear(uid)

    def _patch_failed(self, event: PatchFailed) -> None:
        """The status of a group or queue was not written; the next session writes it again. One of
        a queue needs no session of its own."""
        for written in (self._written, self._annotated):
            effect, namespace, name = written.get(event.uid, (0, "", ""))
            if effect == event.effect:
                self._has_changes |= bool(namespace)
                self.decider.status_not_written(namespace, name)

    # Leadership.

    def _elected(self) -> None:
        """Leadership gained: sessions may run."""
        self._has_changes = True

    def _step_down(self) -> None:
        """Leadership lost: forget pending evictions and status writes."""
        asked = [*self._pending_evictions.values(), *self._refused_evictions.values()]
        self._pending_evictions.clear()
        for pod in asked:
            self._settle_eviction(pod.uid)
            self._pod_not_evicted(pod.uid)

    def validate(self) -> None:
        """Check that sessions know the same pods as the table; raises InvariantBroken."""
        context = self._context
        known = set(self.decider.known())
        for pod in context.pods.values():
            if pod.uid not in known:
                raise context.invariant_broken("pod is unknown to sessions", pod.uid)
        for uid, node in self._nominations.items():
            if context.queue.nominator.node_of(uid) != node or uid in self._bindings:
                raise context.invariant_broken(
                    f"nominated to {node} by sessions, but not in the queue", uid
                )
        self.decider.validate()


def _is_relevant_to_sessions(before: Pod, after: Pod) -> bool:
    """True if an update of a pod matters to sessions."""
    old, new = before.metadata, after.metadata
    return (
        (before.spec is not after.spec and before.spec != after.spec)
        or before.status.phase != after.status.phase
        or before.status.resources != after.status.resources
        or old.deletion_timestamp != new.deletion_timestamp
        or old.labels != new.labels
        or old.annotations != new.annotations
    )
