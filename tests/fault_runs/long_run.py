"""Long run: weeks of virtual time with churn and faults, to find what a scheduler never releases.

Deployments roll out revisions, jobs and gangs come and go under names that are never reused, nodes
are replaced, requests fail, watches break, and the lease changes its holder. One of the two
schedulers is never restarted, so it keeps all that it leaks. Each night the cluster is quiet, so
that the objects held can be compared between nights.

The deployments of this module need only pods that start and end, no controllers of the embedded
cluster.

Run: python -m tests.fault_runs.long_run [--busy N] [--every N] DAYS prints the objects held, every
N days.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any
from weakref import ref

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.columns import column_cache, journal, vocabulary
from stowplan.columns.pods import podcounts, podterms
from stowplan.cycle.engine import classes
from stowplan.framework import snapshot
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.objects import pod_templates
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import Queue, QueueSpec
from stowplan.objects.storage import StorageClass
from stowplan.objects.timing import due_times
from stowplan.plugins.preemption import disruption_budgets, dry_run_cache
from stowplan.queue import heap
from stowplan.scheduler import Scheduler, SchedulerOptions, context
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing.generators.choices import pick, random_int
from tests.fault_runs.configs import PERMIT_GATE, GatePermit
from tests.fault_runs.delayed_watch import DelayedWatch, is_not_pod, is_pod
from tests.fault_runs.fault_schedule import REQUESTS, WATCHES, PendingFaults, fault
from tests.fault_runs.informer_instance import InformerInstance
from tests.fault_runs.node_rotation import NodeRotation
from tests.fault_runs.object_sizes import ObjectSizes, of_modules, resident
from tests.fault_runs.rollouts import DEPLOYMENTS, LOCAL, Deployment
from tests.fault_runs.short_workloads import ShortWorkloads

HOUR = 3600 * SECOND
DAY = 24 * HOUR
CHURN_ENDS = 22 * HOUR
"""Time of day at which churn stops and short workloads are deleted."""
FAULTS_END = CHURN_ENDS + HOUR // 2
"""Time of day at which faults stop."""
LEASE = 15 * SECOND
REMOVED_AFTER = 600 * SECOND
"""How long finished pods remain in the API."""
CAPS: dict[tuple[ModuleType, str], int] = {
    (podcounts, "TALLIES_MAX"): 32,
    (podterms, "TALLIES_MAX"): 32,
    (column_cache, "KEPT_MAX"): 32,
    (journal, "KEPT_MIN"): 256,
    (pod_templates, "KEPT_MIN"): 32,
    (classes, "KEPT_MAX"): 0,
    (dry_run_cache, "CLASSES_MAX"): 8,
    (disruption_budgets, "CACHED_LABEL_SETS_MAX"): 8,
    (heap, "_STALE_MIN"): 8,
    (due_times, "_STALE_MIN"): 8,
    (vocabulary, "KEPT_MIN"): 8,
    (context, "EVENT_LOG_LENGTH"): 10,
    (snapshot, "CHANGES_KEPT"): 20,
}
"""Cache limits, so small that they are reached on the first day."""

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


class LongRun:
    """A simulated cluster with two schedulers. busy: load, 1 for about 800 pods a day.

    schedulers: by name; `long-lived` runs from the start, `restarted` is restarted every day.
    injected_counts: kind of fault or effect -> count.
    """

    def __init__(self, seed: int, busy: float = 1.0) -> None:
        self.rng = np.random.default_rng([seed, 0])
        self.busy = busy
        self.is_night = False
        self.event_queue = EventQueue()
        self.cluster = SimulatedCluster(self.event_queue, Pace(0, 2, 5))
        self.cluster.on_ended = self._ended
        self.cluster.on_started = self._started
        self.volumes = VolumeController(self.cluster)
        self.deciders = deciders()
        self.injected_counts: Counter[str] = Counter()
        self.pending_faults = PendingFaults(lambda fault: self.injected_counts.update([fault.kind]))
        self.n_pods = self.n_calls = 0
        self.holder, self.term = "long-lived", 1
        self.watches: dict[str, list[DelayedWatch]] = {}
        self.schedulers: dict[str, SchedulerInstance] = {}
        self._parts_of_ended: list[ref[Any]] = []
        self.node_rotation = NodeRotation(self, round(14 * max(busy, 0.5)))
        self.cluster.put_object(
            StorageClass(ObjectMeta(name=LOCAL), "local", "WaitForFirstConsumer")
        )
        self.cluster.put_object(Queue(ObjectMeta(name="default"), spec=QueueSpec(1)))
        self.deployments = [Deployment(self, one, max(busy, 0.5)) for one in DEPLOYMENTS]
        self.short_workloads = ShortWorkloads(self)
        for name in ("long-lived", "restarted"):
            self._start(name)
        self.every(4 * HOUR, self._change_lead)
        self.every(1200 * SECOND, self._arm)
        self.every(1800 * SECOND, self._inject_watch_fault)
        self.every(HOUR, self._toggle_permit_gate)
        self.event_queue.at(12 * HOUR, self._restart)

    # Time.

    def every(self, mean: int, act: Callable[[], None]) -> None:
        """Call `act` at random intervals of a mean length, except at night."""

        def again() -> None:
            if not self.is_night:
                act()
            self.every(mean, act)

        self.event_queue.after(1 + round(self.rng.exponential(mean)), again)

    @property
    def n_days(self) -> int:
        """Number of days that have passed."""
        return self.event_queue.now // DAY

    def day(self, hourly: Callable[[], None] = lambda: None) -> None:
        """Run one day. hourly: called every hour."""
        for _ in range(DAY // HOUR):
            hour = self.event_queue.now // HOUR * HOUR + HOUR
            self.event_queue.run(hour)
            if hour % DAY == CHURN_ENDS:
                self.is_night = True
                self.short_workloads.delete_all()
                self.event_queue.at(hour - CHURN_ENDS + FAULTS_END, self._end_faults)
                self.event_queue.at(hour - CHURN_ENDS + DAY + 1, self._end_night)
            hourly()

    def _end_faults(self) -> None:
        self.pending_faults.disarm()
        for instance in self.schedulers.values():
            instance.frozen = False
            instance.schedule_call()
        for watch in self._all_feeds():
            watch.open()

    def _end_night(self) -> None:
        self.is_night = False

    # Schedulers.

    def _start(self, name: str) -> None:
        leads = self.holder == name
        options = SchedulerOptions(leads=leads, term=self.term, identity=name)
        scheduler = self.deciders.scheduler(options=options, engine="compiled")
        made = InformerInstance if name == "long-lived" else SchedulerInstance
        instance = self.schedulers[name] = made(name, self.cluster, scheduler, (), self._called)
        instance.dispatcher.delay = self._delay
        instance.dispatcher.inject = self.pending_faults.inject
        instance.dispatcher.may_write = partial(self._may_write, name)
        streams = (WatchStream(self.cluster, is_pod), WatchStream(self.cluster, is_not_pod))
        self.watches[name] = [
            DelayedWatch(self.cluster, stream, instance, self._delay, lambda: None)
            for stream in streams
        ]
        self.event_queue.after(SECOND, instance.deliver, happened.Synced())

    def _restart(self) -> None:
        """Restart the other scheduler, every day."""
        self.injected_counts["restart"] += 1
        self.event_queue.after(DAY, self._restart)
        ended = self.schedulers["restarted"]
        ended.stop()
        cache = ended.scheduler.cache
        frameworks = ended.scheduler._context.frameworks.values()
        parts = (ended.scheduler, cache.nodes, cache.object_store, *frameworks)
        self._parts_of_ended += map(ref, parts)
        for watch in self.watches["restarted"]:
            watch.stop()
        if self.holder == "restarted":
            self._elect("long-lived")
        self._start("restarted")

    def _called(
        self, instance: SchedulerInstance, events: list[Any], effects: list[Effect]
    ) -> None:
        self.n_calls += 1
        for effect in effects:
            self.injected_counts[type(effect).__name__] += 1
        if isinstance(instance, InformerInstance):
            instance.recorded(effects)
        if self.n_calls % 64 == 0:
            self.cluster.compact(min(watch.stream.version for watch in self._all_feeds()))

    def _all_feeds(self) -> list[DelayedWatch]:
        return [watch for watches in self.watches.values() for watch in watches]

    def _delay(self) -> int:
        return 0 if self.is_night else random_int(self.rng, 0, 40) * SECOND // 1000

    def _may_write(self, name: str, effect: Effect) -> bool:
        return self.holder == name and effect.term == self.term  # type: ignore[union-attr]

    def schedulers_running(self) -> list[Scheduler]:
        """The running schedulers."""
        return [instance.scheduler for instance in self.schedulers.values()]

    # Leader election.

    def _change_lead(self) -> None:
        """The leader releases its lease, loses it and is notified late, or is frozen."""
        if not self.holder:
            # The change before is not over.
            return
        loser = self.schedulers[self.holder]
        successor = "restarted" if self.holder == "long-lived" else "long-lived"
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

    # Faults.

    def _arm(self) -> None:
        self.pending_faults.arm(fault(self.rng, pick(self.rng, REQUESTS), SECOND))

    def _inject_watch_fault(self) -> None:
        watch = pick(self.rng, self._all_feeds())
        kind = pick(self.rng, WATCHES)
        self.injected_counts[kind] += 1
        if kind == "watch repeats":
            watch.repeat(random_int(self.rng, 0, 999))
        else:
            watch.close(random_int(self.rng, 1, 60) * SECOND, expired=kind == "watch expired")

    def _toggle_permit_gate(self) -> None:
        labels = {"level": pick(self.rng, ("high", "low"))}
        self.cluster.put_object(
            StorageClass(ObjectMeta(name=PERMIT_GATE, uid=PERMIT_GATE, labels=labels))
        )

    # Pods.

    @property
    def n_nodes(self) -> int:
        """Number of nodes created so far."""
        return self.node_rotation.n_created

    def create_pod(self, made: Pod) -> str:
        """Create a pod with a uid that is never reused; returns its key."""
        self.n_pods += 1
        meta = replace(made.metadata, uid=f"uid-{self.n_pods}")
        return self.cluster.put_pod(replace(made, metadata=meta)).key

    def _started(self, one: Pod) -> None:
        self.node_rotation.pull_images(one)
        for deployment in self.deployments:
            deployment.started(one.key)

    def _ended(self, one: Pod, why: str) -> None:
        for deployment in self.deployments:
            deployment.ended(one.key)
        self.short_workloads.ended(one)
        if one.is_finished:
            # The simulated cluster reports no deletion of finished pods; the API does.
            self.event_queue.after(REMOVED_AFTER, self.cluster._changed, happened.PodDeleted(one))

    # Objects held.

    def held_objects(self) -> ObjectSizes:
        """Objects held by the long-lived scheduler and by the modules."""
        long_lived = self.schedulers["long-lived"]
        assert isinstance(long_lived, InformerInstance)
        parts = {
            "scheduler": long_lived.scheduler,
            "informers": long_lived.informers,
            "correlator": long_lived.correlator,
        }
        return ObjectSizes({**parts, **of_modules("stowplan")})

    def held_of_ended(self) -> list[str]:
        """Types of the parts of schedulers that have ended and are still held."""
        gc.collect()
        parts = [one() for one in self._parts_of_ended]
        return [type(part).__name__ for part in parts if part is not None]

    def not_at_rest(self) -> list[str]:
        """What is not finished at night: pending pods, rollouts, work in progress."""
        found = [f"{one.key} is pending" for one in self.cluster.pods.values() if not one.node_name]
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
    """The default plugins, sessions for gangs, and a Permit plugin that waits."""
    return deciders_of(
        [ConfigText(PROFILE, "profiles"), ConfigText(SESSIONS, "sessions")], [GatePermit]
    )


def main(*arguments: str) -> None:
    """Print the objects held, day by day."""
    for (module, name), cap in CAPS.items():
        setattr(module, name, cap)
    given = dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
    run = LongRun(1, float(given.get("--busy", "1")))
    every = int(given.get("--every", "1"))
    first: ObjectSizes | None = None
    for day in range(every, int(arguments[-1]) + 1, every):
        begun = time.process_time()
        while run.n_days < day:
            run.day(lambda: [one.validate() for one in run.schedulers_running()])
        took = time.process_time() - begun
        held = run.held_objects()
        print(
            f"day {day}: {run.n_pods} pods, {run.n_calls} calls, {run.n_nodes} nodes,"
            f" {held.n_objects} objects, {held.n_bytes / 1e6:.2f} MB,"
            f" {resident() / 1e6:.1f} MB resident, {took:.1f} s, {run.not_at_rest()}",
            flush=True,
        )
        if first is not None:
            print("\n".join(f"  {line}" for line in held.grown(first, share=0.25, slack=40)))
        first = first or held


if __name__ == "__main__":
    main(*sys.argv[1:])
