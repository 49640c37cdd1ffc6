"""With exact run limits backfilling delays no job that it must not delay: against brute force."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch.actions import backfill_timed, running_tasks
from stowplan.batch.actions.availability_profile import AvailabilityProfile
from tests.batch import timed_jobs
from tests.batch.timed_jobs import BruteForce, TimedCluster, TimedJob, earliest, horizon_of
from tests.property.wrong import assert_caught
from tests.soak import examples

MODELS = {
    "conservative": timed_jobs.conservative,
    "easy": timed_jobs.easy,
    "strict": timed_jobs.strict,
}
Load = tuple[tuple[int, ...], list[TimedJob]]


@st.composite
def loads(draw: st.DrawFn, n_nodes: int = 3) -> Load:
    """CPUs of nodes, and jobs that fit on them when they are empty."""
    cpus = tuple(draw(st.lists(st.integers(2, 6), min_size=1, max_size=n_nodes)))
    at, jobs = 0, []
    for number in range(draw(st.integers(2, 8))):
        at += draw(st.sampled_from([0, 0, 1, 3]))
        cpu, size = draw(st.integers(1, max(cpus))), draw(st.integers(1, 3))
        if sum(one // cpu for one in cpus) >= size:
            jobs.append(TimedJob(f"j{number}", at, size, cpu, draw(st.integers(1, 9))))
    return cpus, jobs or [TimedJob("j", 0, 1, 1, 1)]


@pytest.mark.parametrize("mode", MODELS)
def test_jobs_start_when_brute_force_starts_them(mode: str) -> None:
    @settings(max_examples=examples(25))
    @given(loads())
    def check(load: Load) -> None:
        equals_brute_force(load, mode)

    check()


def equals_brute_force(load: Load, mode: str = "conservative") -> None:
    assert TimedCluster(load[0], mode).run(load[1]) == MODELS[mode](*load)


def not_delayed_by_lower(load: Load) -> None:
    """Every job starts as if the jobs behind it were not there."""
    cpus, jobs = load
    starts = TimedCluster(cpus, "conservative").run(jobs)
    for number, job in enumerate(jobs, 1):
        alone = TimedCluster(cpus, "conservative").run(jobs[:number])
        assert starts[job.name] <= alone[job.name], job


@settings(max_examples=examples(12))
@given(loads())
def test_conservative_backfilling_delays_no_job_for_one_behind_it(load: Load) -> None:
    not_delayed_by_lower(load)


@settings(max_examples=examples(20))
@given(loads(n_nodes=1))
def test_conservative_backfilling_starts_no_job_later_than_without(load: Load) -> None:
    """On one node; on several, jobs may split the nodes otherwise."""
    starts = TimedCluster(load[0], "conservative").run(load[1])
    without = TimedCluster(load[0], "strict").run(load[1])
    assert all(starts[name] <= without[name] for name in without)


def head_is_not_delayed(load: Load) -> None:
    """Whoever is first of those that wait starts as soon as what ran then allows."""
    cpus, jobs = load
    cluster = TimedCluster(cpus, "easy")
    starts = cluster.run(jobs)
    for number, head in enumerate(jobs):
        before = [starts[job.name] for job in jobs[:number]]
        # From when on it is the first.
        since = max([head.arrives, *before])
        model = BruteForce(cpus, horizon_of(jobs))
        for job in jobs:
            ran = starts[job.name] < since or job in jobs[:number]
            if job is not head and ran:
                model.enter(job, starts[job.name], cluster.nodes[job.name])
        assert starts[head.name] <= earliest(model, head, since)[0], head


@settings(max_examples=examples(25))
@given(loads())
def test_easy_backfilling_never_delays_the_first_job_that_waits(load: Load) -> None:
    head_is_not_delayed(load)


# Wrong variants.


def blind(profile: AvailabilityProfile, *given: object) -> object:
    """Wrong: looks at what is free now, and at no reservation behind it."""
    request, _, _, rows = given
    return profile._fits(request, rows)[:, 0]  # type: ignore[arg-type,index]


def optimistic(limit: Callable[..., float]) -> Callable[..., float]:
    """Wrong: takes a job to need half of its limit."""
    return lambda pod: limit(pod) / 2


@pytest.mark.parametrize("holds", [not_delayed_by_lower, head_is_not_delayed])
def test_backfilling_that_ignores_reservations_is_caught(
    holds: Callable[[Load], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AvailabilityProfile, "fits", blind)
    assert_caught(holds, loads())


def test_backfilling_with_too_short_limits_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    halved = optimistic(backfill_timed.run_limit_s)
    monkeypatch.setattr(backfill_timed, "run_limit_s", halved)
    assert_caught(equals_brute_force, loads())


def test_running_jobs_that_count_as_endless_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_tasks, "run_limit_s", lambda pod: float("inf"))
    assert_caught(equals_brute_force, loads())
