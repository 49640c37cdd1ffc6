"""Requirements over columns: once per label value, the same as one by one."""

from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.columns.labels import ABSENT
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.selectors import NodeSelectorRequirement, requirement_admits
from stowplan.plugins.node_affinity.node_selector import field_column, label_column
from tests.plugins.clusters import (
    NODE_NAMES,
    field_requirements,
    is_found,
    requirements,
    some_labels,
    table,
)


def labelled(all_labels: list[dict[str, str]]) -> NodeTable:
    names = NODE_NAMES[: len(all_labels)]
    metas = [{"name": n, "labels": each} for n, each in zip(names, all_labels, strict=True)]
    return table(convert({"metadata": meta}, Node) for meta in metas)


tables = st.lists(some_labels, max_size=len(NODE_NAMES)).map(labelled)
on_labels = requirements.map(lambda tree: convert(tree, NodeSelectorRequirement))
on_fields = field_requirements.map(lambda tree: convert(tree, NodeSelectorRequirement))


Column = Callable[[NodeSelectorRequirement, NodeTable, Rows], NDArray[np.bool_]]


def read(node: Node, requirement: NodeSelectorRequirement, fields: bool) -> str | None:
    """What a node shows for the key of a requirement on labels, or on fields."""
    if not fields:
        return node.labels.get(requirement.key)
    return node.name if requirement.key == "metadata.name" else ""


def agrees(
    column: Column, requirement: NodeSelectorRequirement, nodes: NodeTable, *, fields: bool = False
) -> bool:
    found = column(requirement, nodes, nodes.all_rows).tolist()
    return found == [
        requirement_admits(requirement, read(node, requirement, fields)) for node in nodes.nodes
    ]


@given(on_labels, tables)
def test_label_columns(requirement: NodeSelectorRequirement, nodes: NodeTable) -> None:
    assert agrees(label_column, requirement, nodes)


def needs_the_key(
    requirement: NodeSelectorRequirement, nodes: NodeTable, rows: Rows
) -> NDArray[np.bool_]:
    """Wrong: NotIn does not hold for nodes that lack the key."""
    found = label_column(requirement, nodes, rows)
    if requirement.operator == "NotIn":
        found = found & (nodes.labels.column(requirement.key).codes[rows] != ABSENT)
    return found


def test_needing_the_key_is_caught() -> None:
    assert is_found(
        st.tuples(on_labels, tables),
        lambda case: not agrees(needs_the_key, *case),
    )


@given(on_fields, tables)
def test_field_columns(requirement: NodeSelectorRequirement, nodes: NodeTable) -> None:
    assert agrees(field_column, requirement, nodes, fields=True)


def takes_the_last_row(
    requirement: NodeSelectorRequirement, nodes: NodeTable, rows: Rows
) -> NDArray[np.bool_]:
    """Wrong: row -1 of a node that is not there is the last one."""
    is_named = np.zeros(nodes.n_nodes, dtype=np.bool_)
    is_named[nodes.row(requirement.values[0]) :][:1] = True
    return is_named[rows] if requirement.operator == "In" else ~is_named[rows]


def test_taking_the_last_row_is_caught() -> None:
    assert is_found(
        st.tuples(on_fields, tables).filter(lambda case: case[0].key == "metadata.name"),
        lambda case: not agrees(takes_the_last_row, *case, fields=True),
    )
