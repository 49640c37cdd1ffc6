"""Several whole GPUs of one pod: the closest by links, on the node where they are closest."""

from __future__ import annotations

import io
import json
import random
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from stowplan import Cluster, explain
from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.cli.tables.explanations import print_explanation
from stowplan.messages import events as happened
from stowplan.objects.node import Node
from stowplan.plugins.gpu_share.conventions import CONVENTIONS, gpu_links
from stowplan.plugins.gpu_share.conventions.device_ledger import report_of
from stowplan.plugins.gpu_share.conventions.gpu_links import (
    ACROSS_SOCKETS,
    LINKS_KEY,
    NVLINK,
    SAME_SOCKET,
    annotated_links,
    closest_cards,
    link_rows,
    links_between,
    links_by_socket,
)
from stowplan.plugins.gpu_share.scores.gpu_topology import GpuTopology, GpuTopologyArgs
from stowplan.testing import check_plugin
from tests.plugins.gpu_share import test_device_sharing as by_device
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.plugins.gpu_share.test_gpu_share import Cluster as Scheduler
from tests.soak import examples


def linked(node: Node, links: str) -> Node:
    notes = {**node.metadata.annotations, LINKS_KEY: links}
    return replace(node, metadata=replace(node.metadata, annotations=notes))


def with_topology(weight: int, **args: object) -> str:
    """GpuShare and GpuTopology alone score."""
    made = json.loads(configuration(**args))
    score = {"name": "GpuTopology", "weight": weight}
    for point in ("preScore", "score"):
        made["profiles"][0]["plugins"][point]["enabled"].append(score)
    return json.dumps(made)


def test_links_of_an_annotation() -> None:
    links, problem = annotated_links(linked(gpu_node("n", 4), "0-1,2;3"), 4)
    assert problem == ""
    assert links[0] == (0, NVLINK, SAME_SOCKET, ACROSS_SOCKETS)
    assert annotated_links(gpu_node("n", 4), 4) == ((), "")


@pytest.mark.parametrize("text", ["", "a", "0-1,1-2;3", "0-1", "0-1-2-3-4", "0,1;2,,3"])
def test_an_annotation_that_makes_no_sense_counts_as_none(text: str) -> None:
    links, problem = annotated_links(linked(gpu_node("n", 4), text), 4)
    assert links == ()
    assert problem.startswith(f"annotation {LINKS_KEY}: got {text!r}, wanted ")
    assert Scheduler(linked(gpu_node("n", 4), text)).place(gpu_pod("a", 2, 1000)) == ("n", "0-1")


@pytest.mark.parametrize(
    ("links", "taken", "expected"),
    [
        ("0-2,1-3", "", "0-2"),
        ("0-2,1-3", "0", "1-3"),
        ("0-1-2-3,4-5", "", "4-5"),  # four stay together
        ("0,1;2,3", "0", "2-3"),  # the socket, where no group is left
        ("0;1;2;3", "", "0-1"),
    ],
)
def test_whole_cards_are_the_closest_idle_ones(links: str, taken: str, expected: str) -> None:
    n_cards = max(int(text) for text in links.replace(",", "-").replace(";", "-").split("-")) + 1
    cluster = Scheduler(linked(gpu_node("n", n_cards), links))
    if taken:
        cluster.place(gpu_pod("there", 1, 1000, cards=taken))
    assert cluster.place(gpu_pod("a", 2, 1000)) == ("n", expected)


def test_parts_and_prescribed_cards_stay_as_they_are() -> None:
    cluster = Scheduler(linked(gpu_node("n", 4), "0-2,1-3"))
    assert cluster.place(gpu_pod("a", 2, 300)) == ("n", "0-1")
    assert cluster.place(gpu_pod("b", 2, 1000, cards="2-3")) == ("n", "2-3")


class TopologyScheduler(Scheduler):
    """With GpuTopology, of the given weight."""

    def __init__(self, weight: int, *nodes: Node) -> None:
        self.scheduler = scheduler_for(*configuration_of(with_topology(weight), "test"))
        self.reasons = {}
        self.handle(*(happened.NodeAdded(node) for node in nodes))


def two_nodes() -> tuple[Node, Node]:
    """BestFit prefers the smaller node; its idle cards are on two sockets."""
    return linked(gpu_node("far", 2), "0;1"), linked(gpu_node("near", 4), "0-1;2-3")


def test_the_weight_decides_between_packing_and_links() -> None:
    pod = gpu_pod("a", 2, 1000)
    assert Scheduler(*two_nodes()).place(pod)[0] == "far"
    assert TopologyScheduler(10, *two_nodes()).place(pod) == ("near", "0-1")
    assert TopologyScheduler(10, *two_nodes()).place(gpu_pod("b", 1, 1000))[0] == "far"


