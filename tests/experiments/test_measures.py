"""Measures of runs, by hand: waits, slowdowns, fairness, costs, own functions, series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stowplan
from stowplan.experiments.export.result_tables import SCHEMA
from stowplan.experiments.measures.measure_series import fairness_over_time, measures_over_time
from stowplan.experiments.measures.measure_table import MEASURES, compute_measures, measure_of
from stowplan.experiments.measures.own_measure import own_measure
from stowplan.experiments.measures.queue_fairness import QueueFairness
from stowplan.experiments.measures.run_result import RunResult
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.simulation.results.seed_comparison import figures_of
from tests.tidy.tree import ROOT

NODES = """
apiVersion: v1
kind: Node
metadata:
  name: {name}
  annotations: {annotations}
status:
  allocatable: {{cpu: "{cpu}", memory: 8Gi, pods: "110"}}
---
"""
POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  creationTimestamp: "2026-01-01T00:{at:02d}:00Z"
  annotations: {{stowplan.dev/run-seconds: "{run}"}}
spec:
  containers: [{{name: c, image: i, resources: {{requests: {{cpu: "{cpu}"}}}}}}]
---
"""


def cluster(folder: Path, *texts: str) -> Cluster:
    file = folder / "input.yaml"
    file.write_text("".join(texts))
    return read_cluster(file)


def node(name: str = "n1", cpu: int = 4, annotations: str = "{}") -> str:
    return NODES.format(name=name, cpu=cpu, annotations=annotations)


def pod(name: str, at: int = 0, run: int = 60, cpu: int = 2, namespace: str = "default") -> str:
    return POD.format(name=name, at=at, run=run, cpu=cpu, namespace=namespace)


def replayed(source: Cluster) -> RunResult:
    pace = stowplan.Pace(0.0, 0.0)
    return RunResult.of(stowplan.simulate(source, replay=stowplan.ReplayOptions(pace=pace)))


def test_a_run_that_was_computed_by_hand(tmp_path: Path) -> None:
    """Two pods run for 60 s; the third of 4 CPUs waits for them and runs for 120 s."""
    source = cluster(
        tmp_path, node(), pod("a"), pod("b"), pod("c", run=120, cpu=4), pod("huge", cpu=9)
    )
    run = replayed(source)
    found = compute_measures(run)
    assert found["pods"] == 4
    assert found["placed"] == 3
    assert found["placed_share"] == 0.75
    wait = run.waits_s[-1]
    assert 60 <= wait < 61
    assert found["wait_max"] == found["wait_p99"] == found["wait_p90"] == wait
    assert found["wait_p50"] == 0
    assert found["wait_mean"] == pytest.approx(wait / 3)
    assert found["slowdown_mean"] == pytest.approx((1 + 1 + (wait + 120) / 120) / 3)
    assert found["makespan"] == pytest.approx(wait + 120)
    assert found["allocation.cpu"] == 1.0
    assert found["victims"] == 0


def test_a_fill_has_no_times(tmp_path: Path) -> None:
    found = compute_measures(
        stowplan.simulate(cluster(tmp_path, node(), pod("a"), pod("b", cpu=3)))
    )
    assert found["placed"] == 1
    assert found["allocation.cpu"] == 0.5
    assert found["wait_mean"] is None
    assert found["makespan"] is None
    assert found["fairness_jain"] is None


def test_energy_and_price(tmp_path: Path) -> None:
    """A node with 100 to 300 W is half full for 60 s; another is empty."""
    annotations = '{stowplan.dev/idle-watts: "100", stowplan.dev/busy-watts: "300", '
    annotations += 'stowplan.dev/hourly-price: "6"}'
    source = cluster(
        tmp_path, node(annotations=annotations), node("n2", 1, annotations), pod("a", cpu=2)
    )
    found = compute_measures(replayed(source))
    assert found["energy"] == pytest.approx((200 + 100) * 60 / 3.6e6)
    assert found["price"] == pytest.approx(2 * 6 * 60 / 3600)
    assert found["used_price"] == pytest.approx(6 * 60 / 3600)


