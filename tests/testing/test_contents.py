"""contents() and differences(): what is compared when two tables are."""

from stowplan.columns import NodeTable
from stowplan.testing import contents, differences, draw, pod


def node_table() -> NodeTable:
    return draw("""
        node  cpu  labels    taints           images    features
        n1    4    disk=ssd  gpu:NoSchedule   nginx=1M  Swap
        n2    2    -         -                -         -

        pod  on  cpu  ports
        a    n1  1    80
    """).table


def test_the_same_cluster_has_the_same_contents() -> None:
    assert contents(node_table()) == contents(node_table())
    assert not differences(contents(node_table()), contents(node_table()))


def test_what_rules_have_asked_for_makes_no_difference() -> None:
    table = node_table()
    table.labels.column("rack")
    table.info(0)
    table.resources.add("example.com/dongle")
    assert not differences(contents(table), contents(node_table()))


def test_contents_do_not_change_with_the_table() -> None:
    table = node_table()
    before = contents(table)
    table.info(0).pods.clear()
    table.add_pod(pod("b", on="n2", cpu="1", ports=[81]))
    table.remove_node("n1")
    assert before == contents(node_table())


def test_differences_name_the_reader_and_both_answers() -> None:
    table = node_table()
    table.add_pod(pod("b", on="n2", cpu="1"))
    found = differences(contents(table), contents(node_table()))
    assert "pod count: [1, 1], not [1, 0]" in found
    assert "requested cpu: [1000, 1000], not [1000, 0]" in found
    assert not any(line.startswith("allocatable") for line in found)
    assert differences({"a": 1}, {"b": 2}) == ["a: 1, not None", "b: None, not 2"]
