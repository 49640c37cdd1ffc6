"""Expected starts: against what a replay then does, from observed run times, and never."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan import eta
from stowplan.forecast.eta import prediction_ranks
from stowplan.forecast.expected_starts import ExpectedStarts, StartInterval
from stowplan.forecast.start_times.run_time_draws import (
    ObservedRuns,
    RunTimeDistribution,
    distribution_of,
    kaplan_meier,
)
from stowplan.forecast.start_times.start_replay import StartReplay
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.insight.autoscaling.autoscale_config import AutoscaleConfig, ScaledPool
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.pod import (
    ContainerState,
    ContainerStatus,
    ContainerTerminated,
    Pod,
    PodSpec,
    PodStatus,
)
from stowplan.objects.timing.run_limits import RUN_ANNOTATION
from stowplan.objects.workload import Job, JobSpec
from stowplan.simulation.replay import Replay, ReplayOptions
from stowplan.simulation.scheduler_configuration import read_deciders
from stowplan.testing import builders
from tests.cli.run import run
from tests.property.wrong import assert_caught
from tests.soak import examples

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
BIND_S = 0.01
"""Latency of a binding by default."""


def ago(seconds: float) -> datetime.datetime:
    return NOW - datetime.timedelta(seconds=seconds)


def timed(name: str, runs: float | str | None = None, job: str = "", **asks: Any) -> Pod:
    """A pod with a declared run time, or of a Job."""
    pod = builders.pod(name, **asks)
    notes = {} if runs is None else {RUN_ANNOTATION: str(runs)}
    owners = (OwnerReference("batch/v1", "Job", job, job, controller=True),) if job else ()
    meta = replace(pod.metadata, annotations=notes, owner_references=owners)
    return replace(pod, metadata=meta)


def running(pod: Pod, for_s: float) -> Pod:
    return replace(pod, status=PodStatus(phase="Running", start_time=ago(for_s)))


def finished(name: str, job: str, ran_s: float) -> Pod:
    ended = ContainerState(terminated=ContainerTerminated(ago(10)))
    statuses = (ContainerStatus("c", state=ended),)
    status = PodStatus(phase="Succeeded", start_time=ago(10 + ran_s), container_statuses=statuses)
    return replace(timed(name, job=job, on="n0", cpu="1"), status=status)


def small(*pods: Pod, cpu: str = "4", n_nodes: int = 1, **more: Any) -> Cluster:
    nodes = [builders.node(f"n{index}", cpu=cpu) for index in range(n_nodes)]
    return Cluster(nodes=nodes, pods=list(pods), **more)


def starts(found: ExpectedStarts) -> dict[str, StartInterval | None]:
    return {pod.pod.partition("/")[2]: pod.start for pod in found.pods}


def median(found: ExpectedStarts, name: str) -> float | None:
    start = starts(found)[name]
    assert start is not None
    return start.median_s


# Against replays.


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Nodes with running pods, and pending ones; run times are known."""
    pods = []
    n_nodes = draw(st.integers(1, 3))
    for node in range(n_nodes):
        pods += [
            timed(f"r{node}-{number}", draw(st.integers(1, 300)), on=f"n{node}", cpu="1")
            for number in range(draw(st.integers(0, 4)))
        ]
    for number in range(draw(st.integers(1, 8))):
        cpu, runs = draw(st.integers(1, 5)), draw(st.integers(0, 300))
        priority = draw(st.sampled_from([0, 0, 10]))
        pods.append(timed(f"p{number}", runs, cpu=str(cpu), priority=priority))
    return small(*pods, n_nodes=n_nodes)


def equals_the_replay(cluster: Cluster) -> None:
    """The median is when a replay binds the pod, and "never" is when it does not."""
    scheduler = read_deciders(None).scheduler(rng=np.random.default_rng(0))
    replay = Replay(cluster, scheduler, ReplayOptions())
    replay.run(lambda now: None, 10**15)
    found = starts(eta(cluster, now=NOW))
    for pod in cluster.pending():
        waited = replay.pod_histories[pod.key].waited
        start = found[pod.name]
        assert start is not None
        assert start.median_s == (None if waited is None else pytest.approx(waited / SECOND)), (
            pod.key
        )
        assert start.is_late == (waited is None)


@settings(max_examples=examples(25))
@given(clusters())
def test_with_known_run_times_the_median_is_when_a_replay_starts_the_pod(cluster: Cluster) -> None:
    equals_the_replay(cluster)


