"""MatchNodeSelector: `nodeSelector` and required node affinity.

Source: Kubernetes v1.13, predicates.PodMatchNodeSelector and labels.SelectorFromSet.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_matches
from stowplan.plugins.arithmetic import count
from stowplan.plugins.node_selection import required_selector, selector_column
from stowplan.plugins.v1_13.selection import plain_selector

NO_LABELS: Mapping[str, str] = {}


class MatchNodeSelector:
    """Filter on the node's labels and name. A malformed term never matches."""

    name = "MatchNodeSelector"
    row_local = True
    REJECTED = unresolvable("node(s) didn't match node selector")

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where every wanted label is there and one required term matches."""
        wanted = plain_selector(pod.spec.node_selector or NO_LABELS)
        if any(node.labels.get(key) != value for key, value in wanted.items()):
            return self.REJECTED
        required = required_selector(pod)
        if required is None or node_selector_matches(required, node.labels, node.name):
            return OK
        return self.REJECTED

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        """bool (n_rows,): True where `filter` succeeds."""
        required = required_selector(pod)
        if required is None:
            selected = np.ones(count(rows), dtype=np.bool_)
        else:
            selected = selector_column(required, nodes, rows)
        for key, value in plain_selector(pod.spec.node_selector or NO_LABELS).items():
            selected &= nodes.labels.column(key).where_in((value,), rows)
        return selected

    def signature(self, pod: Pod) -> object:
        """The selector and the required affinity."""
        return frozenset((pod.spec.node_selector or NO_LABELS).items()), required_selector(pod)
