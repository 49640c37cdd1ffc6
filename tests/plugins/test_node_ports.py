"""NodePorts: host ports conflict by protocol, number and address."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.framework import OK, SKIP
from stowplan.objects.pod import Pod
from stowplan.plugins.node_ports import NodePorts, host_ports_of
from tests.plugins.clusters import Walks, cases, container, is_caught, node, pod, table

REFUSED = {"n": f"Unschedulable: {NodePorts.REJECTED.message}"}


def port(text: str) -> dict[str, Any]:
    """`IP/PROTOCOL/NUMBER_LABEL`; IP and protocol may be empty."""
    ip, protocol, number = text.split("/")
    return {"hostIP": ip, "protocol": protocol, "hostPort": int(number)}


def using(*texts: str, **more: Any) -> Pod:
    return pod(containers=[container(ports=map(port, texts))], **more)


@pytest.mark.parametrize(
    ("held", "wanted", "conflict"),
    [
        ("/TCP/80", "/TCP/80", True),
        ("/TCP/80", "/TCP/81", False),
        ("/TCP/80", "/UDP/80", False),
        # No protocol is TCP, no address is every address.
        ("//80", "0.0.0.0/TCP/80", True),
        ("10.0.0.1/TCP/80", "10.0.0.2/TCP/80", False),
        ("10.0.0.1/TCP/80", "10.0.0.1/TCP/80", True),
        ("10.0.0.1/TCP/80", "/TCP/80", True),
        ("/TCP/80", "10.0.0.1/TCP/80", True),
        ("/TCP/0", "/TCP/0", False),
    ],
)
def test_conflicts(held: str, wanted: str, conflict: bool) -> None:
    nodes = table([node("n")], [using(held, on="n", name="there")])
    assert Walks(NodePorts).refusals(using(wanted), nodes) == (REFUSED if conflict else {})


def test_ports_of_one_pod_do_not_conflict() -> None:
    assert not Walks(NodePorts).refusals(using("/TCP/80", "/TCP/80"), table([node("n")]))


def test_pods_without_host_ports_are_skipped() -> None:
    assert NodePorts().pre_filter(using("/TCP/0")) == SKIP
    assert NodePorts().pre_filter(using("/TCP/80")) == OK


def test_only_init_containers_that_keep_running_count() -> None:
    starter = container(ports=[port("/TCP/80")])
    assert not host_ports_of(pod(initContainers=[starter]))
    sidecar = {**starter, "restartPolicy": "Always"}
    assert host_ports_of(pod(initContainers=[sidecar])) == (("0.0.0.0", "TCP", 80),)


@given(cases("ports"))
def test_walks_agree(case: tuple[Pod, NodeTable]) -> None:
    assert Walks(NodePorts).agree(*case)


class ForgetsTheWildcard(NodePorts):
    """Wrong: an address conflicts with itself only."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        wanted = set(host_ports_of(pod))
        free = [not wanted & nodes.ports.of_row(row) for row in range(nodes.n_nodes)]
        return np.array(free, dtype=np.bool_)[rows]


def test_forgetting_the_wildcard_is_caught() -> None:
    assert is_caught(ForgetsTheWildcard, "ports")


def test_signature_is_the_set_of_ports() -> None:
    rule = NodePorts()
    one, other = using("//80", "/UDP/53"), using("/UDP/53", "0.0.0.0/TCP/80")
    assert rule.signature(one) == rule.signature(other)
    assert rule.signature(one) != rule.signature(using("//80"))
