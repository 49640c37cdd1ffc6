"""Outcomes over time: a version of a cluster replayed in virtual time, from now on.

Pods that wait have arrived at the start. A pod ends after its run time, less the time that it has
run already: the smaller of `stowplan.dev/run-seconds` and `activeDeadlineSeconds`, else the
default. Where the version has workloads, their controllers and kubelets do this.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.forecast.what_if.autoscaled_nodes import AutoscaledPools, use_over_time
from stowplan.forecast.what_if.controller_replay import ControllerReplay, has_controllers
from stowplan.forecast.what_if.outcome import DecisionOutcome, resource_use_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.insight.pod_placement import Placement, strip_node_counts, unplaced
from stowplan.insight.what_if.owned_pods import is_created_again
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.scheduler.options import SchedulerOptions
from stowplan.scheduler.scheduler import Scheduler
from stowplan.simulation.cluster.cluster_api import OK
from stowplan.simulation.cluster.simulated_cluster import run_of
from stowplan.simulation.event_queue import in_seconds
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.simulate import assign_profile, autoscaler_frameworks


class Timing(msgspec.Struct, frozen=True):
    """A duration in virtual time. default_s: run time of pods of Jobs and of pods without owner
    that declare none; None: they run on."""

    for_s: float
    default_s: float | None = None


class _RunTime(NamedTuple):
    """Run time of a pod in seconds; left_s: what is left of it. None: it runs on."""

    total_s: float | None
    left_s: float | None


class _PodReplay(Replay):
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

    def _ended(self, pod: Pod, why: str) -> None:
        super()._ended(pod, why if is_created_again(pod) else "")

    def _taken(self, effect: Effect, code: int) -> None:
        super()._taken(effect, code)
        if isinstance(effect, to_do.Evict) and code == OK:
            self.takers[f"{effect.namespace}/{effect.name}"] = effect.preemptor


def decide_over_time(
    version: Cluster,
    deciders: Deciders,
    timing: Timing,
    *,
    now: datetime | None = None,
    seed: int = 0,
    profile: str | None = None,
    pools: AutoscaledPools | None = None,
) -> DecisionOutcome:
    """The outcome after `timing.for_s` virtual seconds.

    Where the version has workloads their controllers run, as in `simulate --replay`. now: until
    when running pods have run; None: they start at the beginning. pools: of an autoscaler.
    """
    if profile is not None:
        version = assign_profile(profile, version)
    rng = np.random.default_rng(seed)
    scheduler = deciders.scheduler(rng=rng, options=SchedulerOptions(counts_repeats=False))
    autoscale = None if pools is None else pools.config
    options = ReplayOptions(until_s=timing.for_s, autoscale=autoscale)
    replay: ControllerReplay | _PodReplay
    if has_controllers(version):
        run_s = math.inf if timing.default_s is None else timing.default_s
        replay = ControllerReplay(version, deciders, scheduler, options, seed, run_s, now)
    else:
        pods = _arriving(version)
        runs = {pod.key: _run_time(pod, timing.default_s, now) for pod in pods}
        timed = replace(version, pods=pods, manifests=[])
        replay = _PodReplay(timed, scheduler, options, seed, runs)
    if pools is not None:
        templates = pools.of(version)
        replay.start_autoscaler(templates, autoscaler_frameworks(deciders, version), seed)
    replay.run(lambda now: None, max(round(timing.for_s * SECOND), 1))
    found = _outcome(version, replay, scheduler)
    if pools is not None and replay.autoscaler is not None:
        found.autoscaled = use_over_time(replay.autoscaler, templates)
    return found


def _outcome(
    version: Cluster, replay: ControllerReplay | _PodReplay, scheduler: Scheduler
) -> DecisionOutcome:
    """What became of the pods of a version. A pod that was created in place of another one counts
    as that one."""
    successors, notes = {}, replay.failure_notes
    if isinstance(replay, ControllerReplay):
        successors = replay.successors
        notes += _notes_of(replay)
    histories = replay.pod_histories
    uids = {history.pod.uid: key for key, history in histories.items()}
    for one in version.objects:
        if isinstance(one, SchedulingGroup):
            place = "" if one.namespace == "default" else one.namespace
            # As controllers have it, where it has no uid.
            stored = f"podgroup-{place}-{one.name}".lower()
            uids |= dict.fromkeys((one.uid, stored), f"podgroup {one.key}")
    placements: dict[str, Placement] = {}
    waits: dict[str, float] = {}
    for pod in version.pods:
        key = last = pod.key
        while last in successors:
            last = successors[last]
        history = histories.get(last)
        if history is None:
            continue
        is_gone = last == key and history.ended is not None and not history.restarts
        if is_gone and key in replay.takers:
            # It was evicted, and no controller creates it again.
            continue
        if history.waited is not None and not history.bound_at_start:
            waits[key] = in_seconds(history.waited)
        is_same = last == key and history.bound_at_start and not history.restarts
        if history.node and not is_same:
            placements[key] = Placement(key, history.node)
        elif not history.node:
            note = history.note or "not tried yet"
            placements[key] = replace(unplaced(history.pod, strip_node_counts(note), note), pod=key)
    evicted = {key: uids.get(uid, uid) for key, uid in replay.takers.items()}
    use = resource_use_of(scheduler.cache.nodes)
    return DecisionOutcome(version, placements, evicted, use, waits, notes)


def _notes_of(replay: ControllerReplay) -> list[str]:
    """What controllers did beside replacing pods."""
    notes = []
    if replay.added:
        histories = [replay.pod_histories[key] for key in replay.added]
        n_bound = sum(history.bound is not None for history in histories)
        pods = count_of(len(histories), "pod")
        notes.append(f"controllers create {pods} more in this time, {n_bound} of them get a node")
    for key, why in replay.not_created.items():
        notes.append(f"pod {key} could not be created: {why}")
    return notes


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