def test_a_forecast_in_which_pods_run_on_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = StartReplay._run_of

    def late(self: StartReplay, pod: Pod) -> int | None:
        runs = right(self, pod)
        return None if runs is None else runs + 5 * SECOND

    monkeypatch.setattr(StartReplay, "_run_of", late)
    assert_caught(equals_the_replay, clusters())


# Run times.


def test_what_is_left_counts_from_the_start_of_the_running_pod() -> None:
    pods = running(timed("r", 600, on="n0", cpu="4"), 500), timed("p", cpu="1")
    found = eta(small(*pods), now=NOW)
    assert median(found, "p") == pytest.approx(100 + BIND_S)
    assert found.pods[0].start is not None
    assert found.pods[0].start.median_at == "2026-01-01T12:01:40Z"


def test_a_pod_that_a_recorded_simulation_had_restarted() -> None:
    again = timed("p", 40, cpu="4")
    again = replace(again, metadata=replace(again.metadata, uid="default/p#2"))
    pods = running(timed("r", 600, on="n0", cpu="4"), 500), again, timed("q", cpu="4")
    found = eta(small(*pods), now=NOW)
    assert median(found, "p") == pytest.approx(100 + BIND_S)
    assert median(found, "q") == pytest.approx(140 + 2 * BIND_S, abs=1)


def test_observed_run_times_give_a_median_and_an_interval() -> None:
    done = [finished(f"d{number}", "train", 100 * number) for number in range(1, 11)]
    pods = running(timed("r", job="train", on="n0", cpu="4"), 0), timed("p", cpu="1")
    found = eta(small(*done, *pods), now=NOW, draws=40)
    start = starts(found)["p"]
    assert start is not None
    assert start.earliest_s is not None
    assert start.latest_s is not None
    assert start.earliest_s < 350
    assert start.latest_s > 700
    assert start.median_s == pytest.approx(500, abs=250)
    assert starts(eta(small(*done, *pods), now=NOW, draws=40)) == starts(found)


def test_draws_are_of_pods_that_had_run_for_as_long() -> None:
    done = [finished(f"d{number}", "train", 100 * number) for number in range(1, 11)]
    pods = running(timed("r", job="train", on="n0", cpu="4"), 900), timed("p", cpu="1")
    assert median(eta(small(*done, *pods), now=NOW), "p") == pytest.approx(100, abs=40)


def test_a_pod_beyond_all_observed_ones_is_expected_to_run_for_as_long_again() -> None:
    pods = running(timed("r", job="train", on="n0", cpu="4"), 300), timed("p", cpu="1")
    found = eta(small(finished("d", "train", 100), *pods), now=NOW, draws=200)
    assert median(found, "p") == pytest.approx(400, abs=150)
    assert any("as long again" in text for text in found.assumptions)


def test_pods_of_an_unknown_owner_run_as_those_of_others() -> None:
    done = [finished(f"d{number}", "train", 100) for number in range(5)]
    pods = running(timed("r", on="n0", cpu="4"), 0), timed("p", cpu="1")
    found = eta(small(*done, *pods), now=NOW)
    assert median(found, "p") == pytest.approx(100 + BIND_S, abs=1)
    assert found.pods[0].run_time == "as of other owners: 5 finished, 100s to 100s"


@pytest.mark.parametrize(
    ("own", "of_job", "expected"), [(100, None, 100), (None, 200, 200), (300, 50, 50)]
)
def test_deadlines_of_pods_and_jobs_are_limits(
    own: int | None, of_job: int | None, expected: int
) -> None:
    pod = timed("r", job="train", on="n0", cpu="4")
    pod = running(replace(pod, spec=replace(pod.spec, active_deadline_seconds=own)), 0)
    spec = JobSpec(active_deadline_seconds=of_job)
    job = Job(metadata=ObjectMeta(name="train", namespace="default"), spec=spec)
    found = eta(small(pod, timed("p", cpu="1"), objects=[job]), now=NOW)
    assert median(found, "p") == pytest.approx(expected + BIND_S)


def test_observed_run_times_are_capped_by_the_deadline() -> None:
    pod = timed("r", job="train", on="n0", cpu="4")
    pod = running(replace(pod, spec=replace(pod.spec, active_deadline_seconds=60)), 0)
    cluster = small(finished("d", "train", 500), pod, timed("p", cpu="1"))
    assert median(eta(cluster, now=NOW), "p") == pytest.approx(60 + BIND_S)


