"""Fill: pods come in the order of their arrival, each is tried once, and nobody leaves.

The machine decides them; a pod that it refuses is taken away again, so that what it said of it
holds for the cluster as the pod found it.

Pods that go straight from their attempt to the binding come in batches, which compiled kernels
place as runs. A placement does not depend on that: the machine counts a pod on its node before it
chooses for the next one. Every other pod comes alone, and is seen to until it is bound or refused.

Differs: the original's queue sorts by priority first, tries refused pods again and preempts.
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
from stowplan.objects.pod import Pod, PodSpec
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.queue import SubQueue
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.cluster.volume_controller import VolumeController
from stowplan.simulation.cluster.watch_stream import WatchStream, any_kind
from stowplan.simulation.event_queue import EventQueue

Progress = Callable[[int, int], None]
"""Called with (pods done, pods in all)."""

BATCH_MAX = 500
"""Pods that are handed over at once, at most: so often a run says how far it is."""

REPEATABLE_POINTS = ("preEnqueue", "reserve", "permit", "preBind", "bind")
"""Extension points at which a plugin with state of its own may notice that pods come in batches."""


class PlacementRun:
    """A cluster that fills up."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.world = SimulatedCluster(EventQueue())
        # Nobody leaves, however long somebody waits at Permit.
        self.world.run_of = lambda pod: None
        self.volumes = VolumeController(self.world)
        self._failed = ""
        # Of the batch under way: what was refused, by key.
        self._refused: dict[str, Placement] = {}
        self._is_batch = False
        self._direct_bind_check = DirectBindCheck(scheduler)
        self.instance = SchedulerInstance(
            "scheduler", self.world, scheduler, [WatchStream(self.world, any_kind)], self._observe
        )
        self.instance.heads_max = 1
        scheduler.on_refused = self._note_refusal
        load_cluster(self.world, cluster)
        self.instance.follow()
        self.world.event_queue.run(0)

    def place_all(self, pods: list[Pod], on_progress: Progress | None) -> list[Placement]:
        """What becomes of pods, in their order."""
        placements: list[Placement] = []
        while len(placements) < len(pods):
            if on_progress is not None:
                on_progress(len(placements), len(pods))
            batch = self._next_batch(pods, len(placements))
            if len(batch) > 1:
                placements += self.place_batch(batch)
            else:
                placements.append(self.place(pods[len(placements)]))
        if on_progress is not None:
            on_progress(len(pods), len(pods))
        return placements

    def _next_batch(self, pods: list[Pod], start: int) -> list[Pod]:
        """The pods from `start` on that may be handed over at once; none for one to come alone."""
        batch: list[Pod] = []
        keys: set[str] = set()
        for pod in pods[start : start + BATCH_MAX]:
            key = pod.key
            if (
                key in keys
                or key in self.world.pods
                or not self._direct_bind_check.binds_directly(pod)
            ):
                break
            keys.add(key)
            batch.append(pod)
        return batch

    def place_batch(self, pods: list[Pod]) -> list[Placement]:
        """Let pods come at once, and take away those that are refused."""
        world, event_queue, instance = self.world, self.world.event_queue, self.instance
        refused = self._refused = {}
        self._is_batch = True
        # Each is tried once: nobody is left in the queue who could take another's turn.
        instance.heads_max = len(pods)
        for pod in pods:
            world.put_pod(pod)
        while len(event_queue) and (instance.is_due or len(self.scheduler.bindings)):
            event_queue.step()
        instance.heads_max = 1
        self._is_batch = False
        world.compact(instance.streams[0].version)
        placed = world.pods
        return [
            refused[key] if key in refused else Placement(key, placed[key].node_name)
            for key in (pod.key for pod in pods)
        ]

    def place(self, pod: Pod) -> Placement:
        """Let a pod come, and take it away if it is refused."""
        if pod.spec.scheduler_name not in frameworks_of(self.scheduler):
            return refusal_of(pod, "", self.scheduler)
        world, event_queue = self.world, self.world.event_queue
        self._failed = ""
        stored = world.put_pod(pod)
        while len(event_queue) and not self._is_settled(stored):
            event_queue.step()
        world.compact(self.instance.streams[0].version)
        now = world.pods[pod.key]
        if now.node_name:
            return Placement(pod.key, now.node_name)
        refusal = refusal_of(now, self._failed, self.scheduler)
        world.drop_pod(pod.key, "not placed")
        event_queue.run(event_queue.now)
        return refusal

    def _is_settled(self, pod: Pod) -> bool:
        if self._failed:
            return True
        if self.instance.is_due:
            return False
        if self.world.pods[pod.key].node_name:
            return pod.uid not in self.scheduler.bindings
        return self.scheduler.queue.place_of(pod.key) is SubQueue.GATED

    def _note_refusal(self, pod: Pod, decision: Decision) -> None:
        # Now, as the cluster is as the pod has found it.
        if self._is_batch:
            self._refused[pod.key] = refused_by(decision, pod, self.scheduler)

    def _observe(
        self, instance: SchedulerInstance, events: list[Event], effects: list[Effect]
    ) -> None:
        if self._is_batch:
            # Before any binding is shown, which might have them tried again.
            for key in self._refused:
                if key in self.world.pods:
                    self.world.drop_pod(key, "not placed")
            return
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self._failed = effect.note or FAILED


class DirectBindCheck:
    """Which pods go straight from their attempt to the binding: nothing but their own decision, and
    the amounts that it takes, can bear on what becomes of the next one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._frameworks = frameworks_of(scheduler)
        self._has_extenders = scheduler.has_extenders
        self._is_plain = {name: _is_plain(one) for name, one in self._frameworks.items()}
        # A spec is kept with its answer, so that no other object can get its identity.
        self._known: dict[int, tuple[PodSpec, bool]] = {}

    def binds_directly(self, pod: Pod) -> bool:
        """True for a pod that may come in a batch."""
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
        """True where no plugin has anything to do with pods of a spec after the choice."""
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None or not self._is_plain[pod.spec.scheduler_name]:
            return False
        between = (m for point in ("reserve", "permit", "preBind") for m in framework.at(point))
        return not any(m.calls["concerns"] is None or m.call("concerns", pod) for m in between)


def _is_plain(framework: Framework) -> bool:
    members = (member for point in REPEATABLE_POINTS for member in framework.at(point))
    return (
        bool(framework.unconditional_binder)
        and all(member.declaration.repeatable for member in members)
        and not framework.at("postBind")
    )


def load_cluster(world: SimulatedCluster, cluster: Cluster) -> None:
    """Put into a world what there is in a cluster before anything happens."""
    for node in cluster.nodes:
        world.put_node(node)
    for value in cluster.objects:
        if isinstance(value, PersistentVolumeClaim) and not value.metadata.uid:
            # The API gives every object a uid, and volumes name claims by it.
            value = replace(value, metadata=replace(value.metadata, uid=value.key))
        world.put_object(value)
    for pod in cluster.bound():
        world.put_pod(pod)
