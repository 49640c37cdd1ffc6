"""The snapshot's order of nodes.

Source: kube-scheduler v1.36, backend/cache node_tree.go and UpdateSnapshot.
"""

from stowplan.columns import NodeTable
from stowplan.objects.node import zone_key
from stowplan.testing import draw, node


def order(table: NodeTable) -> str:
    assert table.rank[table.order].tolist() == list(range(table.n_nodes))
    return " ".join(table.names[row] for row in table.order)


def node_table(text: str) -> NodeTable:
    return draw("node zone\n" + "\n".join(text.replace("/", " ").split(", "))).table


def test_zones_are_visited_in_turn() -> None:
    table = node_table("a1/a, a2/a, a3/a, b1/b, c1/c, b2/b")
    assert order(table) == "a1 b1 c1 a2 b2 a3"


def test_nodes_without_a_zone_are_a_zone() -> None:
    assert order(node_table("x/-, a1/a, y/-")) == "x a1 y"


def test_regions_keep_zones_of_one_name_apart() -> None:
    table = NodeTable()
    for name, region in (("e1", "east"), ("e2", "east"), ("w1", "west")):
        table.add_node(node(name, zone="a", region=region))
    table.refresh()
    assert order(table) == "e1 w1 e2"


def test_the_older_labels_win_even_when_empty() -> None:
    old = {"failure-domain.beta.kubernetes.io/zone": ""}
    assert zone_key(node("n1", zone="a", labels=old)) == ("", "")
    assert zone_key(node("n1", zone="a", region="east")) == ("east", "a")


def test_a_node_that_came_since_the_last_refresh_stands_last() -> None:
    table = node_table("a1/a, a2/a, b1/b")
    table.add_node(node("b2", zone="b"))
    assert order(table) == "a1 b1 a2 b2"
    table.add_node(node("c1", zone="c"))
    assert order(table) == "a1 b1 a2 b2 c1"
    table.refresh()
    assert order(table) == "a1 b1 c1 a2 b2"


def test_a_node_that_left_is_gone_at_once() -> None:
    table = node_table("a1/a, a2/a, b1/b, b2/b")
    table.remove_node("a1")
    assert order(table) == "b1 a2 b2"
    table.refresh()
    assert order(table) == "a2 b1 b2"


def test_a_change_of_zone_waits_until_a_node_comes_or_goes() -> None:
    table = node_table("a1/a, a2/a, b1/b")
    table.update_node(node("a1", zone="b"))
    table.refresh()
    assert order(table) == "a1 b1 a2"
    table.add_node(node("c1", zone="c"))
    table.refresh()
    assert order(table) == "a2 b1 c1 a1"


def test_a_node_that_left_and_came_back_between_refreshes_keeps_the_order() -> None:
    table = node_table("a1/a, a2/a, b1/b")
    table.remove_node("a1")
    table.add_node(node("a1", zone="a"))
    table.refresh()
    assert order(table) == "a1 b1 a2"
    # Behind the scenes it went to the end of its zone, as the next arrival shows.
    table.add_node(node("c1", zone="c"))
    table.refresh()
    assert order(table) == "a2 b1 c1 a1"


def test_an_empty_zone_is_forgotten_and_comes_back_last() -> None:
    table = node_table("a1/a, b1/b")
    table.remove_node("a1")
    table.refresh()
    table.add_node(node("a1", zone="a"))
    table.refresh()
    assert order(table) == "b1 a1"
