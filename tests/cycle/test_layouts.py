"""Layouts: every row has one leaf, in the group of its labels, in the snapshot's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from stowplan.columns.nodetable import NodeTable, table_of
from stowplan.cycle.engine import layouts
from stowplan.cycle.engine.layouts import Layout, block_rows, is_host_like, stacked
from stowplan.testing import node
from stowplan.testing.builders import HOSTNAME, ZONE
from tests.property.wrong import assert_caught

ZONES = ("a", "b", "", "a", "c", "b", "a", "")


def table() -> NodeTable:
    nodes = [node(f"n{i}", zone=zone) for i, zone in enumerate(ZONES)]
    made = table_of(nodes)
    made.remove_node("n1")
    made.refresh()
    return made


@pytest.mark.parametrize("keys", [(), (ZONE,), (HOSTNAME, ZONE), ("no such key",)])
def test_every_row_has_a_leaf_of_its_own(keys: tuple[str, ...]) -> None:
    nodes = table()
    layout = Layout(nodes, keys)
    assert len(set(layout.leaf.tolist())) == nodes.n_nodes
    for row in range(nodes.n_nodes):
        assert layout.row[layout.leaf[row]] == row
        first, size = layout.first[layout.group[row]], layout.size[layout.group[row]]
        assert first + size <= layout.leaf[row] < first + 2 * size
    assert (layout.row >= 0).sum() == nodes.n_nodes


@pytest.mark.parametrize("keys", [(), (ZONE,), (HOSTNAME, ZONE)])
def test_rows_of_a_group_have_its_labels(keys: tuple[str, ...]) -> None:
    nodes = table()
    layout = Layout(nodes, keys)
    for slot, key in enumerate(keys):
        codes = nodes.labels.column(key).codes[: nodes.n_nodes]
        assert (layout.value[slot][layout.group] == codes).all()


def test_leaves_of_a_group_are_in_snapshot_order() -> None:
    nodes = table()
    layout = Layout(nodes, (ZONE,))
    for group in range(layout.n_groups):
        rows = np.flatnonzero(layout.group == group)
        by_leaf = rows[np.argsort(layout.leaf[rows])]
        assert (np.diff(nodes.rank[by_leaf]) > 0).all()


def test_trees_do_not_overlap() -> None:
    layout = Layout(table(), (ZONE,))
    ends = layout.first + 2 * layout.size
    assert (layout.first[1:] == ends[:-1]).all()
    assert layout.width == ends[-1]
    assert all(size & (size - 1) == 0 for size in layout.size.tolist())


def test_stacked_layouts_keep_their_positions() -> None:
    nodes = table()
    alone = [Layout(nodes, keys) for keys in ((), (HOSTNAME,), (ZONE,))]
    groups, values, places, rows_of = stacked(alone, nodes.n_nodes)
    for i, one in enumerate(alone):
        assert groups[i, 0, : one.n_groups].tolist() == one.first.tolist()
        assert groups[i, 1, : one.n_groups].tolist() == one.size.tolist()
        assert values[i, :, : one.n_groups].tolist() == one.value.tolist()
        assert places[i, :2].tolist() == [one.group.tolist(), one.leaf.tolist()]
        assert places[i, 2].tolist() == one.block.tolist()
        n_blocks = one.block_first.shape[0]
        assert groups[i, 2, :n_blocks].tolist() == one.block_first.tolist()
        assert groups[i, 3, :n_blocks].tolist() == one.block_end.tolist()
        assert rows_of[i, : one.width].tolist() == one.row.tolist()


@pytest.mark.parametrize(
    ("codes", "wanted"), [([], True), ([-1, -1], True), ([0, 2, -1, -1], True), ([1, 0, 1], False)]
)
def test_domains_are_rows_if_every_value_is_unique(codes: list[int], wanted: bool) -> None:
    assert is_host_like(np.array(codes, dtype=np.int32), 3) is wanted


def test_blocks_grow_as_the_root_of_the_rows() -> None:
    assert [block_rows(n) for n in (0, 2048, 2049, 8192, 50_000)] == [64, 64, 128, 128, 512]


def test_rows_of_a_large_cluster_are_in_few_blocks() -> None:
    n_nodes = 2100
    layout = Layout(
        table_of([node(f"n{i}", zone="ab"[i % 2]) for i in range(n_nodes)]), (HOSTNAME, ZONE)
    )
    sizes = layout.block_end - layout.block_first
    assert sizes.sum() == n_nodes
    assert sizes.max() == 128
    assert sizes.shape[0] == 2 * -(-n_nodes // 2 // 128)
    for block, (first, end) in enumerate(zip(layout.block_first, layout.block_end, strict=True)):
        assert len(set(layout.value[1][first:end].tolist())) == 1
        assert (layout.block[np.isin(layout.group, np.arange(first, end))] == block).all()


CODES = arrays(
    np.int32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.integers(-1, 4)
)


def groups_are_those_of_columns(find: Callable[[Any], Any], codes: Any) -> None:
    """Groups and the values of each, as a sort of the columns gives them."""
    distinct, groups = np.unique(codes, axis=1, return_inverse=True)
    found, of_rows = find(codes)
    assert found.tolist() == distinct.tolist()
    assert of_rows.tolist() == groups.reshape(-1).tolist()


@given(CODES)
def test_groups_are_those_of_sorted_columns(codes: Any) -> None:
    groups_are_those_of_columns(layouts._distinct, codes)


def absent_is_no_value(codes: Any) -> Any:
    """Wrong: rows without a label need no number of their own."""
    apart = np.zeros(codes.shape[1], dtype=np.int64)
    for values in codes:
        apart = apart * (int(values.max(initial=-1)) + 1) + values
    _, first, groups = np.unique(apart, return_index=True, return_inverse=True)
    return codes[:, first], groups


def test_control_rows_without_a_label_are_apart() -> None:
    known = np.array([[0, 1], [1, -1]], dtype=np.int32)
    assert_caught(
        lambda codes: groups_are_those_of_columns(absent_is_no_value, codes), CODES, known=(known,)
    )
