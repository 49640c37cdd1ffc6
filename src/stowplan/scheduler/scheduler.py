"""Scheduler: the state machine; events in, effects out, and the only owner of mutable state.

    handle(events, now) -> effects

applies the events to cache and queue, serves expired deadlines, decides the pods at the head of the
queue and returns the effects to perform. It reads no clock, never blocks and does no I/O; the
driver performs the effects and sends their outcomes as events.

One call is bounded: it decides at most `heads_max` pods and emits Wake to be called again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from stowplan.cache import Cache
from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decider
from stowplan.framework.handle_state import WaitingPods
from stowplan.framework.pod_groups.pod_group_states import PodGroupStates
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import HTTPExtender
from stowplan.messages.watch_events import watch_events_first
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.binding.plugin_io import PendingPluginIO, PluginIO
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.event_batches import EventBatches
from stowplan.scheduler.event_handlers import EventHandlers
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.extenders.extender_calls import PendingExtenderCalls
from stowplan.scheduler.failure_handler import FailedAttempt, FailureHandler
from stowplan.scheduler.lanes.lane_factory import LaneFactory
from stowplan.scheduler.lanes.pod_lane import PodLane
from stowplan.scheduler.lanes.profile_swap import RereadProfiles
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.outbox import BindRun
from stowplan.scheduler.pod_groups.member_arrivals import MembersAdded, with_members_together
from stowplan.scheduler.pods.indexes import check_indexes
from stowplan.scheduler.pods.transitions import PodEvent

HandleObserver = Callable[[list[Event], int, int | None, list[Effect]], None]
"""Called with the events, `now`, `heads_max` and the effects of a `handle` call, at its end."""


class Scheduler:
    """The scheduler, without clock, sockets or threads. on_handled: called after every `handle`
    call; it must change neither list."""

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        decider: Decider,
        options: SchedulerOptions | None = None,
        rng: np.random.Generator | None = None,
        extenders: Iterable[HTTPExtender] = (),
        batch_lanes: Sequence[LaneFactory] = (),
        reread: RereadProfiles | None = None,
    ) -> None:
        """frameworks: by scheduler name; they share one `HandleState`. decider: chooses nodes. rng:
        breaks ties; None takes the first node. extenders: in configuration order. batch_lanes: make
        the lanes that decide the pods of other scheduler names in batches. reread: reads the
        profiles of a changed configuration; None keeps those of the start."""
        self.options = options or SchedulerOptions()
        self.cache = Cache(self.options.assume_limit_s)
        others = {name: one for make in batch_lanes for name, one in make.frameworks.items()}
        context = SchedulerContext(frameworks, self.cache, self.options, extenders, others)
        self._context = context
        self.lanes = context.lanes
        self.queue, self.pods = context.queue, context.table
        self._failure_handler = FailureHandler(context)
        self._plugin_io = PendingPluginIO(context)
        self._extender_calls = PendingExtenderCalls(context)
        self.extender_attempts = ExtenderAttempts(
            context, self._extender_calls, self._failure_handler
        )
        self.bindings = BindingCycles(
            context, self._failure_handler, self._plugin_io, self._extender_calls
        )
        self.evictions = Evictions(context, self.bindings)
        self.pod_lane = PodLane(
            context,
            self.bindings,
            self.evictions,
            self.extender_attempts,
            self._failure_handler,
            decider,
            rng,
            reread,
        )
        self.lanes.use(self.pod_lane, [make(context, self.bindings) for make in batch_lanes])
        self._event_handlers = EventHandlers(context, self.evictions)
        self.pods.connect(
            {
                "handlers": self._event_handlers,
                "attempts": self.extender_attempts,
                "bindings": self.bindings,
                "prebind": self.bindings.prebind,
            }
        )
        self._backoff_period = seconds_to_ns(self.options.queue.flush_backoff_s)
        self._unschedulable_flush_period = seconds_to_ns(self.options.queue.flush_unschedulable_s)
        self._flushed = -1
        self._flushed_unschedulable = -1
        self._wake_at: int | None = None
        self._event_table = self._table()
        self._handlers: dict[type[Any], Callable[[Any], None]] = dict(self._event_table)
        self._handlers[MembersAdded] = self._members_handler()
        self._batch_handlers = self._batch_table()
        self.on_handled: HandleObserver | None = None

    def handle(
        self, events: Iterable[Event], now: int, heads_max: int | None = None
    ) -> list[Effect]:
        """Apply events and return the effects to perform.

        Watch events are applied before the others: of a pod that the watch shows as bound or
        deleted, an outcome in the same call, which may have come earlier, leads to nothing more.

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
        handlers, shared = self._handlers, context.shared
        apply_plugin_requests = self.bindings.apply_plugin_requests
        ordered: list[Any] = watch_events_first(happenings)
        if context.pod_groups is not None:
            ordered = [*with_members_together(ordered)]
        for together, some in self._batches(ordered):
            if together is not None:
                together(some)
                continue
            for event in some:
                handlers[type(event)](event)
                # `has_pending_requests`, without a call for each event.
                if shared.to_activate or shared.waiting.settled:
                    apply_plugin_requests()
        self.bindings.prebind.poll()
        self._serve_due()
        apply_plugin_requests()
        n_max = self.options.heads_max if heads_max is None else heads_max
        for lane in context.lanes:
            lane.decide(n_max)
            apply_plugin_requests()
        for pod, fault in self.queue.take_faults():
            context.outbox.record(pod, "Warning", "FailedScheduling", "Scheduling", fault)
        self._request_wake()
        effects = context.outbox.take()
        context.note(now, effects)
        if self.on_handled is not None:
            self.on_handled(happenings, now, heads_max, effects)
        return effects

    @property
    def bind_runs(self) -> Sequence[BindRun]:
        """Runs of Bind among the effects of the last call of `handle`."""
        return self._context.outbox.bind_runs

    @property
    def pod_groups(self) -> PodGroupStates | None:
        """Members of groups; None where pods are scheduled one by one."""
        return self._context.pod_groups

    @property
    def waiting_pods(self) -> WaitingPods:
        """Pods that wait at Permit."""
        return self._context.shared.waiting

    def on_failure(self, observer: Callable[[FailedAttempt], None]) -> None:
        """Have an observer called with every failed attempt of a pod of a profile."""
        self._failure_handler.on_failure = observer

    @property
    def n_waiting(self) -> int:
        """Number of pods that wait for a node, in the queue and for sessions."""
        return self.lanes.n_waiting

    @property
    def has_extenders(self) -> bool:
        """True if the configuration contains extenders."""
        return len(self._context.extenders) > 0

    def plugin_io(self, effect: int) -> PluginIO | None:
        """Arguments of the plugin I/O of a Prepare effect; None if it was cancelled."""
        return self._plugin_io.get(effect)

    def _table(self) -> dict[type[Any], Callable[[Any], None]]:
        handlers, pods = self._event_handlers, self.pods
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
            happened.BindDone: partial(pods.outcome, PodEvent.BIND_DONE),
            happened.BindFailed: partial(pods.outcome, PodEvent.BIND_FAILED),
            happened.PodRead: self._then_lanes(partial(pods.message, PodEvent.POD_READ)),
            # The status is informational; the next failure writes it again.
            happened.PatchFailed: self._then_lanes(
                lambda e: self._context.outbox.forget_status(e.uid)
            ),
            happened.EvictDone: self._then_lanes(self.evictions.done),
            happened.EvictFailed: self._then_lanes(self.evictions.failed),
            happened.PrepareDone: self._plugin_io.done,
            happened.PrepareFailed: lambda e: self._plugin_io.failed(e.effect, e.reason),
            happened.WriteDone: self.bindings.prebind.write_done,
            happened.WriteFailed: self.bindings.prebind.write_failed,
            happened.ExtenderReplied: self._extender_calls.replied,
            happened.ExtenderFailed: self._extender_calls.failed,
            happened.Allowed: partial(pods.message, PodEvent.ALLOWED),
            happened.Rejected: partial(pods.message, PodEvent.REJECTED),
            happened.LeaderElected: self._then_lanes(self._elected),
            happened.LeaderLost: lambda e: self._step_down(),
            happened.Tick: lambda e: None,
            happened.Synced: self._context.lanes.notify,
            happened.ConfigurationChanged: self._configuration_changed,
            happened.SessionEnded: self._context.lanes.notify,
        }

    def _members_handler(self) -> Callable[[MembersAdded], None]:
        """What takes members of a group that come together."""
        return self._event_handlers.members_added

    def _batches(
        self, events: list[Any]
    ) -> Iterator[tuple[Callable[[list[Any]], None] | None, list[Any]]]:
        """The events in order, divided into those that follow each other and are taken together,
        each with what takes them, and those that are taken one by one, with None."""
        handlers = map(self._batch_handlers.get, map(type, events))
        for together, some in groupby(zip(handlers, events, strict=True), itemgetter(0)):
            yield together, [event for _, event in some]

    def _batch_table(self) -> dict[type[Any], Callable[[list[Any]], None]]:
        """What takes events that follow each other, with the requests of plugins after them."""
        take = EventBatches(
            self._context, self._event_handlers, self.evictions, self.bindings.apply_plugin_requests
        ).take
        return {happened.PodAdded: take, happened.PodDeleted: take}

    def _then_lanes(self, handler: Callable[[Any], None]) -> Callable[[Any], None]:
        """A handler of an outcome that lanes receive too."""

        def handle(event: Any) -> None:
            handler(event)
            self._context.lanes.notify(event)

        return handle

    def _configuration_changed(self, event: happened.ConfigurationChanged) -> None:
        self._context.outbox.refused_configuration = ""
        self.lanes.notify(event)

    # Leadership.

    def _elected(self, event: happened.LeaderElected) -> None:
        outbox = self._context.outbox
        if event.term > outbox.term:
            # The loss of the previous term may not have been reported.
            self._step_down()
            outbox.term = event.term
        outbox.leads = True

    def _step_down(self) -> None:
        outbox = self._context.outbox
        if outbox.leads:
            outbox.leads = False
            self.extender_attempts.step_down()
            self.bindings.step_down()
            self.evictions.step_down()
            self._context.lanes.notify(happened.LeaderLost())

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
        self.pod_lane.forget_idle()
        self.bindings.serve_due()
        self._extender_calls.serve_due()

    def repeat_refusals(self, until: int) -> int | None:
        """Do what calls of `handle` without events would do before a time, if that is only to
        count refusals (see `unschedulable_classes`); returns when to call `handle` next, None to
        call it now. `handle` has asked to be woken now, and nothing happens before `until`."""
        classes = self.pod_lane.unschedulable_classes
        if classes is None or self.on_handled is not None:
            return None
        if any(due < until for due in self._deadlines()):
            return None
        period = self._unschedulable_flush_period
        first = (self._flushed_unschedulable + 1) * period
        if not classes.repeat_flushes(first, until, period, self.cache.snapshot()):
            return None
        self._flushed_unschedulable = (until - 1) // period
        self._wake_at = self._next_deadline()
        return self._wake_at

    def _request_wake(self) -> None:
        """Emit Wake for the next deadline."""
        context = self._context
        earliest = self._next_deadline()
        asked = self._wake_at
        if earliest is not None and (asked is None or earliest != asked or asked <= context.now):
            context.outbox.wake(earliest)
        self._wake_at = earliest

    def _next_deadline(self) -> int | None:
        """The next time at which something is due."""
        due = self._deadlines()
        left = self.queue.next_unschedulable_flush()
        if left is not None:
            period = self._unschedulable_flush_period
            due.append(max(self._flushed_unschedulable, left // period) * period + period)
        return min(due, default=None)

    def _deadlines(self) -> list[int]:
        """The deadlines of all but the unschedulable flush."""
        due = []
        for owner in (self.bindings, self._extender_calls, *self._context.lanes):
            deadline = owner.next_deadline()
            if deadline is not None:
                due.append(deadline)
        over = self.queue.backoff.next_over()
        if over is not None:
            due.append(max(over, (self._flushed + 1) * self._backoff_period))
        return due

    def validate(self) -> None:
        """Check that the indexes equal the table, and the lanes' own state, between calls; raises
        InvariantBroken with the pod's event log."""
        self.cache.validate()
        check_indexes(self._context, self.bindings, self.extender_attempts)
        for lane in self._context.lanes:
            lane.validate()
