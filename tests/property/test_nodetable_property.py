"""A NodeTable after any history is the one that its objects would make anew."""

from itertools import zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeTable
from stowplan.columns.invariants import validate
from stowplan.objects.node import Node, zone_key
from stowplan.testing import node
from stowplan.testing.generators.table_changes import Step
from stowplan.testing.strategies import histories
from tests.property.wrong import assert_caught

LONG = histories(24)


def live(table: NodeTable, steps: list[Step]) -> None:
    """Let the steps happen; the table is sound after each, and its sums are those of its pods."""
    for step in steps:
        step.apply(table)
        validate(table)
        for row, info in enumerate(table.infos()):
            for name in table.resources.values:
                assert table.requested(name)[row] == info.requested.get(name, 0), name
                assert table.allocatable(name)[row] == info.allocatable.get(name, 0), name
            assert table.nonzero_requested("cpu")[row] == info.nonzero_requested[0]
            assert table.nonzero_requested("memory")[row] == info.nonzero_requested[1]
            assert table.pod_count[row] == len(info.pods)


@given(LONG)
def test_a_table_is_sound_after_every_step(steps: list[Step]) -> None:
    live(NodeTable(), steps)


class LeavesTaintsBehind(NodeTable):
    """The last row takes another's place without its taints."""

    def _close_gap(self, row: int) -> None:
        vacated = self.taints.of_row(row)
        super()._close_gap(row)
        self.taints.write(row, vacated)


class KeepsOldAmounts(NodeTable):
    """A changed node keeps what it no longer offers."""

    def update_node(self, node: Node) -> int:
        row = self.row(node.name)
        before = {name: int(self.allocatable(name)[row]) for name in self.resources.values}
        super().update_node(node)
        for name, amount in before.items():
            if name not in node.status.allocatable:
                self.allocatable(name)[row] = amount
        return row


class RemembersViews(NodeTable):
    """The scalar view of a row outlives a change of the row's node."""

    def update_node(self, node: Node) -> int:
        view = self._infos.get(self.row(node.name))
        row = super().update_node(node)
        if view is not None:
            self._infos[row] = view
        return row


@pytest.mark.parametrize("wrong", [LeavesTaintsBehind, KeepsOldAmounts, RemembersViews])
def test_control_wrong_tables(wrong: type[NodeTable]) -> None:
    assert_caught(lambda steps: live(wrong(), steps), LONG)


# The order, against a model that is as slow and plain as can be.


class OrderModel:
    """kube-scheduler's node tree and snapshot list, kept as lists and searched from the start."""

    def __init__(self) -> None:
        self.tree: list[tuple[tuple[str, str], list[str]]] = []
        self.snapshot: list[str] = []

    def add(self, node: Node) -> None:
        for zone, names in self.tree:
            if zone == zone_key(node):
                names.append(node.name)
                return
        self.tree.append((zone_key(node), [node.name]))

    def remove(self, name: str) -> None:
        for _, names in self.tree:
            if name in names:
                names.remove(name)
        self.tree = [(zone, names) for zone, names in self.tree if names]

    def update(self, node: Node) -> None:
        if not any(zone == zone_key(node) and node.name in names for zone, names in self.tree):
            self.remove(node.name)
            self.add(node)

    def refresh(self) -> None:
        turns = zip_longest(*(names for _, names in self.tree))
        now = [name for turn in turns for name in turn if name is not None]
        if sorted(now) != sorted(self.snapshot):
            self.snapshot = now


def follow_order(steps: list[Step], model: OrderModel) -> None:
    table = NodeTable()
    for step in steps:
        step.apply(table)
        match step:
            case Step("add_node", Node() as new):
                model.add(new)
            case Step("update_node", Node() as changed):
                model.update(changed)
            case Step("remove_node", str() as name):
                model.remove(name)
            case Step("refresh"):
                model.refresh()
                assert [table.names[row] for row in table.order] == model.snapshot


@st.composite
def comings_and_goings(draw: st.DrawFn) -> list[Step]:
    """Nodes that come, go and change their zone, between refreshes."""
    steps: list[Step] = []
    present: set[str] = set()
    for _ in range(draw(st.integers(3, 20))):
        name, zone = draw(st.sampled_from("abcde")), draw(st.sampled_from("xyz"))
        if draw(st.integers(0, 3)) == 3:
            steps.append(Step("refresh"))
        elif name not in present:
            steps.append(Step("add_node", node(name, zone=zone)))
            present.add(name)
        elif draw(st.booleans()):
            steps.append(Step("update_node", node(name, zone=zone)))
        else:
            steps.append(Step("remove_node", name))
            present.remove(name)
    return [*steps, Step("refresh")]


@given(comings_and_goings())
def test_the_order_is_that_of_a_plain_model(steps: list[Step]) -> None:
    follow_order(steps, OrderModel())


class AlwaysFresh(OrderModel):
    """Lists the nodes anew each time, as one would expect."""

    def refresh(self) -> None:
        self.snapshot = []
        super().refresh()


def test_control_wrong_order() -> None:
    assert_caught(lambda steps: follow_order(steps, AlwaysFresh()), comings_and_goings())