def test_a_price_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    source = cluster(tmp_path, node(annotations='{stowplan.dev/hourly-price: "cheap"}'), pod("a"))
    with pytest.raises(
        InputError, match=r"'n1': stowplan\.dev/hourly-price: Invalid value: 'cheap'"
    ):
        compute_measures(replayed(source))


def test_fairness_of_two_namespaces(tmp_path: Path) -> None:
    """Both want 4 of 4 CPUs and deserve 2; one has 4, the other nothing: Jain's index is 1/2."""
    pods = [pod(f"a{n}", cpu=2, namespace="x", run=600) for n in range(2)]
    pods += [pod(f"b{n}", cpu=2, namespace="y", run=600) for n in range(2)]
    found = compute_measures(stowplan.simulate(cluster(tmp_path, node(), *pods)))
    assert found["queue_share.x"] == 2.0
    assert found["queue_share.y"] == 0.0
    assert found["fairness_jain"] == 0.5
    fair = compute_measures(stowplan.simulate(cluster(tmp_path, node(cpu=8), *pods)))
    assert fair["fairness_jain"] == 1.0


def test_nothing_that_was_placed_is_not_fair(tmp_path: Path) -> None:
    """Neither fairness nor makespan has a value: 1 and 0 s would be the best there is."""
    pods = [pod(f"{name}{n}", cpu=9, namespace=name) for name in "xy" for n in range(2)]
    for found in (
        compute_measures(stowplan.simulate(cluster(tmp_path, node(), *pods))),
        compute_measures(replayed(cluster(tmp_path, node(), *pods))),
    ):
        assert found["placed"] == 0
        assert found["fairness_jain"] is None
        assert found["makespan"] is None
        assert found["wait_mean"] is None
    options = stowplan.ReplayOptions(pace=stowplan.Pace(0.0, 0.0))
    run = stowplan.simulate(cluster(tmp_path, node(), *pods), replay=options)
    # The figures of several seeds have no best makespan of a run without pods, either.
    assert "makespan_s" not in figures_of(run.summary)


def test_a_time_at_which_no_queue_has_anything_does_not_make_a_run_fairer() -> None:
    """Both wait at first; then one has all of it."""
    found = QueueFairness(np.array([0.0, 1.0]), ["x", "y"], np.array([[0.0, 2.0], [0.0, 0.0]]))
    assert np.array_equal(found.jain(), [np.nan, 0.5], equal_nan=True)
    assert found.mean_jain() == 0.5


def test_fairness_over_time_is_written_by_queue(tmp_path: Path) -> None:
    label = "metadata:\n  labels: {{kai.scheduler/queue: team-{0}}}"
    pods = [
        pod(f"{name}{n}", at=n).replace("metadata:", label.format(name), 1)
        for n in range(3)
        for name in "ab"
    ]
    text = fairness_over_time(replayed(cluster(tmp_path, node(), *pods))).decode()
    header, *lines = text.splitlines()
    assert header == "time_s,fairness_jain,queue_share.team-a,queue_share.team-b"
    assert len(lines) == 200
    assert lines[-1].split(",")[0] == "120"
    assert fairness_over_time(RunResult.of(stowplan.simulate(cluster(tmp_path, node())))) == b""


def test_weights_of_queues_count(tmp_path: Path) -> None:
    """A queue of weight 3 deserves 6 of 8 CPUs; each has 4."""
    queue = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {{name: {0}}}\n"
    queue += "spec: {{weight: {1}}}\n---\n"
    label = "metadata:\n  labels: {{volcano.sh/queue-name: {0}}}"
    pods = [
        pod(f"{name}{n}", cpu=2).replace("metadata:", label.format(name), 1)
        for n in range(2)
        for name in ("big", "small")
    ]
    pods += [pod("more", cpu=2).replace("metadata:", label.format("big"), 1)]
    pods += [pod("rest", cpu=2).replace("metadata:", label.format("small"), 1)]
    source = cluster(tmp_path, node(cpu=8), queue.format("big", 3), queue.format("small", 1), *pods)
    found = compute_measures(stowplan.simulate(source))
    assert found["queue_share.big"] == pytest.approx(4 / 6)
    assert found["queue_share.small"] == pytest.approx(2.0)


