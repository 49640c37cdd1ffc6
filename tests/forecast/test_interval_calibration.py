"""Intervals of expected starts, widened by forecasts of the past."""

from __future__ import annotations

import datetime
import io
import math

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from stowplan import eta
from stowplan.cli.tables.eta_table import print_expected_starts
from stowplan.forecast.expected_starts import (
    SCHEMA,
    ExpectedStart,
    ExpectedStarts,
    StartInterval,
)
from stowplan.forecast.start_times import interval_calibration
from stowplan.forecast.start_times.interval_calibration import (
    COMPARED_MIN,
    IntervalCalibration,
    PastForecast,
    calibration_of,
    widened,
)
from stowplan.forecast.start_times.past_cluster import past_cluster, past_moments
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import (
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    Pod,
    PodStatus,
)
from stowplan.objects.timing.run_limits import RUN_ANNOTATION
from stowplan.testing import builders

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
INTERVAL = (10, 90)
TRUE = {"earliest": 100.0, "latest": 200.0}


def forecasts(rng: np.random.Generator, n_pods: int, seen_s: float) -> list[PastForecast]:
    """Forecasts of 100 to 200 s where pods wait for 20 to 500 s or so; for at most `seen_s` of
    which is known."""
    waits = np.exp(rng.normal(math.log(100), 0.8, n_pods))
    ends = TRUE["earliest"], TRUE["latest"]
    return [PastForecast(*ends, min(wait, seen_s), wait <= seen_s) for wait in waits.tolist()]


def share_held(seen_s: float) -> float:
    """How often new intervals hold that were widened by past ones."""
    rng = np.random.default_rng(1)
    past = [forecasts(rng, int(n_pods), seen_s) for n_pods in rng.integers(20, 200, 12)]
    calibration = calibration_of(past, INTERVAL)
    assert calibration is not None
    low, high = widened(calibration, TRUE["earliest"], TRUE["latest"])
    actual = [one.waited_s for one in forecasts(rng, 5000, math.inf)]
    return sum(low <= wait <= high for wait in actual) / len(actual)


@pytest.mark.parametrize("seen_s", [math.inf, 400.0])
def test_widened_intervals_hold_as_often_as_they_say(seen_s: float) -> None:
    """Also where some of the pods still wait; as they are, the intervals hold in a third."""
    assert 0.77 <= share_held(seen_s) <= 0.86


