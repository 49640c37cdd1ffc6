"""Which nodes a pod's node selector and node affinity select, for one node and for all rows.

The rule over one value is `requirement_admits`. The column walk calls it once per distinct value of
a label; operators that name values or test a key's presence need no call.

Source: kube-scheduler v1.36: component-helpers scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.columns.labels import ABSENT
from stowplan.framework import NodeTable, Rows
from stowplan.objects.pod import NodeAffinity, Pod
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorTerm,
    SelectorRequirement,
    node_selector_matches,
    requirement_admits,
)
from stowplan.plugins.arithmetic import n_rows_of


def node_affinity_of(pod: Pod) -> NodeAffinity | None:
    """`spec.affinity.nodeAffinity`."""
    affinity = pod.spec.affinity
    return None if affinity is None else affinity.node_affinity


def required_node_selector(pod: Pod) -> NodeSelector | None:
    """The node selector of the pod's required node affinity."""
    affinity = node_affinity_of(pod)
    return None if affinity is None else affinity.required


def matches_node_selector_and_affinity(pod: Pod, labels: Mapping[str, str], node_name: str) -> bool:
    """True when a node has every label of `nodeSelector` and matches required node affinity."""
    for key, value in (pod.spec.node_selector or {}).items():
        if labels.get(key) != value:
            return False
    required = required_node_selector(pod)
    return required is None or node_selector_matches(required, labels, node_name)


def node_selector_and_affinity_column(pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): `matches_node_selector_and_affinity` of each row."""
    required = required_node_selector(pod)
    if required is None:
        selected = np.ones(n_rows_of(rows), dtype=np.bool_)
    else:
        selected = node_selector_column(required, nodes, rows)
    for key, value in (pod.spec.node_selector or {}).items():
        selected &= nodes.labels.column(key).where_in((value,), rows)
    return selected


def node_selector_column(selector: NodeSelector, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): rows that match at least one term."""
    matched = np.zeros(n_rows_of(rows), dtype=np.bool_)
    for term in selector.node_selector_terms:
        matched |= node_selector_term_column(term, nodes, rows)
    return matched


def node_selector_term_column(term: NodeSelectorTerm, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): rows that match all of a term; an empty or faulty term matches none."""
    if term.is_empty or term.faults:
        return np.zeros(n_rows_of(rows), dtype=np.bool_)
    columns = [
        *(label_column(r, nodes, rows) for r in term.match_expressions),
        *(field_column(r, nodes, rows) for r in term.match_fields),
    ]
    return _logical_and(columns)


def label_column(requirement: SelectorRequirement, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): rows whose labels meet a valid requirement."""
    column = nodes.labels.column(requirement.key)
    if requirement.operator == "In":
        return column.where_in(requirement.values, rows)
    if requirement.operator == "NotIn":
        return ~column.where_in(requirement.values, rows)
    if requirement.operator in ("Exists", "DoesNotExist"):
        is_absent: Bools = column.codes[rows] == ABSENT
        return is_absent if requirement.operator == "DoesNotExist" else ~is_absent
    return column.where(partial(requirement_admits, requirement), rows)


def field_column(requirement: SelectorRequirement, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): rows whose fields meet a valid requirement.

    The only field is `metadata.name`; every other is read as the empty string.
    """
    if requirement.key != NODE_NAME_FIELD:
        admits = requirement_admits(requirement, "")
        return np.full(n_rows_of(rows), admits, dtype=np.bool_)
    is_named = np.zeros(nodes.n_nodes, dtype=np.bool_)
    named = [nodes.row(name) for name in requirement.values]
    is_named[[row for row in named if row >= 0]] = True
    chosen: Bools = is_named[rows]
    return chosen if requirement.operator == "In" else ~chosen


def _logical_and(columns: Iterable[Bools]) -> Bools:
    first, *others = columns
    for column in others:
        first &= column
    return first