def distribution(finished_s: list[float], running_s: list[float]) -> RunTimeDistribution:
    runs = ObservedRuns(np.array(finished_s), np.array(running_s))
    return distribution_of(runs, None, np.random.default_rng(1))


def test_pods_that_run_on_lengthen_the_run_times() -> None:
    """The Kaplan-Meier estimate by hand: of four pods two ended, and one still runs at 50."""
    equal = np.ones(4)
    ends = np.array([True, False, True, False])
    # At risk: 4, then 2.
    assert kaplan_meier(equal, ends).tolist() == [0.75, 0.75, 0.375, 0.375]
    few = distribution([10.0, 20.0], [])
    more = distribution([10.0, 20.0], [30.0] * 20)
    assert few.survival[-1] == pytest.approx(0.0)
    assert more.survival[-1] > 0.5
    rng = np.random.default_rng(2)
    assert np.median([more.draw(rng) for _ in range(200)]) > 30.0


def test_a_draw_is_longer_than_what_a_pod_has_run() -> None:
    found = distribution([10.0, 20.0, 40.0], [])
    rng = np.random.default_rng(3)
    for elapsed_s in (0.0, 10.0, 15.0, 40.0, 100.0):
        assert all(found.draw(rng, elapsed_s) > elapsed_s for _ in range(50))


def test_few_observations_give_wide_intervals() -> None:
    def width(n_done: int) -> float:
        done = [finished(f"d{n}", "train", 90 + 20 * (n % 2)) for n in range(n_done)]
        pods = running(timed("r", job="train", on="n0", cpu="4"), 0), timed("p", cpu="1")
        start = starts(eta(small(*done, *pods), now=NOW, draws=60))["p"]
        assert start is not None
        assert start.earliest_s is not None
        assert start.latest_s is not None
        return start.latest_s - start.earliest_s

    assert width(1) > 2 * width(30)


# Later arrivals, autoscalers, the horizon.


@pytest.mark.parametrize("n_draws", [9, 10, 24, 40, 99])
def test_one_more_draw_is_in_the_interval_as_often_as_the_percentiles_ask(n_draws: int) -> None:
    """Of n + 1 equally likely draws each is the last one as often as the others."""
    low, high = prediction_ranks(n_draws, (10, 90))
    assert 0 <= low <= high < n_draws
    assert (low + 1) / (n_draws + 1) <= 0.1
    assert (high + 1) / (n_draws + 1) >= 0.9
    # No narrower interval of ranks does.
    assert (low + 2) / (n_draws + 1) > 0.1
    assert high / (n_draws + 1) < 0.9


def test_few_draws_give_all_that_they_have() -> None:
    assert prediction_ranks(1, (10, 90)) == (0, 0)
    assert prediction_ranks(3, (10, 90)) == (0, 2)


def test_later_arrivals_delay_a_start() -> None:
    """A pod of low priority waits while pods of higher priority go on arriving."""
    done = [
        replace(
            pod,
            metadata=replace(pod.metadata, creation_timestamp=ago(3600 - 120 * number)),
            spec=replace(pod.spec, priority=10, containers=whole.spec.containers),
        )
        for number in range(30)
        for whole in [timed("w", cpu="4")]
        for pod in [finished(f"d{number}", "train", 110)]
    ]
    pods = running(timed("r", job="train", on="n0", cpu="4"), 0), timed("p", cpu="4")
    cluster = small(*done, *pods)
    alone = eta(cluster, ["default/p"], now=NOW, draws=8)
    busy = eta(cluster, ["default/p"], now=NOW, draws=8, arrivals_s=3600.0, horizon_s=7200.0)
    first, second = starts(alone)["p"], starts(busy)["p"]
    assert first is not None
    assert second is not None
    assert first.latest_s is not None
    assert second.latest_s is None or second.latest_s > first.latest_s
    assert busy.assumptions[0].startswith("pods go on arriving as in the last 60m, 29 pods")


def test_an_autoscaler_starts_what_does_not_fit() -> None:
    node = builders.node("n0", cpu="4", labels={"stowplan.dev/pool": "general"})
    pods = [timed("r", on="n0", cpu="4"), timed("p", cpu="4"), timed("huge", cpu="9")]
    pool = ScaledPool("general", 2, startup_delay=datetime.timedelta(seconds=90))
    found = eta(Cluster([node], pods), now=NOW, autoscale=AutoscaleConfig((pool,)))
    # The next scan, then the delay.
    assert 90 <= (median(found, "p") or 0) <= 90 + 10 + 5
    assert found.pods[1].never[0].startswith("no node fits, even without other pods")
    assert "no further pods arrive; nodes are added and removed" in found.assumptions


