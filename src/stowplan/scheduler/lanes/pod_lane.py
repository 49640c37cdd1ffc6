"""Pod lane: decides the pods of all profiles, one after the other, from one queue.

Source: kube-scheduler v1.36, schedule_one.go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stowplan.columns.engine.tie_break import TieBreakSource
from stowplan.framework import ConfigError, ContractError, Framework
from stowplan.framework.clusterevents import (
    NODE,
    RESOURCE_OF_KIND,
    Action,
    ClusterEvent,
    node_update_events,
)
from stowplan.framework.deciders.decider import Consultation, Decider, Decision, PodClass
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.framework.status import error
from stowplan.messages.events import ConfigurationChanged
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.queue import PodRecord
from stowplan.queue.options import seconds_to_ns
from stowplan.queue.pod_record import PodState
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.evictions import Evictions
from stowplan.scheduler.extenders.extender_attempts import ExtenderAttempts
from stowplan.scheduler.failure_handler import SCHEDULER_ERROR, UNSCHEDULABLE, FailureHandler
from stowplan.scheduler.lanes.kernel_placement import KernelPlacement
from stowplan.scheduler.lanes.profile_swap import RereadProfiles, swap_profiles
from stowplan.scheduler.lanes.unschedulable_classes import UnschedulableClasses
from stowplan.scheduler.pod_groups.group_changes import group_changed
from stowplan.scheduler.pod_groups.group_cycle import GroupCycles
from stowplan.scheduler.tie_breaks import tie_break_of

CLASS_IDLE_S = 600.0
"""Seconds after which unused pod classes are forgotten; longer than the unschedulable flush."""

_EVENTS_OF_KIND = {
    kind: {
        action: ClusterEvent(resource, action)
        for action in (Action.ADD, Action.UPDATE, Action.DELETE)
    }
    for kind, resource in RESOURCE_OF_KIND.items()
}
"""The events of a kind, made once: each keeps its hash."""


class PodLane:
    """Attempts pods of the queue.

    on_refused: called with every refused pod before the refusal is applied. on_attempt: called
    with every pod that is attempted alone. group_cycles: attempts of groups.
    """

    def __init__(
        self,
        context: SchedulerContext,
        bindings: BindingCycles,
        evictions: Evictions,
        extender_attempts: ExtenderAttempts,
        failures: FailureHandler,
        decider: Decider,
        rng: np.random.Generator | None,
        reread: RereadProfiles | None = None,
    ) -> None:
        """reread: reads the profiles of a changed configuration; None keeps those of the start."""
        self._context = context
        self._queue = context.queue
        self._bindings = bindings
        self._evictions = evictions
        self._extender_attempts = extender_attempts
        self._failure_handler = failures
        self.decider = decider
        self._rng = rng
        self._reread = reread
        self._changed: list[ConfigurationChanged] = []
        self._kernel_placement = KernelPlacement(
            context,
            bindings,
            self._attempt_single,
            self._refused_by_kernel,
            lambda entry: self.on_attempt(entry),
        )
        self.on_refused: Callable[[Pod, Decision], None] = _ignore_refusal
        self.unschedulable_classes: UnschedulableClasses | None = None
        self.group_cycles = GroupCycles(
            context,
            bindings,
            evictions,
            failures,
            lambda: self.decider,
            rng,
        )
        self.on_attempt: Callable[[PodRecord], None] = _ignore_attempt
        counts_repeats = context.options.counts_repeats and context.pod_groups is None
        if counts_repeats and context.queue.options.pops_from_backoff:
            self.unschedulable_classes = UnschedulableClasses(
                context, decider, self._attempt_of_class
            )
        self._has_more = False
        self._idle_forgotten_at = 0
        self._idle_forgotten_cycle = -1
        self._idle_period = seconds_to_ns(CLASS_IDLE_S)

    def forget_idle(self) -> None:
        """Forget pod classes that no pod has used for CLASS_IDLE_S."""
        period = self._context.now // self._idle_period
        if period <= self._idle_forgotten_at:
            return
        self._idle_forgotten_at = period
        if self.unschedulable_classes is not None:
            if self._idle_forgotten_cycle == self._queue.cycle:
                # No attempt since the last time.
                return
            self._idle_forgotten_cycle = self._queue.cycle
            self.unschedulable_classes.keep_classes()
        self.decider.forget_idle()

    # As `Lane` declares. The table queues new pods, since each of them passes there.

    is_queued = True
    follows_pods = False

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Names of the profiles."""
        return tuple(self._context.frameworks)

    @property
    def outcomes(self) -> frozenset[type[Any]]:
        """Changes of the configuration; the queue and the binding cycles serve this lane
        otherwise."""
        return frozenset(() if self._reread is None else (ConfigurationChanged,))

    @property
    def n_waiting(self) -> int:
        """Number of pods in the queue."""
        return len(self._queue)

    def on_event(self, before: Object | None, after: Object | None) -> None:
        """Retry pods that the change of a node or another object may make schedulable."""
        value = before if after is None else after
        if isinstance(value, Node):
            self._node_changed(before, after)
        elif value is not None:
            events = _EVENTS_OF_KIND.get(type(value).__name__)
            if events is not None:
                event = events[action_of(before, after)]
                self._queue.move(event, before, after, self._context.now)
            if isinstance(value, SchedulingGroup):
                now = after if isinstance(after, SchedulingGroup) else None
                group_changed(self._context, value.key, now)

    def _node_changed(self, before: Object | None, after: Object | None) -> None:
        now = self._context.now
        if isinstance(before, Node) and isinstance(after, Node):
            for event in node_update_events(before, after):
                self._queue.move(event, before, after, now)
        else:
            self._queue.move(ClusterEvent(NODE, action_of(before, after)), before, after, now)

    def on_outcome(self, outcome: Any) -> None:
        """The configuration has changed; the next call of `decide` loads it unless it is
        invalid."""
        if outcome.has_profiles:
            self._changed.append(outcome)

    def read_delay(self, uid: str) -> int | None:
        """None."""
        return None

    def next_deadline(self) -> int | None:
        """Now, if the last `decide` left pods that are ready."""
        return self._context.now if self._has_more else None

    def validate(self) -> None:
        """Nothing: the table validates its records."""

    # Decisions.

    def decide(self, n_max: int) -> None:
        """Attempt at most this many pods."""
        self._has_more = False
        if self._changed:
            self._reload()
        context, queue = self._context, self._queue
        if not context.outbox.leads:
            return
        for waiting in self._extender_attempts.pop_ready():
            self._decide_with_responses(waiting.entry, waiting.consultation)
            self._bindings.apply_plugin_requests()
        if self.unschedulable_classes is not None:
            self.unschedulable_classes.run(context.cache.snapshot)
        left = n_max
        while left > 0:
            if self._extender_attempts.is_full:
                return
            n_handled = self._attempt_next(left)
            if n_handled == 0:
                return
            left -= n_handled
        early = queue.options.pops_from_backoff and len(queue.backoff.refused) > 0
        ready = early or len(queue.active) > 0
        self._has_more = ready and not self._extender_attempts.is_full

    def _reload(self) -> None:
        """Swap the profiles for those of the changed configuration, if it is valid."""
        outbox = self._context.outbox
        changed, self._changed = self._changed, []
        for event in changed:
            assert self._reread is not None
            try:
                profiles = self._reread(event.text, event.source, self._context.frameworks)
            except (ConfigError, ContractError) as refused:
                outbox.report_reload(event.source, str(refused))
                continue
            self.decider = profiles.decider
            if self.unschedulable_classes is not None:
                self.unschedulable_classes.use(profiles.decider, profiles.queue)
            counts = swap_profiles(self._context, self._evictions, profiles)
            outbox.report_reload(event.source, what=counts.text)

    def _attempt_next(self, n_max: int) -> int:
        """Attempt the next pod, or a run of pods; returns how many."""
        engine = self.decider.engine()
        n_handled = 0
        if engine is None:
            single = self._queue.pop()
        else:
            entries, classes, single = self._kernel_placement.take(engine, n_max)
            if entries:
                n_handled = self._kernel_placement.place(
                    engine, entries, classes, self._context.cache.snapshot, self._rng, n_max
                )
        if single is None:
            return n_handled
        rng = tie_break_of(single, self._rng)
        if not self._is_member(single.pod):
            self._attempt_single(single, rng)
            return n_handled + 1
        n_handled += self.group_cycles.run(single, n_max)
        self._bindings.apply_plugin_requests()
        return n_handled

    def _is_member(self, pod: Pod) -> bool:
        """True for a pod that is attempted together with its group."""
        return self._context.pod_groups is not None and group_key_of(pod) != ""

    def _attempt_single(self, entry: PodRecord, rng: TieBreakSource) -> None:
        self._attempt(entry, rng)
        self._bindings.apply_plugin_requests()

    def _attempt_of_class(self, entry: PodRecord, pod_class: PodClass) -> None:
        """Attempt a pod of a known class, by kernel if possible."""
        engine = self.decider.engine()
        if engine is None:
            self._attempt_single(entry, tie_break_of(entry, self._rng))
        else:
            self._kernel_placement.place(
                engine, [entry], [pod_class], self._context.cache.snapshot, self._rng
            )

    def _attempt(self, entry: PodRecord, rng: TieBreakSource) -> None:
        context, pod = self._context, entry.pod
        self.on_attempt(entry)
        if pod.metadata.deletion_timestamp is not None:
            self.skip_terminating(entry)
            return
        framework = context.frameworks[pod.spec.scheduler_name]
        extenders = context.extenders.for_attempt(pod) if len(context.extenders) else ()
        if extenders:
            consultation = self.decider.decide_with_extenders(pod, framework, rng, extenders)
            self._decide_with_responses(entry, consultation)
            return
        try:
            decision = self.decider.decide(pod, context.cache.snapshot(), framework, rng)
        except ContractError as fault:
            decision = _contract_error_decision(fault)
        context.write_requested(pod.uid)
        self._decided(entry, decision, framework)

    def skip_terminating(self, entry: PodRecord) -> None:
        """Skip the attempt of a pod that is being deleted."""
        self._context.record_skip_deleting(entry.pod)
        self._queue.done(entry.uid)
        entry.state = PodState.SKIPPED

    def _decide_with_responses(self, entry: PodRecord, consultation: Consultation) -> None:
        """Decide a pod with the extender responses so far, or wait for further calls."""
        try:
            decision = consultation.try_decide(self._context.cache.snapshot())
        except ContractError as fault:
            decision = _contract_error_decision(fault)
        if decision is None:
            self._extender_attempts.wait(entry, consultation)
        else:
            self._decided(entry, decision, consultation.framework)

    def _decided(self, entry: PodRecord, decision: Decision, framework: Framework) -> None:
        if decision.node_name:
            self._bindings.begin(entry, decision, framework)
        else:
            self.refuse(entry, decision)

    def refuse(self, entry: PodRecord, decision: Decision) -> None:
        """Requeue a pod for which no node was found, and evict victims for it."""
        pod, node = entry.pod, decision.nominated_node
        self.on_refused(pod, decision)
        if node and decision.victims:
            self._evictions.start(pod, node, decision.victims, decision.preempted_by)
        assert decision.refusal is not None
        self._failure_handler.attempt_failed(
            entry,
            decision.message,
            reason=UNSCHEDULABLE if decision.refusal.is_rejected else SCHEDULER_ERROR,
            refused_by=decision.plugins,
            pending_on=decision.pending,
            nominated_node=node,
        )

    def _refused_by_kernel(self, entry: PodRecord, decision: Decision) -> None:
        self.refuse(entry, decision)
        self._bindings.apply_plugin_requests()


def action_of(before: Object | None, after: Object | None) -> Action:
    """What happened to an object."""
    if before is None:
        return Action.ADD
    return Action.DELETE if after is None else Action.UPDATE


def _ignore_attempt(entry: PodRecord) -> None:
    """Default of `on_attempt`."""


def _ignore_refusal(pod: Pod, decision: Decision) -> None:
    """Default of `on_refused`."""


def _contract_error_decision(fault: ContractError) -> Decision:
    """Decision for a plugin that broke its contract."""
    return Decision(refusal=error(str(fault)), message=str(fault), nominated_node="")
