"""The nodes of a table without their pods score as nodes that never had any."""

from __future__ import annotations

import numpy as np

from stowplan.columns.empty_nodes import without_pods
from stowplan.columns.invariants import validate
from stowplan.columns.nodetable import table_of
from stowplan.testing import node, pod

NODES = [node("n1", cpu="4", zone="a"), node("n2", cpu="8", zone="b")]
PODS = [pod("a", cpu="3", on="n2"), pod("b", cpu="1", on="n1", ports=(80,))]


def test_nothing_is_left_of_the_pods() -> None:
    table = table_of(NODES, PODS)
    bare = without_pods(table)
    fresh = table_of(NODES)
    rows = bare.all_rows
    for name in ("cpu", "memory"):
        assert (bare.requested(name)[rows] == fresh.requested(name)[rows]).all()
        assert (bare.nonzero_requested(name) == fresh.nonzero_requested(name)).all()
        assert (bare.allocatable(name) == table.allocatable(name)).all()
    assert (bare.pod_count == np.zeros(2)).all()
    assert [list(info.pods) for info in bare.infos()] == [[], []]
    assert not bare.info(0).used_ports
    assert bare.names == table.names


def test_the_table_itself_keeps_them() -> None:
    table = table_of(NODES, PODS)
    bare = without_pods(table)
    bare.info(0)
    validate(table)
    assert table.requested("cpu")[table.row("n2")] == 3000
    assert len(table.info(table.row("n2")).pods) == 1
