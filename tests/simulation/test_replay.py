"""Replays: pods arrive and end in virtual time, with retries and preemption."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.cluster_api import Pace
from stowplan.simulation.cluster.node_churn import Churn
from stowplan.simulation.replay import ReplayOptions
from stowplan.simulation.simulate import Simulation, simulate
from stowplan.testing import builders
from tests.simulation import openb_trace as trace
from tests.simulation.direct_placement import direct

AT_ONCE = ReplayOptions(pace=Pace(0, 0, 0))


def timed(name: str, at: float, runs: float | None = None, **asks: Any) -> Pod:
    """A pod with arrival time and optional run time."""
    pod = builders.pod(name, created_at=at, **asks)
    annotations = {} if runs is None else {RUN_ANNOTATION: str(runs)}
    return replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def small(*pods: Pod, n_nodes: int = 1, cpu: str = "4") -> Cluster:
    nodes = [builders.node(f"n{index}", cpu=cpu) for index in range(n_nodes)]
    return Cluster(nodes=nodes, pods=list(pods))


def run(cluster: Cluster, options: ReplayOptions = AT_ONCE, seed: int = 0) -> Simulation:
    return simulate(cluster, replay=options, seed=seed)


def times(result: Simulation) -> dict[str, tuple[Any, ...]]:
    return {
        place.pod.partition("/")[2]: (place.arrived_s, place.bound_s, place.ended_s)  # type: ignore[attr-defined]
        for place in result.placements
    }


def rows(result: Simulation) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(result.series.decode())))


# Arrivals and ends.


def test_pods_come_by_their_creation_and_run_as_long_as_they_say() -> None:
    result = run(small(timed("a", 1000, 60, cpu="1"), timed("b", 1030, 5, cpu="1")))
    assert times(result) == {"a": (0, 0, 60), "b": (30, 30, 35)}
    assert result.summary["makespan_s"] == 60
    assert result.summary["utilisation"]["cpu"]["requested"] == 0


def test_a_pod_waits_until_another_leaves() -> None:
    result = run(small(timed("a", 0, 100, cpu="3"), timed("b", 10, 50, cpu="3")))
    assert times(result)["b"] == (10, 100, 150)
    assert result.summary["waits_s"]["max"] == 90
    assert result.summary["refusals"] == 1


def test_binding_and_starting_take_their_time() -> None:
    options = ReplayOptions(pace=Pace(bind_s=2, start_s=5, grace_s=0))
    place: Any = run(small(timed("a", 0, 10, cpu="1")), options).placements[0]
    assert (place.bound_s, place.started_s, place.ended_s, place.wait_s) == (2, 7, 17, 2)


def test_arrivals_are_compressed_and_run_times_are_not() -> None:
    options = replace(AT_ONCE, speedup=10)
    result = run(small(timed("a", 0, 60, cpu="1"), timed("b", 100, 60, cpu="1")), options)
    assert times(result) == {"a": (0, 0, 60), "b": (10, 10, 70)}


def test_no_pod_ends_without_departures() -> None:
    pods = [timed(f"p{i}", i, 1, cpu="1") for i in range(6)]
    result = run(small(*pods), replace(AT_ONCE, departures=False))
    assert result.summary["placed"] == 4
    assert result.summary["failed"] == {"Insufficient cpu": 2}


def test_a_replay_ends_at_until() -> None:
    pods = [timed(f"p{i}", 100 * i, 1000, cpu="1") for i in range(4)]
    result = run(small(*pods), replace(AT_ONCE, until_s=150))
    assert [place.pod for place in result.placements] == ["default/p0", "default/p1"]
    assert result.summary["ended_at_s"] == 150
    assert result.summary["makespan_s"] == 0


def test_a_replay_ends_when_nothing_can_come_of_it_any_more() -> None:
    result = run(small(timed("big", 0, 10, cpu="9"), timed("a", 0, 10, cpu="1")))
    assert result.summary["placed"] == 1
    assert 300 < result.summary["ended_at_s"] < 1000
    big = next(place for place in result.placements if place.pod == "default/big")
    assert big.reason == "Insufficient cpu"
    assert big.refusals >= 2  # type: ignore[attr-defined]


def test_a_pod_without_a_profile_is_reported_pending() -> None:
    result = run(small(timed("p", 0, scheduler="other")))
    assert result.placements[0].reason == "no profile has schedulerName 'other'"


class Stumbles:
    """A plugin that raises for one of the pods."""

    name = "Stumbles"

    def score(self, pod: Pod) -> int:
        return 100 // (pod.name != "bad")


def test_a_rule_that_raises_fails_the_attempts_of_its_pod_only() -> None:
    cluster = small(timed("bad", 0, cpu="1"), timed("good", 1, cpu="1"), n_nodes=2)
    result = simulate(cluster, replay=AT_ONCE, plugins=[Stumbles])
    bad, good = result.placements
    assert good.node
    assert bad.message.startswith(
        "plugin 'Stumbles': score of pod 'default/bad' on node 'n0' raised ZeroDivisionError"
    )
    assert bad.reason.startswith("plugin 'Stumbles': score on node 'n0' raised ZeroDivisionError")
    assert bad.refusals > 1  # type: ignore[attr-defined]


def test_a_gated_pod_waits() -> None:
    result = run(small(timed("p", 0, gates=["later"])))
    assert result.placements[0].reason == "waiting for scheduling gates: [later]"
    assert rows(result)[-1]["gated"] == "1"


def test_pods_that_were_there_leave_and_are_no_arrivals() -> None:
    there = timed("there", 0, 30, cpu="4", on="n0")
    result = run(small(there, timed("a", 5, 1, cpu="4")))
    assert times(result) == {"a": (0, 30, 31)}
    assert result.summary["bound"] == 1


# The queue.


def test_priority_goes_first_and_evicts() -> None:
    low = timed("low", 0, 1000, cpu="3", priority=1)
    high = timed("high", 10, 20, cpu="3", priority=9)
    result = run(small(low, high))
    places: dict[str, Any] = {place.pod: place for place in result.placements}
    assert places["default/high"].bound_s == 10
    assert places["default/low"].bound_s == 30
    assert places["default/low"].restarts == 1
    counts = {"victims": 1, "preemptors": 1, "causes": {"preemption": 1}}
    assert result.summary["preemption"] == counts


def test_nodes_leave_and_come_back_and_their_pods_start_again() -> None:
    pods = [timed(f"p{i}", 0, 3600, cpu="1") for i in range(8)]
    options = ReplayOptions(churn=Churn(up_s=1800, down_s=300))
    result = run(small(*pods, n_nodes=3), options)
    assert result.summary["placed"] == 8
    assert result.summary["nodes_left"] > 0
    assert result.summary["restarts"] > 0
    assert {row["nodes"] for row in rows(result)} > {"3"}
    assert result.summary["nodes"] == 3


# Results.


def test_the_series_has_pending_pods_by_reason() -> None:
    pods = [timed("a", 0, 100, cpu="4"), timed("b", 10, 10, cpu="2"), timed("c", 11, 10, cpu="2")]
    result = run(small(*pods), replace(AT_ONCE, sample_s=5))
    by_time = {float(row["time_s"]): row for row in rows(result)}
    assert by_time[5]["queue"] == "0"
    assert by_time[15]["queue"] == by_time[15]["pending.NodeResourcesFit"] == "2"
    assert by_time[15]["utilisation.cpu"] == "1.0"
    assert by_time[105]["utilisation.cpu"] == "1.0"
    assert by_time[105]["utilisation.pods"] == "0.018182"


def test_fragmentation_is_what_is_free_and_cannot_be_used() -> None:
    """Each node has 1 of 4 CPUs free; half of the pods request 3 CPUs, half 1."""
    there = [builders.pod(f"t{i}", cpu="3", on=f"n{i}") for i in range(2)]
    pods = [timed("a", 0, 1, cpu="1"), timed("b", 100, 1, cpu="3")]
    result = run(small(*there, *pods, n_nodes=2), replace(AT_ONCE, sample_s=50))
    by_time = {float(row["time_s"]): row for row in rows(result)}
    assert by_time[50]["fragmentation.cpu"] == "0.5"


def test_many_samples_are_thinned_out() -> None:
    pods = [timed("a", 0, 30_000, cpu="1"), timed("b", 30_000, 1, cpu="1")]
    result = run(small(*pods), replace(AT_ONCE, sample_s=1))
    found = [float(row["time_s"]) for row in rows(result)]
    assert 900 < len(found) <= 2001
    gaps = {after - before for before, after in pairwise(found[:-1])}
    assert gaps == {16.0}


def test_percentiles_are_times_that_occurred() -> None:
    pods = [timed(f"p{i}", 0, 10, cpu="4") for i in range(10)]
    waits = run(small(*pods)).summary["waits_s"]
    assert waits == {"mean": 45, "p50": 40, "p90": 80, "p95": 90, "p99": 90, "max": 90}


def test_inputs_and_plugins_are_known_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(trace.nodes(3))
    (tmp_path / "pods.csv").write_text(trace.pods(5))
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        'class Mine:\n    name = "Mine"\n\n    def score(self, node):\n        return 1\n'
    )
    first = simulate([tmp_path / "nodes.csv", tmp_path / "pods.csv"], plugins=[plugin]).summary
    plugin.write_text(plugin.read_text() + "\n# other\n")
    (tmp_path / "pods.csv").write_text(trace.pods(6))
    second = simulate([tmp_path / "nodes.csv", tmp_path / "pods.csv"], plugins=[plugin]).summary
    assert list(first["inputs"]) == [str(tmp_path / "nodes.csv"), str(tmp_path / "pods.csv")]
    assert list(first["plugins"]) == [str(plugin)]
    changed = {
        name
        for part in ("inputs", "plugins")
        for name, digest in first[part].items()
        if second[part][name] != digest
    }
    assert changed == {str(plugin), str(tmp_path / "pods.csv")}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    options = ReplayOptions(churn=Churn(20_000, 2000), until_s=40_000)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        run(generate_workload(20, 150, 5), options, seed).write(tmp_path / name)
    first, second, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc"
    )
    assert set(first) == {"placements.jsonl", "series.csv", "summary.json", "usage.json"}
    assert first == second
    assert first["placements.jsonl"] != other["placements.jsonl"]
    assert json.loads(first["summary.json"])["replay"]["churn"] == {"up_s": 20_000, "down_s": 2000}


# Compared with a placement run.


@pytest.mark.parametrize("seed", [0, 1])
def test_a_placement_run_equals_direct_placement(seed: int) -> None:
    cluster = generate_workload(40, 400, seed)
    filled = simulate(cluster, seed=seed)
    assert [place.node for place in filled.placements] == direct(cluster, seed)


def test_no_pod_ends_in_a_placement_run() -> None:
    filled = simulate(small(timed("a", 0, 0, cpu="3"), timed("b", 9, cpu="3")))
    assert [place.node for place in filled.placements] == ["n0", ""]


@pytest.mark.slow
@pytest.mark.parametrize("speedup", [pytest.param(1, marks=pytest.mark.soak), 95, 10_000])
def test_a_replay_without_ends_equals_a_placement_run(tmp_path: Path, speedup: float) -> None:
    """Independent of retries of unschedulable pods."""
    (tmp_path / "nodes.csv").write_text(trace.nodes(5))
    (tmp_path / "pods.csv").write_text(trace.pods(70))
    filled = simulate(tmp_path, seed=2)
    result = simulate(tmp_path, seed=2, replay=ReplayOptions(speedup=speedup, departures=False))
    assert 0 < filled.summary["placed"] < 70
    assert [p.node for p in result.placements] == [p.node for p in filled.placements]


@pytest.mark.soak
def test_the_real_trace_placed_and_replayed() -> None:
    folder = trace.real()
    if folder is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    paths = [folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"]
    filled = simulate(paths)
    assert [p.node for p in filled.placements] == direct(read_cluster(paths))
    result = simulate(paths, replay=ReplayOptions(speedup=5000, departures=False))
    assert [p.node for p in result.placements] == [p.node for p in filled.placements]


@pytest.mark.soak
def test_the_real_trace_compressed() -> None:
    folder = trace.real()
    if folder is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    paths = [folder / "openb_node_list_gpu_node.csv", folder / "openb_pod_list_default.csv"]
    summary = simulate(paths, replay=ReplayOptions(speedup=95)).summary
    assert summary["placed"] == 8152
    assert summary["makespan_s"] > 140 * 86_400


@pytest.mark.soak
def test_the_real_trace_in_its_own_time(tmp_path: Path) -> None:
    """149 days on ten nodes of 8 GPUs."""
    folder = trace.real()
    if folder is None:
        pytest.skip("STOWPLAN_TRACES names no folder with openb")
    ten = tmp_path / "ten.csv"
    lines = [f"node-{index},96000,393216,8,G2" for index in range(10)]
    ten.write_text("\n".join((trace.NODE_HEADER, *lines, "")))
    options = ReplayOptions()
    result = simulate([ten, folder / "openb_pod_list_default.csv"], replay=options)
    assert result.summary["placed"] == 8147
    assert result.summary["over_time"]["utilisation"]["nvidia.com/gpu"]["peak"] == 1
    assert result.summary["makespan_s"] > 149 * 86_400


# Invalid options.


@pytest.mark.parametrize("runs", ["soon", "-1", "nan", "1e99"])
def test_an_invalid_run_time(runs: str) -> None:
    pod = builders.pod("p", created_at=0)
    pod = replace(pod, metadata=replace(pod.metadata, annotations={RUN_ANNOTATION: runs}))
    with pytest.raises(InputError, match=r"pod default/p: .*run-seconds.*expected seconds from 0"):
        run(small(pod))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ReplayOptions(speedup=0), "replay: speedup: Invalid value: 0: expected a number above 0"),
        (ReplayOptions(speedup=float("nan")), "speedup: Invalid value: nan"),
        (ReplayOptions(until_s=-1), "until_s: Invalid value: -1"),
        (ReplayOptions(sample_s=0), "sample_s: Invalid value: 0"),
        (ReplayOptions(churn=Churn(0, 5)), r"churn\.up_s: Invalid value: 0"),
        (
            ReplayOptions(pace=Pace(bind_s=-1)),
            r"pace\.bind_s: Invalid value: -1: expected seconds, 0 or more",
        ),
    ],
)
def test_invalid_options(options: ReplayOptions, text: str) -> None:
    with pytest.raises(InputError, match=text):
        run(small(timed("p", 0)), options)
