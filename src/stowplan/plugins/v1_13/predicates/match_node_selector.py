"""MatchNodeSelector: `nodeSelector` and required node affinity.

Source: Kubernetes v1.13, predicates.PodMatchNodeSelector and labels.SelectorFromSet.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_matches
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.node_affinity.node_selector import (
    node_selector_column,
    required_node_selector,
)
from stowplan.plugins.v1_13.spread_selectors import selector_from_labels

NO_LABELS: Mapping[str, str] = {}


class MatchNodeSelector:
    """Filter on the node's labels and name. A malformed term never matches."""

    name = "MatchNodeSelector"
    declaration = Plugin(name=name, reads=(), row_local=True)
    REJECTED = unresolvable("node(s) didn't match node selector")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where the node has every selected label and one required term matches."""
        wanted = selector_from_labels(pod.spec.node_selector or NO_LABELS)
        if any(node.labels.get(key) != value for key, value in wanted.items()):
            return self.REJECTED
        required = required_node_selector(pod)
        if required is None or node_selector_matches(required, node.labels, node.name):
            return OK
        return self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        required = required_node_selector(pod)
        if required is None:
            selected = np.ones(n_rows_of(rows), dtype=np.bool_)
        else:
            selected = node_selector_column(required, nodes, rows)
        for key, value in selector_from_labels(pod.spec.node_selector or NO_LABELS).items():
            selected &= nodes.labels.column(key).where_in((value,), rows)
        return selected

    def signature(self, pod: Pod) -> object:
        """The selector and the required affinity."""
        return frozenset((pod.spec.node_selector or NO_LABELS).items()), required_node_selector(pod)
