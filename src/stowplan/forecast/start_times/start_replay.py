"""StartReplay: a cluster replayed from now on, until the pods of interest have started."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import msgspec

from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import ClusterApi, Pace
from stowplan.simulation.replay import PodHistory, Replay, ReplayOptions

NO_SAMPLES = 10**30
"""An interval of samples beyond any replay."""


class RandomRun(msgspec.Struct, frozen=True, gc=False):
    """Run time of a pod in one draw, in seconds; infinity for one that does not end.

    total_s: from a start to the end. left_s: from now, of a pod that is running.
    """

    total_s: float
    left_s: float = math.inf


ArrivalBlocks = Callable[[], tuple[float, list[tuple[float, Pod, RandomRun]]]]
"""Returns the length of the next block of time in seconds, and the pods that arrive in it: seconds
from its start, pod, run time."""


class StartReplayOptions(msgspec.Struct, frozen=True):
    """Options of the simulation of a forecast. horizon_s: the end, in seconds from now. arrivals:
    None where no further pods arrive. autoscale: None where no nodes are added or removed."""

    pace: Pace = Pace()
    horizon_s: float = math.inf
    arrivals: ArrivalBlocks | None = None
    autoscale: AutoscaleConfig | None = None


class StartReplay(Replay):
    """A replay that begins at a moment with all pods there, and ends when `targets` are bound, or
    at the horizon.

    runs: uid -> run time. targets: keys of pending pods. A pod that is evicted runs its whole time
    again.
    """

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        runs: Mapping[str, RandomRun],
        targets: Collection[str],
        begins: int,
        how: StartReplayOptions,
    ) -> None:
        """begins: Unix time in nanoseconds."""
        self._runs = dict(runs)
        self._waiting = set(targets)
        self._begins = begins
        self._how = how
        options = ReplayOptions(pace=how.pace, autoscale=how.autoscale)
        super().__init__(cluster, scheduler, options)
        self.last_left = self.last_news = begins
        if how.arrivals is not None:
            self.n_to_arrive += 1
            self._arrive_later(how.arrivals)

    def _arrive_later(self, arrivals: ArrivalBlocks) -> None:
        """Schedule the arrivals of one block of time, and the next block at its end."""
        self.n_to_arrive -= 1
        now = self.event_queue.now
        block_s, pods = arrivals()
        for after_s, pod, run in pods:
            self._runs[pod.uid] = run
            self.n_to_arrive += 1
            self.event_queue.at(now + round(after_s * SECOND), self._arrive, pod)
        self.n_to_arrive += 1
        self.event_queue.at(now + round(block_s * SECOND), self._arrive_later, arrivals)

    def _make_cluster(self) -> ClusterApi:
        # Sessions compare this time with those of pods.
        self.event_queue.now = self._begins
        return super()._make_cluster()

    def _load(self, source: Cluster) -> None:
        """Pods that are being deleted end at their deletion timestamp."""
        super()._load(source)
        for pod in source.bound():
            if pod.metadata.deletion_timestamp is not None:
                left_s = self._runs[pod.uid].left_s
                self.pod_histories[pod.key] = PodHistory(pod, 0, pod.node_name, bound_at_start=True)
                self.n_to_end += 1
                at = self._begins + round(left_s * SECOND)
                self.event_queue.at(at, self._simulated.drop_pod, pod.key, "")

    def _schedule_arrivals(self, pods: list[Pod]) -> None:
        """All pods are there from the start, in the order of their creation."""
        for pod in pods:
            self.n_to_arrive += 1
            self.event_queue.at(self._begins, self._arrive, pod)

    def _run_of(self, pod: Pod) -> int | None:
        run, restarts = self._runs.get(pod.uid), ""
        if run is None:
            # A pod of a recorded simulation may have been restarted before: `UID#1`.
            uid, _, restarts = pod.uid.rpartition("#")
            run = self._runs[uid]
        history = self.pod_histories.get(pod.key)
        is_first = history is None or history.bound_at_start
        seconds = run.left_s if is_first and not restarts else run.total_s
        return None if math.isinf(seconds) else round(seconds * SECOND)

    def _bound(self, pod: Pod) -> None:
        super()._bound(pod)
        self._waiting.discard(pod.key)

    @property
    def _has_end(self) -> bool:
        return not math.isinf(self._how.horizon_s)

    def _is_over(self) -> bool:
        is_late = self.event_queue.now - self._begins > self._how.horizon_s * SECOND
        if not self._waiting or is_late:
            return True
        return super()._is_over()

    def starts(self) -> dict[str, float]:
        """Run, and return key -> seconds from the beginning to the first binding, of the pods that
        were bound within the horizon; raises ContractError."""
        self.run(_ignore_sample, NO_SAMPLES)
        found = {
            key: history.waited / SECOND
            for key, history in self.pod_histories.items()
            if history.waited is not None and not history.bound_at_start
        }
        return {key: at_s for key, at_s in found.items() if at_s <= self._how.horizon_s}


def _ignore_sample(now: int) -> None:
    """No time series is kept."""
