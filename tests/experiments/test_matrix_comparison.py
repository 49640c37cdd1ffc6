"""Comparison of an experiment's policies, and the regression gate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stowplan.experiments.statistics.matrix_comparison import compare_runs
from stowplan.experiments.statistics.regression_gate import failed_conditions
from stowplan.inputs.input_error import InputError
from tests.soak import factor

Rows = list[dict[str, Any]]


def rows(
    waits: dict[str, Any], workload: str = "day", measure: str = "wait_p99", **options: str
) -> Rows:
    """policy -> values by seed."""
    return [
        {"policy": policy, "workload": workload, **options, "seed": seed, "measure": measure,
         "value": value}
        for policy, values in waits.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip


def noisy(seed: int = 1, n: int = 10, factor: float = 0.88) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    base = rng.normal(100, 5, n)
    return {"spread": base.tolist(), "pack": (base * factor + rng.normal(0, 1, n)).tolist()}


def test_every_policy_is_compared_with_the_baseline_in_every_setting() -> None:
    given = rows(noisy(), speedup="1") + rows(noisy(2), speedup="2")
    given += rows({"spread": [1.0] * 10, "pack": [1.0] * 10}, measure="makespan", speedup="1")
    found = compare_runs(given)
    assert (found.baseline, found.policies) == ("spread", ["spread", "pack"])
    assert [one.options for one in found.results] == [{"speedup": "1"}, {"speedup": "2"}]
    first = found.results[0]
    assert first.seeds == list(range(10))
    assert [one.measure for one in first.measures] == ["wait_p99", "makespan"]
    assert first.verdict.startswith("pack against spread: wait_p99: pack has 1")
    assert "less than spread (better) (95 % CI" in first.verdict
    assert first.verdict.endswith("; makespan: equal")
    assert found.text.splitlines()[0].startswith("day (speedup=1): pack against spread")
    turned = compare_runs(given, baseline="pack")
    assert turned.policies == ["pack", "spread"]
    assert turned.results[0].measures[0].difference == -first.measures[0].difference


def test_the_order_of_the_rows_does_not_matter_beyond_the_baseline() -> None:
    given = rows(noisy())
    assert compare_runs(given).to_json() == compare_runs([given[0], *given[:0:-1]]).to_json()
    tree = json.loads(compare_runs(given).to_json())
    assert tree["results"][0]["measures"][0].keys() >= {"pCorrected", "effect", "verdict", "low"}


def test_a_comparison_becomes_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: Any = SimpleNamespace(DataFrame=dict)
    monkeypatch.setitem(sys.modules, "pandas", fake)
    frame = compare_runs(rows(noisy(), speedup="2")).to_frame()
    assert (frame["policy"], frame["speedup"], frame["measure"]) == (["pack"], ["2"], ["wait_p99"])
    assert frame["is_different"] == [True]
    assert len({len(values) for values in frame.values()}) == 1


def test_what_few_seeds_cannot_show_is_noted() -> None:
    found = compare_runs(rows(noisy(n=4)))
    (note,) = found.results[0].notes
    assert note.startswith(
        "4 seeds cannot show a difference of 1 measures: the smallest p is 2/2^4"
    )
    assert "no difference found on 4 seeds" in found.results[0].verdict


def test_seeds_that_change_nothing_are_one_run() -> None:
    """The wrong variant: eight equal runs taken for eight samples, with p 2/2^8."""
    (result,) = compare_runs(rows({"spread": [100.0] * 8, "pack": [88.0] * 8})).results
    (wait,) = result.measures
    assert (wait.is_different, wait.p) == (False, 1.0)
    assert result.verdict == (
        "pack against spread: wait_p99: pack has 12.0 % less than spread on this workload; "
        "8 seeds change nothing, so they say nothing of others"
    )
    assert result.notes == []


def test_runs_that_are_missing_are_named() -> None:
    given = rows(noisy())
    del given[3]
    (result,) = compare_runs(given).results
    assert result.missing == [3]
    assert result.measures[0].seeds == 9
    assert result.notes == ["seeds that only one of them has: 3"]
    alone = compare_runs(rows({"pack": [1.0]}))
    assert alone.notes == ["one policy only, pack: nothing to compare"]


def test_waits_of_different_pods_are_noted() -> None:
    given = rows(noisy()) + rows({"spread": [9.0] * 10, "pack": [8.0] * 10}, measure="placed")
    assert "waits are of pods that were bound" in compare_runs(given).results[0].notes[0]


def test_a_policy_that_placed_nothing_is_noted() -> None:
    given = rows(noisy()) + rows({"spread": [9.0] * 10, "pack": [0.0] * 10}, measure="placed")
    (note,) = compare_runs(given).notes
    # The reasons of pods without a node are in `failed`; `notes` is about the input.
    assert note == "pack placed no pods: `failed` in runs/KEY/summary.json says why"


def test_a_measure_that_one_of_them_has_not_is_noted() -> None:
    given = rows(noisy()) + rows({"spread": [0.5] * 10}, measure="fairness_jain")
    (result,) = compare_runs(given).results
    assert "pack has no value of fairness_jain" in result.notes
    assert "fairness_jain" not in result.verdict


def test_measures_can_be_named() -> None:
    given = rows(noisy()) + rows(noisy(3), measure="utilisation.cpu")
    given += rows(noisy(4), measure="refusals") + rows(noisy(5), measure="mine")
    names = [one.measure for one in compare_runs(given).results[0].measures]
    # Own measures are compared; of the table those that it marks.
    assert names == ["wait_p99", "utilisation.cpu", "mine"]
    found = compare_runs(given, measures=["refusals", "utilisation"])
    names = [one.measure for one in found.results[0].measures]
    assert names == ["utilisation.cpu", "refusals"]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"baseline": "spred"}, r"baseline: unknown policy 'spred'.*did you mean 'spread'"),
        ({}, {"measures": ["wait"]}, "measures: unknown measure 'wait': expected one of wait_p99"),
        ({"value": "many"}, {}, "row 1, value: Invalid value: 'many': expected a finite number"),
        ({"value": "nan"}, {}, "row 1, value"),
        ({"seed": "x"}, {}, "row 1, seed: Invalid value: 'x': expected a whole number"),
    ],
)
def test_bad_input(change: dict[str, Any], options: dict[str, Any], message: str) -> None:
    given = rows(noisy())
    given[0] |= change
    with pytest.raises(InputError, match=message):
        compare_runs(given, **options)
    with pytest.raises(InputError, match="no rows"):
        compare_runs([])


def null_experiments(count: int) -> Iterator[bool]:
    """Whether a difference was found between two samples of one policy, whose measures are
    correlated as waits are."""
    rng = np.random.default_rng(42)
    names = ("wait_mean", "wait_p50", "wait_p90", "wait_p99", "makespan", "slowdown_mean")
    for _ in range(count):
        given: Rows = []
        for policy in ("a", "again"):
            common = rng.gamma(4.0, 10.0, 10)
            for name in names:
                values = common + rng.gamma(2.0, 5.0, 10)
                given += rows({policy: values.tolist()}, measure=name)
        yield any(one.is_different for one in compare_runs(given).results[0].measures)


def test_a_policy_against_itself_differs_in_at_most_5_of_100() -> None:
    count = 100 * factor()
    assert sum(null_experiments(count)) <= 0.05 * count


def test_without_correction_a_policy_against_itself_would_differ() -> None:
    """The wrong variant: each measure by itself."""
    rng = np.random.default_rng(42)
    found = 0
    for _ in range(40):
        measures = {f"m{n}": rng.normal(0, 1, (2, 10)) for n in range(6)}
        given: Rows = []
        for name, (a, b) in measures.items():
            given += rows({"a": a.tolist(), "again": b.tolist()}, measure=name)
        found += any(one.p <= 0.05 for one in compare_runs(given).results[0].measures)
    assert found > 4


GATE = rows({"spread": [100.0, 200.0], "pack": [106.0, 210.0]})
GATE += rows({"spread": [9.0, 9.0], "pack": [9.0, 8.0]}, measure="placed")


@pytest.mark.parametrize(
    ("condition", "fails"),
    [
        ("wait_p99: B > A by 5%", True),
        ("wait_p99: pack > spread by 5 %", True),
        ("wait_p99:B>A by 5%", True),
        ("wait_p99: B > A by 6%", False),
        ("wait_p99: B > A by 7", True),
        ("wait_p99: B > A by 8", False),
        ("wait_p99: B >= A by 8", True),
        ("wait_p99: A < B by 6%", False),
        ("wait_p99: A < B by 4%", True),
        ("wait_p99: A > B", False),
        ("placed: B < A", True),
        ("placed: B != A", True),
        ("placed: A == A", True),
        ("wait_p99: B > A and placed: B < A", True),
        ("wait_p99: B > A by 50% and placed: B < A", False),
        ("wait_p99: B > A by 50% or placed: B < A", True),
        ("wait_p99 > 157", True),
        ("wait_p99 > 158", False),
    ],
)
def test_the_gate(condition: str, fails: bool) -> None:
    assert bool(failed_conditions(GATE, [condition])) is fails


def test_the_gate_names_what_held_and_where() -> None:
    both = GATE + rows({"spread": [1.0], "pack": [1.0]}, "night")
    both += rows({"spread": [1.0], "pack": [1.0]}, "night", "placed")
    assert failed_conditions(both, ["wait_p99: B > A by 5%", "placed < 5"]) == [
        "day: wait_p99: B > A by 5% (wait_p99 pack 158, spread 150)",
        "night: placed < 5 (placed spread 1, placed pack 1)",
    ]
    turned = failed_conditions(GATE, ["wait_p99: A > B"], baseline="pack")
    assert turned == ["day: wait_p99: A > B (wait_p99 pack 158, spread 150)"]


def test_a_gate_that_measured_nothing_does_not_pass() -> None:
    given = rows({"spread": [1.0, 1.0]}) + rows({"pack": [None, ""]})
    assert failed_conditions(given, ["wait_p99: B > A by 5%"]) == [
        "day: wait_p99: B > A by 5% (wait_p99 of pack and spread has no value)"
    ]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("wait_p9: B > A", r"unknown measure 'wait_p9': expected one of .*did you mean"),
        ("wait_p99: C > A", "unknown policy 'C': expected one of A, B, spread, pack"),
        ("wait_p99: B > A by", "Required value: expected a number, or a percentage"),
        ("wait_p99: B > A by x%", "'x%': expected a number from 0 up, or a percentage such as 5%"),
        ("wait_p99: B > A by -1", "'-1': expected a number from 0 up"),
        ("wait_p99: B == A by 5%", "expected no `by`"),
        ("wait_p99: B", "expected one of < <= > >= == !="),
        ("wait_p99: > A", "Invalid value: '>': expected a policy"),
        ("wait_p99: B > A by 5% again", "expected `and`, `or` or the end"),
    ],
)
def test_conditions_that_cannot_be_read(condition: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        failed_conditions(GATE, [condition])
