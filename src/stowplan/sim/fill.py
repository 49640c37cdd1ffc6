"""Fill: pods come one after the other, each is tried once, and nobody leaves.

The machine decides them; a pod that it refuses is taken away again, so that what it said of it
holds for the cluster as the pod found it.

Differs: the original's queue sorts by priority first, tries refused pods again and preempts.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.queue.queue import Place
from stowplan.scheduler.machine import Machine
from stowplan.sim.agenda import Agenda
from stowplan.sim.cluster import Cluster
from stowplan.sim.instance import Instance
from stowplan.sim.placement import FAILED, Placement, frameworks_of, refusal_of
from stowplan.sim.volume_controller import VolumeController
from stowplan.sim.watch import Stream, everything
from stowplan.sim.world import World

Progress = Callable[[int, int], None]
"""Called with (pods done, pods in all)."""

PROGRESS_EVERY = 50


class Fill:
    """A cluster that fills up."""

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        self.machine = machine
        self.world = World(Agenda())
        # Nobody leaves, however long somebody waits at Permit.
        self.world.run_of = lambda pod: None
        self.volumes = VolumeController(self.world)
        self._failed = ""
        self.instance = Instance(
            "scheduler", self.world, machine, [Stream(self.world, everything)], self._observe
        )
        self.instance.heads_max = 1
        furnish(self.world, cluster)
        self.instance.follow()
        self.world.agenda.run(0)

    def place_all(self, pods: list[Pod], on_progress: Progress | None) -> list[Placement]:
        """What becomes of pods, in their order."""
        placements = []
        for done, pod in enumerate(pods):
            if on_progress is not None and done % PROGRESS_EVERY == 0:
                on_progress(done, len(pods))
            placements.append(self.place(pod))
        if on_progress is not None:
            on_progress(len(pods), len(pods))
        return placements

    def place(self, pod: Pod) -> Placement:
        """Let a pod come, and take it away if it is refused."""
        if pod.spec.scheduler_name not in frameworks_of(self.machine):
            return refusal_of(pod, "", self.machine)
        world, agenda = self.world, self.world.agenda
        self._failed = ""
        stored = world.put_pod(pod)
        while len(agenda) and not self._is_settled(stored):
            agenda.step()
        world.compact(self.instance.streams[0].version)
        now = world.pods[pod.key]
        if now.node_name:
            return Placement(pod.key, now.node_name)
        refusal = refusal_of(now, self._failed, self.machine)
        world.drop_pod(pod.key, "not placed")
        agenda.run(agenda.now)
        return refusal

    def _is_settled(self, pod: Pod) -> bool:
        if self._failed:
            return True
        if self.instance.is_due:
            return False
        if self.world.pods[pod.key].node_name:
            return pod.uid not in self.machine.bindings
        return self.machine.queue.place_of(pod.key) is Place.GATED

    def _observe(self, instance: Instance, events: list[Event], effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self._failed = effect.note or FAILED


def furnish(world: World, cluster: Cluster) -> None:
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
