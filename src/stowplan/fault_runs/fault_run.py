"""Storm: a small cluster, one scheduler or two, and everything that may go wrong, by the dice.

A storm is repeated by its seed: the workload, how long everything takes, and the plan of faults. An
auditor judges every step. When the faults are over, whoever fits somewhere must be bound within
minutes, and nothing may be left under way.

What has struck is counted: a fault that finds nothing to strike proves nothing.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from stowplan.columns.invariants import InvariantBroken
from stowplan.fault_runs.cluster_churn import ChurnEvent, ClusterChurn, churn_events
from stowplan.fault_runs.delayed_watch import DelayedWatch
from stowplan.fault_runs.fault_schedule import (
    CALLS,
    LEADERS,
    REQUESTS,
    PendingFaults,
    ScheduledFault,
    fault_schedule,
    shrink_schedule,
)
from stowplan.messages import events as happened
from stowplan.messages.effects import CallExtender, Effect, RecordEvent
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import Pace, SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedReply
from stowplan.simulation.cluster.watch_stream import WatchStream, is_not_pod, is_pod
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing.auditor import Auditor, Violation, is_terminating
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

FAULT_PHASE = 90 * SECOND
QUIET_PHASE = 150 * SECOND
"""How long the calm lasts: less than it takes until a pod that no event has helped is tried again,
so that a pod which was forgotten is found."""
VALIDATE_EVERY = 5
"""Of so many storms, one in which the machine compares itself with a rebuild after every call."""
LEASE_DURATION = 15 * SECOND
"""How long a lease holds that is not renewed."""

MachineMaker = Callable[[int, bool, int], Scheduler]
"""Makes a scheduler. Called with (seed of the storm, whether it leads from the start, the term)."""


class FaultRunConfig(msgspec.Struct, frozen=True):
    """What a storm is made with.

    machine: makes schedulers. waits: which pods may pause between the choice of a node and Bind.
    held: which pods may have a reason of their own to wait at rest, in the world as it is then, and
    with what was last said of them.
    restless: which pods may be tried for ever, and take room from others each time: where one of
    them is left, nobody is asked why he waits.
    look: called after every call of a machine. labels: what pods may be labelled with. more: what
    happens besides, by the dice, up to a time. extender: makes what answers in place of extenders,
    None where there are none. bars, minds: which pods they keep from which nodes, see `Auditor`.
    auditor: makes who judges. rested: looks at the scheduler that leads at rest.
    """

    scheduler: MachineMaker
    waits: Callable[[Pod], bool] = lambda pod: False
    held: Callable[[Pod, SimulatedCluster, str], bool] = lambda pod, world, note: False
    restless: Callable[[Pod], bool] = lambda pod: False
    look: Callable[[Scheduler], None] = lambda scheduler: None
    labels: tuple[tuple[str, str], ...] = ()
    more: Callable[[RandomSource, int], Iterable[ChurnEvent]] = lambda rng, until: ()
    extender: Callable[[SimulatedCluster, int], Callable[[CallExtender], SimulatedReply]] | None = (
        None
    )
    extender_rejects: Callable[[Pod, str], bool] = lambda pod, node: False
    extender_must_reject: Callable[[Pod, str], bool] = lambda pod, node: False
    auditor: Callable[..., Auditor] = Auditor
    rested: Callable[[Scheduler], None] = lambda scheduler: None


class FaultRunFailure(msgspec.Struct):
    """A storm in which something went wrong: enough to tell it and to repeat it."""

    seed: int
    plan: list[ScheduledFault]
    what: str
    story: list[str]

    def __str__(self) -> str:
        faults = [f"  {fault}" for fault in self.plan] or ["  (none)"]
        story = [f"  {line}" for line in self.story]
        lines = [f"seed {self.seed}: {self.what}", "faults:", *faults, "story:", *story]
        return "\n".join(lines)


class FaultRun:
    """One run. Raises Violation, or InvariantBroken of the machine."""

    def __init__(
        self, seed: int, kit: FaultRunConfig, plan: list[ScheduledFault] | None = None
    ) -> None:
        self.seed = seed
        self.kit = kit
        rng = np.random.default_rng([seed, 0])
        self.two = chance(rng, 3)
        self.plan = fault_schedule(
            np.random.default_rng([seed, 1]),
            FAULT_PHASE,
            two_schedulers=self.two,
            has_extenders=kit.extender is not None,
        )
        if plan is not None:
            self.plan = plan
        self.rng: RandomSource = np.random.default_rng([seed, 2])
        self.delay_max_ms = pick(rng, (0, 1, 20, 200, 2000))
        self.event_queue = EventQueue()
        self.world = SimulatedCluster(self.event_queue, Pace(0, 0.5, random_int(rng, 0, 5)))
        self.injected_counts: Counter[str] = Counter()
        self.armed = PendingFaults(self._count_injected)
        self.auditor = kit.auditor(
            kit.waits,
            extender_rejects=kit.extender_rejects,
            extender_must_reject=kit.extender_must_reject,
        )
        self._extender = None if kit.extender is None else kit.extender(self.world, seed)
        self.world.on_change.append(self._notify_auditor)
        self.schedulers: list[SchedulerInstance] = []
        self.feeds: dict[str, tuple[DelayedWatch, DelayedWatch]] = {}
        self.term = 1
        self.is_quiet = False
        self._n_started = 0
        self._pending_restarts: list[ScheduledFault] = []
        self._notes: dict[str, str] = {}
        self._synced: set[str] = set()
        for happening in (*churn_events(rng, FAULT_PHASE, kit.labels), *kit.more(rng, FAULT_PHASE)):
            self.event_queue.at(happening.at, self._apply_churn_event, happening)
        self.sea = ClusterChurn(self.world, self.schedulers, rng)
        for one in self.plan:
            self.event_queue.at(one.at, self._inject, one)
        self._start("one", leads=True)
        if self.two:
            self._start("two", leads=False)

    # Schedulers.

    def _start(self, name: str, *, leads: bool) -> None:
        """A scheduler process begins, knowing nothing."""
        self._n_started += 1
        name = f"{name}#{self._n_started}"
        scheduler = self.kit.scheduler(self.seed, leads, self.term)
        instance = SchedulerInstance(name, self.world, scheduler, (), self._observe)
        instance.heads_max = pick(self.rng, (None, None, 1, 3))
        dispatcher = instance.dispatcher
        dispatcher.delay = self._delay
        dispatcher.inject = self.armed.inject
        if self._extender is not None:
            dispatcher.extender = self._extender
        dispatcher.may_write = lambda effect: self._may_write(name, effect)
        dispatcher.on_sent = lambda effect: self.auditor.sent(name, effect)
        dispatcher.on_result = lambda effect, code: self.auditor.taken(name, effect, code)
        self.auditor.joined(name, leads=leads, term=self.term)
        self.schedulers.append(instance)
        streams = (WatchStream(self.world, is_pod), WatchStream(self.world, is_not_pod))
        pods, nodes = (
            DelayedWatch(self.world, stream, instance, self._delay, self._batch_size)
            for stream in streams
        )
        self.feeds[name] = (pods, nodes)

    def _may_write(self, name: str, effect: Effect) -> bool:
        """Just before a write is sent its lease is looked at."""
        auditor = self.auditor
        return auditor.holder == name and effect.term == auditor.term

    def _delay(self) -> int:
        """How long a message takes."""
        delay_max_ms = self.delay_max_ms
        if not delay_max_ms or self.is_quiet:
            return 0
        return random_int(self.rng, 0, delay_max_ms) * SECOND // 1000

    def _batch_size(self) -> int | None:
        return None if self.is_quiet else pick(self.rng, (None, 1, 3))

    def _restart(self, instance: SchedulerInstance, fault: ScheduledFault) -> None:
        """A process ends at once, and another takes its place, knowing nothing."""
        if instance not in self.schedulers:
            return
        self.injected_counts["restart"] += 1
        name = instance.name
        instance.stop()
        self.schedulers.remove(instance)
        for feed in self.feeds.pop(name):
            feed.stop()
        if fault.choice % 3 == 0:
            # What it has decided was on its way already, and arrives.
            self.injected_counts["requests of the dead"] += 1
            instance.dispatcher.on_sent = lambda effect: None
            instance.dispatcher.may_write = None
            instance.dispatcher.is_open = True
        if self.auditor.holder == name:
            self.auditor.leads("", self.term)
            if self.two:
                self.event_queue.after(LEASE_DURATION, self._elect, name)
        self.event_queue.after(fault.span, self._start_again, name)

    def _start_again(self, name: str) -> None:
        if not self.two:
            self.term += 1
        self._start(name.partition("#")[0], leads=not self.two)

    def _elect(self, loser: str) -> None:
        """Whoever does not hold the lease wins it, if nobody has it."""
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

    # What befalls them.

    def _apply_churn_event(self, happening: ChurnEvent) -> None:
        happening(self.sea)

    def _inject(self, fault: ScheduledFault) -> None:
        kind = fault.kind
        if kind in REQUESTS + CALLS:
            self.armed.arm(fault)
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
            found = self.sea.apply_fault(fault)
            if found:
                self.injected_counts[kind] += 1
                self.injected_counts[f"{kind} {found}"] += 1

    def _count_injected(self, fault: ScheduledFault) -> None:
        self.injected_counts[fault.kind] += 1
        if fault.kind == "bind refused":
            self.injected_counts[f"{fault.kind} {fault.code}"] += 1

    def _inject_watch_fault(self, fault: ScheduledFault) -> None:
        pairs = list(self.feeds.values())
        if not pairs:
            return
        feed = pairs[fault.choice % len(pairs)][fault.choice // 7 % 2]
        self.injected_counts[fault.kind] += 1
        if fault.kind == "watch repeats":
            feed.repeat(fault.choice)
        else:
            feed.close(fault.span, expired=fault.kind == "watch expired")

    def _inject_leader_fault(self, fault: ScheduledFault) -> None:
        """The leader gives the lead up, loses it and learns of that later, or is frozen."""
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
        """A scheduler learns that it has lost the lead, unless it has won it again meanwhile."""
        if self.auditor.holder != instance.name:
            instance.deliver(happened.LeaderLost())

    # Watching over it.

    def _notify_auditor(self) -> None:
        self.auditor.now = self.event_queue.now
        self.auditor.changed(self.world.version, self.world.latest)

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        self.auditor.now = self.event_queue.now
        pods, nodes = self.feeds[instance.name]
        seen = (pods.stream.version, nodes.stream.version)
        self.auditor.called(instance.name, events, effects, seen)
        if instance.name not in self._synced and min(seen) >= 0:
            self._synced.add(instance.name)
            instance.deliver(happened.Synced())
        for effect in effects:
            if isinstance(effect, RecordEvent):
                self._notes[effect.uid] = effect.note
        if self._pending_restarts:
            # It ends between its decision and the first request.
            self.injected_counts["restart before a request"] += 1
            self.event_queue.after(0, self._restart, instance, self._pending_restarts.pop(0))
        self.kit.look(instance.scheduler)
        if self.seed % VALIDATE_EVERY == 0:
            instance.scheduler.validate()

    # The whole.

    def run(self) -> None:
        """The storm, and the calm after it."""
        self.event_queue.run(FAULT_PHASE)
        self._end_faults()
        self.event_queue.run(FAULT_PHASE + QUIET_PHASE)
        self._check_rest()

    def _end_faults(self) -> None:
        """Faults stop, and what is closed is opened again; nobody comes or ends any more."""
        self.is_quiet = True
        self.armed.disarm()
        self._pending_restarts.clear()
        self.sea.stop_changes()
        for pair in self.feeds.values():
            for feed in pair:
                feed.open()

    def _check_rest(self) -> None:
        leaders = [one for one in self.schedulers if one.name == self.auditor.holder]
        if len(leaders) != 1:
            raise Violation(f"nobody leads at rest: {[one.name for one in self.schedulers]}")
        scheduler = leaders[0].scheduler
        there = {pod.key: pod for pod in self.world.pods.values() if not pod.is_finished}
        for uid in self._not_known(scheduler, there):
            raise Violation("the scheduler does not know the pod as it is", uid)
        scheduler.validate()
        if any(self.kit.restless(pod) for pod in there.values() if not pod.node_name):
            return
        self.auditor.at_rest(self._is_held)
        for uid, _ in scheduler.extender_attempts:
            raise Violation("still awaiting an extender at rest", uid)
        for uid, binding_cycle in scheduler.bindings:
            if not self._may_be_under_way(binding_cycle.pod):
                raise Violation(f"still {binding_cycle.stage.value} at rest", uid)
        for entry in (*scheduler.queue.active, *scheduler.queue.backoff):
            # Without any node an attempt ends as an error, and those are tried for ever.
            if self.world.nodes and not self._may_be_under_way(entry.pod):
                raise Violation(f"still tried at rest, {entry.attempts} times so far", entry.uid)
        self.kit.rested(scheduler)

    def _not_known(self, scheduler: Scheduler, there: dict[str, Pod]) -> Iterator[str]:
        waiting = {entry.uid for entry in scheduler.queue} | {uid for uid, _ in scheduler.bindings}
        if scheduler.sessions is not None:
            waiting.update(scheduler.sessions.decider.waiting())
        for pod in there.values():
            known = pod.uid in waiting or scheduler.cache.nodes.knows_pod(pod.uid)
            if not known and not is_terminating(pod):
                yield pod.uid
        yield from sorted(waiting - {pod.uid for pod in there.values()})

    def _may_be_under_way(self, pod: Pod) -> bool:
        return self.kit.waits(pod) or self._is_held(pod)

    def _is_held(self, pod: Pod) -> bool:
        note = self._notes.get(pod.uid, "")
        return bool(pod.spec.scheduling_gates) or self.kit.held(pod, self.world, note)


def run_with_faults(
    seed: int, kit: FaultRunConfig, plan: list[ScheduledFault] | None = None
) -> FaultRunFailure | None:
    """Run a storm; None when all went well."""
    storm = FaultRun(seed, kit, plan)
    try:
        storm.run()
    except (Violation, InvariantBroken, AssertionError, LookupError, ValueError) as wrong:
        uid = wrong.uid if isinstance(wrong, Violation) else ""
        what = f"{type(wrong).__name__}: {wrong}"
        if not uid:
            place = traceback.extract_tb(wrong.__traceback__)[-1]
            what += f" ({place.filename.rpartition('/')[2]}:{place.lineno} in {place.name})"
        return FaultRunFailure(seed, storm.plan, what, storm.auditor.pod_log(uid))
    return None


def shrink_failure(failure: FaultRunFailure, kit: FaultRunConfig) -> FaultRunFailure:
    """The failure with the fewest faults that still lead to one, and its story."""
    least = failure

    def fails(plan: list[ScheduledFault]) -> bool:
        nonlocal least
        found = run_with_faults(failure.seed, kit, plan)
        if found is not None:
            least = found
        return found is not None

    shrink_schedule(failure.plan, fails)
    return least


def first_failure(seeds: range, kit: FaultRunConfig) -> FaultRunFailure | None:
    """The first seed that fails, shrunk; None when none does."""
    for seed in seeds:
        failure = run_with_faults(seed, kit)
        if failure is not None:
            return shrink_failure(failure, kit)
    return None