def test_control_pods_that_still_wait_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: as if those that have started were all."""
    right = interval_calibration.kaplan_meier

    def wrong(weights: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return right(np.where(ends, weights, 1e-9), ends)

    monkeypatch.setattr(interval_calibration, "kaplan_meier", wrong)
    assert share_held(250.0) < 0.77


def test_an_end_is_open_where_too_many_still_wait() -> None:
    rng = np.random.default_rng(2)
    calibration = calibration_of([forecasts(rng, 400, 150.0)], INTERVAL)
    assert calibration is not None
    assert calibration.latest_factor is None
    assert widened(calibration, 100, 200)[1] == math.inf
    assert "open" in calibration.text()


def test_intervals_that_held_stay_as_they_are() -> None:
    past = [[PastForecast(100, 200, 150, True)] * 30]
    calibration = calibration_of(past, INTERVAL)
    assert calibration is not None
    assert (calibration.held, calibration.forecasts) == (30, 30)
    assert widened(calibration, 100, 200) == (100, 200)
    assert widened(calibration, 100, math.inf) == (100, math.inf)


def test_every_moment_counts_the_same() -> None:
    """Wrong: that of one moment at which thousands waited."""
    many = [PastForecast(100, 200, 150, True)] * 3000
    few = [PastForecast(100, 200, 800, True)] * 30
    calibration = calibration_of([many, few, [], few], INTERVAL)
    assert calibration is not None
    assert calibration.moments == 3
    assert calibration.latest_factor == pytest.approx(4)


def test_too_few_are_no_calibration() -> None:
    one = PastForecast(100, 200, 800, True)
    assert calibration_of([], INTERVAL) is None
    assert calibration_of([[one] * (COMPARED_MIN - 1)], INTERVAL) is None
    assert calibration_of([[replace_started(one)] * 100], INTERVAL) is None
    assert widened(None, 1, 2) == (1, 2)


def replace_started(one: PastForecast) -> PastForecast:
    return one._replace(has_started=False)


def at(seconds: float) -> datetime.datetime:
    return NOW + datetime.timedelta(seconds=seconds)


def job_pod(name: str, created: float, started: float | None, ended: float | None) -> Pod:
    pod = builders.pod(name, cpu="1", on="n0" if started is not None and started <= 0 else "")
    owner = OwnerReference("batch/v1", "Job", "train", "train", controller=True)
    meta = replace(pod.metadata, creation_timestamp=at(created), owner_references=(owner,))
    status = PodStatus(phase="Pending")
    if pod.node_name and started is not None:
        status = PodStatus(phase="Running", start_time=at(started))
        if ended is not None and ended <= 0:
            state = ContainerState(terminated=ContainerTerminated(at(ended)))
            statuses = (ContainerStatus("c", state=state),)
            status = replace(status, phase="Succeeded", container_statuses=statuses)
    return replace(pod, metadata=meta, status=status)


def test_the_past_is_what_pods_show_of_it() -> None:
    pods = [
        job_pod("ended", -900, -800, -700),
        job_pod("ran", -900, -800, -300),
        job_pod("waited", -900, -400, -300),
        job_pod("runs", -900, -800, None),
        job_pod("waits", -900, None, None),
        job_pod("new", -100, None, None),
    ]
    past = past_cluster(Cluster([builders.node("n0")], pods), at(-600))
    phases = {pod.name: (pod.status.phase, pod.node_name) for pod in past.pods}
    assert phases == {
        "ended": ("Succeeded", "n0"),
        "ran": ("Running", "n0"),
        "waited": ("Pending", ""),
        "runs": ("Running", "n0"),
        "waits": ("Pending", ""),
    }
    ran = next(pod for pod in past.pods if pod.name == "ran")
    assert not ran.is_finished
    assert not ran.status.container_statuses


def queue_cluster(n_pods: int) -> Cluster:
    """Pods that arrive every 60 s at a node for two, and run for 100 s; every fifth for 400 s."""
    free, pods = [0.0, 0.0], []
    for number in range(n_pods):
        arrived = 60.0 * (number - n_pods)
        place = free.index(min(free))
        started = max(arrived, free[place] if number > 1 else arrived)
        free[place] = started + (400 if number % 5 == 4 else 100)
        pods.append(job_pod(f"p{number:03}", arrived, started, free[place]))
    return Cluster([builders.node("n0", cpu="2")], pods)


def test_eta_is_widened_by_its_own_past() -> None:
    cluster = queue_cluster(60)
    plain = eta(cluster, now=NOW, draws=2)
    found = eta(cluster, now=NOW, draws=2, calibrate=3)
    calibration = found.calibration
    assert plain.calibration is None
    assert calibration is not None
    assert calibration.moments <= 3
    assert calibration.text() in found.assumptions
    assert plain.pods
    for before, after in zip(plain.pods, found.pods, strict=True):
        assert before.start is not None
        assert after.start is not None
        ends = before.start.earliest_s or 0.0, before.start.latest_s or math.inf
        low, high = widened(calibration, *ends)
        assert after.start.earliest_s == pytest.approx(low, abs=1e-3)
        assert (after.start.latest_s or math.inf) == pytest.approx(high, abs=1e-3)
        assert after.start.median_s == before.start.median_s


def test_known_run_times_are_calibrated_too() -> None:
    """What arrived later may have gone first, however exactly run times are known."""
    known = queue_cluster(60)
    notes = {RUN_ANNOTATION: "100"}
    pods = [replace(pod, metadata=replace(pod.metadata, annotations=notes)) for pod in known.pods]
    found = eta(replace(known, pods=pods), now=NOW, calibrate=3)
    assert found.draws == 1
    assert found.calibration is not None


def test_times_before_1970_are_no_past() -> None:
    pods = [job_pod(f"p{n}", -1000.0 - 3e9, None, None) for n in range(50)]
    assert past_moments(Cluster([builders.node("n0")], pods), NOW, 3) == []


def test_an_open_end_is_not_the_horizon() -> None:
    start = StartInterval(60.0, 120.0, None, "2026-01-01T12:02:00Z", 1.0)
    pod = ExpectedStart("default/p", "Pending", start=start)
    found = ExpectedStarts(SCHEMA, "2026-01-01T12:00:00Z", INTERVAL, 5, 86400.0, 0, (), (pod,), ())
    is_open = IntervalCalibration(3, 40, 10, 1.0, None)
    for calibration, text in ((None, "60s to over 24h"), (is_open, "60s to open")):
        printed = io.StringIO()
        screen = Console(file=printed, width=200)
        print_expected_starts(replace(found, calibration=calibration), screen, wide=True)
        assert text in printed.getvalue()


def test_without_a_past_there_is_no_calibration() -> None:
    cluster = queue_cluster(12)
    found = eta(cluster, now=NOW, draws=2, calibrate=3)
    assert found.calibration is None
    assert any("not calibrated" in text for text in found.assumptions)
    assert past_moments(cluster, NOW, 3) == []
    with pytest.raises(InputError, match="calibrate"):
        eta(cluster, now=NOW, calibrate=-1)
