"""measure(): figures of a benchmark case, compared with baselines and earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from stowplan.benchmarks.baselines import BASELINES, MEASURED
from stowplan.benchmarks.benchmark_workload import WorkloadSizes
from stowplan.benchmarks.catalog import CASES
from stowplan.benchmarks.comparison import EarlierResult, compare_result, read_earlier
from stowplan.benchmarks.measurement import (
    ENGINES,
    BenchmarkResult,
    environment_facts,
    measure,
    peak_mb,
    run_once,
)
from stowplan.benchmarks.stage_times import REST
from stowplan.benchmarks.start_time import start_seconds
from stowplan.inputs.input_error import InputError

SMALL = WorkloadSizes(nodes=10, pods=20)


def test_a_result_has_every_figure() -> None:
    found = measure(CASES["basic"], SMALL, repeat=3)
    assert (found.shape, found.nodes, found.pods, found.done) == ("basic", 10, 20, 20)
    rates = sorted(found.runs)
    assert len(rates) == 3
    assert found.pods_per_s == rates[1] > 0
    assert found.p50_ms is not None
    assert found.p99_ms is not None
    assert 0 < found.p50_ms <= found.p99_ms
    assert found.memory_mb is not None
    assert found.memory_mb > 10
    assert found.decode_per_s
    assert found.confirm_per_s
    assert (found.floor, found.floor_source) == (887, MEASURED)
    assert found.factor == pytest.approx(found.pods_per_s / 887, abs=0.01)
    assert found.stages_us is msgspec.UNSET


def test_pods_in_one_call_wait_as_long_as_the_call_takes() -> None:
    run = run_once(CASES["basic"], SMALL)
    assert run.p50_ms == run.p99_ms == pytest.approx(1e3 * run.done / run.rate)


def test_a_shape_without_floor_has_no_factor() -> None:
    assert "templates" not in BASELINES
    found = measure(CASES["templates"], SMALL)
    assert (found.floor, found.factor) == (None, None)


def test_what_does_not_fit_is_not_counted() -> None:
    found = measure(CASES["basic"], WorkloadSizes(nodes=1, pods=200))
    assert found.done == 110
    assert found.pods_per_s


def test_events_are_counted_as_such() -> None:
    found = measure(CASES["events"], SMALL)
    assert (found.unit, found.done, found.confirm_per_s) == ("events", 20, None)


def test_stages_add_up_to_the_whole() -> None:
    found = measure(CASES["basic"], SMALL, stages=True)
    assert isinstance(found.stages_us, dict)
    assert list(found.stages_us) == ["decision", "queue", "cache", "effects", REST]
    assert found.stages_us["decision"] > 0
    assert found.stages_us["effects"] > 0
    assert found.stages_us[REST] > 0


def test_the_environment_is_described() -> None:
    facts = environment_facts()
    assert facts["cpus"] >= 1
    assert facts["numpy"].count(".") == 2
    assert peak_mb() > 10


def test_a_start_is_timed() -> None:
    found = start_seconds(5)
    assert list(found) == ["cold", "warm", "help"]
    assert all(seconds > 0 for seconds in found.values())


# Earlier figures.


def old(tmp_path: Path, **changes: object) -> dict[str, EarlierResult]:
    result = {"shape": "basic", "nodes": 5, "pods": 10, "pods_per_s": 100.0} | changes
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"machine": {}, "results": [result]}))
    return read_earlier(path)


@pytest.mark.parametrize(
    ("changes", "before", "ratio"),
    [
        ({}, 100.0, 1.5),
        ({"pods": 11}, None, None),
        ({"nodes": 4}, None, None),
        ({"shape": "anti"}, None, None),
        ({"pods_per_s": None}, None, None),
    ],
)
def test_results_of_the_same_sizes_are_compared(
    tmp_path: Path, changes: dict[str, object], before: float | None, ratio: float | None
) -> None:
    new = BenchmarkResult("basic", 5, 10, pods_per_s=150.0)
    found = compare_result(new, old(tmp_path, **changes).get("basic"))
    assert (found.old_pods_per_s, found.ratio) == (before, ratio)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"results": [{"shape": 1}]}'])
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"old\.json.*stowplan bench -o json"):
        read_earlier(path)


# Smoke test: only the ratio of two engines in one run, since times depend on the machine.

FASTER = 5
FASTER_PREEMPTING = 1.5
"""Most of what a pod that preempts costs is not its decision."""
SIZES = WorkloadSizes(nodes=3000, pods=500)


def is_much_faster(
    shape: str, fast: str | None, slow: str | None, turns: int, faster: float = FASTER
) -> bool:
    """Whether the best run of an engine is so much faster than that of another, after one of so
    many turns: a busy machine takes more of them."""
    rates = [0.0, 0.0]
    for _ in range(turns):
        for at, engine in enumerate((fast, slow)):
            rates[at] = max(rates[at], run_once(CASES[shape], SIZES, engine).rate)
        if rates[0] >= faster * rates[1]:
            return True
    return False


@pytest.mark.parametrize(
    "shape",
    ["basic", *(pytest.param(s, marks=pytest.mark.soak) for s in ("anti", "spread", "preferred"))],
)
def test_the_first_engine_is_several_times_faster_than_the_last(shape: str) -> None:
    assert is_much_faster(shape, ENGINES[0], ENGINES[-1], turns=9)


@pytest.mark.soak
@pytest.mark.parametrize("shape", ["preemption", "PreemptionBasic"])
def test_pods_that_preempt_are_decided_faster_than_by_the_walk(shape: str) -> None:
    assert is_much_faster(shape, ENGINES[0], ENGINES[-1], 9, FASTER_PREEMPTING)


def test_control_an_engine_is_not_faster_than_itself() -> None:
    # A turn in which the machine stands still does not count.
    assert not all(is_much_faster("basic", None, None, turns=1) for _ in range(3))
