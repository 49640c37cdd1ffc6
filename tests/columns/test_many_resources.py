"""Many resources that few nodes have: columns by pages, and the rows that offer a resource."""

from pathlib import Path

import numpy as np
import pytest

from stowplan.columns import NodeTable, array_types, incidence
from stowplan.columns.array_types import move_row, zero_columns
from stowplan.columns.incidence import OfferedResources
from stowplan.columns.invariants import InvariantBroken, validate
from stowplan.columns.nodetable import table_of
from stowplan.columns.replica import Replica
from stowplan.testing import node, pod

N_NODES = 90


def own(i: int) -> str:
    return f"example.com/{i}"


def changed_table() -> NodeTable:
    """A node per resource; some nodes leave, others offer something else, and pods come and go."""
    names = range(N_NODES)
    table = table_of(node(f"n{i}", resources={own(i): str(i + 1)}) for i in names)
    for i in range(0, N_NODES, 3):
        table.add_pod(pod(f"p{i}", on=f"n{i}", cpu="1", resources={own(i): "1"}))
    for i in range(0, N_NODES, 4):
        table.remove_node(f"n{i}")
    for i in range(1, N_NODES, 6):
        if table.row(f"n{i}") >= 0:
            table.update_node(node(f"n{i}", resources={own(i + 1): "7"}))
    table.add_node(node("again", resources={own(0): "3"}))
    table.refresh()
    return table


def test_columns_by_pages_hold_what_others_hold() -> None:
    table = changed_table()
    assert table.amounts[0].shape[0] > array_types.COLUMNS_MANY
    validate(table)
    copy = Replica(table).table
    for i in range(N_NODES):
        for mine, its in ((copy.allocatable, table.allocatable), (copy.requested, table.requested)):
            assert mine(own(i)).tolist() == its(own(i)).tolist()


def test_control_a_row_that_is_not_emptied_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: amounts of the last row stay when it moves."""
    from stowplan.columns import nodetable

    def copied(table: np.ndarray, source: int, target: int) -> None:
        table[:, target] = table[:, source]

    monkeypatch.setattr(nodetable, "move_row", copied)
    with pytest.raises(InvariantBroken):
        validate(changed_table())


def check_offered(table: NodeTable) -> None:
    for name in table.resources.values:
        item = table.item(name)
        assert table.offered.rows(item) == np.flatnonzero(table.allocatable(name)).tolist()


def test_rows_that_offer_a_resource_are_known() -> None:
    check_offered(changed_table())


def test_control_a_row_that_left_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: the last row leaves, and is still among those that offer what it did."""
    monkeypatch.setattr(OfferedResources, "pop", lambda self: self.items.pop())
    with pytest.raises(AssertionError):
        check_offered(changed_table())


def test_control_a_changed_row_that_is_added_at_the_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: rows of a resource are in the order in which they came to offer it."""
    monkeypatch.setattr(incidence, "insort", list.append)
    with pytest.raises((AssertionError, IndexError)):
        check_offered(changed_table())


def test_another_set_of_resources_is_another_shape_of_the_table() -> None:
    """Plans name the rows that offer a resource."""
    table = table_of([node("n1"), node("n2", resources={own(1): "1"})])
    before = table.shape
    table.update_node(node("n2", resources={own(1): "2"}))
    assert table.shape == before
    table.update_node(node("n1", resources={own(1): "2"}))
    assert table.shape > before


def test_where_requests_are_below_zero_any_row_may_have_room() -> None:
    table = table_of([node("n1")])
    before = table.shape
    table.add_pod(pod("odd", on="n1", resources={own(1): "-5"}))
    assert not table.offered.is_needed
    assert table.shape > before


def test_moving_a_row_writes_what_differs_and_empties_the_source() -> None:
    table = zero_columns((array_types.COLUMNS_MANY + 1, 4))
    table[3, 2], table[5, 0] = 7, 9
    move_row(table, 2, 0)
    assert table[3].tolist() == [7, 0, 0, 0]
    assert not table[5].any()


OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
"""2 on a machine that reserves memory for all pages, whatever is asked for."""


@pytest.mark.skipif(
    not OVERCOMMIT.exists() or OVERCOMMIT.read_text().strip() == "2" or not array_types.UNRESERVED,
    reason="needs Linux that does not reserve memory for pages that are not written",
)
def test_columns_may_be_larger_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # A million resources of which each is one node's: 8 TiB.
    shape = (1 << 20, 1 << 20)
    table = zero_columns(shape)
    table[7, 9] = 3
    assert (int(table[7, 9]), int(table[1 << 19, 1 << 19])) == (3, 0)
    del table
    monkeypatch.setattr(array_types, "UNRESERVED", 0)
    if OVERCOMMIT.read_text().strip() == "0":
        with pytest.raises(OSError, match="Cannot allocate memory"):
            zero_columns(shape)
