"""Placement run: pending pods are created in arrival order and tried once; no pod ends.

The scheduler decides them. A pod that does not fit is deleted again, so that its message describes
the cluster at the time of its attempt.

Pods whose attempt leads straight to the binding cycle are created in batches, which compiled
kernels place together. Batches do not change placements: the scheduler assumes each pod on its node
before it decides the next one. All other pods are created one by one.

Differs: kube-scheduler's queue sorts by priority first, retries unschedulable pods and preempts.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from stowplan.framework import Framework
from stowplan.framework.deciders.decider import Decision
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import FAILED, Placement, frameworks_of, refusal_of, refused_by
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.queue import SubQueue
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue
from stowplan.simulation.pod_group_run import PendingGroups, PodGroupRun

Progress = Callable[[int, int], None]
"""Called with (pods done, pods in total)."""

BATCH_MAX = 500
"""Pods per batch; progress is reported once per batch."""

REPEATABLE_POINTS = ("preEnqueue", "reserve", "permit", "preBind", "bind")
"""Extension points at which a plugin with state of its own may notice that pods come in batches."""


class PlacementRun:
    """Places the pending pods of a cluster on a simulated cluster."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.cluster = SimulatedCluster(EventQueue())
        # No pod ends, however long another waits at Permit.
        self.cluster.run_of = lambda pod: None
        self.volumes = VolumeController(self.cluster)
        self._failed = ""
        # Unschedulable pods of the current batch, by key.
        self._refused: dict[str, Placement] = {}
        self._failed_notes: dict[str, str] = {}
        self._is_batch = False
        self.on_effects: Callable[[list[Effect]], None] = lambda effects: None
        self._direct_bind_check = DirectBindCheck(scheduler)
        self.instance = SchedulerInstance(
            "scheduler",
            self.cluster,
            scheduler,
            [WatchStream(self.cluster, any_kind)],
            self._observe,
        )
        self.instance.heads_max = 1
        self.groups = PodGroupRun(self.cluster, scheduler, self.instance)
        scheduler.pod_lane.on_refused = self._note_refusal
        load_cluster(self.cluster, cluster)
        self.instance.follow()
        self.cluster.event_queue.run(0)

    def place_all(self, pods: list[Pod], on_progress: Progress | None) -> list[Placement]:
        """The placements of pods, in their order."""
        groups = PendingGroups(pods, self.scheduler)
        placements: dict[int, Placement] = {}
        at = 0
        while at < len(pods):
            if on_progress is not None:
                on_progress(at, len(pods))
            members = groups.of(at)
            if members:
                if at == members[-1]:
                    placed = self.groups.place([pods[each] for each in members])
                    placements |= dict(zip(members, placed, strict=True))
                at += 1
                continue
            batch = self._next_batch(pods, at, groups)
            placed = self.place_batch(batch) if len(batch) > 1 else [self.place(pods[at])]
            placements |= dict(enumerate(placed, at))
            at += len(placed)
        if on_progress is not None:
            on_progress(len(pods), len(pods))
        return [placements[each] for each in range(len(pods))]

    def _next_batch(self, pods: list[Pod], start: int, groups: PendingGroups) -> list[Pod]:
        """The next batch, from `start` on; empty when the next pod must be created alone."""
        batch: list[Pod] = []
        keys: set[str] = set()
        for at, pod in enumerate(pods[start : start + BATCH_MAX], start):
            key = pod.key
            if (
                key in keys
                or groups.of(at)
                or key in self.cluster.pods
                or not self._direct_bind_check.binds_directly(pod)
            ):
                break
            keys.add(key)
            batch.append(pod)
        return batch

    def place_batch(self, pods: list[Pod]) -> list[Placement]:
        """Create pods as a batch; those that do not fit are deleted."""
        cluster, event_queue, instance = self.cluster, self.cluster.event_queue, self.instance
        refused = self._refused = {}
        self._failed_notes = {}
        self._is_batch = True
        # Each is tried once: no pod remains in the queue that could be popped instead.
        instance.heads_max = len(pods)
        for pod in pods:
            cluster.put_pod(pod)
        while len(event_queue) and (instance.is_due or len(self.scheduler.bindings)):
            event_queue.step()
        instance.heads_max = 1
        self._is_batch = False
        cluster.compact(instance.streams[0].version)
        for key in (pod.key for pod in pods):
            pending = cluster.pods.get(key)
            if pending is not None and not pending.node_name and key not in refused:
                # Its binding cycle failed.
                note = self._failed_notes.get(pending.uid, "")
                refused[key] = refusal_of(pending, note, self.scheduler)
                cluster.drop_pod(key, "not placed")
        placed = cluster.pods
        return [
            refused[key] if key in refused else Placement(key, placed[key].node_name)
            for key in (pod.key for pod in pods)
        ]

    def place(self, pod: Pod) -> Placement:
        """Create a pod; it is deleted if it does not fit."""
        if pod.spec.scheduler_name not in frameworks_of(self.scheduler):
            return refusal_of(pod, "", self.scheduler)
        cluster, event_queue = self.cluster, self.cluster.event_queue
        self._failed = ""
        stored = cluster.put_pod(pod)
        while len(event_queue) and not self._is_settled(stored):
            event_queue.step()
        cluster.compact(self.instance.streams[0].version)
        now = cluster.pods[pod.key]
        if now.node_name:
            return Placement(pod.key, now.node_name)
        refusal = refusal_of(now, self._failed, self.scheduler)
        cluster.drop_pod(pod.key, "not placed")
        event_queue.run(event_queue.now)
        return refusal

    def _is_settled(self, pod: Pod) -> bool:
        if self._failed:
            return True
        if self.instance.is_due:
            return False
        if self.cluster.pods[pod.key].node_name:
            return pod.uid not in self.scheduler.bindings
        return self.scheduler.queue.place_of(pod.key) is SubQueue.GATED

    def _note_refusal(self, pod: Pod, decision: Decision) -> None:
        # Recorded now, while the cluster is as the attempt has seen it.
        if self._is_batch:
            self._refused[pod.key] = refused_by(decision, pod, self.scheduler)

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        self.on_effects(effects)
        if self._is_batch:
            # Before a binding is delivered, which might move them to the active queue.
            for key in self._refused:
                if key in self.cluster.pods:
                    self.cluster.drop_pod(key, "not placed")
        else:
            self.groups.observe(effects)
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self._failed = effect.note or FAILED
                if self._is_batch:
                    self._failed_notes[effect.uid] = self._failed


