"""Scheduler: the state machine; events in, effects out, and the only owner of mutable state.

    handle(events, now) -> effects

applies the events to cache and queue, serves expired deadlines, decides the pods at the head of the
queue and returns the effects to perform. It reads no clock, never blocks and does no I/O; the
driver performs the effects and sends their outcomes as events.

One call is bounded: it decides at most `heads_max` pods and emits Wake to be called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from stowplan.cache import Cache
from stowplan.columns.engine.tie_break import TieBreakSource
from stowplan.framework import ContractError, Framework
from stowplan.framework.deciders.decider import Consultation, Decider, Decision
from stowplan.framework.deciders.session_decider import SessionDecider
from stowplan.framework.status import error
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import HTTPExtender
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler import invariants
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.binding.plugin_io import PendingPluginIO, PluginIO
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.event_handlers import EventHandlers
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.extenders.extender_calls import PendingExtenderCalls
from stowplan.scheduler.failure_handler import SCHEDULER_ERROR, UNSCHEDULABLE, FailureHandler
from stowplan.scheduler.kernel_placement import KernelPlacement, tie_break_of
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.session_lane import SessionLane
from stowplan.scheduler.unschedulable_classes import UnschedulableClasses

CLASS_IDLE_S = 600.0
"""Seconds after which unused pod classes are forgotten; longer than the unschedulable flush."""


class Scheduler:
    """The scheduler, without clock, sockets or threads."""

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        decider: Decider,
        options: SchedulerOptions | None = None,
        rng: np.random.Generator | None = None,
        extenders: Iterable[HTTPExtender] = (),
        sessions: SessionDecider | None = None,
    ) -> None:
        """frameworks: by scheduler name; they share one `HandleState`. decider: chooses nodes. rng:
        breaks ties; None takes the first node. extenders: in configuration order. sessions: decides
        the pods of another scheduler name in batches."""
        self.options = options or SchedulerOptions()
        self.cache = Cache(self.options.assume_limit_s)
        self._context = SchedulerContext(frameworks, self.cache, self.options, extenders, sessions)
        self.queue = self._context.queue
        self._failure_handler = FailureHandler(self._context)
        self._plugin_io = PendingPluginIO(self._context)
        self._extender_calls = PendingExtenderCalls(self._context)
        self.extender_attempts = ExtenderAttempts(
            self._context, self._extender_calls, self._failure_handler
        )
        self.bindings = BindingCycles(
            self._context, self._failure_handler, self._plugin_io, self._extender_calls
        )
        self.evictions = Evictions(self._context, self.bindings)
        self.sessions: SessionLane | None = None
        if sessions is not None:
            self.sessions = SessionLane(self._context, self.bindings, sessions)
            self.bindings.assumed_pod_listener = self.sessions
            self._failure_handler.to_sessions = self.sessions.bind_failed
        self._event_handlers = EventHandlers(
            self._context, self.bindings, self.evictions, self.extender_attempts, self.sessions
        )
        self._kernel_placement = KernelPlacement(
            self._context, self.bindings, self._attempt_single, self._refused_by_kernel
        )
        # Called with every refused pod before the refusal is applied.
        self.on_refused: Callable[[Pod, Decision], None] = _ignore_refusal
        self._rng = rng
        self._decider = decider
        self.unschedulable_classes: UnschedulableClasses | None = None
        if self.options.counts_repeats and self.queue.options.pops_from_backoff:
            self.unschedulable_classes = UnschedulableClasses(
                self._context, decider, self._attempt_single, lambda e: tie_break_of(e, rng)
            )
        self._more_heads = False
        self._backoff_period = seconds_to_ns(self.options.queue.flush_backoff_s)
        self._unschedulable_flush_period = seconds_to_ns(self.options.queue.flush_unschedulable_s)
        self._flushed = -1
        self._flushed_unschedulable = -1
        self._idle_forgotten_at = 0
        self._idle_forgotten_cycle = -1
        self._idle_period = seconds_to_ns(CLASS_IDLE_S)
        self._wake_at: int | None = None
        self._event_table = self._table()

    def handle(
        self, events: Iterable[Event], now: int, heads_max: int | None = None
    ) -> list[Effect]:
        """Apply events and return the effects to perform.

        now: nanoseconds since an origin that is a whole second; never decreases. heads_max: maximum
        number of pods decided by profiles; a session is never divided. A plugin that breaks its
        contract fails the attempt of the pod concerned; at PreEnqueue it keeps the pod out of the
        queue; in a queueing hint it requeues the pod. At QueueSort ContractError is raised, and the
        scheduler must not be used afterwards.
        """
        context = self._context
        if now < context.now:
            raise ValueError(f"handle: invalid now: {now}: expected at least {context.now}")
        context.now = now
        happenings = list(events)
        context.note(now, happenings)
        event_table, shared = self._event_table, context.shared
        for event in happenings:
            event_table[type(event)](event)
            if shared.has_pending_requests:
                self._apply_plugin_requests()
        self.bindings.prebind.poll()
        self._serve_due()
        if shared.has_pending_requests:
            self._apply_plugin_requests()
        self._decide(self.options.heads_max if heads_max is None else heads_max)
        if self.sessions is not None:
            self.sessions.serve_due()
            if shared.has_pending_requests:
                self._apply_plugin_requests()
        for pod, fault in self.queue.take_faults():
            context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", fault)
        self._request_wake()
        effects = context.outbox.take()
        context.note(now, effects)
        return effects

    @property
    def n_waiting(self) -> int:
        """Number of pods that wait for a node, in the queue and for sessions."""
        waiting = 0 if self.sessions is None else self.sessions.decider.n_waiting
        return len(self.queue) + waiting

    @property
    def has_extenders(self) -> bool:
        """True if the configuration contains extenders."""
        return len(self._context.extenders) > 0

    def plugin_io(self, effect: int) -> PluginIO | None:
        """Arguments of the plugin I/O of a Prepare effect; None if it was cancelled."""
        return self._plugin_io.get(effect)

    def _table(self) -> dict[type[Any], Callable[[Any], None]]:
        handlers, bindings = self._event_handlers, self.bindings
        return {
            happened.PodAdded: lambda e: handlers.pod_updated(e.pod),
            happened.PodUpdated: lambda e: handlers.pod_updated(e.pod),
            happened.PodDeleted: lambda e: handlers.pod_deleted(e.pod),
            happened.NodeAdded: lambda e: handlers.node_updated(e.node),
            happened.NodeUpdated: lambda e: handlers.node_updated(e.node),
            happened.NodeDeleted: lambda e: handlers.node_deleted(e.node),
            happened.ObjectAdded: lambda e: handlers.object_updated(e.value),
            happened.ObjectUpdated: lambda e: handlers.object_updated(e.value),
            happened.ObjectDeleted: lambda e: handlers.object_deleted(e.value),
            happened.BindDone: bindings.bind_done,
            happened.BindFailed: bindings.bind_failed,
            happened.PodRead: self._pod_read,
            happened.PatchFailed: self._patch_failed,
            happened.EvictDone: self._evict_done,
            happened.EvictFailed: self._evict_failed,
            happened.PrepareDone: bindings.prepare_done,
            happened.PrepareFailed: bindings.prepare_failed,
            happened.WriteDone: bindings.prebind.write_done,
            happened.WriteFailed: bindings.prebind.write_failed,
            happened.ExtenderReplied: self._extender_calls.replied,
            happened.ExtenderFailed: self._extender_calls.failed,
            happened.Allowed: self._allowed,
            happened.Rejected: self._rejected,
            happened.LeaderElected: self._elected,
            happened.LeaderLost: lambda e: self._step_down(),
            happened.Tick: lambda e: None,
            **self._session_table(),
        }

    def _session_table(self) -> dict[type[Any], Callable[[Any], None]]:
        sessions = self.sessions
        if sessions is None:
            kinds = (happened.Synced, happened.ConfigurationChanged, happened.SessionEnded)
            return dict.fromkeys(kinds, lambda e: None)
        return {
            happened.Synced: lambda e: sessions.synced(),
            happened.ConfigurationChanged: sessions.configuration_changed,
            happened.SessionEnded: lambda e: sessions.session_ended(),
        }

    def _allowed(self, event: happened.Allowed) -> None:
        waiting = self._context.shared.waiting.get(event.uid)
        if waiting is not None:
            waiting.allow(event.plugin)

    def _rejected(self, event: happened.Rejected) -> None:
        waiting = self._context.shared.waiting.get(event.uid)
        if waiting is not None:
            waiting.reject(event.plugin, event.reason)

    # Outcomes that both the pod lane and the session lane handle.

    def _pod_read(self, event: happened.PodRead) -> None:
        self.bindings.pod_read(event)
        if self.sessions is not None:
            self.sessions.pod_read(event)

    def _patch_failed(self, event: happened.PatchFailed) -> None:
        # The status is informational; the next failure writes it again.
        self._context.outbox.forget_status(event.uid)
        if self.sessions is not None:
            self.sessions.patch_failed(event)

    def _evict_done(self, event: happened.EvictDone) -> None:
        self.evictions.done(event)
        if self.sessions is not None:
            self.sessions.evict_done(event)

    def _evict_failed(self, event: happened.EvictFailed) -> None:
        self.evictions.failed(event)
        if self.sessions is not None:
            self.sessions.evict_failed(event)

    # Leadership.

    def _elected(self, event: happened.LeaderElected) -> None:
        outbox = self._context.outbox
        if event.term > outbox.term:
            # The loss of the previous term may not have been reported.
            self._step_down()
            outbox.term = event.term
        outbox.leads = True
        if self.sessions is not None:
            self.sessions.elected()

    def _step_down(self) -> None:
        outbox = self._context.outbox
        if outbox.leads:
            outbox.leads = False
            self.extender_attempts.step_down()
            self.bindings.step_down()
            self.evictions.step_down()
            if self.sessions is not None:
                self.sessions.step_down()

    # Time.

    def _serve_due(self) -> None:
        """Serve deadlines: queue flushes, Permit timeouts, expired assumptions."""
        now = self._context.now
        if now // self._backoff_period > self._flushed:
            self._flushed = now // self._backoff_period
            self.queue.flush_backoff(now)
        if now // self._unschedulable_flush_period > self._flushed_unschedulable:
            self._flushed_unschedulable = now // self._unschedulable_flush_period
            self.queue.flush_unschedulable(
                now, self._flushed_unschedulable * self._unschedulable_flush_period
            )
        if now // self._idle_period > self._idle_forgotten_at:
            self._idle_forgotten_at = now // self._idle_period
            self._forget_idle()
        self.bindings.serve_due()
        self._extender_calls.serve_due()

    def _forget_idle(self) -> None:
        """Forget pod classes that no pod has used for CLASS_IDLE_S."""
        if self.unschedulable_classes is not None:
            if self._idle_forgotten_cycle == self.queue.cycle:
                # No attempt since the last time.
                return
            self._idle_forgotten_cycle = self.queue.cycle
            self.unschedulable_classes.keep_classes()
        self._decider.forget_idle()

    def _request_wake(self) -> None:
        """Emit Wake for the next deadline."""
        context = self._context
        due: list[int] = []
        if self._more_heads:
            due.append(context.now)
        deadlines = [self.bindings.next_deadline(), self._extender_calls.next_deadline()]
        if self.sessions is not None:
            deadlines.append(self.sessions.next_deadline())
        due.extend(deadline for deadline in deadlines if deadline is not None)
        over = self.queue.backoff.next_over()
        if over is not None:
            due.append(max(over, (self._flushed + 1) * self._backoff_period))
        left = self.queue.next_unschedulable_flush()
        if left is not None:
            due.append(
                max(self._flushed_unschedulable, left // self._unschedulable_flush_period)
                * self._unschedulable_flush_period
            )
            due[-1] += self._unschedulable_flush_period
        earliest = min(due, default=None)
        asked = self._wake_at
        if earliest is not None and (asked is None or earliest != asked or asked <= context.now):
            context.outbox.wake(earliest)
        self._wake_at = earliest

    # Decisions.

    def _decide(self, heads_max: int) -> None:
        self._more_heads = False
        if not self._context.outbox.leads:
            return
        for waiting in self.extender_attempts.pop_ready():
            self._decide_with_responses(waiting.entry, waiting.consultation)
            if self._context.shared.has_pending_requests:
                self._apply_plugin_requests()
        if self.unschedulable_classes is not None:
            self.unschedulable_classes.run(self.cache.snapshot)
        queue, left = self.queue, heads_max
        while left > 0:
            if self.extender_attempts.is_full:
                return
            engine = self._decider.engine()
            if engine is None:
                single, left = queue.pop(), left - 1
            else:
                entries, classes, single = self._kernel_placement.take(engine, left)
                if entries:
                    snapshot = self.cache.snapshot
                    left -= self._kernel_placement.place(
                        engine, entries, classes, snapshot, self._rng
                    )
                elif single is None:
                    return
                left -= single is not None
            if single is not None:
                self._attempt_single(single, tie_break_of(single, self._rng))
            elif engine is None:
                return
        early = queue.options.pops_from_backoff and len(queue.backoff.refused) > 0
        ready = early or len(queue.active) > 0
        self._more_heads = ready and not self.extender_attempts.is_full

    def _attempt_single(self, entry: QueueEntry, rng: TieBreakSource) -> None:
        self._attempt(entry, rng)
        if self._context.shared.has_pending_requests:
            self._apply_plugin_requests()

    def _attempt(self, entry: QueueEntry, rng: TieBreakSource) -> None:
        context, pod = self._context, entry.pod
        framework = context.frameworks[pod.spec.scheduler_name]
        if pod.metadata.deletion_timestamp is not None:
            context.record_skip_deleting(pod)
            self.queue.done(pod.uid)
            return
        extenders = context.extenders.for_attempt(pod) if len(context.extenders) else ()
        if extenders:
            consultation = self._decider.decide_with_extenders(pod, framework, rng, extenders)
            self._decide_with_responses(entry, consultation)
            return
        try:
            decision = self._decider.decide(pod, self.cache.snapshot(), framework, rng)
        except ContractError as fault:
            decision = _contract_error_decision(fault)
        self._decided(entry, decision)

    def _decide_with_responses(self, entry: QueueEntry, consultation: Consultation) -> None:
        """Decide a pod with the extender responses so far, or wait for further calls."""
        try:
            decision = consultation.try_decide(self.cache.snapshot())
        except ContractError as fault:
            decision = _contract_error_decision(fault)
        if decision is None:
            self.extender_attempts.wait(entry, consultation)
        else:
            self._decided(entry, decision)

    def _decided(self, entry: QueueEntry, decision: Decision) -> None:
        if decision.node_name:
            framework = self._context.frameworks[entry.pod.spec.scheduler_name]
            self.bindings.begin(entry, decision, framework)
        else:
            self._refused(entry, decision)

    def _refused(self, entry: QueueEntry, decision: Decision) -> None:
        pod, node = entry.pod, decision.nominated_node
        self.on_refused(pod, decision)
        if node and decision.victims:
            self.evictions.start(pod, node, decision.victims, decision.preempted_by)
        assert decision.refusal is not None
        self._failure_handler.attempt_failed(
            entry,
            decision.message,
            reason=UNSCHEDULABLE if decision.refusal.is_rejected else SCHEDULER_ERROR,
            refused_by=decision.plugins,
            pending_on=decision.pending,
            nominated_node=node,
        )

    def _refused_by_kernel(self, entry: QueueEntry, decision: Decision) -> None:
        self._refused(entry, decision)
        if self._context.shared.has_pending_requests:
            self._apply_plugin_requests()

    def _apply_plugin_requests(self) -> None:
        """Apply requests of plugins: settle Permit waits and activate pods."""
        self.bindings.settle_permit_waits()
        self._context.activate(self._context.shared.to_activate)

    def validate(self) -> None:
        """Check the invariants between calls; raises InvariantBroken with the pod's event log."""
        self.cache.validate()
        invariants.check_pods(self._context, self.bindings, self.extender_attempts)
        invariants.check_pending(self._context, self.bindings, self.extender_attempts)
        if self.sessions is not None:
            invariants.check_sessions(self._context, self.bindings, self.sessions)


def _ignore_refusal(pod: Pod, decision: Decision) -> None:
    """Default of `on_refused`."""


def _contract_error_decision(fault: ContractError) -> Decision:
    """Decision for a plugin that broke its contract."""
    return Decision(refusal=error(str(fault)), message=str(fault), nominated_node="")
