"""Replay: pods are created, scheduled, run and end, in virtual time.

The scheduler is the production one: it receives watch events, and its effects are applied to a
cluster in memory. Pods that are evicted or lose their node are created again, as by their
controllers, and run from the start.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.framework import ContractError, Framework
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, PoolNodes
from stowplan.insight.pod_placement import FAILED
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.devices.binding_annotations import without_binding_annotations
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod, PodStatus
from stowplan.plugins.gpu_share.card_admission import CardAdmission
from stowplan.queue import PodRecord
from stowplan.scheduler.outbox import truncate_note
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import OK, ClusterApi, Pace
from stowplan.simulation.cluster.node_churn import Churn, NodeChurnController
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster, run_of
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue
from stowplan.simulation.node_autoscaler import NodeAutoscaler
from stowplan.simulation.placement_run import load_cluster

IDLE_TIMEOUT = 660 * SECOND
"""How long a replay goes on with pending pods when no pod arrives or ends any more: twice the
interval of the unschedulable flush."""
SWAPS_TIMEOUT = 24 * 3600 * SECOND
"""How long a replay without an end goes on in which pods only take the places of each other."""


class ReplayOptions(msgspec.Struct, frozen=True):
    """Options of a replay.

    speedup: factor by which arrivals are closer together. until_s: end, in virtual seconds.
    departures: whether pods with a run time end. churn: node churn; None: none. sample_s: interval
    of samples; None: a thousandth of the arrival span. autoscale: pools of a node autoscaler; None:
    no nodes are added or removed. node_lifecycle: when nodes without heartbeats are unreachable,
    and how fast they are evicted, where controllers run. start_s: Unix seconds of virtual time 0
    where controllers run; None: as the objects show.
    """

    speedup: float = 1.0
    until_s: float | None = None
    departures: bool = True
    pace: Pace = Pace()
    churn: Churn | None = None
    sample_s: float | None = None
    autoscale: AutoscaleConfig | None = None
    node_lifecycle: NodeLifecycleOptions = NodeLifecycleOptions()
    start_s: float | None = None

    def check(self) -> None:
        """Raise InputError for invalid options."""
        spans = {"until_s": self.until_s, "sample_s": self.sample_s, "speedup": self.speedup}
        if self.churn is not None:
            spans |= {"churn.up_s": self.churn.up_s, "churn.down_s": self.churn.down_s}
        for name, value in spans.items():
            if value is not None and not 0 < value < math.inf:
                raise InputError("replay", name, f"{value:g}", "a number above 0")
        for name in self.pace.__struct_fields__:
            value = getattr(self.pace, name)
            if not 0 <= value < math.inf:
                raise InputError("replay", f"pace.{name}", f"{value:g}", "seconds, 0 or more")


class PodHistory(msgspec.Struct):
    """History of a pod in a replay; times in nanoseconds, None for what has not happened.

    pod: as created. refusals: failed attempts. restarts: how often it was created again. waited:
    from arrival to the first binding. note: message of the last failure. bound_at_start: bound
    before the replay began.
    """

    pod: Pod
    arrived: int
    node: str = ""
    bound: int | None = None
    started: int | None = None
    ended: int | None = None
    waited: int | None = None
    refusals: int = 0
    restarts: int = 0
    note: str = ""
    bound_at_start: bool = False

    @property
    def is_deleted_unbound(self) -> bool:
        """True for a pod that was deleted before it was bound: by a scale-down, say, or with the
        node that it was made for."""
        return self.bound is None and not self.node and self.ended is not None


class Replay:
    """A simulated cluster with one scheduler, in virtual time."""

    def __init__(
        self, cluster: Cluster, scheduler: Scheduler, options: ReplayOptions, seed: int = 0
    ) -> None:
        options.check()
        self.options = options
        self.scheduler = scheduler
        self.event_queue = EventQueue()
        self.cluster: ClusterApi = self._make_cluster()
        self.pod_histories: dict[str, PodHistory] = {}
        self.evicted = 0
        self.evicted_by: Counter[str] = Counter()
        self.fault = ""
        self.on_effects: Callable[[list[Effect]], None] = lambda effects: None
        self.not_created: dict[str, str] = dict(cluster.not_created)
        self.disrupted = 0
        self.rejections: list[str] = []
        self.preemptors: set[str] = set()
        self.binds = 0
        self.refusals = 0
        self.n_to_arrive = 0
        self.n_to_end = 0
        self.last_bound = 0
        self.last_left = 0
        # When a pod was last bound for the first time, or ended by itself.
        self.last_news = 0
        self._was_again_due = False
        self.instance = self._make_instance()
        self.cluster.on_bound = self._bound
        self.cluster.on_started = self._started
        self.cluster.on_ended = self._ended
        self.instance.dispatcher.on_result = self._taken
        if scheduler.pod_lane.unschedulable_classes is not None:
            scheduler.pod_lane.unschedulable_classes.on_repeats = self._repeated
        self._load(cluster)
        self.instance.follow()
        self.node_churn: NodeChurnController | None = None
        if options.churn is not None:
            rng = np.random.default_rng([seed, 2])
            self.node_churn = NodeChurnController(self.cluster, options.churn, rng)
        self.autoscaler: NodeAutoscaler | None = None

    def start_autoscaler(
        self,
        pools: list[PoolNodes],
        frameworks: Mapping[str, Framework],
        seed: int,
    ) -> None:
        """Add the autoscaler of the options. frameworks: its own, by schedulerName, without
        PostFilter plugins."""
        config = self.options.autoscale
        assert config is not None
        rng = np.random.default_rng([seed, 5])
        objects = self.scheduler.cache.snapshot().object_store
        self.autoscaler = NodeAutoscaler(self.cluster, config, pools, frameworks, rng, objects)

    def _make_cluster(self) -> ClusterApi:
        self._simulated = SimulatedCluster(self.event_queue, self.options.pace)
        self._simulated.devices = CardAdmission()
        self._simulated.on_rejected = self._rejected
        return self._simulated

    def _make_instance(self) -> SchedulerInstance:
        instance = SchedulerInstance(
            "scheduler",
            self.cluster,
            self.scheduler,
            [WatchStream(self._simulated, any_kind)],
            self._observe,
        )
        instance.quiet_until = self._quiet_until
        return instance

    # Arrivals.

    def _load(self, source: Cluster) -> None:
        """Put the cluster in place, and schedule the arrivals of its pending pods."""
        self._volumes = VolumeController(self._simulated)
        load_cluster(self._simulated, source)
        self._simulated.run_of = self._run_of
        for pod in source.bound():
            self._simulated.run(self._simulated.pods[pod.key])
        self._schedule_arrivals(source.pending())

    def _schedule_arrivals(self, pods: list[Pod]) -> None:
        """Schedule the arrivals by creation timestamp; pods without one arrive at the start."""
        for pod in pods:
            run_of(pod)  # Raises InputError before the replay starts.
        times = [pod.metadata.creation_timestamp for pod in pods]
        first = min((at for at in times if at is not None), default=None)
        for pod, at in zip(pods, times, strict=True):
            when = 0.0
            if at is not None and first is not None:
                when = (at - first).total_seconds() / self.options.speedup
            self.n_to_arrive += 1
            self.event_queue.at(round(when * SECOND), self._arrive, pod)

    def _arrive(self, pod: Pod) -> None:
        self.n_to_arrive -= 1
        now = self.event_queue.now
        self.pod_histories[pod.key] = PodHistory(pod, now)
        self._simulated.put_pod(pod)

    def _recreate(self, pod_history: PodHistory) -> None:
        """Create the pod again under its name, as its controller would."""
        self.n_to_arrive -= 1
        pod_history.restarts += 1
        pod_history.node, pod_history.bound, pod_history.started, pod_history.ended = (
            "",
            None,
            None,
            None,
        )
        uid = f"{pod_history.pod.uid}#{pod_history.restarts}"
        meta = replace(pod_history.pod.metadata, uid=uid, deletion_timestamp=None)
        spec = pod_history.pod.spec
        if spec.node_name:
            spec = replace(spec, node_name="")
            meta = without_binding_annotations(replace(pod_history.pod, metadata=meta)).metadata
        # Its status on the old node does not apply.
        self._simulated.put_pod(
            replace(pod_history.pod, metadata=meta, spec=spec, status=PodStatus())
        )

    # Pod lifecycle.

    def _run_of(self, pod: Pod) -> int | None:
        return run_of(pod) if self.options.departures else None

    def _bound(self, pod: Pod) -> None:
        now = self.event_queue.now
        self.binds += 1
        self.last_bound = now
        pod_history = self.pod_histories[pod.key]
        pod_history.node, pod_history.bound = pod.node_name, now
        if pod_history.waited is None:
            self.last_news = now
            pod_history.waited = now - pod_history.arrived
        if self._run_of(pod) is not None:
            self.n_to_end += 1

    def _started(self, pod: Pod) -> None:
        pod_history = self.pod_histories.get(pod.key)
        if pod_history is None:
            # It was bound before the start.
            self.pod_histories[pod.key] = PodHistory(
                pod, 0, pod.node_name, 0, 0, bound_at_start=True
            )
            self.n_to_end += self._run_of(pod) is not None
        else:
            pod_history.started = self.event_queue.now

    def _ended(self, pod: Pod, why: str) -> None:
        now = self.event_queue.now
        if pod.node_name and self._run_of(pod) is not None:
            self.n_to_end -= 1
        self.last_left = now
        pod_history = self.pod_histories[pod.key]
        pod_history.ended = now
        if not why:
            self.last_news = now
        else:
            self.disrupted += 1
            self.n_to_arrive += 1
            self.event_queue.after(0, self._recreate, pod_history)

    def _rejected(self, pod: Pod, why: str) -> None:
        """A node has not admitted a pod; it has failed for good."""
        if self._run_of(pod) is not None:
            self.n_to_end -= 1
        self.last_left = self.event_queue.now
        pod_history = self.pod_histories[pod.key]
        pod_history.ended, pod_history.note = self.event_queue.now, why
        self.rejections.append(f"{pod.key}: {why}")

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        self.on_effects(effects)
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self.refusals += 1
                pod_history = self.pod_histories.get(f"{effect.namespace}/{effect.name}")
                if pod_history is not None:
                    pod_history.refusals += 1
                    pod_history.note = effect.note
            elif isinstance(effect, to_do.Report) and effect.is_fault:
                self.fault = self.fault or effect.text
        self.cluster.compact(instance.streams[0].version)

    def _repeated(self, entry: PodRecord, n_repeats: int) -> None:
        """Count repeated refusals of a pod, which have no effects."""
        self.refusals += n_repeats
        pod_history = self.pod_histories.get(entry.key)
        if pod_history is not None:
            pod_history.refusals += n_repeats

    def _apply_repeats(self) -> None:
        """Set note and condition of pods whose repeated refusals were only counted."""
        classes = self.scheduler.pod_lane.unschedulable_classes
        if classes is None:
            return
        for entry, decision in classes.latest(self.scheduler.cache.snapshot()):
            self.pod_histories[entry.key].note = truncate_note(decision.message)
            self._simulated.set_unschedulable(entry.key, decision.reason, decision.message)
        classes.settle()

    def _taken(self, effect: Effect, code: int) -> None:
        if isinstance(effect, to_do.Evict) and code == OK:
            self.evicted += 1
            self.evicted_by[effect.cause] += 1
            # Session plugins may evict without a preemptor.
            if effect.preemptor:
                self.preemptors.add(effect.preemptor)

    # The run.

    def run(self, on_sample: Callable[[int], None], every: int) -> None:
        """Run to the end; call `on_sample` with the time every `every` nanoseconds.

        Raises ContractError when a plugin or an action of a session fails.
        """
        event_queue = self.event_queue
        limit, sample = self._limit, 0
        while not (self.fault or self._is_over()):
            at = event_queue.next()
            if at is None or (limit is not None and at > limit):
                break
            while sample < at:
                event_queue.run(sample)
                on_sample(sample)
                sample += every
            event_queue.run(at)
        if limit is not None and not (self.fault or self._is_over()):
            event_queue.run(limit)
        on_sample(event_queue.now)
        self._apply_repeats()
        if self.fault:
            raise ContractError(self.fault)

    @property
    def _limit(self) -> int | None:
        """Time at which the run ends, if it was given."""
        return None if self.options.until_s is None else round(self.options.until_s * SECOND)

    @property
    def _has_end(self) -> bool:
        return self._limit is not None

    def _quiet_until(self) -> int | None:
        """See `SchedulerInstance`. None when the run may be over before that."""
        at, limit = self.event_queue.next(), self._limit
        if at is None or not (self.n_to_arrive or self.n_to_end):
            return None
        return at if limit is None else min(at, limit)

    def _is_over(self) -> bool:
        """True when no pod arrives or ends any more and pending pods have waited `IDLE_TIMEOUT`."""
        if self.n_to_arrive or self.n_to_end or self.instance.is_due:
            return False
        if self.autoscaler is not None and (self.options.until_s or self.autoscaler.is_busy):
            # Nodes cost until the end, and unneeded ones are still to be removed.
            return False
        if len(self.scheduler.bindings) or len(self.scheduler.extender_attempts):
            return False
        if self._is_session_due():
            return False
        since = self.event_queue.now - max(self.last_bound, self.last_left)
        if len(self.scheduler.queue) and since <= IDLE_TIMEOUT:
            return False
        # Pipelined pods wait for others to end.
        waits = any(lane.nominations or not lane.is_idle for lane in self.scheduler.lanes.batch)
        if waits and since <= IDLE_TIMEOUT:
            return False
        if self.node_churn is not None:
            self.node_churn.is_active = False
            return not len(self.node_churn)
        return True

    def _is_session_due(self) -> bool:
        """True while time alone will let another session decide more."""
        was_due, now = self._was_again_due, self.event_queue.now
        may_wait = self._has_end or now - self.last_news <= SWAPS_TIMEOUT
        lanes = self.scheduler.lanes.batch
        self._was_again_due = may_wait and any(lane.is_again_due for lane in lanes)
        if was_due and not self._was_again_due:
            # What that session evicts has still to leave.
            self.last_left = now
        return self._was_again_due

    @property
    def workloads(self) -> Sequence[msgspec.Struct] | None:
        """Kueue's Workloads; None where nothing is admitted."""
        return None

    @property
    def failure_notes(self) -> list[str]:
        """Which pods their nodes have not admitted."""
        if not self.rejections:
            return []
        what = count_of(len(self.rejections), "pod")
        return [f"{what} rejected by their nodes, such as {self.rejections[0]}"]

    @property
    def has_served_volumes(self) -> bool:
        """True when volumes were bound or provisioned at once, without a driver's latency."""
        return self._volumes.has_served

    @property
    def n_waiting(self) -> int:
        """Number of pending pods that the scheduler knows."""
        return self.scheduler.n_waiting


def last_arrival(cluster: Cluster, speedup: float) -> float:
    """Arrival of the last pod, in virtual seconds."""
    times = [pod.metadata.creation_timestamp for pod in cluster.pending()]
    known = [at for at in times if at is not None]
    return (max(known) - min(known)).total_seconds() / speedup if known else 0.0