def test_labels_of_an_autoscaler_are_noted() -> None:
    node = builders.node("n0", cpu="4", labels={"karpenter.sh/nodepool": "general"})
    (_, note) = eta(Cluster([node], [timed("p", 5, cpu="1")]), now=NOW).assumptions
    assert note.endswith("which an autoscaler may resize: it was not modelled")


def test_what_starts_after_the_horizon_is_late_and_not_never() -> None:
    pods = running(timed("r", 7200, on="n0", cpu="4"), 0), timed("p", cpu="1")
    (pod,) = eta(small(*pods), now=NOW, horizon_s=3600.0).pods
    assert pod.start == StartInterval()
    assert (pod.never, len(pod.late)) == ((), 1)


def test_affinity_to_pods_that_are_not_there_is_not_never() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = convert({"affinity": affinity, "containers": [{"name": "c"}]}, PodSpec)
    pod = timed("p", cpu="1")
    (found,) = eta(small(replace(pod, spec=spec)), now=NOW).pods
    assert found.never == ()
    assert found.late


# Never.


def test_where_no_pod_has_ended_pods_do_not_end() -> None:
    found = eta(small(timed("r", on="n0", cpu="4"), timed("p", cpu="1")), now=NOW)
    assert median(found, "p") is None
    (pod,) = found.pods
    assert pod.run_time == "unknown run time"
    assert pod.never == ()
    assert pod.late[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert pod.late[1] == "1 running pod does not end: default/r"
    assert "1 running pod has an unknown run time: counted as not ending" in found.assumptions


def test_a_pod_that_no_node_fits_never_starts() -> None:
    found = eta(small(timed("r", 10, on="n0", cpu="1"), timed("p", cpu="9")), now=NOW)
    assert found.pods[0].never[0].startswith("no node fits, even without other pods: 0/1 nodes")


def test_gates_and_unknown_schedulers_are_reasons() -> None:
    gated = timed("g", gates=["wait/here"], cpu="1")
    other = timed("o", scheduler="nobody", cpu="1")
    found = {pod.pod: pod.never for pod in eta(small(gated, other), now=NOW).pods}
    assert found["default/g"] == ("waits for its scheduling gates: wait/here",)
    assert found["default/o"] == ("no profile has schedulerName 'nobody'",)


def test_pods_of_services_do_not_end() -> None:
    pod = timed("web-1", on="n0", cpu="4")
    owner = (OwnerReference("apps/v1", "ReplicaSet", "web", "web", controller=True),)
    pod = replace(pod, metadata=replace(pod.metadata, owner_references=owner))
    found = eta(small(pod, timed("p", cpu="1")), now=NOW)
    assert found.pods[0].start == StartInterval()
    assert not any("unknown run time: counted" in text for text in found.assumptions)


# Other pods, and the result.


def test_a_running_and_a_finished_pod() -> None:
    pods = running(timed("r", 60, on="n0", cpu="1"), 30), finished("d", "train", 5)
    found = eta(small(*pods), ["default/r", "default/d"], now=NOW)
    assert [(pod.state, pod.at, pod.start) for pod in found.pods] == [
        ("Running", "2026-01-01T11:59:30Z", None),
        ("Finished", "2026-01-01T11:59:50Z", None),
    ]
    assert found.draws == 0


def test_a_job_starts_with_its_first_pod_and_is_complete_with_its_last() -> None:
    pods = [timed(f"j-{number}", 100, "j", cpu="3") for number in range(2)]
    (job,) = eta(small(*pods), now=NOW).jobs
    assert (job.name, job.pods, job.pending, job.needed) == ("job/j", 2, 2, 1)
    assert job.start is not None
    assert job.complete is not None
    assert job.start.median_s == pytest.approx(BIND_S)
    # The second starts when the first, which takes a second to start, has ended.
    assert job.complete.median_s == pytest.approx(101, abs=1)


def test_terminating_pods_end_at_their_deletion_timestamp() -> None:
    pod = running(timed("r", on="n0", cpu="4"), 30)
    gone = NOW + datetime.timedelta(seconds=25)
    pod = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=gone))
    assert median(eta(small(pod, timed("p", cpu="1")), now=NOW), "p") == pytest.approx(25 + BIND_S)


