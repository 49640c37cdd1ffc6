"""Fragmentation of GPU cards in simulations: against the scalar measure, and as it is printed."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from stowplan import explain, simulate
from stowplan.assembly.build import configuration_of
from stowplan.cli.tables.explanations import print_explanation
from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.cycle.explanation import Explanation
from stowplan.driver.live.exposition import SchedulerCollector
from stowplan.inputs.cluster_reader import Cluster, read_cluster
from stowplan.insight.gpu_fragmentation import (
    CardFragmentationMeter,
    CardFragmentationWatch,
    FollowedCardFragmentation,
    has_cards,
    typical_of,
)
from stowplan.objects.devices.gpu_cards import CardState
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.fragmentation import (
    CATEGORIES,
    CAUSES,
    FRAGMENTS,
    TypicalPod,
    fragment_of,
    milli_by_category,
)
from stowplan.simulation.replay import ReplayOptions
from stowplan.testing import node
from tests.cli.run import run
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.plugins.gpu_share.test_device_sharing import vgpu_pod, volcano_node
from tests.property.wrong import assert_caught
from tests.soak import examples

TYPICAL = (
    TypicalPod(4000, 1, 500, "", 0.6),
    TypicalPod(1000, 2, 1000, "A", 0.3),
    TypicalPod(2000, share=0.1),
)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from(["", "A"]), st.lists(st.integers(0, 10), max_size=4)
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_cluster_is_the_sum_of_its_nodes(shapes: list[tuple[int, str, list[int]]]) -> None:
    nodes, pods, states = [], [], []
    for number, (n_cards, model, used) in enumerate(shapes):
        nodes.append(gpu_node(f"n{number}", n_cards, model, cpu="8"))
        left = [1000] * n_cards
        for card, part in enumerate(used[:n_cards]):
            if part:
                pods.append(
                    gpu_pod(f"p{number}-{card}", 1, part * 100, cards=str(card), on=f"n{number}")
                )
                left[card] -= part * 100
        n_pods = sum(part > 0 for part in used[:n_cards])
        states.append((n_cards, CardState(8000, 8000 - 1000 * n_pods, tuple(left), model)))
    found = CardFragmentationMeter(TYPICAL).measure(table_of(nodes, pods))
    with_cards = [state for n_cards, state in states if n_cards]
    if not with_cards:
        assert found is None
        return
    assert found is not None
    assert found.fragment_milli == pytest.approx(
        sum(fragment_of(one, TYPICAL) for one in with_cards)
    )
    for index, name in enumerate(CATEGORIES):
        expected = sum(milli_by_category(one, TYPICAL)[index] for one in with_cards)
        assert found.by_category[name] == pytest.approx(expected)
    assert found.idle_milli == sum(one.total_left for one in with_cards)
    # Every fragment has one cause; the rest of what is idle is of use.
    assert sum(found.by_cause.values()) == pytest.approx(found.fragment_milli)
    assert sorted(c for some in CAUSES.values() for c in some) == sorted(FRAGMENTS)
    assert sum(found.by_category.values()) == pytest.approx(found.idle_milli)
    assert sum(idle for idle, _ in found.nodes.values()) == found.idle_milli


STEPS = st.lists(
    st.tuples(st.sampled_from(["pod", "end", "node", "gone", "more"]), st.integers(0, 5)),
    min_size=1,
    max_size=25,
)


def check_followed(steps: list[tuple[str, int]]) -> None:
    """After every step the totals that are kept are those that are measured."""
    meter = CardFragmentationMeter(TYPICAL)
    followed, table = FollowedCardFragmentation(meter), NodeTable()
    for number, (step, at) in enumerate(steps):
        name, uid = f"n{at}", f"p{at}"
        if step == "node" and name not in table.names:
            table.add_node(gpu_node(name, at % 4, "A" if at % 2 else "", cpu="8"))
        elif step == "more" and name in table.names:
            table.update_node(gpu_node(name, at % 4 + 1, "B", cpu="8"))
        elif step == "gone" and name in table.names:
            table.remove_node(name)
        elif step == "end" and table.knows_pod(gpu_pod(uid, 1, 500).uid):
            table.remove_pod(gpu_pod(uid, 1, 500).uid)
        elif step == "pod" and table.names and not table.knows_pod(gpu_pod(uid, 1, 500).uid):
            place = table.names[number % len(table.names)]
            cards = "0" if number % 2 else ""
            table.add_pod(gpu_pod(uid, 1, 100 * (at + 1), cards=cards, on=place))
        kept, measured = followed.totals(table), meter.measure(table)
        if measured is None or kept is None:
            assert kept is measured
            continue
        assert (kept.cards, kept.idle_milli) == (measured.cards, measured.idle_milli)
        assert kept.fragment_milli == pytest.approx(measured.fragment_milli)
        assert kept.by_cause == pytest.approx(measured.by_cause)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_what_is_followed_is_what_is_measured(steps: list[tuple[str, int]]) -> None:
    check_followed(steps)


def test_control_rows_that_are_gone_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: there are rows for as many nodes as there ever were."""

    def resize(self: FollowedCardFragmentation, n_rows: int) -> None:
        right(self, max(n_rows, self._idle.shape[0]))

    right = FollowedCardFragmentation._resize
    monkeypatch.setattr(FollowedCardFragmentation, "_resize", resize)
    assert_caught(check_followed, STEPS)


