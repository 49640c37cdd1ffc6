"""Recorded replay: the workload of a recording in virtual time, with any configuration.

Pods arrive, and nodes and objects change, when they did. A pod runs as long as it ran; one that did
not end in the recording does not end here. Victims are created again, as by their controllers.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.messages import events as happened
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.recording.recorded_workload import RecordedWorkload, WorkloadChange
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.simulated_cluster import run_of
from stowplan.simulation.replay import PodHistory, Replay, ReplayOptions


class RecordedReplay(Replay):
    """A replay of a recorded workload. histories: by uid of the recorded pods."""

    def __init__(
        self, workload: RecordedWorkload, scheduler: Scheduler, options: ReplayOptions
    ) -> None:
        self.workload = workload
        self.histories: dict[str, PodHistory] = {}
        until_s = max(workload.length / SECOND, 0.001)
        super().__init__(Cluster([], []), scheduler, replace(options, until_s=until_s))
        self._simulated.run_of = self._run_of
        for change in workload.changes:
            if change.at == 0:
                self._apply(change)
            else:
                self.n_to_arrive += 1
                self.event_queue.at(change.at, self._later, change)

    def run_to_end(self) -> None:
        """Run to the end of the recording; raises ContractError."""
        self.run(lambda now: None, max(self.workload.length, SECOND))

    def _later(self, change: WorkloadChange) -> None:
        self.n_to_arrive -= 1
        self._apply(change)

    def _apply(self, change: WorkloadChange) -> None:
        cluster, value = self._simulated, change.value
        kind = change.kind
        if kind is happened.PodAdded:
            self._pod_added(value)
        elif kind is happened.PodUpdated:
            self._pod_updated(value)
        elif kind is happened.PodDeleted:
            self._pod_deleted(value)
        elif kind in (happened.NodeAdded, happened.NodeUpdated):
            cluster.put_node(value)
        elif kind is happened.NodeDeleted and value.name in cluster.nodes:
            cluster.drop_node(value.name)
        elif kind in (happened.ObjectAdded, happened.ObjectUpdated):
            cluster.put_object(value)
        elif kind is happened.ObjectDeleted and (type(value), key_of(value)) in cluster.objects:
            cluster.drop_object(type(value), key_of(value))

    def _pod_added(self, pod: Pod) -> None:
        history = PodHistory(pod, self.event_queue.now, pod.node_name)
        history.bound_at_start = bool(pod.node_name)
        self.pod_histories[pod.key] = self.histories[pod.uid] = history
        self._simulated.put_pod(pod)

    def _pod_updated(self, pod: Pod) -> None:
        """A change by others: gates, labels, or a binding by another scheduler."""
        there = self._simulated.pods.get(pod.key)
        if there is None or (there.node_name and pod.node_name != there.node_name):
            return
        meta = replace(pod.metadata, uid=there.uid)
        self._simulated.put_pod(replace(pod, metadata=meta, status=there.status))
        if pod.node_name:
            self.pod_histories[pod.key].bound_at_start = True

    def _pod_deleted(self, key: str) -> None:
        if key in self._simulated.pods:
            self._simulated.drop_pod(key, "")

    def _run_of(self, pod: Pod) -> int | None:
        # A pod that was created again has a uid of its own, `UID#NUMBER`.
        recorded = self.workload.pods.get(pod.uid.partition("#")[0])
        ran = None if recorded is None else recorded.run_ns
        return run_of(pod) if ran is None else ran
