"""Outcomes over time: a version of a cluster replayed in virtual time, from now on.

Pods that wait have arrived at the start. A pod ends after its run time, less the time that it has
run already: the smaller of `stowplan.dev/run-seconds` and `activeDeadlineSeconds`, else the
default.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.forecast.what_if.outcome import DecisionOutcome, resource_use_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_placement import Placement, strip_node_counts, unplaced
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import OK
from stowplan.simulation.cluster.simulated_cluster import run_of
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.simulate import assign_profile


class _RunTime(NamedTuple):
    """Run time of a pod in seconds; left_s: what is left of it. None: it runs on."""

    total_s: float | None
    left_s: float | None


class _ForecastReplay(Replay):
    """A replay from now on, in which all pending pods have arrived.

    runs: pod -> run time. takers: victim -> uid of the pod that evicted it.
    """

    def __init__(
        self,
        cluster: Cluster,
        scheduler: Scheduler,
        options: ReplayOptions,
        seed: int,
        runs: dict[str, _RunTime],
    ) -> None:
        self.runs = runs
        self.takers: dict[str, str] = {}
        super().__init__(cluster, scheduler, options, seed)

    def _run_of(self, pod: Pod) -> int | None:
        run = self.runs[pod.key]
        history = self.pod_histories.get(pod.key)
        is_first = history is None or (history.bound_at_start and not history.restarts)
        seconds = run.left_s if is_first else run.total_s
        return None if seconds is None else round(seconds * SECOND)

    def _taken(self, effect: Effect, code: int) -> None:
        super()._taken(effect, code)
        if isinstance(effect, to_do.Evict) and code == OK:
            self.takers[f"{effect.namespace}/{effect.name}"] = effect.preemptor


def decide_over_time(
    version: Cluster,
    deciders: Deciders,
    for_s: float,
    *,
    default_s: float | None = None,
    now: datetime | None = None,
    seed: int = 0,
    profile: str | None = None,
) -> DecisionOutcome:
    """The outcome after `for_s` virtual seconds.

    default_s: run time of pods of Jobs and of pods without owner that declare none; None: they run
    on. now: until when running pods have run; None: they start at the beginning.
    """
    pods = _arriving(version)
    timed = replace(version, pods=pods, manifests=[])
    runs = {pod.key: _run_time(pod, default_s, now) for pod in pods}
    if profile is not None:
        timed = assign_profile(profile, timed)
    rng = np.random.default_rng(seed)
    scheduler = deciders.scheduler(rng=rng, options=SchedulerOptions(counts_repeats=False))
    replay = _ForecastReplay(timed, scheduler, ReplayOptions(until_s=for_s), seed, runs)
    replay.run(lambda now: None, max(round(for_s * SECOND), 1))
    placements: dict[str, Placement] = {}
    waits: dict[str, float] = {}
    uids = {history.pod.uid: key for key, history in replay.pod_histories.items()}
    for key, history in replay.pod_histories.items():
        if history.waited is not None and not history.bound_at_start:
            waits[key] = in_seconds(history.waited)
        is_same = history.bound_at_start and not history.restarts
        if history.node and not is_same:
            placements[key] = Placement(key, history.node)
        elif not history.node:
            note = history.note or "not tried yet"
            placements[key] = unplaced(history.pod, strip_node_counts(note), note)
    evicted = {key: uids.get(uid, uid) for key, uid in replay.takers.items()}
    use = resource_use_of(scheduler.cache.nodes)
    return DecisionOutcome(version, placements, evicted, use, waits)


def _arriving(version: Cluster) -> list[Pod]:
    """The pods, in the order of arrival; all pending ones have arrived."""
    waiting = [
        replace(pod, metadata=replace(pod.metadata, creation_timestamp=None))
        for pod in version.pending()
    ]
    return [*version.bound(), *waiting]


def _run_time(pod: Pod, default_s: float | None, now: datetime | None) -> _RunTime:
    """The run time of a pod by its annotation, its deadline or the default."""
    run = run_of(pod)
    limits = [] if run is None else [in_seconds(run)]
    if pod.spec.active_deadline_seconds is not None:
        limits.append(float(pod.spec.active_deadline_seconds))
    is_batch = pod.controller is None or pod.controller.kind == "Job"
    if not limits and default_s is not None and is_batch:
        limits.append(default_s)
    if not limits:
        return _RunTime(None, None)
    total_s, started = min(limits), pod.status.start_time
    if not pod.node_name or started is None or now is None:
        return _RunTime(total_s, total_s)
    return _RunTime(total_s, max(0.0, total_s - max(0.0, (now - started).total_seconds())))
