"""A cluster that lives for weeks in virtual time, and two schedulers that live through it.

Deployments roll out one revision after the other, jobs and gangs come and go under names that never
come back, nodes leave and others take their place, requests fail, watches break, and the lead goes
from one scheduler to the other. One of the two is never started anew: what it holds on to, it holds
for all that time. Each night everybody rests, so that nights can be compared.

Deployments are the workload of this module, not those of the embedded cluster's controllers: they
need nothing but pods that start and end.

Run: python -m tests.fault_runs.long_run [--busy N] [--every N] DAYS and read what is held every so
many days.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.columns import column_cache, journal, vocabulary
from stowplan.columns.pods import podcounts, podterms
from stowplan.fault_runs.delayed_watch import DelayedWatch
from stowplan.fault_runs.fault_schedule import REQUESTS, WATCHES, PendingFaults, fault
from stowplan.framework import snapshot
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.objects import pod_templates
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue, QueueSpec
from stowplan.objects.storage import StorageClass
from stowplan.plugins.preemption import disruption_budgets, dry_run_cache
from stowplan.queue import heap
from stowplan.scheduler import Scheduler, SchedulerOptions, context, deadlines
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import Pace, SimulatedCluster
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream, is_not_pod, is_pod
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing.generators.choices import pick, random_int
from tests.fault_runs.fault_runs import TIDE, Tide
from tests.fault_runs.fleet import Fleet
from tests.fault_runs.rollouts import DEPLOYMENTS, LOCAL, Deployment
from tests.fault_runs.sizes import Sizes, of_modules, resident
from tests.simulation.following import LiveInstance
from tests.simulation.visitors import Visitors

HOUR = 3600 * SECOND
DAY = 24 * HOUR
EVENING = 22 * HOUR
"""From now on nobody comes of himself, and who only visits goes."""
BEDTIME = EVENING + HOUR // 2
"""From now on nothing goes wrong either."""
LEASE = 15 * SECOND
REMOVED_AFTER = 600 * SECOND
"""How long pods that have done their work can be looked at."""
CAPS: dict[tuple[ModuleType, str], int] = {
    (podcounts, "TALLIES_MAX"): 32,
    (podterms, "TALLIES_MAX"): 32,
    (column_cache, "KEPT_MAX"): 32,
    (journal, "KEPT_MIN"): 256,
    (pod_templates, "KEPT_MIN"): 32,
    (dry_run_cache, "CLASSES_MAX"): 8,
    (disruption_budgets, "CACHED_LABEL_SETS_MAX"): 8,
    (heap, "_STALE_MIN"): 8,
    (deadlines, "_STALE_MIN"): 8,
    (vocabulary, "KEPT_MIN"): 8,
    (context, "EVENT_LOG_LENGTH"): 10,
    (snapshot, "CHANGES_KEPT"): 20,
}
"""How much of what is over may be kept, so little that it is reached on the first day."""

PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
SESSIONS = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


class Month:
    """The cluster and its schedulers. busy: how much happens, 1 for some 800 pods a day.

    crew: the schedulers. The elder is there from the beginning, the other is started anew every
    day. struck: what has happened, and how often.
    """

    def __init__(self, seed: int, busy: float = 1.0) -> None:
        self.rng = np.random.default_rng([seed, 0])
        self.busy = busy
        self.is_night = False
        self.event_queue = EventQueue()
        self.world = SimulatedCluster(self.event_queue, Pace(0, 2, 5))
        self.world.on_ended = self._ended
        self.world.on_started = self._started
        self.volumes = VolumeController(self.world)
        self.deciders = deciders()
        self.injected_counts: Counter[str] = Counter()
        self.armed = PendingFaults(lambda fault: self.injected_counts.update([fault.kind]))
        self.n_pods = self.n_calls = 0
        self.holder, self.term = "elder", 1
        self.feeds: dict[str, list[DelayedWatch]] = {}
        self.schedulers: dict[str, SchedulerInstance] = {}
        self.fleet = Fleet(self, round(14 * max(busy, 0.5)))
        self.world.put_object(StorageClass(ObjectMeta(name=LOCAL), "local", "WaitForFirstConsumer"))
        self.world.put_object(Queue(ObjectMeta(name="default"), spec=QueueSpec(1)))
        self.deployments = [Deployment(self, one, max(busy, 0.5)) for one in DEPLOYMENTS]
        self.visitors = Visitors(self)
        for name in ("elder", "other"):
            self._start(name)
        self.every(4 * HOUR, self._change_lead)
        self.every(1200 * SECOND, self._arm)
        self.every(1800 * SECOND, self._trouble_watch)
        self.every(HOUR, self._turn_tide)
        self.event_queue.at(12 * HOUR, self._restart)

    # Time.

    def every(self, mean: int, act: Callable[[], None]) -> None:
        """Let something happen from time to time, except at night."""

        def again() -> None:
            if not self.is_night:
                act()
            self.every(mean, act)

        self.event_queue.after(1 + round(self.rng.exponential(mean)), again)

    @property
    def n_days(self) -> int:
        """How many days are over."""
        return self.event_queue.now // DAY

    def day(self, hourly: Callable[[], None] = lambda: None) -> None:
        """Let a day pass. hourly: called every hour."""
        for _ in range(DAY // HOUR):
            hour = self.event_queue.now // HOUR * HOUR + HOUR
            self.event_queue.run(hour)
            if hour % DAY == EVENING:
                self.is_night = True
                self.visitors.leave()
                self.event_queue.at(hour - EVENING + BEDTIME, self._rest)
                self.event_queue.at(hour - EVENING + DAY + 1, self._rise)
            hourly()

    def _rest(self) -> None:
        self.armed.disarm()
        for instance in self.schedulers.values():
            instance.frozen = False
            instance.schedule_call()
        for feed in self._all_feeds():
            feed.open()

    def _rise(self) -> None:
        self.is_night = False

    # Schedulers.

    def _start(self, name: str) -> None:
        leads = self.holder == name
        options = SchedulerOptions(leads=leads, term=self.term, identity=name)
        scheduler = self.deciders.scheduler(options=options, engine="compiled")
        made = LiveInstance if name == "elder" else SchedulerInstance
        instance = self.schedulers[name] = made(name, self.world, scheduler, (), self._called)
        instance.dispatcher.delay = self._delay
        instance.dispatcher.inject = self.armed.inject
        instance.dispatcher.may_write = partial(self._may_write, name)
        streams = (WatchStream(self.world, is_pod), WatchStream(self.world, is_not_pod))
        self.feeds[name] = [
            DelayedWatch(self.world, stream, instance, self._delay, lambda: None)
            for stream in streams
        ]
        self.event_queue.after(SECOND, instance.deliver, happened.Synced())

    def _restart(self) -> None:
        """The other process ends, and begins anew."""
        self.injected_counts["restart"] += 1
        self.event_queue.after(DAY, self._restart)
        self.schedulers["other"].stop()
        for feed in self.feeds["other"]:
            feed.stop()
        if self.holder == "other":
            self._elect("elder")
        self._start("other")

    def _called(
        self, instance: SchedulerInstance, events: list[Any], effects: list[Effect]
    ) -> None:
        self.n_calls += 1
        for effect in effects:
            self.injected_counts[type(effect).__name__] += 1
        if isinstance(instance, LiveInstance):
            instance.recorded(effects)
        if self.n_calls % 64 == 0:
            self.world.compact(min(feed.stream.version for feed in self._all_feeds()))

    def _all_feeds(self) -> list[DelayedWatch]:
        return [feed for feeds in self.feeds.values() for feed in feeds]

    def _delay(self) -> int:
        return 0 if self.is_night else random_int(self.rng, 0, 40) * SECOND // 1000

    def _may_write(self, name: str, effect: Effect) -> bool:
        return self.holder == name and effect.term == self.term  # type: ignore[union-attr]

    def machines(self) -> list[Scheduler]:
        """Those that run."""
        return [instance.scheduler for instance in self.schedulers.values()]

    # The lead.

    def _change_lead(self) -> None:
        """The lead is given up, is lost and that is noticed later, or its holder is frozen."""
        loser = self.schedulers[self.holder]
        successor = "other" if self.holder == "elder" else "elder"
        how = random_int(self.rng, 0, 2)
        self.holder = ""
        late = random_int(self.rng, 1, 60) * SECOND
        if how == 0:
            loser.deliver(happened.LeaderLost())
            self._elect(successor)
            return
        if how == 1:
            self.event_queue.after(late, self._notify_lead_lost, loser)
        else:
            loser.frozen = True
            self.event_queue.after(LEASE + late, self._unfreeze, loser)
        self.event_queue.after(LEASE, self._elect, successor)

    def _elect(self, name: str) -> None:
        if self.holder != name:
            self.holder = name
            self.term += 1
            self.injected_counts["lead won"] += 1
            self.schedulers[name].deliver(happened.LeaderElected(self.term))

    def _unfreeze(self, instance: SchedulerInstance) -> None:
        instance.frozen = False
        instance.schedule_call()
        self._notify_lead_lost(instance)

    def _notify_lead_lost(self, instance: SchedulerInstance) -> None:
        if self.schedulers.get(self.holder) is not instance:
            instance.deliver(happened.LeaderLost())

    # What goes wrong.

    def _arm(self) -> None:
        self.armed.arm(fault(self.rng, pick(self.rng, REQUESTS), SECOND))

    def _trouble_watch(self) -> None:
        feed = pick(self.rng, self._all_feeds())
        kind = pick(self.rng, WATCHES)
        self.injected_counts[kind] += 1
        if kind == "watch repeats":
            feed.repeat(random_int(self.rng, 0, 999))
        else:
            feed.close(random_int(self.rng, 1, 60) * SECOND, expired=kind == "watch expired")

    def _turn_tide(self) -> None:
        labels = {"level": pick(self.rng, ("high", "low"))}
        self.world.put_object(StorageClass(ObjectMeta(name=TIDE, uid=TIDE, labels=labels)))

    # Pods.

    def come(self, made: Pod) -> str:
        """A pod is made, under an identity that no other ever has; returns its key."""
        self.n_pods += 1
        meta = replace(made.metadata, uid=f"uid-{self.n_pods}")
        return self.world.put_pod(replace(made, metadata=meta)).key

    def _started(self, one: Pod) -> None:
        self.fleet.pulled(one)
        for deployment in self.deployments:
            deployment.started(one.key)

    def _ended(self, one: Pod, why: str) -> None:
        for deployment in self.deployments:
            deployment.ended(one.key)
        self.visitors.ended(one)
        if one.is_finished:
            # The world says no more of it; the API would say when it is removed.
            self.event_queue.after(REMOVED_AFTER, self.world._changed, happened.PodDeleted(one))

    # What is held.

    def held(self) -> Sizes:
        """What the elder and the modules hold."""
        elder = self.schedulers["elder"]
        assert isinstance(elder, LiveInstance)
        parts = {"machine": elder.scheduler, "informers": elder.informers, "series": elder.series}
        return Sizes({**parts, **of_modules("stowplan")})

    def unrest(self) -> list[str]:
        """What is not as it should be at night: who waits, what is under way."""
        found = [f"{one.key} waits" for one in self.world.pods.values() if not one.node_name]
        found += [line for one in self.deployments for line in one.unfinished()]
        for name, instance in self.schedulers.items():
            scheduler = instance.scheduler
            counts = {
                "waiting": scheduler.n_waiting,
                "bindings": len(scheduler.bindings),
                "inbox": len(instance._inbox),
            }
            found += [f"{name}: {count} {what}" for what, count in counts.items() if count]
        return found


def deciders() -> Deciders:
    """All the default rules, sessions for gangs, and a rule that lets pods wait."""
    return deciders_of([ConfigText(PROFILE, "profiles"), ConfigText(SESSIONS, "sessions")], [Tide])


def main(*arguments: str) -> None:
    """Print what is held as the days go by."""
    for (module, name), cap in CAPS.items():
        setattr(module, name, cap)
    given = dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
    month = Month(1, float(given.get("--busy", "1")))
    every = int(given.get("--every", "1"))
    first: Sizes | None = None
    for day in range(every, int(arguments[-1]) + 1, every):
        begun = time.process_time()
        while month.n_days < day:
            month.day(lambda: [one.validate() for one in month.machines()])
        took = time.process_time() - begun
        held = month.held()
        print(
            f"day {day}: {month.n_pods} pods, {month.n_calls} calls, {month.fleet.n_born} nodes,"
            f" {held.n_objects} objects, {held.n_bytes / 1e6:.2f} MB,"
            f" {resident() / 1e6:.1f} MB resident, {took:.1f} s, {month.unrest()}",
            flush=True,
        )
        if first is not None:
            print("\n".join(f"  {line}" for line in held.grown(first, share=0.25, slack=40)))
        first = first or held


if __name__ == "__main__":
    main(*sys.argv[1:])
