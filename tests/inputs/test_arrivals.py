"""Arrivals: rates, shapes and fits of generated arrivals, and what cannot be asked for."""

from __future__ import annotations

import math

import numpy as np
import pytest

import stowplan
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.inputs.traces.trace_jobs import TraceJob, TraceMachine, TraceObjects
from stowplan.inputs.workloads.arrivals import (
    ArrivalModel,
    ArrivalRequest,
    fit_arrivals,
    parse_arrivals,
    with_arrivals,
)
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup

HOUR = 3600.0


def trace(times: list[float], runs: list[float | None], gang: int = 1) -> Cluster:
    made = TraceObjects()
    found = []
    for number, (at, run_s) in enumerate(zip(times, runs, strict=True)):
        found += made.job(TraceJob(f"j{number}", at, run_s, gang, cpu_milli=1000, is_gang=True))
    pods = [one for one in found if isinstance(one, Pod)]
    rest = [one for one in found if not isinstance(one, Pod)]
    return Cluster([made.node(TraceMachine("n", 8000, 8192))], pods, rest)


def starts(cluster: Cluster) -> np.ndarray:
    return np.array([pod.metadata.creation_timestamp.timestamp() for pod in cluster.pending()])


def test_a_poisson_process_has_exponential_gaps() -> None:
    from scipy import stats

    times = ArrivalModel(60.0, 4000).arrival_times(np.random.default_rng(1))
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(60.0, rel=0.05)
    assert stats.kstest(gaps, "expon", args=(0, 60.0)).pvalue > 0.01
    # The wrong variant: evenly spaced arrivals of the same rate.
    assert stats.kstest(np.full(4000, 60.0), "expon", args=(0, 60.0)).pvalue < 1e-6


def test_a_diurnal_process_follows_the_hours() -> None:
    request = parse_arrivals("diurnal,rate=100,amplitude=0.8")
    model = fit_arrivals([], ArrivalRequest("diurnal", 100.0, 20_000, 0.8))
    assert request.amplitude == 0.8
    assert np.mean(model.daily) == pytest.approx(1.0)
    times = model.arrival_times(np.random.default_rng(2))
    hours = (times / HOUR).astype(int)
    counts = np.bincount(hours % 24, minlength=24) / (hours[-1] / 24)
    assert counts / 100 == pytest.approx(np.array(model.daily), abs=0.2)


def test_bursts_come_together_at_the_same_rate() -> None:
    times = ArrivalModel(100.0, 20_000, burst=10.0).arrival_times(np.random.default_rng(3))
    assert times.shape[0] / np.unique(times).shape[0] == pytest.approx(10, rel=0.1)
    assert times.shape[0] / times[-1] * HOUR == pytest.approx(100, rel=0.1)


def test_run_times_are_fitted_as_scipy_does() -> None:
    from scipy import stats

    rng = np.random.default_rng(4)
    for run, location, shape in (("lognormal", 600.0, 1.5), ("pareto", 60.0, 1.4)):
        random_s = ArrivalModel(1.0, 5000, run=run, location=location, shape=shape).run_times(rng)
        jobs = [[pod] for pod in trace([float(n) for n in range(5000)], random_s.tolist()).pods]
        model = fit_arrivals(jobs, ArrivalRequest("poisson", run=run))
        assert (model.location, model.shape) == pytest.approx((location, shape), rel=0.05)
        if run == "lognormal":
            sigma, _, median = stats.lognorm.fit(random_s, floc=0)
            assert (model.location, model.shape) == pytest.approx((median, sigma), rel=1e-3)
        else:
            alpha, _, least = stats.pareto.fit(random_s, floc=0)
            assert (model.location, model.shape) == pytest.approx((least, alpha), rel=1e-3)


