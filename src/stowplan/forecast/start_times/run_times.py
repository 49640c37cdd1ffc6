"""Run times of pods for forecasts: declared, observed at finished pods, or unknown.

In this order: the annotation `stowplan.dev/run-seconds`; pods of a Deployment, ReplicaSet,
StatefulSet, DaemonSet or ReplicationController do not end; the run times of pods of the same owner,
capped by `activeDeadlineSeconds`; `activeDeadlineSeconds` of the pod or of its Job, as if the pod
ran until then; the run times of all pods of the cluster that have ended. Where no pod has ended the
run time is unknown, and the pod counts as one that does not end.

A pod that has run for longer than every other one runs for as long again in half of the draws.
Source: D. Tsafrir, Y. Etsion, D. Feitelson, Backfilling using system-generated predictions rather
than user runtime estimates, IEEE TPDS 18 (2007), where an estimate that has expired is raised.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping

import msgspec
import numpy as np

from stowplan.columns.array_types import Floats
from stowplan.forecast.start_times.run_time_draws import (
    ObservedRuns,
    RunTimeDistribution,
    distribution_of,
)
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_owners import owners_of
from stowplan.objects.pod import Pod
from stowplan.objects.timing.pod_times import ended_at
from stowplan.objects.timing.run_limits import RUN_ANNOTATION, RUN_EXPECTED, annotated_run_s
from stowplan.objects.workload import Job

DECLARED, OBSERVED, LIMIT, SERVICE = "declared", "observed", "limit", "service"
OTHERS, UNKNOWN = "others", "unknown"
OTHERS_MAX = 500
"""Observations of other owners that are drawn from; more are thinned out."""
SERVICES = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"}
)
"""Kinds whose pods are replaced when they end."""

Workload = tuple[str, str, str]
"""Namespace, kind and name of the top-level owner of pods."""


class RunTime(msgspec.Struct, frozen=True):
    """Knowledge of the run time of pods.

    source: DECLARED, OBSERVED, LIMIT, SERVICE, OTHERS or UNKNOWN. seconds: float64 (n_finished,),
    sorted; one for DECLARED and LIMIT, none for SERVICE and UNKNOWN. limit_s: infinity without a
    limit. running: float64 (n_running,), for how long pods of the owner have run that have not
    ended. others: pods of all owners. workload: whose pods were observed.
    """

    source: str
    seconds: Floats
    limit_s: float = math.inf
    running: Floats = np.zeros(0)
    others: ObservedRuns | None = None
    workload: Workload | None = None

    @property
    def is_random(self) -> bool:
        """True if draws of it differ."""
        return self.source in (OBSERVED, OTHERS)

    def distribution(self, rng: np.random.Generator) -> RunTimeDistribution:
        """The distribution of one simulation; only where `is_random`."""
        own = ObservedRuns(self.seconds, self.running)
        if self.source == OTHERS:
            # `seconds` are those of the others; of the owner no pod has ended.
            own = ObservedRuns(_NONE, self.running)
        return distribution_of(own, self.others, rng)

    def known_s(self) -> float:
        """Seconds from the start to the end, infinity for a pod that does not end; only where it
        is not random."""
        return float(self.seconds[0]) if self.seconds.shape[0] else math.inf

    def text(self) -> str:
        """What is assumed, in words."""
        n_observed = self.seconds.shape[0]
        match self.source:
            case "declared" if math.isinf(self.seconds[0]):
                return "declared: forever"
            case "declared":
                return f"declared: {self.seconds[0]:g}s"
            case "limit":
                return f"limit: {self.seconds[0]:g}s"
            case "observed":
                low, high = self.seconds[0], self.seconds[-1]
                return f"observed: {n_observed} finished, {low:g}s to {high:g}s"
            case "others":
                low, high = self.seconds[0], self.seconds[-1]
                return f"as of other owners: {n_observed} finished, {low:g}s to {high:g}s"
            case "service":
                return "service: does not end"
        return "unknown run time"


class RunTimes:
    """Run times of the pods of a cluster. Raises InputError for invalid annotations."""

    def __init__(self, cluster: Cluster, now: datetime.datetime) -> None:
        """now: until when running pods have run."""
        self._deadlines = {
            ("Job", job.key): float(deadline)
            for job in cluster.objects
            if isinstance(job, Job) and (deadline := job.spec.active_deadline_seconds) is not None
        }
        finished: dict[Workload | None, list[float]] = {}
        running: dict[Workload | None, list[float]] = {}
        for pod in cluster.pods:
            if is_service(pod) or not (pod.is_finished or pod.node_name):
                continue
            workload = workload_of(pod)
            ran = _ran_s(pod) if pod.is_finished else None
            if ran is not None:
                finished.setdefault(workload, []).append(ran)
            elif RUN_ANNOTATION in pod.metadata.annotations or pod.is_finished:
                continue
            elif pod.status.start_time is not None:
                running.setdefault(workload, []).append(elapsed_s(pod, now))
        self._finished = {workload: np.sort(found) for workload, found in finished.items()}
        self._running = {workload: np.sort(found) for workload, found in running.items()}
        every = ObservedRuns(_together(self._finished), _together(self._running))
        self._others = _thinned(every) if every.finished.shape[0] else None

    def of(self, pod: Pod) -> RunTime:
        """The run time of a pod, and where it comes from."""
        limit_s = self._limit_s(pod)
        declared = declared_s(pod)
        if declared is not None:
            return RunTime(DECLARED, np.array([min(declared, limit_s)]), limit_s)
        if is_service(pod):
            return RunTime(SERVICE, _NONE)
        workload = workload_of(pod)
        observed = None if workload is None else self._finished.get(workload)
        running = _NONE if workload is None else self._running.get(workload, _NONE)
        if observed is not None:
            others = self._others if len(self._finished) > 1 else None
            return RunTime(OBSERVED, observed, limit_s, running, others, workload)
        if limit_s < math.inf:
            return RunTime(LIMIT, np.array([limit_s]), limit_s)
        if self._others is not None:
            seconds = self._others.finished
            return RunTime(OTHERS, seconds, limit_s, running, self._others, workload)
        return RunTime(UNKNOWN, _NONE)

    def _limit_s(self, pod: Pod) -> float:
        """Seconds after which the pod, or its Job, is ended; infinity for none."""
        limits = [math.inf]
        own = pod.spec.active_deadline_seconds
        if own is not None:
            limits.append(_checked_deadline(f"pod {pod.key}", own))
        owner = pod.controller
        if owner is not None:
            name = f"{pod.namespace}/{owner.name}"
            of_job = self._deadlines.get((owner.kind, name))
            if of_job is not None:
                limits.append(_checked_deadline(f"pod {pod.key}: job {name}", of_job))
        return min(limits)


def declared_s(pod: Pod) -> float | None:
    """The run time by annotation, None without one; raises InputError that names the pod."""
    try:
        return annotated_run_s(pod)
    except ValueError as problem:
        place = f"metadata.annotations[{RUN_ANNOTATION}]"
        raise InputError(f"pod {pod.key}", place, str(problem), RUN_EXPECTED) from None


def workload_of(pod: Pod) -> Workload | None:
    """The top-level owner of a pod, else its PodGroup; None for a pod on its own."""
    owners = owners_of(pod)
    if owners:
        return (pod.namespace, *owners[-1])
    group = group_of(pod)
    return (pod.namespace, "PodGroup", group.partition("/")[2]) if group else None


def elapsed_s(pod: Pod, now: datetime.datetime) -> float:
    """Seconds since the start of a pod; 0 where its start is unknown or later."""
    started = pod.status.start_time
    return 0.0 if started is None else max((now - started).total_seconds(), 0.0)


def is_service(pod: Pod) -> bool:
    """True for a pod that is replaced when it ends."""
    owners = owners_of(pod)
    return bool(owners) and owners[-1][0] in SERVICES


def _together(seconds: Mapping[Workload | None, Floats]) -> Floats:
    """Run times of all owners, sorted."""
    return np.sort(np.concatenate(list(seconds.values()))) if seconds else _NONE


def _thinned(runs: ObservedRuns) -> ObservedRuns:
    """Of many observations every n-th, so that both kinds keep their share."""
    step = -(-(runs.finished.shape[0] + runs.running.shape[0]) // OTHERS_MAX)
    return ObservedRuns(runs.finished[step // 2 :: step], runs.running[step // 2 :: step])


def _ran_s(pod: Pod) -> float | None:
    """Seconds from the start to the end of a finished pod; None where either is unknown."""
    started, finished = pod.status.start_time, ended_at(pod)
    if started is None or finished is None or finished < started:
        return None
    return (finished - started).total_seconds()


def _checked_deadline(where: str, seconds: float) -> float:
    if seconds < 0:
        got = f"{seconds:g}"
        raise InputError(where, "spec.activeDeadlineSeconds", got, "seconds, 0 or more")
    return float(seconds)


_NONE: Floats = np.zeros(0)