def test_a_result_that_was_written_measures_the_same(tmp_path: Path) -> None:
    run = stowplan.simulate(generate_workload(20, 100, 1), replay=stowplan.ReplayOptions())
    run.write(tmp_path)
    there, back = compute_measures(run), compute_measures(RunResult.read(tmp_path))
    known = {name: value for name, value in back.items() if value is not None}
    assert {name: there[name] for name in known} == known
    assert "wait_p99" in known
    assert {"fairness_jain"} <= there.keys() - known.keys()
    (tmp_path / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary\.json"):
        RunResult.read(tmp_path)


def test_measures_over_time(tmp_path: Path) -> None:
    series = measures_over_time(
        replayed(cluster(tmp_path, node(), pod("a"), pod("b", at=2), pod("c", at=4)))
    )
    assert series.columns["arrived.cpu"][-1] == pytest.approx(6 / 4)
    assert series.columns["running"].max() == 1
    assert all(column.shape == series.times.shape for column in series.columns.values())
    fill = measures_over_time(RunResult.of(stowplan.simulate(cluster(tmp_path, node(), pod("a")))))
    assert fill.columns == {}
    assert np.array_equal(fill.times, np.zeros(0))


def test_names_are_those_of_the_table() -> None:
    names = [one.name for one in MEASURES]
    assert len(set(names)) == len(names)
    assert {one.better for one in MEASURES} <= {"lower", "higher", ""}
    run = stowplan.simulate(generate_workload(20, 100, 1), replay=stowplan.ReplayOptions())
    assert all(measure_of(name) is not None for name in compute_measures(run))
    assert measure_of("wait_p42") is None
    assert measure_of("wait_p50.cpu") is None


def test_the_page_lists_every_measure_and_column() -> None:
    page = (ROOT / "docs" / "experiment-measures.md").read_text("utf-8")
    for one in MEASURES:
        name = f"{one.name}.{one.of.upper()}" if one.of else one.name
        row = f"| `{name}` | {one.unit} | {one.better} | {'yes' if one.compared else ''} |"
        assert row in page, row
    for name, columns in SCHEMA.items():
        for column, kind in columns.items():
            assert f"`{column}` {kind}" in page, (name, column)


OWN = '''
def long_waits(run):
    """Pods that waited for over a minute."""
    return int((run.waits_s > 60).sum())

long_waits.unit = "pods"
long_waits.better = "lower"

def by_node(run):
    return {"n1": sum(one.node == "n1" for one in run.placements)}

def broken(run):
    return "many"

def pods(run):
    return 1

wrong = 5
'''


def test_own_measures(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    measures = [own_measure(f"{file}:{name}") for name in ("long_waits", "by_node")]
    assert measures[0].unit == "pods"
    assert measures[0].compared
    assert measures[0].text == "Pods that waited for over a minute."
    run = replayed(cluster(tmp_path, node(), pod("a", cpu=4, run=90), pod("b", cpu=4)))
    found = compute_measures(run, measures)
    assert found["long_waits"] == 1
    assert found["by_node.n1"] == 2
    with pytest.raises(InputError, match="returned 'many': expected a finite number"):
        compute_measures(run, [own_measure(f"{file}:broken")])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("own.py", "measure: Invalid value: 'own.py': expected FILE.py:FUNCTION"),
        ("own.py:long_wait", r"unknown function 'long_wait': .*did you mean"),
        ("own.py:wrong", "unknown function 'wrong'"),
        ("own.py:pods", "a name that no measure of the table has"),
        ("absent.py:f", "no such file"),
        ("bad.py:f", "bad.py:1: SyntaxError"),
    ],
)
def test_own_measures_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "bad.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        own_measure(source)
