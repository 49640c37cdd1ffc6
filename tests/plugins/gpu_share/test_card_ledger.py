"""The ledger follows nodes, pods, reservations and dry runs card by card."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan import simulate
from stowplan.columns import PodInfo
from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.columns.overlay import Overlay
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.conventions.mixed_nodes import holds_unknown_cards
from stowplan.testing import pod
from tests.plugins.gpu_share.gpu_cases import configuration, gpu_node, gpu_pod
from tests.property.wrong import assert_caught

NODES = ("n0", "n1", "n2")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "count", "remove", "node", "drop", "reserve", "unreserve", "bind"]),
        st.integers(0, 5),
        st.sampled_from(NODES),
        st.sampled_from([(1, 300), (1, 1000), (2, 1000), (2, 400), (0, 0)]),
        st.integers(0, 4),
    ),
    max_size=25,
)
Step = tuple[str, int, str, tuple[int, int], int]


def bound(one: Pod, node: str) -> Pod:
    return replace(one, spec=replace(one.spec, node_name=node))


class Walk:
    """A table, its ledger, and the cards reserved on it."""

    def __init__(self, ledger: type[CardLedger]) -> None:
        self.table = NodeTable()
        self.ledger = ledger.of(self.table)

    def take(self, step: Step) -> None:
        what, number, node, (num, milli), count = step
        name, uid, table = f"p{number}", f"default/p{number}", self.table
        row, known = table.row(node), table.knows_pod(uid)
        if what == "node" and row < 0:
            table.add_node(gpu_node(node, count))
        elif what == "node":
            table.update_node(gpu_node(node, count, "A"))
        elif what == "drop" and row >= 0:
            table.remove_node(node)
        elif what == "add" and not known:
            table.add_pod(bound(gpu_pod(name, num, milli), node))
        elif what == "count" and not known:
            table.add_pod(pod(name, on=node, resources={"nvidia.com/gpu": "1"}))
        elif what == "remove" and known:
            table.remove_pod(uid)
        elif what in ("reserve", "unreserve") and table.row_of_pod(uid) >= 0:
            self._reserve(uid, table.row_of_pod(uid), given=what == "reserve")
        elif what == "bind" and table.row_of_pod(uid) >= 0:
            info = table.pod(uid)
            assert info is not None
            notes = {**info.pod.metadata.annotations, "alibabacloud.com/gpu-index": str(count)}
            meta = replace(info.pod.metadata, annotations=notes)
            table.update_pod(replace(info.pod, metadata=meta))

    def _reserve(self, uid: str, row: int, *, given: bool) -> None:
        if given:
            self.ledger.reserve(uid, row, (1,))
        else:
            self.ledger.unreserve(uid, row)

    def check(self) -> None:
        """The columns are those of the nodes' own pods."""
        columns = self.ledger.columns()
        for row in range(self.table.n_nodes):
            assert columns.state(row) == self.ledger.state(self.table.info(row))
        infos = [self.table.info(row) for row in range(self.table.n_nodes)]
        assert self.ledger.unknown_cards().tolist() == [*map(holds_unknown_cards, infos)]


def check_steps(steps: list[Step], ledger: type[CardLedger] = CardLedger) -> None:
    walk = Walk(ledger)
    for name in NODES:
        walk.table.add_node(gpu_node(name, 2))
    for step in steps:
        walk.take(step)
        walk.check()


@given(STEPS)
def test_columns_follow_every_change(steps: list[Step]) -> None:
    check_steps(steps)


class ForgetsReservations(CardLedger):
    """Does not move a pod to the cards that are reserved for it."""

    def _again(self, row: int, uid: str) -> None:
        pass


class KeepsRemovedPods(CardLedger):
    """Does not give back cards that are assumed."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        if self._pods[row][info.uid].cards is not None:
            super().pod_removed(row, info)


class KeepsTheFirstVersion(CardLedger):
    """Takes no notice of the cards of a pod's binding."""

    def pod_replaced(self, row: int, before: PodInfo, after: PodInfo) -> None:
        pass