def test_now_is_the_latest_time_that_pods_show() -> None:
    pods = running(timed("r", 600, on="n0", cpu="4"), 500), running(timed("s", on="n1"), 100)
    found = eta(small(*pods, timed("p", cpu="4"), n_nodes=1), ["default/p"])
    assert found.now == "2026-01-01T11:58:20Z"
    assert median(found, "p") == pytest.approx(200 + BIND_S)


def test_without_a_clock_there_are_durations_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No object shows a time: an instant would be one of 1970."""
    (tmp_path / "c.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
        "status: {allocatable: {cpu: '4', pods: '9'}}\n---\n"
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
        "spec: {containers: [{name: c, image: i}]}\n"
    )
    monkeypatch.chdir(tmp_path)
    for wide in ((), ("-o", "wide")):
        ran = run("eta", "--all", "-f", "c.yaml", *wide)
        assert "1970" not in ran.out
        assert " AT " not in ran.out
        assert "From now on (no object shows a time; see --now)" in ran.out
    found = json.loads(run("eta", "--all", "-f", "c.yaml", "-o", "json").out)
    assert found["now"] == ""
    assert "medianAt" not in found["pods"][0]["start"]
    assert found["pods"][0]["start"]["medianS"] == BIND_S
    named = run("eta", "--all", "-f", "c.yaml", "--now", "2026-01-01T00:00:00Z").out
    assert "  AT  " in named
    assert "As of 2026-01-01T00:00:00Z" in named


@pytest.mark.parametrize(
    ("key", "text", "now"),
    [
        ("kai.scheduler/last-start-timestamp", "2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"),
        ("kai.scheduler/stale-podgroup-timestamp", "2026-03-01T10:00+00", "2026-03-01T10:00:00Z"),
        ("kai.scheduler/last-start-timestamp", "2025-03-01T10:00:00Z", "2026-01-01T11:58:20Z"),
        ("kai.scheduler/last-start-timestamp", "2026-03-01T10:00:00", "2026-01-01T11:58:20Z"),
        ("kai.scheduler/last-start-timestamp", "soon", "2026-01-01T11:58:20Z"),
        ("example.com/ends", "2026-03-01T10:00:00Z", "2026-01-01T11:58:20Z"),
    ],
)  # fmt: skip
def test_times_in_annotations_count(key: str, text: str, now: str) -> None:
    group = KaiPodGroupObject(metadata=ObjectMeta(name="g", annotations={key: text}))
    cluster = small(running(timed("s", on="n0"), 100), timed("p"))
    cluster.objects.append(group)
    assert eta(cluster).now == now
    cluster.objects.pop()
    pod = cluster.pods[0]
    annotated = replace(pod.metadata, annotations={key: text})
    cluster.pods[0] = replace(pod, metadata=annotated)
    assert eta(cluster).now == now


def test_the_frame_has_a_row_per_pod() -> None:
    pandas = pytest.importorskip("pandas")
    frame = eta(small(timed("p", 5, cpu="1"), timed("q", cpu="9")), now=NOW).to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["pod"]) == ["default/p", "default/q"]
    assert frame["median_s"][0] == BIND_S
    assert frame["never"][1].startswith("no node fits")


@pytest.mark.parametrize("runs", ["-5", "soon", "nan"])
def test_an_invalid_annotation_names_the_pod(runs: str) -> None:
    with pytest.raises(InputError, match=r"pod default/r: metadata.*run-seconds.*or forever"):
        eta(small(timed("r", runs, on="n0", cpu="1"), timed("p")), now=NOW)


def test_a_negative_deadline_names_the_pod() -> None:
    pod = timed("p", cpu="1")
    pod = replace(pod, spec=replace(pod.spec, active_deadline_seconds=-1))
    with pytest.raises(InputError, match=r"pod default/p: spec.activeDeadline.*-1.*0 or"):
        eta(small(pod), now=NOW)


def test_an_unknown_pod_and_invalid_options_are_errors() -> None:
    cluster = small(timed("web", 5, cpu="1"))
    with pytest.raises(InputError, match=r"no such pod.*did you mean 'default/web'"):
        eta(cluster, ["default/wob"], now=NOW)
    with pytest.raises(InputError, match="draws"):
        eta(cluster, draws=0, now=NOW)
    with pytest.raises(InputError, match="percentiles"):
        eta(cluster, percentiles=(60, 90), now=NOW)
    assert json.dumps(eta(cluster, now=NOW).percentiles) == "[10, 90]"
