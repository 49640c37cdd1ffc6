"""Host ports in use.

Source: kube-scheduler v1.36, framework types HostPortInfo.
"""

import pytest

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.columns.pods.podinfo import host_ports
from stowplan.testing import container, node, pod


def conflict(table: NodeTable, port: str | int) -> list[bool]:
    """Which rows cannot take a pod with the port; by column and by node."""
    asked = host_ports(pod("x", ports=[port]).spec)
    by_column = table.ports.conflicts(asked, table.n_nodes).tolist()
    assert by_column == [info.port_conflicts(asked[0]) for info in table.infos()]
    return by_column


@pytest.mark.parametrize(
    ("held", "asked", "conflicts"),
    [
        ("80", "80", True),
        ("80", "81", False),
        ("80/TCP", "80/UDP", False),
        ("80", "80/TCP", True),
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("127.0.0.1:80", "80", True),
        ("80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("127.0.0.1:80/UDP", "80", False),
    ],
)
def test_when_two_ports_conflict(held: str, asked: str, conflicts: bool) -> None:
    table = table_of([node("n1"), node("n2")], [pod("a", on="n2", ports=[held])])
    assert conflict(table, asked) == [False, conflicts]


def test_a_shared_port_goes_free_with_the_first_that_leaves() -> None:
    table = table_of([node("n1")], [pod(name, on="n1", ports=[80]) for name in "ab"])
    table.remove_pod("default/a")
    assert conflict(table, 80) == [False]
    table.remove_pod("default/b")
    assert conflict(table, 80) == [False]


def test_a_pod_that_leaves_frees_its_own_ports_only() -> None:
    table = table_of(
        [node("n1")], [pod("a", on="n1", ports=[80, 81]), pod("b", on="n1", ports=[82])]
    )
    table.remove_pod("default/a")
    assert table.ports.of_row(0) == {("0.0.0.0", "TCP", 82)}
    assert conflict(table, 81) == [False]
    assert conflict(table, 82) == [True]


def test_sidecars_hold_ports_and_other_init_containers_do_not() -> None:
    asked = pod(
        "a",
        ports=[80],
        init_containers=[
            container("sidecar", ports=["53/UDP"], sidecar=True),
            container("once", ports=[99]),
        ],
    )
    assert host_ports(asked.spec) == (("0.0.0.0", "UDP", 53), ("0.0.0.0", "TCP", 80))