def test_a_fit_finds_what_a_trace_was_made_with() -> None:
    model = ArrivalModel(100.0, 20_000, daily=(*(1.5,) * 12, *(0.5,) * 12), burst=1.0)
    times = model.arrival_times(np.random.default_rng(5))
    jobs = [[pod] for pod in trace(times.tolist(), [60.0] * 20_000).pods]
    found = fit_arrivals(jobs, parse_arrivals("diurnal"))
    assert found.rate == pytest.approx(100, rel=0.05)
    assert np.array(found.daily) == pytest.approx(np.array(model.daily), abs=0.2)
    bursts = ArrivalModel(100.0, 5000, burst=6.0).arrival_times(np.random.default_rng(6))
    jobs = [[pod] for pod in trace(np.floor(bursts).tolist(), [60.0] * 5000).pods]
    assert fit_arrivals(jobs, parse_arrivals("bursts")).burst == pytest.approx(6, rel=0.1)


def test_a_seed_determines_the_jobs() -> None:
    given = trace([0.0, 10.0, 30.0], [60.0, 120.0, None], gang=2)
    request = parse_arrivals("poisson,rate=60,jobs=50,run=pareto,minimum=30,alpha=2")
    first, again, other = (with_arrivals(given, request, seed) for seed in (1, 1, 2))
    assert first.pods == again.pods
    assert first.pods != other.pods
    groups = [one for one in first.objects if isinstance(one, PodGroup)]
    assert (len(first.pods), len(groups)) == (100, 50)
    assert len({pod.key for pod in first.pods}) == 100
    known = {one.key for one in groups}
    named = {pod.metadata.annotations["scheduling.volcano.sh/group-name"] for pod in first.pods}
    assert {f"default/{name}" for name in named} == known
    runs = [float(pod.metadata.annotations["stowplan.dev/run-seconds"]) for pod in first.pods]
    assert min(runs) >= 30
    assert any("50 jobs drawn from 3" in note for note in first.notes)


def test_the_pods_of_a_generated_workload_keep_their_run_times() -> None:
    given = generate_workload(20, 200, 1)
    found = with_arrivals(given, parse_arrivals("poisson,rate=600,jobs=15"), 3)
    run = stowplan.simulate(found, replay=stowplan.ReplayOptions(until_s=3600.0, sample_s=600.0))
    assert run.summary["pods"] == len(found.pods)
    assert np.diff(starts(found)).min() >= 0
    specs = {id(pod.spec) for pod in given.pods}
    assert {id(pod.spec) for pod in found.pods} <= specs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("posson", "'posson': expected one of poisson, diurnal, bursts"),
        ("poisson,rat=3", r"unknown setting 'rat': .*did you mean 'rate'"),
        ("poisson,rate=0", "rate: Invalid value: '0': expected a number above 0"),
        ("poisson,rate=x", "rate: Invalid value: 'x'"),
        ("poisson,jobs=1.5", "jobs: Invalid value: '1.5': expected a whole number"),
        ("poisson,burst=3", "burst: without bursts: expected burst with bursts only"),
        ("poisson,alpha=3", "alpha: without run=pareto: expected"),
        ("poisson,run=weibull", "run: Invalid value: 'weibull': expected one of trace"),
        ("poisson,rate=1,rate=2", "rate: .*given twice"),
        ("diurnal,amplitude=2", "amplitude: Invalid value: '2': expected a number from 0 up to 1"),
    ],
)
def test_arrivals_that_cannot_be_asked_for(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_arrivals(text)


def test_what_cannot_be_fitted() -> None:
    one = trace([5.0], [None])
    with pytest.raises(InputError, match="expected rate=JOBS_PER_HOUR"):
        with_arrivals(one, parse_arrivals("poisson"))
    with pytest.raises(InputError, match="less than a day of arrivals"):
        with_arrivals(one, parse_arrivals("diurnal,rate=5"))
    with pytest.raises(InputError, match="fewer than two jobs with a run time"):
        with_arrivals(one, parse_arrivals("poisson,rate=5,run=lognormal"))
    with pytest.raises(InputError, match="no pending pods"):
        with_arrivals(trace([], []), parse_arrivals("poisson,rate=5"))
    assert math.isclose(fit_arrivals([one.pods], parse_arrivals("bursts,rate=5")).burst, 10.0)


def test_a_rate_whose_arrivals_take_centuries() -> None:
    with pytest.raises(
        InputError, match="rate: Invalid value: 1e-300: expected a rate at which all jobs"
    ):
        with_arrivals(trace([5.0], [9.0]), parse_arrivals("poisson,rate=1e-300,jobs=5"))