def test_explain_names_the_cards_and_their_cost(tmp_path: Path) -> None:
    nodes = (linked(gpu_node("n", 4), "0-1;2-3"),)
    there = [gpu_pod(f"p{card}", 1, 1000, cards=card, on="n") for card in ("0", "3")]
    (tmp_path / "config.json").write_text(with_topology(1))
    pod = gpu_pod("a", 2, 1000)
    cluster = Cluster(nodes, [*there, pod])
    explanation = explain(pod.key, cluster, config=tmp_path / "config.json")
    (score,) = explanation.scores
    assert score.plugins["GpuTopology"].details == (
        "gpu links: 1, 2 with 10 over 1 pair, 90 less than the closest of the node",
    )
    text = io.StringIO()
    print_explanation(explanation, Console(file=text, width=100))
    assert "\nn: gpu links: 1, 2 with 10 over 1 pair, 90 less" in text.getvalue()
    assert score.plugins["GpuShare"].details == ()


def test_the_order_of_what_a_node_reports() -> None:
    by_socket = by_device.hami_node("n", ("G0", 1000), ("G1", 1000))
    hami = [CONVENTIONS["hami"]]
    assert report_of(by_socket, hami).report.links == ((0, SAME_SOCKET), (SAME_SOCKET, 0))
    scored = by_device.linked_node({(0, 1): 50}, 2)
    assert report_of(scored, hami).report.links == ((0, 50), (50, 0))
    assert report_of(linked(scored, "0-1"), hami).report.links == ((0, NVLINK), (NVLINK, 0))
    volcano = by_device.volcano_node("n", ("G0", 1000), ("G1", 1000))
    assert report_of(volcano, [CONVENTIONS["volcano"]]).report.links == ()
    wrong = report_of(linked(volcano, "0"), [CONVENTIONS["volcano"]]).report
    assert "wanted each of the node's 2 cards" in wrong.links_problem
    assert links_by_socket([0, -1]) == ()


def test_registered_gpus_are_scored() -> None:
    # The least memory left would be on `far`.
    far = linked(by_device.volcano_node("far", ("A", 800), ("B", 800)), "0;1")
    near = linked(by_device.volcano_node("near", *[(f"C{i}", 1600) for i in range(4)]), "0-2;1-3")
    cluster = TopologyScheduler(10, far, near)
    (bind,) = cluster.handle(happened.PodAdded(by_device.vgpu_pod("a", 2, 800)))
    assert bind.node == "near"
    assert bind.annotations["volcano.sh/vgpu-ids-new"] == "C0,NVIDIA,800,0:C2,NVIDIA,800,0:"


def test_the_column_equals_the_scores_of_single_nodes() -> None:
    check_plugin(GpuTopology)


def test_an_unknown_convention() -> None:
    (problem,) = GpuTopologyArgs(("mps",)).problems("args")
    assert problem.path == "args.conventions[0]"


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(3, 8), st.integers(2, 4), st.randoms(use_true_random=False))
def test_no_set_of_cards_is_closer(n_cards: int, count: int, rng: random.Random) -> None:
    count = min(count, n_cards - 1)
    link_of = {frozenset(two): rng.randint(0, 9) for two in combinations(range(n_cards), 2)}
    links = link_rows(n_cards, lambda i, j: link_of[frozenset((i, j))])
    idle = tuple(sorted(rng.sample(range(n_cards), rng.randint(count, n_cards))))
    sets = list(combinations(idle, count))
    best = max(links_between(links, some) for some in sets)
    chosen = closest_cards(links, idle, count)
    assert links_between(links, chosen) == best

    def rest(some: tuple[int, ...]) -> int:
        return links_between(links, [card for card in idle if card not in some])

    most = max(rest(some) for some in sets if links_between(links, some) == best)
    assert chosen in sets
    assert rest(chosen) == most


def test_the_first_idle_cards_are_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above sees a choice that does not look at links."""
    monkeypatch.setitem(globals(), "closest_cards", lambda links, idle, count: idle[:count])
    with pytest.raises(AssertionError):
        test_no_set_of_cards_is_closer()


def test_too_many_sets_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_links, "SETS_MAX", 1)
    links = link_rows(6, lambda i, j: 100 if i % 2 == j % 2 else 10)
    closest_cards.cache_clear()
    assert closest_cards(links, (0, 1, 2, 3, 4, 5), 3) == (0, 2, 4)
    nothing = link_rows(6, lambda i, j: 0)
    assert closest_cards(nothing, (0, 1, 2, 3, 4, 5), 3) == (0, 1, 2)
    closest_cards.cache_clear()
