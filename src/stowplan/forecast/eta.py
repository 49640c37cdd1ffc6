"""eta(): when pending pods are expected to start.

The cluster is simulated forward, from now on, by the scheduler as configured: running pods end,
pending pods start in their place. Run times that are known by their distribution only are drawn;
each draw is a simulation, and the result is a median and an interval over the draws.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.extenders import extenders_of
from stowplan.columns.array_types import Floats
from stowplan.forecast.expected_starts import (
    FINISHED,
    PENDING,
    RUNNING,
    SCHEMA,
    ExpectedJobStart,
    ExpectedStart,
    ExpectedStarts,
    StartInterval,
)
from stowplan.forecast.explain import found_pod
from stowplan.forecast.start_times.interval_calibration import (
    IntervalCalibration,
    PastForecast,
    calibration_of,
    widened,
)
from stowplan.forecast.start_times.later_arrivals import LaterArrivals
from stowplan.forecast.start_times.never_starting import StartFailures, StartReasons
from stowplan.forecast.start_times.past_cluster import past_cluster, past_moments
from stowplan.forecast.start_times.run_time_draws import RunTimeDistribution
from stowplan.forecast.start_times.run_times import (
    OTHERS,
    UNKNOWN,
    RunTime,
    RunTimes,
    Workload,
    elapsed_s,
)
from stowplan.forecast.start_times.start_replay import (
    RandomRun,
    StartReplay,
    StartReplayOptions,
)
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster, cluster_of
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.inputs.plugin_sources import PluginSource
from stowplan.insight.autoscaler_notes import autoscaler_note
from stowplan.insight.autoscaling.autoscale_config import (
    AutoscaleConfig,
    PoolNodes,
    pool_templates,
    with_all_nodes,
)
from stowplan.insight.pod_owners import NO_OWNER, owner_text
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup
from stowplan.objects.timing.pod_times import NO_CLOCK, finished_at, time_text, timestamp
from stowplan.queue import QueueOptions
from stowplan.scheduler import SchedulerOptions
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.simulated_extenders import SimulatedExtenderFactory
from stowplan.simulation.scheduler_configuration import ConfigSource, deciders_for
from stowplan.simulation.simulate import autoscaler_frameworks

JobName = tuple[str, str]
"""Namespace, and `podgroup/NAME`, `OWNERKIND/NAME` or `pod/NAME`."""

DRAWS = 40
"""Simulations by default, where run times are drawn."""
PERCENTILES = (10, 90)
HORIZON_S = 30 * 86400.0
"""Where simulations end by default."""
UNSCHEDULABLE_S = 86400.0
"""After which a pod that no event concerns is tried again; kube-scheduler's 5 minutes would be
thousands of attempts up to the horizon, and events are never lost here."""
HORIZON_WITH_ARRIVALS_S = 86400.0
"""The same, where pods go on arriving: a simulation costs what arrives."""
# Virtual time is int64 nanoseconds since 1970, which end in 2262.
_LAST_NOW = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)


def eta(
    cluster: Cluster | str | Path | Iterable[str | Path],
    pods: Iterable[str] | None = None,
    *,
    config: ConfigSource | Deciders | None = None,
    plugins: Iterable[PluginSource] = (),
    compat: str = "",
    now: datetime.datetime | None = None,
    draws: int = DRAWS,
    percentiles: tuple[int, int] = PERCENTILES,
    seed: int = 0,
    pace: Pace | None = None,
    horizon_s: float | None = None,
    arrivals_s: float | None = None,
    autoscale: AutoscaleConfig | None = None,
    calibrate: int = 0,
) -> ExpectedStarts:
    """When pending pods are expected to start.

    cluster: paths for `read_cluster`, or a Cluster. pods: keys `NAMESPACE/NAME`; None: all pending
    pods. now: None for the latest time that the cluster shows. draws: number of simulations;
    one where no run time is random. percentiles: of the interval. seed: of the draws, and of ties
    between nodes. pace: latencies of binding and start, as in a replay. horizon_s: where
    simulations end, in seconds from now; None: after 30 days, with arrivals after one. arrivals_s:
    pods go on arriving as in so many seconds before now; None: no more arrive. autoscale: add and
    remove nodes as this autoscaler; None: nodes stay. calibrate: number of past moments at which
    is forecast as well, to widen the intervals by how wrong those were. Raises InputError,
    ConfigError and ContractError.
    """
    if draws < 1:
        raise InputError("eta", "draws", str(draws), "1 or more")
    if not 0 <= percentiles[0] <= 50 <= percentiles[1] <= 100:
        raise InputError("eta", "percentiles", str(percentiles), "two, around 50, within 0 to 100")
    for name, value in (("horizon_s", horizon_s), ("arrivals_s", arrivals_s)):
        if value is not None and not 0 < value < math.inf:
            raise InputError("eta", name, f"{value:g}", "a number of seconds above 0")
    if calibrate < 0:
        raise InputError("eta", "calibrate", str(calibrate), "0 or more")
    cluster = cluster_of(cluster)
    deciders = deciders_for(cluster, config, plugins, compat)
    if pods is None:
        chosen = cluster.pending()
    else:
        chosen = [found_pod(key, cluster) for key in dict.fromkeys(pods)]
    begins = now or cluster.latest_time() or NO_CLOCK
    if not NO_CLOCK <= begins < _LAST_NOW:
        wanted = "a time from 1970 to 2199 (the latest that pods show, unless it is given)"
        raise InputError("now", "", timestamp(begins), wanted)
    if horizon_s is None:
        horizon_s = HORIZON_S if arrivals_s is None else HORIZON_WITH_ARRIVALS_S
    how = StartReplayOptions(pace or Pace(), horizon_s, None, autoscale)
    forecast = _Forecast(cluster, deciders, begins, seed, how, arrivals_s)
    jobs = forecast.jobs_of(chosen)
    alive = {pod.key for pod in forecast.pending}
    targets = [pod.key for members in jobs.values() for pod in members if pod.key in alive]
    starts = forecast.draw(targets, draws)
    report = _Report(forecast, starts, percentiles)
    if calibrate:

        def of_past(past: Cluster, at: datetime.datetime) -> ExpectedStarts:
            how_more: dict[str, Any] = {"horizon_s": horizon_s, "arrivals_s": arrivals_s}
            how_more |= {"percentiles": percentiles, "pace": pace, "autoscale": autoscale}
            return eta(past, config=deciders, now=at, draws=draws, seed=seed, **how_more)

        report.calibrate(_past_forecasts(cluster, begins, calibrate, of_past))
    return report.of(chosen, jobs)


def _past_forecasts(
    cluster: Cluster,
    now: datetime.datetime,
    n_moments: int,
    forecast: Callable[[Cluster, datetime.datetime], ExpectedStarts],
) -> list[list[PastForecast]]:
    """Forecasts at past moments, compared with what followed. forecast: makes one."""
    started = {
        pod.key: pod.status.start_time
        for pod in cluster.pods
        if pod.node_name and pod.status.start_time is not None and pod.status.start_time <= now
    }
    found: list[list[PastForecast]] = []
    for at in past_moments(cluster, now, n_moments):
        compared: list[PastForecast] = []
        for pod in forecast(past_cluster(cluster, at), at).pods:
            if pod.start is None or pod.never:
                continue
            earliest_s, latest_s = (
                math.inf if s is None else s for s in (pod.start.earliest_s, pod.start.latest_s)
            )
            waited_s = (started.get(pod.pod, now) - at).total_seconds()
            compared.append(PastForecast(earliest_s, latest_s, waited_s, pod.pod in started))
        found.append(compared)
    return found


def state_of(pod: Pod) -> str:
    """Pending, Running (it has a node) or Finished."""
    if pod.is_finished:
        return FINISHED
    return RUNNING if pod.node_name else PENDING


class _Forecast:
    """Simulations of a cluster from a moment on. run_times: uid -> run time, of pods that are not
    finished."""

    def __init__(
        self,
        cluster: Cluster,
        deciders: Deciders,
        now: datetime.datetime,
        seed: int,
        how: StartReplayOptions,
        arrivals_s: float | None,
    ) -> None:
        self.cluster = cluster
        self.deciders = deciders
        self.now = now
        self.seed = seed
        self.how = how
        self.n_draws = 0
        self.notes: dict[str, str] = {}
        self._known = RunTimes(cluster, now)
        self.running = cluster.bound()
        self.pending = cluster.pending()
        self.run_times: dict[str, RunTime] = {
            pod.uid: self._known.of(pod) for pod in (*self.running, *self.pending)
        }
        self.arrivals = None if arrivals_s is None else LaterArrivals(cluster, now, arrivals_s)
        self.pools: list[PoolNodes] = []
        largest = cluster
        if how.autoscale is not None:
            self.pools = pool_templates(how.autoscale, cluster.nodes, cluster.bound())
            largest = with_all_nodes(cluster, how.autoscale)
        self.failures = StartFailures(cluster, largest, deciders, self._endless())
        found = (value for value in cluster.objects if isinstance(value, PodGroup))
        self.groups = {group.key: group for group in found}

    def _endless(self) -> list[Pod]:
        """Running pods that do not end."""
        times = ((pod, self.run_times[pod.uid]) for pod in self.running)
        return [pod for pod, one in times if not one.is_random and math.isinf(one.known_s())]

    def jobs_of(self, chosen: Sequence[Pod]) -> dict[JobName, list[Pod]]:
        """All pods of the jobs of these pods."""
        jobs: dict[JobName, list[Pod]] = {job_of(pod, self.groups): [] for pod in chosen}
        for pod in self.cluster.pods:
            members = jobs.get(job_of(pod, self.groups))
            if members is not None:
                members.append(pod)
        return jobs

    @property
    def is_random(self) -> bool:
        """True if simulations differ."""
        arrives = self.arrivals is not None and bool(self.arrivals.pods)
        return arrives or any(run_time.is_random for run_time in self.run_times.values())

    def draw(self, targets: Sequence[str], n_draws: int) -> dict[str, Floats]:
        """Key -> float64 (n_draws,): seconds from now to the start, infinity for none."""
        self.n_draws = (n_draws if self.is_random else 1) if targets else 0
        found = {key: np.full(self.n_draws, math.inf) for key in targets}
        if self.arrivals is not None:
            # A simulation to which pods arrive ends when all targets have started.
            pods = {pod.key: pod for pod in self.pending}
            targets = [key for key in targets if self.failures.can_start(pods[key])]
        for number, rng in enumerate(np.random.default_rng([self.seed, 5]).spawn(self.n_draws)):
            replay = self._replay(targets, rng)
            for key, seconds in replay.starts().items():
                if key in found:
                    found[key][number] = seconds
            for key in found:
                history = replay.pod_histories.get(key)
                if history is not None and history.waited is None:
                    self.notes[key] = history.note
        return found

    def _replay(self, targets: Sequence[str], rng: np.random.Generator) -> StartReplay:
        deciders, how = self.deciders, self.how
        scheduler = deciders.scheduler(
            # The same ties in every draw, and as in a replay with this seed.
            rng=np.random.default_rng(self.seed),
            # An autoscaler reads the conditions of pods at all times.
            options=SchedulerOptions(
                counts_repeats=deciders.batch is None and how.autoscale is None,
                queue=QueueOptions(max_in_unschedulable_pods_s=UNSCHEDULABLE_S),
            ),
        )
        begins = (self.now - NO_CLOCK) // datetime.timedelta(microseconds=1) * 1000
        draws = _RunTimeDraws(rng, how.horizon_s)
        runs = self._runs(draws)
        if self.arrivals is not None:

            def run_of(pod: Pod) -> RandomRun:
                return RandomRun(draws.draw(self._known.of(pod)))

            how = msgspec.structs.replace(how, arrivals=self.arrivals.blocks(rng, run_of))
        replay = StartReplay(self.cluster, scheduler, runs, targets, begins, how)
        if how.autoscale is not None:
            frameworks = autoscaler_frameworks(deciders, self.cluster)
            replay.start_autoscaler(self.pools, frameworks, self.seed)
        SimulatedExtenderFactory(extenders_of(deciders.configuration), ()).of(replay.instance)
        return replay

    def _runs(self, draws: _RunTimeDraws) -> dict[str, RandomRun]:
        runs: dict[str, RandomRun] = {}
        for pod in self.running:
            run_time, elapsed = self.run_times[pod.uid], elapsed_s(pod, self.now)
            total = draws.draw(run_time, elapsed)
            left = max(total - elapsed, 0.0)
            deleted = pod.metadata.deletion_timestamp
            if deleted is not None:
                left = max((deleted - self.now).total_seconds(), 0.0)
            runs[pod.uid] = RandomRun(total, left)
        for pod in self.pending:
            runs[pod.uid] = RandomRun(draws.draw(self.run_times[pod.uid]))
        return runs


class _RunTimeDraws:
    """The run times of one simulation: pods of one owner have the same distribution."""

    def __init__(self, rng: np.random.Generator, horizon_s: float) -> None:
        self._rng = rng
        self._horizon_s = horizon_s
        self._of: dict[Workload | None, RunTimeDistribution] = {}

    def draw(self, run_time: RunTime, elapsed_s: float = 0.0) -> float:
        """Seconds from the start to the end of a pod that has run for `elapsed_s`; infinity for one
        that does not end."""
        if not run_time.is_random:
            return run_time.known_s()
        if run_time.workload not in self._of:
            self._of[run_time.workload] = run_time.distribution(self._rng)
        found = min(self._of[run_time.workload].draw(self._rng, elapsed_s), run_time.limit_s)
        # A simulation is over sooner when nothing ends any more.
        return math.inf if found - elapsed_s > self._horizon_s else found


def prediction_ranks(n_draws: int, percentiles: tuple[int, int]) -> tuple[int, int]:
    """Ranks, from 0, of the draws between which one more draw falls with at least the probability
    that the percentiles ask for, as far as there are draws.

    The next of n + 1 equally likely draws is below the one with rank r, counted from 1, with
    probability r / (n + 1): percentiles of the n draws would be too narrow.
    """
    low, high = percentiles
    first = (n_draws + 1) * low // 100
    last = -(-(n_draws + 1) * high // 100)
    return max(first, 1) - 1, min(last, n_draws) - 1


class _Report:
    """Results of simulations. starts: as `_Forecast.draw` returns them."""

    def __init__(
        self, forecast: _Forecast, starts: Mapping[str, Floats], percentiles: tuple[int, int]
    ) -> None:
        self._forecast = forecast
        self._starts = starts
        self._percentiles = percentiles
        self._calibration: IntervalCalibration | None = None
        self._calibration_note = ""
        late = [key for key, seconds in starts.items() if np.isinf(seconds).all()]
        self._reasons = forecast.failures.of(late, forecast.notes)

    def calibrate(self, past: Sequence[Sequence[PastForecast]]) -> None:
        """Widen the intervals by past forecasts, where there are enough."""
        found = calibration_of(past, self._percentiles)
        self._calibration = found
        self._calibration_note = (
            "intervals are not calibrated: too few pods have waited and started before"
            if found is None
            else found.text()
        )

    def of(self, chosen: Sequence[Pod], jobs: Mapping[JobName, Sequence[Pod]]) -> ExpectedStarts:
        """The expected starts of these pods and jobs."""
        forecast = self._forecast
        return ExpectedStarts(
            SCHEMA,
            time_text(forecast.now),
            self._percentiles,
            forecast.n_draws,
            forecast.how.horizon_s,
            forecast.seed,
            tuple(self._job(name, pods) for name, pods in jobs.items()),
            tuple(self._pod(pod) for pod in chosen),
            tuple(self._assumptions()),
            self._calibration,
        )

    def _pod(self, pod: Pod) -> ExpectedStart:
        state, owner = state_of(pod), owner_text(pod)
        found = ExpectedStart(pod.key, state, "" if owner == NO_OWNER else owner, group_of(pod))
        if state == PENDING:
            never, late = _why(self._reasons.get(pod.key))
            return msgspec.structs.replace(
                found,
                start=self._interval(self._starts[pod.key]),
                run_time=self._forecast.run_times[pod.uid].text(),
                never=never,
                late=late,
            )
        at = finished_at(pod) if state == FINISHED else pod.status.start_time
        return msgspec.structs.replace(found, at="" if at is None else timestamp(at))

    def _job(self, job: JobName, pods: Sequence[Pod]) -> ExpectedJobStart:
        namespace, name = job
        group = self._forecast.groups.get(f"{namespace}/{name.removeprefix('podgroup/')}")
        is_group = group is not None and name.startswith("podgroup/")
        needed = max(group.spec.min_member, 1) if group is not None and is_group else 1
        alive = [pod for pod in pods if not pod.is_finished]
        waiting = [pod for pod in alive if pod.key in self._starts]
        n_succeeded = sum(pod.status.phase == "Succeeded" for pod in pods)
        n_started = n_succeeded + sum(bool(pod.node_name) for pod in alive)
        seconds = np.sort(np.array([self._starts[pod.key] for pod in waiting]), axis=0)
        start = complete = None
        if n_started < needed and waiting:
            # A gang with too few pods never starts.
            at = needed - n_started - 1
            missing = np.full(seconds.shape[1], math.inf)
            start = self._interval(seconds[at] if at < len(waiting) else missing)
        if waiting:
            complete = self._interval(seconds[-1])
        texts = dict.fromkeys(self._forecast.run_times[pod.uid].text() for pod in waiting)
        why = None
        if waiting and (start or complete or StartInterval()).is_late:
            found = [self._reasons[pod.key] for pod in waiting if pod.key in self._reasons]
            # What never starts keeps the job from starting, whatever the others wait for.
            why = next((one for one in found if one.is_never), next(iter(found), None))
        counts = (len(alive), len(waiting), needed)
        run_times = "; ".join(texts)
        return ExpectedJobStart(name, namespace, *counts, start, complete, run_times, *_why(why))

    def _interval(self, seconds: Floats) -> StartInterval:
        ordered = np.sort(seconds)
        low, high = prediction_ranks(ordered.shape[0], self._percentiles)
        first, middle, last = ordered[[low, (ordered.shape[0] - 1) // 2, high]].tolist()
        first, last = widened(self._calibration, first, last)
        if last > self._forecast.how.horizon_s:
            last = math.inf
        marks = first, middle, last
        known = [None if math.isinf(mark) else round(mark, 6) for mark in marks]
        median = known[1]
        at = ""
        if median is not None:
            at = time_text(self._forecast.now, median)
        share = float(np.isfinite(seconds).mean())
        return StartInterval(known[0], median, known[2], at, round(share, 6))

    def _assumptions(self) -> Iterable[str]:
        forecast = self._forecast
        yield from self._of_cluster()
        if self._calibration_note:
            yield self._calibration_note
        times = forecast.run_times
        for source, ends in ((UNKNOWN, "not ending"), (OTHERS, "ending as those of other owners")):
            n_running = sum(times[pod.uid].source == source for pod in forecast.running)
            if n_running:
                pods = count_of(n_running, "running pod has", "running pods have")
                yield f"{pods} an unknown run time: counted as {ends}"
            n_waiting = sum(times[pod.uid].source == source for pod in forecast.pending)
            if n_waiting:
                pods = count_of(n_waiting, "pending pod has", "pending pods have")
                yield f"{pods} an unknown run time: once started, counted as {ends}"
        n_late = sum(
            elapsed_s(pod, forecast.now) >= times[pod.uid].limit_s
            or (not times[pod.uid].is_random and self._is_late(pod))
            for pod in forecast.running
        )
        if n_late:
            yield f"{count_of(n_late, 'running pod')} past the declared end: counted as ending now"
        n_beyond = sum(times[pod.uid].is_random and self._is_late(pod) for pod in forecast.running)
        if n_beyond:
            pods = count_of(n_beyond, "running pod has", "running pods have")
            yield f"{pods} run for longer than any finished pod of the owner: as long again or more"
        n_timeless = sum(pod.status.start_time is None for pod in forecast.running)
        if n_timeless:
            pods = count_of(n_timeless, "running pod has", "running pods have")
            yield f"{pods} no status.startTime: counted as started now"

    def _of_cluster(self) -> Iterable[str]:
        """What is assumed of arrivals and nodes."""
        forecast = self._forecast
        arrivals, autoscale = forecast.arrivals, forecast.how.autoscale
        nodes = "nodes stay as they are" if autoscale is None else "nodes are added and removed"
        if arrivals is None:
            yield f"no further pods arrive; {nodes}"
        else:
            pods = count_of(len(arrivals.pods), "pod")
            over = human_duration(arrivals.window_s)
            yield f"pods go on arriving as in the last {over}, {pods}; {nodes}"
        note = autoscaler_note(forecast.cluster.nodes, is_modelled=autoscale is not None)
        if note:
            yield note
        yield from forecast.cluster.notes

    def _is_late(self, pod: Pod) -> bool:
        seconds = self._forecast.run_times[pod.uid].seconds
        return bool(seconds.shape[0]) and elapsed_s(pod, self._forecast.now) >= seconds[-1] > 0


def _why(reasons: StartReasons | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields `never` and `late` of a result."""
    if reasons is None:
        return (), ()
    return (reasons.texts, ()) if reasons.is_never else ((), reasons.texts)


def job_of(pod: Pod, groups: Mapping[str, PodGroup]) -> JobName:
    """Namespace and name of what a pod starts with: its PodGroup, else its owner, else itself."""
    group = group_of(pod)
    if group in groups:
        return pod.namespace, f"podgroup/{group.partition('/')[2]}"
    owner = owner_text(pod)
    return pod.namespace, f"pod/{pod.name}" if owner == NO_OWNER else owner
