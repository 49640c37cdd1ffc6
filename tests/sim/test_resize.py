"""Clusters of another size keep their mix."""

from __future__ import annotations

from collections import Counter

import pytest

from stowplan.objects.meta import OwnerReference
from stowplan.sim.cluster import Cluster
from stowplan.sim.resize import resized, shares
from stowplan.testing import node, pod
from stowplan.testing.make import HOSTNAME


def cluster() -> Cluster:
    small = [node(f"s{i}", cpu="4") for i in range(6)]
    large = [node(f"l{i}", cpu="64", labels={"pool": "large"}) for i in range(3)]
    return Cluster(nodes=[*small, *large], pods=[])


@pytest.mark.parametrize(("n_nodes", "small", "large"), [(3, 2, 1), (4, 3, 1), (18, 12, 6)])
def test_kinds_keep_their_shares(n_nodes: int, small: int, large: int) -> None:
    nodes = resized(cluster(), n_nodes).nodes
    found = Counter(one.name[0] for one in nodes)
    assert (found["s"], found["l"]) == (small, large)
    assert len({one.name for one in nodes}) == n_nodes
    assert all(one.labels[HOSTNAME] == one.name for one in nodes)
    assert all(("pool" in one.labels) == (one.name[0] == "l") for one in nodes)


def test_the_first_of_each_kind_stay() -> None:
    assert [one.name for one in resized(cluster(), 3).nodes] == ["s0", "s1", "l0"]
    assert resized(cluster(), 9).nodes == cluster().nodes


@pytest.mark.parametrize("total", [1, 2, 7, 100])
def test_shares_add_up(total: int) -> None:
    assert sum(shares([5, 3, 1], total)) == total


def test_pods_of_nodes_that_are_left_out_wait_again() -> None:
    start = cluster()
    daemon = pod("daemon", on="s5")
    owner = OwnerReference("apps/v1", "DaemonSet", "d", "d", True)
    meta = daemon.metadata
    daemon = type(daemon)(
        metadata=type(meta)(name="daemon", owner_references=(owner,)), spec=daemon.spec
    )
    start.pods = [pod("stays", on="s0"), pod("moves", on="s5"), daemon]
    small = resized(start, 3)
    assert [(one.name, one.node_name) for one in small.pods] == [("stays", "s0"), ("moves", "")]
    assert "3 nodes in place of 9, of the same mix" in small.notes
