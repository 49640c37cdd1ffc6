"""Kept columns: only touched rows are asked again, and an answer given is never changed."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.columns import column_cache as kept_module
from stowplan.columns.column_cache import ColumnCache
from stowplan.columns.journal import Journal
from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.testing import node, pod


def table(n_nodes: int = 20) -> NodeTable:
    return table_of(node(f"n{index}", cpu="4", pods=10) for index in range(n_nodes))


def counts(nodes: NodeTable) -> np.ndarray:
    return ColumnCache.of(nodes).column("k", nodes, lambda rows: nodes.pod_count[rows])


def test_a_placement_costs_one_row() -> None:
    nodes = table()
    counts(nodes)
    nodes.add_pod(pod("p"), "n3")
    assert counts(nodes).tolist() == [0, 0, 0, 1, *[0] * 16]
    assert ColumnCache.of(nodes).evaluated == 20 + 1


def test_asked_twice_costs_nothing() -> None:
    nodes = table()
    counts(nodes)
    counts(nodes)
    assert ColumnCache.of(nodes).evaluated == 20


def test_an_answer_given_stays_as_it_was() -> None:
    nodes = table()
    before = counts(nodes)
    nodes.add_pod(pod("p"), "n3")
    counts(nodes)
    assert not before.any()
    with pytest.raises(ValueError, match="read-only"):
        before[0] = 1


def test_nodes_that_come_and_go_are_followed() -> None:
    nodes = table()
    nodes.add_pod(pod("p"), "n19")
    counts(nodes)
    nodes.remove_node("n0")
    assert counts(nodes).tolist() == nodes.pod_count.tolist()
    nodes.add_node(node("n20", cpu="4", pods=10))
    nodes.remove_node("n5")
    assert counts(nodes).tolist() == nodes.pod_count.tolist()


def test_the_least_recently_used_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "KEPT_MAX", 2)
    nodes = table()
    kept = ColumnCache.of(nodes)
    for key in ("a", "b", "a", "c", "a", "b"):
        kept.column(key, nodes, lambda rows: nodes.pod_count[rows])
    assert kept.evaluated == 4 * 20


def test_control_a_journal_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = table()
    counts(nodes)
    monkeypatch.setattr(Journal, "since", lambda self, generation: [])
    nodes.add_pod(pod("p"), "n3")
    assert counts(nodes).tolist() != nodes.pod_count.tolist()
