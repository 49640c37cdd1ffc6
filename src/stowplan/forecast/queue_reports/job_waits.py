"""What a job of a queue model waits for: the amounts of the queues above it with the bounds that it
would exceed, what frees resources for it and when, and when it is expected to start.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.batch.job_report import JobReport
from stowplan.batch.queue_models.queue_model import ModelQueue, ModelReport
from stowplan.batch.state.task_requests import format_resource, task_request_of
from stowplan.forecast.queue_reports.audited_queue import AMOUNT_MIN
from stowplan.forecast.start_times.run_times import RunTimes, elapsed_s
from stowplan.forecast.start_times.start_replay import (
    RandomRun,
    StartReplay,
    StartReplayOptions,
)
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION
from stowplan.objects.pod import Pod
from stowplan.objects.timing.pod_times import time_text
from stowplan.queue import QueueOptions
from stowplan.scheduler import SchedulerOptions

FORECAST_MAX = 1_000_000
"""Limit of (pods x nodes) up to which the start is forecast."""
HORIZON_S = 30 * 86_400.0
"""How far ahead it is looked for, in seconds."""
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LIMIT, QUOTA, FAIR_SHARE = "limit", "quota", "fair share"
CARDS = "nvidia.com/gpu"


class QueueLevel(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A resource that a job asks for in its queue or one above it, in cores, bytes or cards.

    allocated: after the session. fixed: of that what may not be preempted. quota, fair_share,
    limit: None where there is no bound. over: those of them that would be exceeded with the job;
    of queues above its own not the fair share, by which reclaim judges the job's queue alone.
    """

    queue: str
    resource: str
    asked: float
    allocated: float
    fixed: float = 0.0
    quota: float | None = None
    fair_share: float | None = None
    limit: float | None = None
    over: tuple[str, ...] = ()


class FreeingMoment(msgspec.Struct, frozen=True, rename="camel"):
    """A time at which more may become free for the job. at: "" where nothing shows what the time
    is. after_s: seconds from now. text: what happens then."""

    at: str
    after_s: float
    text: str


