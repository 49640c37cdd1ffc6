"""Images on nodes, with the counts that a snapshot took over.

Source: kube-scheduler v1.36, backend/cache addNodeImageStates and UpdateSnapshot: a node knows how
many nodes have an image as of the last snapshot before which the node itself changed.
"""

from stowplan.columns import NodeTable, Overlay, PodInfo
from stowplan.columns.nodetable import table_of
from stowplan.testing import node, pod


def counts(table: NodeTable, image: str) -> dict[str, int]:
    """Node -> how many nodes it thinks have the image; by column and by node."""
    rows, known = table.images.states[image].arrays()
    by_column = {table.names[r]: n for r, n in zip(rows.tolist(), known.tolist(), strict=True)}
    by_node = {info.name: info.images[image][1] for info in table.infos() if image in info.images}
    assert by_column == by_node
    return by_column


def two_nodes() -> NodeTable:
    return table_of([node("n1", images={"nginx": "10M"}), node("n2", images={"nginx": "10M"})])


def test_a_snapshot_of_new_nodes_counts_them_all() -> None:
    assert counts(two_nodes(), "nginx") == {"n1": 2, "n2": 2}


def test_nodes_that_did_not_change_keep_an_old_count() -> None:
    table = two_nodes()
    table.add_node(node("n3", images={"nginx": "10M"}))
    table.refresh()
    assert counts(table, "nginx") == {"n1": 2, "n2": 2, "n3": 3}
    table.add_pod(pod("a", on="n1"))
    table.refresh()
    assert counts(table, "nginx") == {"n1": 3, "n2": 2, "n3": 3}


def test_a_count_that_was_read_before_a_refresh_is_read_anew() -> None:
    table = NodeTable()
    table.add_node(node("n1", images={"nginx": "10M"}))
    table.add_node(node("n2", images={"nginx": "10M"}))
    assert table.info(0).images == {"nginx": (10_000_000, 1)}
    start = table.journal.generation
    table.refresh()
    assert counts(table, "nginx") == {"n1": 2, "n2": 2}
    assert table.journal.since(start) == [0]


def test_a_node_that_moves_to_another_row_has_not_changed() -> None:
    table = two_nodes()
    table.add_node(node("n0"))
    table.add_node(node("n3", images={"nginx": "10M"}))
    table.refresh()
    table.remove_node("n1")
    assert table.row("n3") == 0
    table.refresh()
    assert counts(table, "nginx") == {"n2": 2, "n3": 3}


def test_asking_what_if_is_no_change() -> None:
    table = two_nodes()
    table.add_node(node("n3", images={"nginx": "10M"}))
    with Overlay(table) as overlay:
        overlay.place(PodInfo.of(pod("a")), 0)
    table.refresh()
    assert counts(table, "nginx")["n1"] == 2


def test_an_image_has_the_size_that_its_first_node_gave() -> None:
    table = table_of([node("n1", images={"nginx": "10M"}), node("n2", images={"nginx": "99M"})])
    assert table.info(1).images["nginx"] == (10_000_000, 2)
    table.remove_node("n1")
    assert table.info(0).images["nginx"] == (10_000_000, 2)
    # When no node has it any more it is forgotten, with its size.
    table.update_node(node("n2", images={"nginx": "99M"}))
    table.refresh()
    assert table.info(0).images["nginx"] == (99_000_000, 1)
    table.remove_node("n2")
    assert table.images.states == {}
