"""Groups of a placement run: the pods of a PodGroup are created together, when the last of them has
arrived, and those that do not fit are deleted together."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.insight.pod_placement import FAILED, Placement, frameworks_of, refusal_of
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.pod import Pod
from stowplan.queue import SubQueue
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster

GROUPS_NOTE = "pods of a PodGroup are tried together, when the last of them has arrived"


class PendingGroups:
    """The groups of pending pods; none where the scheduler tries pods one by one."""

    def __init__(self, pods: Iterable[Pod], scheduler: Scheduler) -> None:
        self._members: dict[str, list[int]] = {}
        self._group_of: dict[int, list[int]] = {}
        if scheduler.pod_groups is None:
            return
        known = frameworks_of(scheduler)
        for place, pod in enumerate(pods):
            key = group_key_of(pod)
            if key and pod.spec.scheduler_name in known:
                self._members.setdefault(key, []).append(place)
        self._group_of = {at: members for members in self._members.values() for at in members}

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self._members)

    def of(self, place: int) -> list[int]:
        """The places of all pods of the group of one of them; empty for a pod without a group."""
        return self._group_of.get(place, [])


def group_notes(pods: Iterable[Pod], scheduler: Scheduler) -> list[str]:
    """A note on how groups are tried, where there are any."""
    return [GROUPS_NOTE] if PendingGroups(pods, scheduler).count else []


class PodGroupRun:
    """Places whole groups on a simulated cluster."""

    def __init__(
        self, cluster: SimulatedCluster, scheduler: Scheduler, instance: SchedulerInstance
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._instance = instance
        self._failed: dict[str, str] = {}

    def observe(self, effects: Iterable[Effect]) -> None:
        """Take note of failed attempts."""
        for effect in effects:
            if isinstance(effect, to_do.RecordEvent) and effect.reason == FAILED:
                self._failed[effect.uid] = effect.note or FAILED

    def place(self, pods: list[Pod]) -> list[Placement]:
        """Create the pods of a group; those that do not fit are deleted."""
        cluster, event_queue = self._cluster, self._cluster.event_queue
        self._failed = {}
        stored = [cluster.put_pod(pod) for pod in pods]
        while len(event_queue) and (self._instance.is_due or not self._is_settled(stored)):
            event_queue.step()
        cluster.compact(self._instance.streams[0].version)
        ended = [cluster.pods[pod.key] for pod in stored]
        # All are judged on the cluster as it is after the attempt.
        found = [
            Placement(pod.key, pod.node_name)
            if pod.node_name
            else refusal_of(pod, self._failed.get(pod.uid, ""), self._scheduler)
            for pod in ended
        ]
        for pod in ended:
            if not pod.node_name:
                cluster.drop_pod(pod.key, "not placed")
        event_queue.run(event_queue.now)
        return found

    def _is_settled(self, pods: list[Pod]) -> bool:
        return all(self._is_decided(pod) for pod in pods)

    def _is_decided(self, pod: Pod) -> bool:
        """True for a pod that is bound, was refused, or is kept out of the queue."""
        if self._cluster.pods[pod.key].node_name:
            return pod.uid not in self._scheduler.bindings
        is_gated = self._scheduler.queue.place_of(pod.key) is SubQueue.GATED
        return is_gated or (pod.uid in self._failed and pod.uid not in self._scheduler.bindings)