class JobWait(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """levels: its own queue first. moments: the first ones first. now: of the session, "" where
    nothing shows it. start_at,
    start_after_s: when it is expected to start; absent where that is not known, for the reason in
    start_note."""

    now: str
    levels: tuple[QueueLevel, ...] = ()
    moments: tuple[FreeingMoment, ...] = ()
    start_at: str = ""
    start_after_s: float | None = None
    start_note: str = ""


def job_wait(
    job: JobReport,
    report: ModelReport,
    cluster: Cluster,
    deciders: Deciders,
    now: datetime.datetime,
    *,
    forecasts: bool = True,
) -> JobWait:
    """What a job waits for after a session. now: of that session. forecasts: whether its start is
    looked for. Raises InputError for invalid run times."""
    levels = tuple(_levels(job, report))
    moments = [*_protections(report, now), *_ends(job, levels, report, cluster, now)]
    moments.sort(key=lambda one: (one.after_s, one.text))
    found = JobWait(time_text(now), levels, tuple(moments))
    if not forecasts:
        return found
    if len(cluster.pods) * len(cluster.nodes) > FORECAST_MAX:
        return msgspec.structs.replace(found, start_note="the cluster is too large to simulate")
    after_s = _start(job, cluster, deciders, now)
    if math.isinf(after_s):
        note = "with what runs and waits now it does not start within 30 days"
        return msgspec.structs.replace(found, start_note=note)
    at = time_text(now, after_s)
    return msgspec.structs.replace(found, start_at=at, start_after_s=round(after_s, 3))


def _levels(job: JobReport, report: ModelReport) -> Iterator[QueueLevel]:
    queues = {one.name: one for one in report.queues}
    queue, seen = queues.get(job.queue), set[str]()
    while queue is not None and queue.name not in seen:
        seen.add(queue.name)
        for resource, asked in job.wanted.items():
            yield _level(job, queue, resource, asked)
        queue = queues.get(queue.parent)


def _level(job: JobReport, queue: ModelQueue, resource: str, asked: float) -> QueueLevel:
    has, fixed = queue.allocated.get(resource, 0.0), queue.fixed.get(resource, 0.0)
    quota, limit = queue.guarantee.get(resource), queue.capability.get(resource)
    fair = None if queue.deserved is None else queue.deserved.get(resource)
    over = []
    if limit is not None and has + asked > limit + AMOUNT_MIN:
        over.append(LIMIT)
    if not job.is_preemptible and quota is not None and fixed + asked > quota + AMOUNT_MIN:
        over.append(QUOTA)
    is_own = queue.name == job.queue
    if is_own and fair is not None and has + asked > fair + AMOUNT_MIN:
        over.append(FAIR_SHARE)
    return QueueLevel(queue.name, resource, asked, has, fixed, quota, fair, limit, tuple(over))


def _protections(report: ModelReport, now: datetime.datetime) -> Iterator[FreeingMoment]:
    names = {job.uid: job.name for job in report.jobs}
    for moment in report.moments:
        if moment.victim:
            whose = names.get(moment.victim, moment.victim)
            text = f"the {moment.what} of {whose} is over: {moment.action} may evict it"
        else:
            text = f"its {moment.what} is over: others may be evicted for it"
        yield _moment(now, moment.at - now.timestamp(), text)


def _moment(now: datetime.datetime, after_s: float, text: str) -> FreeingMoment:
    return FreeingMoment(time_text(now, after_s), round(after_s, 3), text)


def _ends(
    job: JobReport,
    levels: Sequence[QueueLevel],
    report: ModelReport,
    cluster: Cluster,
    now: datetime.datetime,
) -> Iterator[FreeingMoment]:
    """Known ends of running pods that have what the job lacks: of all queues, or of those below
    the one whose bound stops it."""
    bounds = [one for one in levels if LIMIT in one.over or QUOTA in one.over]
    wanted = {one.resource for one in bounds} or {*job.wanted}
    # Of cpu and memory there is mostly enough where cards are asked for.
    wanted = {CARDS} if CARDS in wanted else wanted
    below = _below(report, bounds[0].queue) if bounds else None
    queues = {one.uid: one.queue for one in report.jobs}
    run_times = RunTimes(cluster, now)
    ends: dict[tuple[float, str], list[Pod]] = {}
    for pod in cluster.bound():
        if pod.key in job.placed or not _asks(pod, wanted):
            continue
        if below is not None and _queue_of(pod, queues) not in below:
            continue
        run_time = run_times.of(pod)
        seconds = math.inf if run_time.is_random else run_time.known_s()
        if not math.isinf(seconds):
            after_s = max(seconds - elapsed_s(pod, now), 0.0)
            ends.setdefault((after_s, _owner(pod)), []).append(pod)
    for (after_s, owner), pods in ends.items():
        amounts = ", ".join(_freed(pods, name) for name in sorted(wanted))
        who = pods[0].key if len(pods) == 1 else f"{count_of(len(pods), 'pod')} of {owner}"
        text = f"{who} {'ends' if len(pods) == 1 else 'end'}: {amounts} free"
        yield _moment(now, after_s, text)


def _below(report: ModelReport, top: str) -> set[str]:
    """A queue and all below it."""
    found, grown = {top}, True
    while grown:
        more = {one.name for one in report.queues if one.parent in found} - found
        found |= more
        grown = bool(more)
    return found


def _asks(pod: Pod, wanted: set[str]) -> bool:
    notes = pod.metadata.annotations
    if CARDS in wanted and ("gpu-fraction" in notes or "gpu-memory" in notes):
        return True
    asks = task_request_of(pod).running
    return any(asks.get(name) > 0 for name in wanted)


def _freed(pods: Sequence[Pod], resource: str) -> str:
    total = sum(task_request_of(pod).running.get(resource) for pod in pods)
    if resource == CARDS and not total:
        return "parts of cards"
    return f"{format_resource(resource, total)} {resource}"


def _owner(pod: Pod) -> str:
    group = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, "")
    return f"podgroup {pod.namespace}/{group}" if group else group_of(pod) or pod.key


def _queue_of(pod: Pod, queues: Mapping[str, str]) -> str:
    """The queue of a pod. queues: by job."""
    group = pod.metadata.annotations.get(KAI_GROUP_ANNOTATION, "")
    stated = pod.metadata.labels.get("kai.scheduler/queue", "")
    return queues.get(f"{pod.namespace}/{group}") or queues.get(group_of(pod)) or stated


def _start(job: JobReport, cluster: Cluster, deciders: Deciders, now: datetime.datetime) -> float:
    """Seconds until so many of its pods have started as it needs, infinity for never; in one
    simulation, with the median where run times are known by their distribution."""
    keys = [*job.waiting, *job.promised]
    needed = max(job.min_member - job.ready, 1)
    if len(keys) < needed:
        return math.inf
    run_times, runs = RunTimes(cluster, now), {}
    for pod in (*cluster.bound(), *cluster.pending()):
        run_time = run_times.of(pod)
        is_random, elapsed = run_time.is_random, elapsed_s(pod, now)
        total_s = float(np.median(run_time.seconds)) if is_random else run_time.known_s()
        left_s, deleted = max(total_s - elapsed, 0.0), pod.metadata.deletion_timestamp
        if deleted is not None:
            left_s = max((deleted - now).total_seconds(), 0.0)
        runs[pod.uid] = RandomRun(total_s, left_s)
    queue = QueueOptions(max_in_unschedulable_pods_s=HORIZON_S)
    scheduler = deciders.scheduler(
        rng=np.random.default_rng(0), options=SchedulerOptions(counts_repeats=False, queue=queue)
    )
    begins = (now - _EPOCH) // datetime.timedelta(microseconds=1) * 1000
    how = StartReplayOptions(horizon_s=HORIZON_S)
    starts = StartReplay(cluster, scheduler, runs, keys, begins, how).starts()
    return sorted(starts.get(key, math.inf) for key in keys)[needed - 1]