def test_registered_devices_count_too() -> None:
    nodes = [volcano_node("n1", ("GPU-0", 16000)), node("n2", cpu="8")]
    assert has_cards(nodes)
    assert not has_cards(nodes[1:])
    typical = typical_of([vgpu_pod("a", 1, 4000)], nodes)
    assert [(one.num, one.milli, one.share) for one in typical] == [(1, 250, 1.0)]
    found = CardFragmentationMeter(typical).measure(table_of(nodes, []))
    assert found is not None
    assert (found.cards, found.idle_milli, found.fragment_milli) == (1, 1000, 0.0)
    assert [usable for _, usable in found.usable] == [1000]


def cluster() -> Cluster:
    pods = [gpu_pod(name, 1, 700) for name in "abc"]
    return Cluster([gpu_node("n1", 2), gpu_node("n2", 1)], pods)


def test_a_fill_reports_what_is_of_no_use(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(configuration(policy="BestFit"))
    found = simulate(cluster(), config=path)
    cards = found.summary["gpu_cards"]
    # Three cards with 300 milli each, and all pods want 700.
    assert (cards["cards"], cards["idle_milli"], cards["fragment_milli"]) == (3, 900, 900.0)
    assert (cards["of_capacity"], cards["of_idle"]) == (0.3, 1.0)
    assert cards["by_cause"]["gpu_short"] == 900.0
    assert cards["typical_pods"] == [
        {"cpu_milli": 1000, "num": 1, "milli": 700, "models": "", "share": 1.0, "usable_milli": 0}
    ]
    rows = list(csv.reader(io.StringIO(found.files()["gpu_nodes.csv"].decode())))
    assert rows == [
        ["node", "idle_milli", "fragment_milli"],
        ["n1", "600", "600.0"],
        ["n2", "300", "300.0"],
    ]


def test_configured_typical_pods_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    workload = [{"cpuMilli": 1000, "num": 1, "milli": 300, "count": 1}]
    path.write_text(configuration(policy="FGD", workload=workload))
    cards = simulate(cluster(), config=path).summary["gpu_cards"]
    assert (cards["idle_milli"], cards["fragment_milli"]) == (900, 0.0)


def test_a_replay_has_it_over_time(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(configuration(policy="BestFit"))
    found = simulate(cluster(), config=path, replay=ReplayOptions(sample_s=1.0))
    rows = list(csv.DictReader(io.StringIO(found.series.decode())))
    assert float(rows[-1]["gpu_cards.fragment"]) == 0.3
    assert float(rows[-1]["gpu_cards.gpu_short"]) == 0.3
    assert found.summary["over_time"]["gpu_cards"]["fragment"]["peak"] == 0.3


def test_the_command_prints_the_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = json.loads(configuration(policy="BestFit"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "openb_node_list.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,9000,2,T4\n"
    )
    (tmp_path / "openb_pod_list.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
        "p1,1000,10,1,700,\np2,1000,10,1,700,\n"
    )
    files = ("--cluster", "openb_node_list.csv", "--cluster", "openb_pod_list.csv")
    result = run("simulate", *files, "--config", "config.json")
    assert (
        "GPU cards: 0.6 of 2 idle; 0.6 of them (30.0% of all) are of no use to typical pods"
        in result.out
    )
    assert "too little on the card" in result.out
    plain = run("simulate", "--nodes", "4", "--pods", "4")
    assert "GPU cards" not in plain.out


# While a scheduler runs.


def settings_of(**args: Any) -> Any:
    return configuration_of(configuration(**args), "test")[0]


def test_it_is_measured_again_when_something_changes() -> None:
    table = table_of([gpu_node("n1", 2)], [gpu_pod("a", 1, 700, cards="0", on="n1")])
    watch, args = CardFragmentationWatch(), settings_of()
    found = watch.measure(table, args)
    assert found is not None
    assert (found.idle_milli, found.by_cause["gpu_short"]) == (1300, 300.0)
    assert watch.measure(table, args) is found
    table.add_pod(gpu_pod("b", 1, 700, cards="1", on="n1"))
    again = watch.measure(table, args)
    assert again is not None
    assert (again.idle_milli, again.by_cause["gpu_short"]) == (600, 600.0)


def test_it_is_not_measured_without_the_plugin_or_without_cards() -> None:
    plain = configuration_of(None, "test")[0]
    assert CardFragmentationWatch().measure(table_of([gpu_node("n", 1)]), plain) is None
    assert CardFragmentationWatch().measure(table_of([node("n")]), settings_of()) is None


def test_the_gauges() -> None:
    table = table_of([gpu_node("n1", 2)], [gpu_pod("a", 1, 700, cards="0", on="n1")])
    server = SimpleNamespace(
        scheduler=SimpleNamespace(cache=SimpleNamespace(nodes=table)),
        deciders=SimpleNamespace(configuration=settings_of()),
    )
    collector = SchedulerCollector(server)  # type: ignore[arg-type]
    samples = [sample for family in collector._gpu_cards() for sample in family.samples]
    found = {(one.name, one.labels.get("cause", "")): one.value for one in samples}
    assert found["stowplan_gpu_cards", ""] == 2
    assert found["stowplan_gpu_idle_cards", ""] == 1.3
    assert found["stowplan_gpu_fragment_cards", "gpu_short"] == 0.3
    assert found["stowplan_gpu_fragment_cards", "model"] == 0.0


# In explanations, by node.


def explained(nodes: list[Node], pods: list[Pod], path: Path, **args: Any) -> Explanation:
    path.write_text(configuration(**args))
    return explain("default/new", Cluster(nodes, pods), config=path, changes=False)


def test_an_explanation_names_the_causes_by_node(tmp_path: Path) -> None:
    nodes = [gpu_node("a", 2, "T4"), gpu_node("b", 1, "V100"), gpu_node("c", 1, "T4", cpu="1")]
    pods = [
        gpu_pod("p", 1, 700, cards="0", on="a"),
        gpu_pod("new", 1, 500, models="T4", cpu="4"),
    ]
    found = explained(nodes, pods, tmp_path / "config.json")
    assert {one.node: (one.idle_milli, one.by_cause) for one in found.stranded_cards} == {
        "a": (1300, {"gpu_short": 300.0}),
        "b": (1000, {"model": 1000.0}),
        "c": (1000, {"cpu_short": 1000.0}),
    }
    workload = [{"cpuMilli": 1000, "num": 1, "milli": 300, "count": 1}]
    found = explained(nodes, pods, tmp_path / "config.json", workload=workload)
    assert not any(one.by_cause for one in found.stranded_cards)
    plain = explain("default/new", Cluster(nodes, pods), changes=False)
    assert not plain.stranded_cards


def test_the_command_explains_the_causes(tmp_path: Path) -> None:
    nodes = [gpu_node("a", 2, "T4"), gpu_node("b", 1, "V100")]
    pods = [gpu_pod("new", 1, 500, models="V100")]
    screen = Console(file=io.StringIO(), width=100)
    print_explanation(explained(nodes, pods, tmp_path / "config.json"), screen)
    printed = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "GPU cards: 3.0 idle, 2.0 of them of no use to expected pods: model 2.00" in printed


@pytest.mark.skipif("STOWPLAN_TRACES" not in os.environ, reason="needs the OpenB trace")
def test_the_empty_cluster_of_the_paper() -> None:
    folder = Path(os.environ["STOWPLAN_TRACES"]) / "openb"
    names = ("openb_node_list_gpu_node.csv", "openb_pod_list_default.csv")
    read = read_cluster([folder / name for name in names])
    typical = typical_of(read.pods, read.nodes)
    found = CardFragmentationMeter(typical).measure(table_of(read.nodes, []))
    assert found is not None
    assert len(typical) == 35
    assert round(found.of_capacity, 3) == 0.139
