"""Overlay: what if, and as if nothing had been."""

import pytest

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.columns.nodetable import TableError
from stowplan.testing import contents, draw, pod


def node_table() -> NodeTable:
    return draw("""
        node
        n1
        n2

        pod  on  cpu  ports
        a    n1  1    80
        b    n1  2    -
        c    n1  3    80
    """).table


def take_both(overlay: Overlay, first: str, second: str) -> None:
    overlay.take(first, 0)
    overlay.take(second, 0)


def names(table: NodeTable, row: int) -> str:
    return " ".join(info.pod.name for info in table.pods[row])


def test_a_pod_is_placed_whatever_node_it_names() -> None:
    table = node_table()
    before = contents(table)
    with Overlay(table) as overlay:
        overlay.place(PodInfo.of(pod("x", on="n9", cpu="500m", ports=[81])), 1)
        assert table.requested("cpu").tolist() == [6000, 500]
        assert table.ports.of_row(1) == {("0.0.0.0", "TCP", 81)}
        assert names(table, 1) == "x"
        assert table.info(1).requested == {"cpu": 500}
    assert contents(table) == before


def test_a_pod_is_taken_and_stands_where_it_stood() -> None:
    table = node_table()
    before = contents(table)
    with Overlay(table) as overlay:
        assert overlay.take("default/a", 0).pod.name == "a"
        assert table.requested("cpu").tolist() == [5000, 0]
        assert names(table, 0) == "c b"
        # The port goes free although c holds it too, as in the original.
        assert table.ports.of_row(0) == frozenset()
        assert table.pod("default/a") is None
    assert contents(table) == before


def test_a_port_in_use_stays_when_a_placed_pod_that_shares_it_goes() -> None:
    table = node_table()
    with Overlay(table) as overlay:
        overlay.place(PodInfo.of(pod("x", ports=[80])), 0)
    assert table.ports.of_row(0) == {("0.0.0.0", "TCP", 80)}


def test_rolling_back_to_a_mark_keeps_what_was_before_it() -> None:
    table = node_table()
    with Overlay(table) as overlay:
        overlay.take("default/b", 0)
        mark = overlay.mark()
        halfway = contents(table)
        overlay.take("default/a", 0)
        overlay.place(PodInfo.of(pod("x", cpu="9")), 0)
        overlay.take("default/c", 0)
        overlay.rollback(mark)
        assert contents(table) == halfway
        overlay.place(PodInfo.of(pod("y")), 1)
        assert (names(table, 0), names(table, 1)) == ("a c", "y")
    assert (names(table, 0), names(table, 1)) == ("a b c", "")


def test_everything_is_undone_when_the_block_fails() -> None:
    table = node_table()
    before = contents(table)
    with pytest.raises(TableError), Overlay(table) as overlay:
        take_both(overlay, "default/a", "default/z")
    assert contents(table) == before


def test_a_pod_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(TableError, match="pod default/a is not on node 'n2'"):
        Overlay(node_table()).take("default/a", 1)


def test_the_touched_rows_are_in_the_journal() -> None:
    table = node_table()
    start = table.journal.generation
    with Overlay(table) as overlay:
        overlay.place(PodInfo.of(pod("x")), 1)
    assert table.journal.since(start) == [1]
