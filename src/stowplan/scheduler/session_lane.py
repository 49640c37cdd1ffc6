"""Sessions: when they are held, and what becomes of what they decide.

A session opens one period after the last one has ended, once every source has shown all there is,
and if anything has happened since. Before that no gang is known to be whole.

A binding or an eviction that is refused is looked into: the pod is read, the later the more often
that has happened, and until then it counts as if the request had been taken.

Source: kube-batch v0.5, scheduler.go, cache/cache.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stowplan.framework import ContractError
from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE, node_update_events
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.decider import Decision
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
    PatchFailed,
    PodRead,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.queue import QueueEntry
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines
from stowplan.scheduler.failure_handler import SCHEDULER_ERROR, UNSCHEDULABLE, is_condition_new

TASK_LATENCY = "volcano_task_scheduling_latency_microseconds"


class SessionLane:
    """The rhythm of sessions, and their evictions and promises.

    decider: holds them. number: of those held so far.
    """

    def __init__(
        self, context: SchedulerContext, bindings: BindingCycles, decider: SessionDecider
    ) -> None:
        self._context = context
        self._bindings = bindings
        self.decider = decider
        self.number = 0
        self._is_synced = context.options.synced
        self._is_stirred = True
        self._due = 0
        self._changed: ConfigurationChanged | None = None
        self._arrived_at: dict[str, int] = {}
        self._promised: dict[str, str] = {}
        # Evictions without an outcome; refused ones, with when their pod is read; how often.
        self._asked: dict[int, Pod] = {}
        self._refused: dict[str, Pod] = {}
        self._n_refused: dict[str, int] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        # By uid of a group: the effect that wrote its status last, and its name.
        self._groups: dict[str, tuple[int, str, str]] = {}
        decider.attach(context.shared, context.cache.snapshot)

    # What the watch shows.

    def pod_updated(self, pod: Pod, before: Pod | None) -> None:
        """A pod is there or has changed, finished ones too."""
        self.decider.pod_updated(pod)
        if before is None or _is_relevant_to_sessions(before, pod):
            self._is_stirred = True
        if before is None and not pod.node_name:
            self._arrived_at[pod.uid] = self._context.now
        if pod.node_name:
            self._promised.pop(pod.uid, None)
        elif self._context.is_batch(pod):
            self._take_over(pod, before)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            self._settle_eviction(pod.uid)

    def _take_over(self, pod: Pod, before: Pod | None) -> None:
        """Count room that was made for a pod by another scheduler, or by this one when it began."""
        node, uid = pod.status.nominated_node_name, pod.uid
        is_news = before is None or before.status.nominated_node_name != node
        if node and is_news and uid not in self._promised and uid not in self._bindings:
            self._promised[uid] = node
            self._context.queue.nominator.add(pod, node)

    def pod_deleted(self, uid: str) -> None:
        """A pod is no more."""
        self._is_stirred = True
        self._settle_eviction(uid)
        self._promised.pop(uid, None)
        self._arrived_at.pop(uid, None)
        self.decider.pod_deleted(uid)

    def node_updated(self, node: Node, before: Node | None) -> None:
        """A node is there or has changed; that it is alive is no change."""
        helps = before is None or bool(node_update_events(before, node))
        self._is_stirred |= helps
        # That it is cordoned helps nobody, and is to be known all the same.
        if helps or (before is not None and before.spec != node.spec):
            self.decider.node_updated(node)

    def node_deleted(self, name: str) -> None:
        """A node is no more."""
        self._is_stirred = True
        self.decider.node_deleted(name)

    def object_updated(self, value: Object, before: Object | None) -> None:
        """Something else is there or has changed; that a status was written is no news."""
        is_echo = (
            isinstance(value, PodGroup)
            and isinstance(before, PodGroup)
            and value.spec == before.spec
        )
        self._is_stirred |= not is_echo
        self.decider.object_updated(value)

    def object_deleted(self, value: Object) -> None:
        """Something else is no more."""
        self._is_stirred = True
        self._groups.pop(value.metadata.uid, None)
        self.decider.object_deleted(value)

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod takes its room on a node before the watch shows it."""
        self.decider.assumed(pod, node)

    def forgotten(self, uid: str) -> None:
        """It does not any more."""
        self._is_stirred = True
        self.decider.forgotten(uid)

    def synced(self) -> None:
        """All there is has been shown."""
        self._is_synced = True

    def changed(self, event: ConfigurationChanged) -> None:
        """The configuration has changed: the next session goes by it, unless it is refused."""
        self._changed = event
        self._is_stirred = True

    # Sessions.

    @property
    def is_idle(self) -> bool:
        """True when nothing has happened that a session has not seen, and nothing is under way."""
        return not (self._is_stirred or self._asked or self._refused)

    @property
    def promised(self) -> dict[str, str]:
        """uid -> node of the pods that wait for room that is being freed."""
        return self._promised

    @property
    def due(self) -> int:
        """The time from which on the next session is held, if there is anything to decide."""
        return self._due

    def next_deadline(self) -> int | None:
        """When the next session, or read, is due; None when none is."""
        times = [self._deadlines.next()]
        if self._is_stirred and self._is_synced and self._context.outbox.leads:
            times.append(self._due)
        return min((at for at in times if at is not None), default=None)

    def ended(self) -> None:
        """A session is over; the next one is held a period from now."""
        self._due = self._context.now + seconds_to_ns(self.decider.period_s)

    def serve_due(self) -> None:
        """Hold a session if it is time for one."""
        context = self._context
        self._read_refused()
        ready = self._is_stirred and self._is_synced and context.outbox.leads
        if not ready or self._due > context.now:
            return
        self._reload()
        self._is_stirred = False
        self.number += 1
        name = f"{context.options.identity}-{context.outbox.term}-{self.number}"
        result = self.decider.hold(name, self._nominated_by_others())
        self.ended()
        if result.fault:
            context.outbox.report("session", result.fault, is_fault=True)
            return
        self._is_stirred = bool(result.binds or result.victims)
        self._apply_result(result)

    def _nominated_by_others(self) -> list[NodeAssignment]:
        """Pods of others that wait for room on nodes."""
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
        self._promise({place.pod.uid: place for place in result.promises}, result.binds)
        for victim in result.victims:
            self._evict(victim)
        # What a group is told now may have to be taken back when its pods are to be bound.
        for group in result.groups:
            self._report_group(group)
        gangs: dict[str, list[NodeAssignment]] = {}
        for place in result.binds:
            gangs.setdefault(place.gang or place.pod.uid, []).append(place)
        for places in gangs.values():
            self._bind(places)
        for report in result.pods:
            self._report_pod(report)

    def _bind(self, places: Sequence[NodeAssignment]) -> None:
        """Bind pods that start together, or none of them where one turns out not to fit."""
        context, framework = self._context, self.decider.framework
        states, failed = self._prepared(places)
        if failed is not None:
            refused, reason = failed
            for place in places:
                if place is not refused:
                    self.decider.forgotten(place.pod.uid)
            self._is_stirred = True
            self.bind_failed(refused.pod, reason, UNSCHEDULABLE)
            return
        for place, state in zip(places, states, strict=True):
            pod = place.pod
            since = self._arrived_at.pop(pod.uid, context.now)
            self.decider.metrics.observe(TASK_LATENCY, (context.now - since) / 1000)
            entry = QueueEntry(pod, context.now, pod.key)
            self._bindings.begin(entry, Decision(node_name=place.node, state=state), framework)

    def _prepared(
        self, places: Sequence[NodeAssignment]
    ) -> tuple[list[CycleState], tuple[NodeAssignment, str] | None]:
        """What plugins know of each pod; with the first that one of them refuses, and why.

        Where pods depend on each other all are reserved for a try: together they may want more
        volumes, say, than there are.
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
                if len(places) > 1 and not framework.goes_straight(state):
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

    def _promise(
        self, promises: dict[str, NodeAssignment], binds: Iterable[NodeAssignment]
    ) -> None:
        """Nominate the pods that wait for room that is being freed, and no others."""
        context = self._context
        nominator = context.queue.nominator
        binds = list(binds)
        bound = {place.pod.uid for place in binds}
        before, self._promised = self._promised, {u: p.node for u, p in promises.items()}
        holds = {**{place.pod.uid: place.node for place in binds}, **self._promised}
        given_up = [
            _nominated_to(info.pod, node)
            for uid, node in before.items()
            if holds.get(uid) != node
            for info in nominator.on(node)
            if info.pod.uid == uid
        ]
        for uid in [u for u in before if u not in promises and u not in bound]:
            nominator.drop(uid)
        for uid, place in promises.items():
            if nominator.node_of(uid) != place.node:
                nominator.nominate(place.pod, place.node)
            pod = context.pods[place.pod.key]
            if pod.status.nominated_node_name != place.node:
                context.outbox.patch_status(pod, place.node)
        for pod in given_up:
            self._requeue_lower_priority(pod)

    def _requeue_lower_priority(self, pod: Pod) -> None:
        """It counted as placed there for pods of profiles of its priority and below; no more."""
        self._context.queue.move(
            ASSIGNED_POD_DELETE,
            pod,
            None,
            self._context.now,
            lambda other: other.priority <= pod.priority,
        )

    def _reload(self) -> None:
        event, self._changed = self._changed, None
        if event is None:
            return
        refused = self.decider.reload(event.text, event.source)
        text = f"{event.source}: refused, the last good one holds: {refused}"
        self._context.outbox.report(
            "configuration", text if refused else f"{event.source} holds", is_fault=bool(refused)
        )

    # Telling.

    def _report_group(self, group: PodGroupReport) -> None:
        outbox = self._context.outbox
        if group.status is not None:
            effect = outbox.patch_group(group)
            self._groups[group.uid] = (effect, group.namespace, group.name)
        for note in group.notes:
            outbox.record_group(group, self.decider.scheduler_name, note)

    def _report_pod(self, report: PodReport) -> None:
        context = self._context
        pod = context.pods.get(report.pod.key)
        if pod is None or pod.uid != report.pod.uid or pod.metadata.deletion_timestamp is not None:
            return
        nominated = self._promised.get(pod.uid, "")
        requested_status = context.outbox.requested_status.get(pod.uid)
        if is_condition_new(pod, UNSCHEDULABLE, report.message, nominated, requested_status):
            context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", report.message)
            context.outbox.patch_status(pod, nominated, UNSCHEDULABLE, report.message)

    # Bindings that fail.

    def bind_failed(self, pod: Pod, message: str, reason: str = SCHEDULER_ERROR) -> None:
        """A pod has not been bound; its room has been given back."""
        context = self._context
        self._is_stirred = True
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

    def delay(self, uid: str) -> int:
        """How long after a refusal a pod is read, in nanoseconds."""
        return self._grown(self.decider.failures(uid))

    def _grown(self, times: int) -> int:
        options = self._context.options
        return seconds_to_ns(min(options.resync_s * 2 ** min(times, 40), options.resync_max_s))

    # Evictions.

    def _evict(self, victim: SessionVictim) -> None:
        pod = victim.pod
        scheduler = self.decider.scheduler_name
        whom = f" for {victim.group}" if victim.group else ""
        text = f"{scheduler}: {victim.why}{whom}"
        self._asked[self._context.outbox.evict(pod, victim.preemptor, text)] = pod
        self._context.outbox.record(pod, "Normal", "Preempted", "Preempting", text)

    def evict_done(self, event: EvictDone) -> None:
        """The API took the deletion of a victim; the watch says when it is gone."""
        self._asked.pop(event.effect, None)
        self._n_refused.pop(event.uid, None)

    def evict_failed(self, event: EvictFailed) -> None:
        """The API did not, or nobody knows: the pod is read."""
        pod = self._asked.pop(event.effect, None)
        if pod is None:
            return
        times = self._n_refused.get(pod.uid, 0)
        self._n_refused[pod.uid] = times + 1
        self._refused[pod.uid] = pod
        self._deadlines.set(pod.uid, self._context.now + self._grown(times))

    def _read_refused(self) -> None:
        for uid in self._deadlines.due(self._context.now):
            self._context.outbox.read(self._refused[uid])
            self._deadlines.set(
                uid, self._context.now + seconds_to_ns(self._context.options.read_again_s)
            )

    def pod_read(self, event: PodRead) -> None:
        """A pod that was to be evicted, as the API has it; where it is gone the watch will say."""
        if event.uid not in self._refused:
            return
        n_refused = self._n_refused.get(event.uid, 0)
        self._settle_eviction(event.uid)
        pod = event.pod
        if pod is None or pod.uid != event.uid or pod.metadata.deletion_timestamp is not None:
            return
        self._n_refused[event.uid] = n_refused
        self._pod_not_evicted(event.uid)

    def _pod_not_evicted(self, uid: str) -> None:
        self._is_stirred = True
        self.decider.staying(uid)

    def _settle_eviction(self, uid: str) -> None:
        self._refused.pop(uid, None)
        self._n_refused.pop(uid, None)
        self._deadlines.clear(uid)

    def patch_failed(self, event: PatchFailed) -> None:
        """The status of a group was not written: the next session says it again."""
        effect, namespace, name = self._groups.get(event.uid, (0, "", ""))
        if effect == event.effect:
            self._is_stirred = True
            self.decider.unwritten(namespace, name)

    # Leadership.

    def elected(self) -> None:
        """Sessions are held from now on."""
        self._is_stirred = True

    def step_down(self) -> None:
        """Another leads: of what was asked and has no outcome nothing more comes."""
        asked = [*self._asked.values(), *self._refused.values()]
        self._asked.clear()
        for pod in asked:
            self._settle_eviction(pod.uid)
            self._pod_not_evicted(pod.uid)


def _nominated_to(pod: Pod, node: str) -> Pod:
    """A pod as the API has it, or would have it soon."""
    return replace(pod, status=replace(pod.status, nominated_node_name=node))


def _is_relevant_to_sessions(before: Pod, after: Pod) -> bool:
    """True when a change of a pod is one that sessions look at."""
    old, new = before.metadata, after.metadata
    return (
        (before.spec is not after.spec and before.spec != after.spec)
        or before.status.phase != after.status.phase
        or before.status.resources != after.status.resources
        or old.deletion_timestamp != new.deletion_timestamp
        or old.labels != new.labels
        or old.annotations != new.annotations
    )
