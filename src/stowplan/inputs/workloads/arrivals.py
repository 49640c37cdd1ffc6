"""Arrivals: the jobs of a trace again, at random times, as a seed determines.

    PROCESS[,KEY=VALUE]...      poisson | poisson,rate=120 | diurnal,amplitude=0.8,jobs=5000
                                bursts,burst=20,run=pareto,alpha=1.3

Jobs are drawn from those of the input with replacement: all pods of a PodGroup or of one controller
are a job. What a key does not say is fitted to the input.

Source: thinning of a Poisson process (Lewis and Shedler, 1979); maximum likelihood of lognormal and
Pareto distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.columns.array_types import Floats
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup
from stowplan.objects.timing.run_limits import annotated_run_s

PROCESSES = ("poisson", "diurnal", "bursts")
RUN_TIMES = ("trace", "lognormal", "pareto")
SOURCE = "--arrivals"
HOUR_S = 3600.0
DAY_H = 24
PEAK_H = 15
"""Hour of the day with the most arrivals, of a process with an amplitude."""
BURST_DEFAULT = 10.0
JOBS_MAX = 10_000_000
SPAN_S_MAX = 100 * 365 * 86_400.0
"""Longest mean span of arrivals, in seconds: dates and nanoseconds must hold them."""
_RUN_MIN_S = 1.0
"""Shorter run times are fitted as this."""


class ArrivalRequest(msgspec.Struct, frozen=True):
    """Arrivals as they are asked for; None: fitted to the input.

    rate: jobs per hour. jobs: number of jobs, as many as the input has by default. amplitude: of a
    diurnal process, from 0 to 1; None: the input's share of every hour of the day. burst: mean
    number of jobs that arrive together. run: run times as in the trace, or drawn. median, sigma: of
    a lognormal distribution, seconds and standard deviation of the logarithm; minimum, alpha: of a
    Pareto distribution, seconds and exponent.
    """

    process: str
    rate: float | None = None
    jobs: int | None = None
    amplitude: float | None = None
    burst: float | None = None
    run: str = "trace"
    median: float | None = None
    sigma: float | None = None
    minimum: float | None = None
    alpha: float | None = None


class ArrivalModel(msgspec.Struct, frozen=True):
    """Arrivals with all parameters. daily: 24 factors of the rate by hour, with mean 1. location,
    shape: of the run times, (median, sigma) or (minimum, alpha)."""

    rate: float
    jobs: int
    daily: tuple[float, ...] = (1.0,) * DAY_H
    burst: float = 1.0
    run: str = "trace"
    location: float = 0.0
    shape: float = 0.0

    def arrival_times(self, rng: np.random.Generator) -> Floats:
        """float64 (jobs,): seconds since midnight of the first day, ascending."""
        found: list[Floats] = []
        at_s, count = 0.0, 0
        peak = max(self.daily)
        mean_gap_s = HOUR_S * self.burst / (self.rate * peak)
        factors = np.array(self.daily) / peak
        while count < self.jobs:
            gaps = rng.exponential(mean_gap_s, 1024)
            times = at_s + np.cumsum(gaps)
            at_s = float(times[-1])
            hours = (times / HOUR_S).astype(np.int64) % DAY_H
            times = times[rng.random(1024) < factors[hours]]
            if self.burst > 1:
                times = np.repeat(times, rng.geometric(1 / self.burst, times.shape[0]))
            found.append(times)
            count += times.shape[0]
        return np.concatenate(found)[: self.jobs] if found else np.zeros(0)

    def run_times(self, rng: np.random.Generator) -> Floats:
        """float64 (jobs,): seconds."""
        if self.run == "lognormal":
            return rng.lognormal(math.log(self.location), self.shape, self.jobs)
        return self.location * (1.0 + rng.pareto(self.shape, self.jobs))


def parse_arrivals(text: str) -> ArrivalRequest:
    """The arrivals that a text asks for; raises InputError."""
    process, *settings = text.split(",")
    if process not in PROCESSES:
        raise InputError(SOURCE, "", repr(process), f"one of {', '.join(PROCESSES)}")
    found: dict[str, float | str | int] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in _SETTINGS:
            hint = did_you_mean(key, _SETTINGS)
            wanted = f"one of {', '.join(_SETTINGS)}" + (f" ({hint})" if hint else "")
            raise InputError(SOURCE, "", f"unknown setting {key!r}", wanted)
        if key in found:
            raise InputError(SOURCE, key, "a setting given twice", "each once")
        found[key] = _SETTINGS[key](key, value)
    request = msgspec.convert({"process": process, **found}, ArrivalRequest)
    _check(request)
    return request


def with_arrivals(cluster: Cluster, request: ArrivalRequest, seed: int = 0) -> Cluster:
    """The cluster with other pending pods: jobs of its own, drawn and timed by the seed. Raises
    InputError where nothing can be fitted, and for workloads with controllers."""
    if any(one.get("kind") not in ("Pod", "Node") and "template" in (one.get("spec") or {})
           for one in cluster.manifests):  # fmt: skip
        got = "workloads with controllers"
        raise InputError(SOURCE, "", got, "a trace of pods: controllers create their own")
    jobs = _jobs(cluster.pending())
    if not jobs:
        raise InputError(SOURCE, "", "no pending pods", "pods to draw jobs from")
    model = fit_arrivals(jobs, request)
    rng = np.random.default_rng([seed, 7])
    if model.jobs * HOUR_S > model.rate * SPAN_S_MAX:
        wanted = "a rate at which all jobs arrive within 100 years"
        raise InputError(SOURCE, "rate", f"{model.rate:g}", wanted)
    times = model.arrival_times(rng)
    chosen = rng.integers(0, len(jobs), model.jobs)
    run_s = None if model.run == "trace" else model.run_times(rng)
    groups = {one.key: one for one in cluster.objects if isinstance(one, PodGroup)}
    start = min(filter(None, (_created(pods[0]) for pods in jobs)), default=None)
    midnight = (start or _EPOCH).replace(hour=0, minute=0, second=0, microsecond=0)
    pods, objects = [], []
    for number, (at, index) in enumerate(zip(times.tolist(), chosen.tolist(), strict=True)):
        created = midnight + timedelta(seconds=at)
        runs = None if run_s is None else float(run_s[number])
        made, group = _copies(jobs[index], number, created, runs, groups)
        pods += made
        objects += group
    there = [pod for pod in cluster.pods if pod.node_name or pod.is_finished]
    kept = [one for one in cluster.objects if not isinstance(one, PodGroup)]
    notes = [*cluster.notes, _note(request, model, len(jobs))]
    return replace(
        cluster, pods=[*there, *pods], objects=[*kept, *objects], notes=notes, origins={}
    )


def fit_arrivals(jobs: Sequence[Sequence[Pod]], request: ArrivalRequest) -> ArrivalModel:
    """The parameters: those asked for, the others by the jobs. Raises InputError where they do not
    tell."""
    times = np.array(sorted(_seconds([pods[0] for pods in jobs])))
    n_jobs = len(jobs) if request.jobs is None else request.jobs
    rate = request.rate
    if rate is None:
        span_s = float(times[-1] - times[0]) if times.shape[0] else 0.0
        if span_s <= 0:
            raise InputError(
                SOURCE, "", "jobs without different creation times", "rate=JOBS_PER_HOUR"
            )
        rate = (times.shape[0] - 1) * HOUR_S / span_s
    model = ArrivalModel(rate, n_jobs, run=request.run)
    if request.process == "diurnal":
        model = replace(model, daily=_daily(times, request.amplitude))
    if request.process == "bursts":
        together = times.shape[0] / max(np.unique(np.floor(times)).shape[0], 1)
        fitted = together if together > 1 else BURST_DEFAULT
        model = replace(model, burst=request.burst or fitted)
    if request.run != "trace":
        location, shape = _run_parameters(jobs, request)
        model = replace(model, location=location, shape=shape)
    return model


# Settings.


def _number(least: float, most: float, *, open_: bool = True) -> Callable[[str, str], float]:
    """Reads a number above `least`, or from it where it is not open, up to `most`."""

    def read(key: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (number > least if open_ else number >= least) or not number <= most:
            wanted = f"a number {'above' if open_ else 'from'} {least:g} up to {most:g}"
            raise InputError(SOURCE, key, repr(value), wanted)
        return number

    return read


def _count(key: str, value: str) -> int:
    number = _number(0, JOBS_MAX)(key, value)
    if number != int(number):
        raise InputError(SOURCE, key, repr(value), "a whole number")
    return int(number)


def _run_word(key: str, value: str) -> str:
    if value not in RUN_TIMES:
        raise InputError(SOURCE, key, repr(value), f"one of {', '.join(RUN_TIMES)}")
    return value


_SETTINGS: Mapping[str, Callable[[str, str], float | int | str]] = {
    "rate": _number(0, 1e9),
    "jobs": _count,
    "amplitude": _number(0, 1, open_=False),
    "burst": _number(1, 1e6, open_=False),
    "run": _run_word,
    "median": _number(0, 1e9),
    "sigma": _number(0, 20, open_=False),
    "minimum": _number(0, 1e9),
    "alpha": _number(0, 100),
}
_OF = {
    "amplitude": ("process", "diurnal"),
    "burst": ("process", "bursts"),
    "median": ("run", "lognormal"),
    "sigma": ("run", "lognormal"),
    "minimum": ("run", "pareto"),
    "alpha": ("run", "pareto"),
}
"""Setting -> the setting and the value that it belongs to."""


def _check(request: ArrivalRequest) -> None:
    for key, (other, value) in _OF.items():
        if getattr(request, key) is not None and getattr(request, other) != value:
            needed = value if other == "process" else f"{other}={value}"
            raise InputError(SOURCE, key, f"without {needed}", f"{key} with {needed} only")


# Fits.


def _daily(times: Floats, amplitude: float | None) -> tuple[float, ...]:
    """Factors of the rate by hour of the day."""
    if amplitude is not None:
        hours = np.arange(DAY_H)
        factors = 1 + amplitude * np.cos(2 * np.pi * (hours + 0.5 - PEAK_H) / DAY_H)
        return tuple(factors.tolist())
    if not times.shape[0] or times[-1] - times[0] < DAY_H * HOUR_S:
        raise InputError(
            SOURCE, "", "less than a day of arrivals", "a longer trace, or amplitude=A"
        )
    hours = (times / HOUR_S).astype(np.int64)
    first, last = int(hours[0]), int(hours[-1])
    seen = np.bincount(np.arange(first, last + 1) % DAY_H, minlength=DAY_H)
    rates = np.bincount(hours % DAY_H, minlength=DAY_H) / np.maximum(seen, 1)
    return tuple((rates / rates.mean()).tolist())


def _run_parameters(jobs: Sequence[Sequence[Pod]], request: ArrivalRequest) -> tuple[float, float]:
    """(median, sigma) or (minimum, alpha): as given, else by maximum likelihood."""
    given = (
        (request.median, request.sigma)
        if request.run == "lognormal"
        else (request.minimum, request.alpha)
    )
    location, shape = given
    if location is not None and shape is not None:
        return location, shape
    known = [annotated_run_s(pods[0]) for pods in jobs]
    values = np.array([one for one in known if one is not None and math.isfinite(one)])
    if values.shape[0] < 2:
        names = "median and sigma" if request.run == "lognormal" else "minimum and alpha"
        raise InputError(SOURCE, "run", "fewer than two jobs with a run time", f"{names}")
    logs = np.log(np.maximum(values, _RUN_MIN_S))
    if request.run == "lognormal":
        fitted = math.exp(float(logs.mean())), float(logs.std())
    else:
        least = math.log(location) if location is not None else float(logs.min())
        above = np.maximum(logs - least, 0.0).mean()
        fitted = math.exp(least), float(1 / above) if above > 0 else 100.0
    return location or fitted[0], fitted[1] if shape is None else shape


# Jobs.

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _created(pod: Pod) -> datetime | None:
    return pod.metadata.creation_timestamp


def _seconds(pods: Sequence[Pod]) -> list[float]:
    """Seconds since 1970 of the pods that have a time."""
    return [(at - _EPOCH).total_seconds() for pod in pods if (at := _created(pod)) is not None]


def _jobs(pods: Sequence[Pod]) -> list[list[Pod]]:
    """The pods by PodGroup or controller, in order of arrival."""
    found: dict[str, list[Pod]] = {}
    for pod in pods:
        group = _group_key(pod)
        owner = (
            f"{pod.namespace}/{pod.controller.uid or pod.controller.name}" if pod.controller else ""
        )
        found.setdefault(
            f"group {group}" if group else f"owner {owner}" if owner else pod.key, []
        ).append(pod)
    return list(found.values())


def _group_key(pod: Pod) -> str:
    """The key of the pod's PodGroup, "" for none."""
    named = (pod.metadata.annotations.get(key) for key in GROUP_ANNOTATIONS)
    group = next(filter(None, named), "")
    return f"{pod.namespace}/{group}" if group else ""