class DirectBindCheck:
    """Which pods go straight from their attempt to the binding cycle, so that they affect the next
    pod by their assumed resources only."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._frameworks = frameworks_of(scheduler)
        self._has_extenders = scheduler.has_extenders
        self._is_plain = {name: _is_plain(one) for name, one in self._frameworks.items()}
        # The spec is kept with its answer, so that its id is not reused.
        self._known: dict[int, tuple[PodSpec, bool]] = {}

    def binds_directly(self, pod: Pod) -> bool:
        """True for a pod that may be part of a batch."""
        if self._has_extenders or pod.status.nominated_node_name:
            return False
        known = self._known.get(id(pod.spec))
        if known is None:
            known = self._known[id(pod.spec)] = pod.spec, self._is_free(pod)
        if not known[1]:
            return False
        framework = self._frameworks[pod.spec.scheduler_name]
        return framework.run_pre_enqueue(pod).is_success

    def _is_free(self, pod: Pod) -> bool:
        """True when no Reserve, Permit or PreBind plugin concerns pods of the spec, except one for
        which kernels reserve."""
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None or not self._is_plain[pod.spec.scheduler_name]:
            return False
        between = (m for point in ("reserve", "permit", "preBind") for m in framework.at(point))
        return not any(
            m.calls["kernel_terms"] is None
            and (m.calls["applies_to"] is None or m.call("applies_to", pod))
            for m in between
        )


def _is_plain(framework: Framework) -> bool:
    members = (member for point in REPEATABLE_POINTS for member in framework.at(point))
    return (
        bool(framework.unconditional_binder)
        and all(member.declaration.repeatable for member in members)
        and not framework.at("postBind")
    )


def with_uid(value: Object) -> Object:
    """The object as an API server stores it: volumes name claims by their uid."""
    if isinstance(value, PersistentVolumeClaim) and not value.metadata.uid:
        return replace(value, metadata=replace(value.metadata, uid=value.key))
    return value


def load_cluster(target: SimulatedCluster, source: Cluster) -> None:
    """Put the nodes, objects and bound pods of `source` into a simulated cluster."""
    for node in source.nodes:
        target.put_node(node)
    for value in source.objects:
        target.put_object(with_uid(value))
    for pod in source.bound():
        target.put_pod(pod)
