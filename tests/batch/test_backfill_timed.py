"""backfill-timed: jobs in order, reservations, and what has none."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.batch.actions.availability_profile import AvailabilityProfile, Releases
from stowplan.framework.problems import ConfigError
from tests.batch.timed_jobs import START, TimedCluster, TimedJob, member

FULL = TimedJob("full", 0, 1, 3, 100)
HEAD = TimedJob("head", 1, 1, 4, 10)


def started(jobs: list[TimedJob], mode: str = "conservative", **more: Any) -> dict[str, int]:
    return TimedCluster((4,), mode, **more).run(jobs)


def arrived(*jobs: TimedJob, mode: str = "conservative", now: int = 5) -> TimedCluster:
    """A cluster after the first session."""
    cluster = TimedCluster((4,), mode)
    for job in jobs:
        cluster._arrive(job)
    cluster.session(now)
    return cluster


@pytest.mark.parametrize("mode", ["conservative", "easy"])
def test_a_short_job_goes_ahead_and_a_long_one_does_not(mode: str) -> None:
    short, long = TimedJob("short", 2, 1, 1, 98), TimedJob("long", 2, 1, 1, 99)
    assert started([FULL, HEAD, short], mode) == {"full": 0, "short": 2, "head": 100}
    assert started([FULL, HEAD, long], mode) == {"full": 0, "head": 100, "long": 110}


def test_strict_starts_no_job_ahead() -> None:
    short = TimedJob("short", 2, 1, 1, 5)
    assert started([FULL, HEAD, short], "strict") == {"full": 0, "head": 100, "short": 110}


def test_easy_protects_the_first_job_only() -> None:
    """The last one starts at 2 and delays the second from 20 to 30, which conservative prevents."""
    jobs = [
        TimedJob("r", 0, 1, 3, 10),
        TimedJob("first", 1, 1, 3, 10),
        TimedJob("second", 1, 1, 4, 5),
        TimedJob("last", 2, 1, 1, 28),
    ]
    assert started(jobs, "easy")["last"] == 2
    assert started(jobs, "easy")["second"] == 30
    assert started(jobs)["second"] == 20


def test_a_gang_starts_whole_when_all_its_nodes_are_free() -> None:
    cluster = TimedCluster((2, 2), "conservative")
    jobs = [TimedJob("a", 0, 1, 2, 10), TimedJob("b", 0, 1, 2, 20), TimedJob("gang", 1, 2, 2, 5)]
    assert cluster.run(jobs)["gang"] == 20


def test_a_job_without_a_limit_never_goes_ahead() -> None:
    cluster = arrived(FULL, HEAD)
    cluster.inventory.pod_updated(member("endless-0", "", 1, None, 3))
    assert cluster.session(6) == {}
    cluster.inventory.pod_updated(member("short-0", "", 1, 20, 4))
    assert set(cluster.session(7)) == {"short-0"}


def test_a_job_that_waits_for_pods_without_a_limit_holds_up_no_other() -> None:
    cluster = TimedCluster((4,), "conservative")
    cluster.inventory.pod_updated(member("endless-0", "", 3, None, 0))
    assert set(cluster.session(1)) == {"endless-0"}
    cluster._arrive(HEAD)
    cluster._arrive(TimedJob("any", 2, 1, 1, 10_000))
    assert set(cluster.session(3)) == {"any-0"}


def test_a_limit_counts_from_the_start_time_of_the_pod() -> None:
    """The running pod started 90 seconds before the first session saw it: it ends in 10."""
    cluster = TimedCluster((4,), "conservative")
    pod = member("full-0", "", 3, 100, 0)
    began = START + datetime.timedelta(seconds=910)
    pod = replace(
        pod,
        spec=replace(pod.spec, node_name="n0"),
        status=replace(pod.status, phase="Running", start_time=began),
    )
    cluster.inventory.pod_updated(pod)
    cluster._arrive(HEAD)
    cluster._arrive(TimedJob("eleven", 2, 1, 1, 11))
    assert cluster.session(1000) == {}
    cluster._arrive(TimedJob("ten", 3, 1, 1, 10))
    assert set(cluster.session(1000)) == {"ten-0"}


def test_the_deadline_of_a_pod_is_a_limit_and_an_invalid_annotation_none() -> None:
    cluster = arrived(FULL, HEAD)
    pod = member("soon-0", "", 1, None, 3)
    invalid = replace(
        pod.metadata, name="odd-0", uid="odd-0", annotations={"stowplan.dev/run-seconds": "soon"}
    )
    cluster.inventory.pod_updated(replace(pod, metadata=invalid))
    cluster.inventory.pod_updated(replace(pod, spec=replace(pod.spec, active_deadline_seconds=20)))
    assert set(cluster.session(6)) == {"soon-0"}


def test_at_most_as_many_jobs_are_looked_at() -> None:
    waiting = [TimedJob(f"w{number}", 1, 1, 4, 10) for number in range(3)]
    short = TimedJob("short", 2, 1, 1, 5)
    assert started([FULL, *waiting, short], max_jobs=10)["short"] == 2
    assert started([FULL, *waiting, short], max_jobs=2)["short"] > 100


def test_the_message_of_a_job_that_would_delay_another() -> None:
    cluster = arrived(FULL, HEAD, TimedJob("long", 2, 1, 1, 1000))
    assert "there is room, but a job before it could start later" in cluster.messages


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("mode: fast", "mode: Invalid value: 'fast': expected one of conservative, easy, strict"),
        ('maxJobs: "0"', "maxJobs: Invalid value: '0': expected a whole number above 0"),
        ("modes: easy", "modes: Unknown field: expected 'mode' or 'maxJobs' (did you mean 'mode'"),
    ],
)
def test_invalid_arguments(arguments: str, text: str) -> None:
    from stowplan.assembly.sessions.session_config import batch_configuration

    given = f"configurations: [{{name: backfill-timed, arguments: {{{arguments}}}}}]"
    with pytest.raises(ConfigError) as refused:
        batch_configuration(f"actions: backfill-timed\n{given}\ntiers: []", "batch.yaml")
    assert f"configurations[0].arguments.{text}" in str(refused.value)


# The profile.


def test_a_reservation_takes_a_span_and_gives_it_back() -> None:
    import numpy as np

    rows = np.array([0], dtype=np.int64)
    releases = Releases(np.array([10.0]), rows, np.array([[3.0]]))
    profile = AvailabilityProfile(np.array([[1.0]]), releases)
    two = np.array([2.0])
    assert profile.gang([two], 5, rows) == (10.0, [0])
    profile.reserve(0, 12.0, 20.0, two + 1)
    assert profile.gang([two], 2, rows) == (10.0, [0])
    assert profile.gang([two], 3, rows) == (20.0, [0])
    assert profile.least(rows, 11, 5).tolist() == [[1.0]]
    profile.reserve(0, 12.0, 20.0, -two - 1)
    assert profile.gang([two], 3, rows) == (10.0, [0])
    assert profile.gang([np.array([5.0])], 1, rows) == (np.inf, [])
