"""Fault run: a small simulated cluster, one or two schedulers, random churn and injected faults.

A seed determines the workload, all delays and the fault schedule, so that a run can be repeated. An
auditor checks every step (safety). After the fault phase comes a quiet phase, at whose end every
pod that fits on a node must be bound and nothing may be in progress (liveness).

Faults that hit something are counted: a fault without a target tests nothing.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from stowplan.columns.invariants import InvariantBroken
from stowplan.messages import events as happened
from stowplan.messages.effects import CallExtender, Effect, RecordEvent
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.effect_dispatcher import SimulatedReply
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.watch_stream import WatchStream
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.auditor import Auditor, Violation, is_terminating
from tests.fault_runs.cluster_churn import ChurnEvent, ClusterChurn, churn_events
from tests.fault_runs.delayed_watch import DelayedWatch, is_not_pod, is_pod
from tests.fault_runs.fault_schedule import (
    CALLS,
    LEADERS,
    REQUESTS,
    PendingFaults,
    ScheduledFault,
    fault_schedule,
    shrink_schedule,
)

FAULT_PHASE = 90 * SECOND
QUIET_PHASE = 150 * SECOND
"""Length of the quiet phase. Shorter than the unschedulable flush, which would hide a pod that no
event has moved."""
VALIDATE_EVERY = 5
"""One in so many runs compares the scheduler with a rebuild after every call."""
LEASE_DURATION = 15 * SECOND
"""Lifetime of a lease that is not renewed."""

SchedulerFactory = Callable[[int, bool, int], Scheduler]
"""Builds a scheduler from (seed of the run, whether it leads at the start, leadership term)."""


class FaultRunConfig(msgspec.Struct, frozen=True):
    """Configuration of fault runs.

    scheduler: builds a scheduler. may_pause: pods that may pause between the decision and Bind.
    may_wait: pods that may be pending at the end of the quiet phase, given the cluster and the note
    of their last event. retries_forever: pods that may be retried without end and reserve resources
    each time; if one is pending at the end, liveness is not checked. on_call: called after every
    `handle` call. labels: labels that pods may get. extra_events: further churn up to a time.
    extender: builds what answers in place of extenders; None: no extenders. extender_rejects,
    extender_must_reject: pods that extenders keep from nodes, see `Auditor`. auditor: builds the
    auditor. check_rest: checks the leading scheduler at the end.
    """

    scheduler: SchedulerFactory
    may_pause: Callable[[Pod], bool] = lambda pod: False
    may_wait: Callable[[Pod, SimulatedCluster, str], bool] = lambda pod, cluster, note: False
    retries_forever: Callable[[Pod], bool] = lambda pod: False
    on_call: Callable[[Scheduler], None] = lambda scheduler: None
    labels: tuple[tuple[str, str], ...] = ()
    extra_events: Callable[[RandomSource, int], Iterable[ChurnEvent]] = lambda rng, until: ()
    extender: Callable[[SimulatedCluster, int], Callable[[CallExtender], SimulatedReply]] | None = (
        None
    )
    extender_rejects: Callable[[Pod, str], bool] = lambda pod, node: False
    extender_must_reject: Callable[[Pod, str], bool] = lambda pod, node: False
    auditor: Callable[..., Auditor] = Auditor
    check_rest: Callable[[Scheduler], None] = lambda scheduler: None


class FaultRunFailure(msgspec.Struct):
    """A failed fault run: seed and fault schedule to repeat it, error, and event log."""

    seed: int
    schedule: list[ScheduledFault]
    error: str
    event_log: list[str]

    def __str__(self) -> str:
        faults = [f"  {fault}" for fault in self.schedule] or ["  (none)"]
        event_log = [f"  {line}" for line in self.event_log]
        lines = [f"seed {self.seed}: {self.error}", "faults:", *faults, "events:", *event_log]
        return "\n".join(lines)


class FaultRun:
    """One run. Raises Violation (auditor) or InvariantBroken (scheduler)."""

    def __init__(
        self, seed: int, config: FaultRunConfig, schedule: list[ScheduledFault] | None = None
    ) -> None:
        self.seed = seed
        self.config = config
        rng = np.random.default_rng([seed, 0])
        self.has_two_schedulers = chance(rng, 3)
        self.schedule = fault_schedule(
            np.random.default_rng([seed, 1]),
            FAULT_PHASE,
            two_schedulers=self.has_two_schedulers,
            has_extenders=config.extender is not None,
        )
        if schedule is not None:
            self.schedule = schedule
        self.rng: RandomSource = np.random.default_rng([seed, 2])
        self.delay_max_ms = pick(rng, (0, 1, 20, 200, 2000))
        self.event_queue = EventQueue()
        self.cluster = SimulatedCluster(self.event_queue, Pace(0, 0.5, random_int(rng, 0, 5)))
        self.injected_counts: Counter[str] = Counter()
        self.pending_faults = PendingFaults(self._count_injected)
        self.auditor = config.auditor(
            config.may_pause,
            extender_rejects=config.extender_rejects,
            extender_must_reject=config.extender_must_reject,
        )
        self._extender = None if config.extender is None else config.extender(self.cluster, seed)
        self.cluster.on_change.append(self._notify_auditor)
        self.cluster.devices = CardAdmission()
        self.cluster.on_rejected = self._count_rejected
        self.schedulers: list[SchedulerInstance] = []
        self.watches: dict[str, tuple[DelayedWatch, DelayedWatch]] = {}
        self.term = 1
        self.is_quiet = False
        self._n_started = 0
        self._pending_restarts: list[ScheduledFault] = []
        self._notes: dict[str, str] = {}
        self._synced: set[str] = set()
        for event in (
            *churn_events(rng, FAULT_PHASE, config.labels),
            *config.extra_events(rng, FAULT_PHASE),
        ):
            self.event_queue.at(event.at, self._apply_churn_event, event)
        self.churn = ClusterChurn(self.cluster, self.schedulers, rng)
        for one in self.schedule:
            self.event_queue.at(one.at, self._inject, one)
        self._start("one", leads=True)
        if self.has_two_schedulers:
            self._start("two", leads=False)

    # Schedulers.

    def _start(self, name: str, *, leads: bool) -> None:
        """Start a scheduler process with empty state."""
        self._n_started += 1
        name = f"{name}#{self._n_started}"
        scheduler = self.config.scheduler(self.seed, leads, self.term)
        instance = SchedulerInstance(name, self.cluster, scheduler, (), self._observe)
        instance.heads_max = pick(self.rng, (None, None, 1, 3))
        dispatcher = instance.dispatcher
        dispatcher.delay = self._delay
        dispatcher.inject = self.pending_faults.inject
        if self._extender is not None:
            dispatcher.extender = self._extender
        dispatcher.may_write = lambda effect: self._may_write(name, effect)
        dispatcher.on_sent = lambda effect: self.auditor.sent(name, effect)
        dispatcher.on_result = lambda effect, code: self.auditor.taken(name, effect, code)
        self.auditor.joined(name, leads=leads, term=self.term)
        self.schedulers.append(instance)
        streams = (WatchStream(self.cluster, is_pod), WatchStream(self.cluster, is_not_pod))
        pods, nodes = (
            DelayedWatch(self.cluster, stream, instance, self._delay, self._batch_size)
            for stream in streams
        )
        self.watches[name] = (pods, nodes)

    def _may_write(self, name: str, effect: Effect) -> bool:
        """True when the process holds the lease of the effect's term."""
        auditor = self.auditor
        return auditor.holder == name and effect.term == auditor.term

    def _delay(self) -> int:
        """Random latency of a message, in nanoseconds."""
        delay_max_ms = self.delay_max_ms
        if not delay_max_ms or self.is_quiet:
            return 0
        return random_int(self.rng, 0, delay_max_ms) * SECOND // 1000

    def _batch_size(self) -> int | None:
        return None if self.is_quiet else pick(self.rng, (None, 1, 3))

    def _restart(self, instance: SchedulerInstance, fault: ScheduledFault) -> None:
        """Kill a process; another starts with empty state after the fault's span."""
        if instance not in self.schedulers:
            return
        self.injected_counts["restart"] += 1
        name = instance.name
        instance.stop()
        self.schedulers.remove(instance)
        for watch in self.watches.pop(name):
            watch.stop()
        if fault.choice % 3 == 0:
            # Requests already sent by the dead process still arrive.
            self.injected_counts["requests of the dead"] += 1
            instance.dispatcher.on_sent = lambda effect: None
            instance.dispatcher.may_write = None
            instance.dispatcher.is_open = True
        if self.auditor.holder == name:
            self.auditor.leads("", self.term)
            if self.has_two_schedulers:
                self.event_queue.after(LEASE_DURATION, self._elect, name)
        self.event_queue.after(fault.span, self._start_again, name)

    def _start_again(self, name: str) -> None:
        if not self.has_two_schedulers:
            self.term += 1
        self._start(name.partition("#")[0], leads=not self.has_two_schedulers)

    def _elect(self, loser: str) -> None:
        """Give a free lease to a running scheduler, if possible not to `loser`."""
        if self.auditor.holder:
            return
        fit = [one for one in self.schedulers if one.runs and not one.frozen]
        fit = [one for one in fit if one.name != loser] or fit
        if not fit:
            self.event_queue.after(SECOND, self._elect, loser)
            return
        self.term += 1
        self.injected_counts["lead won"] += 1
        self.auditor.leads(fit[0].name, self.term)
        fit[0].deliver(happened.LeaderElected(self.term))

    # Faults.

    def _apply_churn_event(self, event: ChurnEvent) -> None:
        event(self.churn)

    def _inject(self, fault: ScheduledFault) -> None:
        kind = fault.kind
        if kind in REQUESTS + CALLS:
            self.pending_faults.arm(fault)
        elif kind.startswith("watch"):
            self._inject_watch_fault(fault)
        elif kind in LEADERS:
            self._inject_leader_fault(fault)
        elif kind == "restart" and fault.choice % 2:
            self._pending_restarts.append(fault)
        elif kind == "restart":
            if self.schedulers:
                self._restart(self.schedulers[fault.choice // 2 % len(self.schedulers)], fault)
        else:
            found = self.churn.apply_fault(fault)
            if found:
                self.injected_counts[kind] += 1
                self.injected_counts[f"{kind} {found}"] += 1

    def _count_injected(self, fault: ScheduledFault) -> None:
        self.injected_counts[fault.kind] += 1
        if fault.kind == "bind refused":
            self.injected_counts[f"{fault.kind} {fault.code}"] += 1

    def _count_rejected(self, pod: Pod, why: str) -> None:
        self.injected_counts["rejected by a node"] += 1

    def _inject_watch_fault(self, fault: ScheduledFault) -> None:
        pairs = list(self.watches.values())
        if not pairs:
            return
        watch = pairs[fault.choice % len(pairs)][fault.choice // 7 % 2]
        self.injected_counts[fault.kind] += 1
        if fault.kind == "watch repeats":
            watch.repeat(fault.choice)
        else:
            watch.close(fault.span, expired=fault.kind == "watch expired")

    def _inject_leader_fault(self, fault: ScheduledFault) -> None:
        """The leader releases its lease, loses it and is notified late, or is frozen."""
        name = self.auditor.holder
        leader = next((one for one in self.schedulers if one.name == name), None)
        if leader is None:
            return
        self.injected_counts[fault.kind] += 1
        self.auditor.leads("", self.term)
        if fault.kind == "lead released":
            leader.deliver(happened.LeaderLost())
            self.event_queue.after(0, self._elect, name)
        elif fault.kind == "lead lost":
            self.event_queue.after(fault.span, self._notify_lead_lost, leader)
            self.event_queue.after(max(LEASE_DURATION, fault.span), self._elect, name)
        else:
            leader.frozen = True
            self.event_queue.after(LEASE_DURATION, self._elect, name)
            self.event_queue.after(LEASE_DURATION + fault.span, self._unfreeze, leader)

    def _unfreeze(self, instance: SchedulerInstance) -> None:
        instance.frozen = False
        instance.schedule_call()
        self.event_queue.after(self._delay(), self._notify_lead_lost, instance)

    def _notify_lead_lost(self, instance: SchedulerInstance) -> None:
        """Notify a scheduler of its lost lease, unless it holds the lease again."""
        if self.auditor.holder != instance.name:
            instance.deliver(happened.LeaderLost())

    # Auditing.

    def _notify_auditor(self) -> None:
        self.auditor.now = self.event_queue.now
        self.auditor.changed(self.cluster.version, self.cluster.latest)

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        self.auditor.now = self.event_queue.now
        pods, nodes = self.watches[instance.name]
        seen = (pods.stream.version, nodes.stream.version)
        self.auditor.called(instance.name, events, effects, seen)
        if instance.name not in self._synced and min(seen) >= 0:
            self._synced.add(instance.name)
            instance.deliver(happened.Synced())
        for effect in effects:
            if isinstance(effect, RecordEvent):
                self._notes[effect.uid] = effect.note
        if self._pending_restarts:
            # The process dies between its decision and the first request.
            self.injected_counts["restart before a request"] += 1
            self.event_queue.after(0, self._restart, instance, self._pending_restarts.pop(0))
        self.config.on_call(instance.scheduler)
        if self.seed % VALIDATE_EVERY == 0:
            instance.scheduler.validate()

    # The run.

    def run(self) -> None:
        """Run the fault phase and the quiet phase, then check liveness."""
        self.event_queue.run(FAULT_PHASE)
        self._end_faults()
        self.event_queue.run(FAULT_PHASE + QUIET_PHASE)
        self._check_rest()

    def _end_faults(self) -> None:
        """Stop faults and churn; reopen all watches."""
        self.is_quiet = True
        self.pending_faults.disarm()
        self._pending_restarts.clear()
        self.churn.stop_changes()
        for pair in self.watches.values():
            for watch in pair:
                watch.open()

    def _check_rest(self) -> None:
        leaders = [one for one in self.schedulers if one.name == self.auditor.holder]
        if len(leaders) != 1:
            raise Violation(f"no leader at rest: {[one.name for one in self.schedulers]}")
        scheduler = leaders[0].scheduler
        there = {pod.key: pod for pod in self.cluster.pods.values() if not pod.is_finished}
        for uid in self._inconsistent_pods(scheduler, there):
            raise Violation("the scheduler's pod differs from the cluster's", uid)
        scheduler.validate()
        if any(self.config.retries_forever(pod) for pod in there.values() if not pod.node_name):
            return
        self.auditor.at_rest(self._is_held)
        for uid, _ in scheduler.extender_attempts:
            raise Violation("still awaiting an extender at rest", uid)
        for uid, binding_cycle in scheduler.bindings:
            if not self._may_be_under_way(binding_cycle.pod):
                raise Violation(f"still {binding_cycle.state.label} at rest", uid)
        for entry in (*scheduler.queue.active, *scheduler.queue.backoff):
            # Without nodes an attempt ends as an error and is retried for ever.
            if self.cluster.nodes and not self._may_be_under_way(entry.pod):
                raise Violation(
                    f"still retried at rest, after {entry.attempts} attempts", entry.uid
                )
        self.config.check_rest(scheduler)

    def _inconsistent_pods(self, scheduler: Scheduler, there: dict[str, Pod]) -> Iterator[str]:
        waiting = {entry.uid for entry in scheduler.queue} | {uid for uid, _ in scheduler.bindings}
        for lane in scheduler.lanes.batch:
            waiting.update(lane.decider.waiting())
        for pod in there.values():
            known = pod.uid in waiting or scheduler.cache.nodes.knows_pod(pod.uid)
            if not known and not is_terminating(pod):
                yield pod.uid
        yield from sorted(waiting - {pod.uid for pod in there.values()})

    def _may_be_under_way(self, pod: Pod) -> bool:
        return self.config.may_pause(pod) or self._is_held(pod)

    def _is_held(self, pod: Pod) -> bool:
        note = self._notes.get(pod.uid, "")
        return bool(pod.spec.scheduling_gates) or self.config.may_wait(pod, self.cluster, note)


def run_with_faults(
    seed: int, config: FaultRunConfig, schedule: list[ScheduledFault] | None = None
) -> FaultRunFailure | None:
    """The failure of the run with this seed; None when it passes."""
    fault_run = FaultRun(seed, config, schedule)
    try:
        fault_run.run()
    except (Violation, InvariantBroken, AssertionError, LookupError, ValueError) as problem:
        uid = problem.uid if isinstance(problem, Violation) else ""
        error = f"{type(problem).__name__}: {problem}"
        if not uid:
            place = traceback.extract_tb(problem.__traceback__)[-1]
            error += f" ({place.filename.rpartition('/')[2]}:{place.lineno} in {place.name})"
        return FaultRunFailure(seed, fault_run.schedule, error, fault_run.auditor.pod_log(uid))
    return None


def shrink_failure(failure: FaultRunFailure, config: FaultRunConfig) -> FaultRunFailure:
    """The failure with a minimal fault schedule."""
    least = failure

    def fails(schedule: list[ScheduledFault]) -> bool:
        nonlocal least
        found = run_with_faults(failure.seed, config, schedule)
        if found is not None:
            least = found
        return found is not None

    shrink_schedule(failure.schedule, fails)
    return least


def first_failure(
    seeds: Iterable[int], config: FaultRunConfig, *, shrinks: bool = True
) -> FaultRunFailure | None:
    """The failure of the first failing seed, None when all pass. shrinks: with a minimal schedule,
    which takes many more runs."""
    for seed in seeds:
        failure = run_with_faults(seed, config)
        if failure is not None:
            return shrink_failure(failure, config) if shrinks else failure
    return None