class CountsEveryKubelet(CardLedger):
    """Does not forget pods whose cards the kubelet has chosen."""

    def pod_removed(self, row: int, info: PodInfo) -> None:
        self._pods[row][info.uid] = self._pods[row][info.uid]._replace(is_unknown=False)
        super().pod_removed(row, info)


@pytest.mark.parametrize(
    "wrong", [ForgetsReservations, KeepsRemovedPods, KeepsTheFirstVersion, CountsEveryKubelet]
)
def test_a_ledger_that_misses_changes_is_caught(wrong: type[CardLedger]) -> None:
    def check(steps: list[Step]) -> None:
        try:
            check_steps(steps, wrong)
        except (IndexError, KeyError) as problem:
            # It remembers rows and pods that are gone.
            raise AssertionError from problem

    assert_caught(check, STEPS)


def test_an_overlay_takes_and_gives_back_cards() -> None:
    table = NodeTable()
    row = table.add_node(gpu_node("n", 2))
    table.add_pod(bound(gpu_pod("a", 1, 600, cards="1"), "n"))
    ledger = CardLedger.of(table)
    before = ledger.columns().left.tolist()
    assert before == [[1000, 400]]
    with Overlay(table) as overlay:
        overlay.take("default/a", row)
        assert ledger.columns().left.tolist() == [[1000, 1000]]
        overlay.place(PodInfo.of(gpu_pod("b", 2, 1000)), row)
        assert ledger.columns().left.tolist() == [[0, 0]]
    assert ledger.columns().left.tolist() == before


def test_assumed_cards_do_not_depend_on_the_order_of_pods() -> None:
    pods = [gpu_pod("a", 1, 300), gpu_pod("b", 1, 700), gpu_pod("c", 1, 800)]
    found = []
    for order in (pods, pods[::-1]):
        table = NodeTable()
        table.add_node(gpu_node("n", 2))
        ledger = CardLedger.of(table)
        for one in order:
            table.add_pod(bound(one, "n"))
        found.append(ledger.columns().left.tolist())
    assert found == [[[0, 200]]] * 2


def test_a_pod_for_which_no_card_suffices_counts_on_the_emptiest() -> None:
    """Bound in another order than that of the assumptions, these have fitted on two cards."""
    table = NodeTable()
    table.add_node(gpu_node("n", 2))
    ledger = CardLedger.of(table)
    for name, milli in (("y", 700), ("z", 700), ("a", 300), ("b", 300)):
        table.add_pod(bound(gpu_pod(name, 1, milli), "n"))
    assert ledger.columns().left.tolist() == [[0, 300]]
    assert ledger.state(table.info(0)).left == (0, 300)


@pytest.mark.parametrize(
    ("cards", "index"),
    [(2, "9" * 5000), (2, "4000000000"), (2, "5"), (3_000_000_000, "")],
)
def test_absurd_numbers_claim_no_memory(cards: int, index: str, tmp_path: Path) -> None:
    """Of a pod that waits, of one that is bound, and of a node."""
    (tmp_path / "config.json").write_text(configuration(policy="BestFit"))
    pods = [gpu_pod("bound", 1, 500, cards=index, on="n1"), gpu_pod("plain", 1, 400)]
    waiting = gpu_pod("waiting", 1, 400, cards=index)
    cluster = Cluster([gpu_node("n1", cards)], [*pods, waiting])
    found = simulate(cluster, config=tmp_path / "config.json")
    assert {one.pod: one.node for one in found.placements}["default/plain"] == "n1"


def test_a_pod_that_another_client_bound_does_not_keep_what_was_reserved() -> None:
    """Otherwise a scheduler counts other cards than it would after a restart."""
    table = NodeTable()
    row = table.add_node(gpu_node("n", 2))
    pod = gpu_pod("a", 1, 300)
    other = bound(gpu_pod("b", 1, 500, cards="0"), "n")
    table.add_pod(other)
    ledger = CardLedger.of(table)
    table.add_pod(pod, "n")
    ledger.reserve(pod.uid, row, (1,))
    assert ledger.columns().left.tolist() == [[500, 700]]
    table.update_pod(bound(pod, "n"))
    again = CardLedger.of(table_of(table.nodes, [other, bound(pod, "n")]))
    assert ledger.columns().left.tolist() == again.columns().left.tolist() == [[200, 1000]]