def _copies(
    pods: Sequence[Pod],
    number: int,
    created: datetime,
    run_s: float | None,
    groups: Mapping[str, PodGroup],
) -> tuple[list[Pod], list[Object]]:
    """The pods of a job under new names, and its PodGroup."""
    group = groups.get(_group_key(pods[0]))
    made: list[Object] = []
    name = ""
    if group is not None:
        name = f"{group.name}-{number}"
        meta = replace(group.metadata, name=name, uid="", creation_timestamp=created)
        made.append(replace(group, metadata=meta))
    found = []
    for pod in pods:
        annotations = dict(pod.metadata.annotations)
        if run_s is not None:
            annotations[RUN_ANNOTATION] = f"{max(run_s, _RUN_MIN_S):.3f}"
        if name:
            annotations |= {key: name for key in GROUP_ANNOTATIONS if key in annotations}
        meta = replace(
            pod.metadata,
            name=f"{pod.name}-{number}",
            uid="",
            creation_timestamp=created,
            annotations=annotations,
        )
        found.append(replace(pod, metadata=meta))
    return found, made


def _note(request: ArrivalRequest, model: ArrivalModel, n_jobs: int) -> str:
    parts = [f"{request.process}, {model.rate:.4g} jobs per hour"]
    if model.burst > 1:
        parts.append(f"{model.burst:.3g} jobs at once on average")
    if model.run == "lognormal":
        parts.append(
            f"run times lognormal with median {model.location:.4g} s, sigma {model.shape:.3g}"
        )
    if model.run == "pareto":
        parts.append(
            f"run times Pareto from {model.location:.4g} s with exponent {model.shape:.3g}"
        )
    jobs = f"{count_of(model.jobs, 'job')} drawn from {n_jobs:,}"
    return f"arrivals: {'; '.join(parts)}; {jobs}"
