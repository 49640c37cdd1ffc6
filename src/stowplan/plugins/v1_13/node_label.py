"""Presence of node labels: the predicate labelsPresence, the priority labelPreference.

Source: Kubernetes v1.13, predicates.CheckNodeLabelPresence and priorities/node_label.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.labels import ABSENT
from stowplan.framework import OK, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of


class LabelsPresenceArgs(PluginArgs, frozen=True):
    """labels: the keys. presence: whether a node must have them all, or none of them."""

    labels: tuple[str, ...] = ()
    presence: bool = False


class LabelPreferenceArgs(PluginArgs, frozen=True):
    """label: the key. presence: whether nodes that have it are preferred, or others."""

    label: str = ""
    presence: bool = False


class CheckNodeLabelPresence:
    """Filter on the presence of labels, whatever their values."""

    name = "CheckNodeLabelPresence"
    declaration = Plugin(name=name, reads=(), row_local=True)
    Args = LabelsPresenceArgs
    REJECTED = unresolvable("node(s) didn't have the requested labels")

    def __init__(self, args: LabelsPresenceArgs) -> None:
        self.args = args

    def filter(self, node: NodeInfo) -> Status:
        """Success where every label is present, or none, as the arguments require."""
        wanted = self.args.presence
        matches = all((key in node.labels) == wanted for key in self.args.labels)
        return OK if matches else self.REJECTED

    def filter_column(self, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        passes = np.ones(n_rows_of(rows), dtype=np.bool_)
        for key in self.args.labels:
            passes &= _present(key, nodes, rows) == self.args.presence
        return passes

    def signature(self) -> object:
        """Empty: nothing of the pod is read."""
        return None


class NodeLabelPriority:
    """Score 10 where the label's presence is as preferred, else 0."""

    name = "NodeLabelPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)
    Args = LabelPreferenceArgs

    def __init__(self, args: LabelPreferenceArgs) -> None:
        self.args = args

    def score(self, node: NodeInfo) -> int:
        """10 or 0."""
        return PRIORITY_MAX * ((self.args.label in node.labels) == self.args.presence)

    def score_column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        suits = _present(self.args.label, nodes, rows) == self.args.presence
        scores: Ints = PRIORITY_MAX * suits.astype(np.int64)
        return scores

    def signature(self) -> object:
        """Empty: nothing of the pod is read."""
        return None


def _present(key: str, nodes: NodeTable, rows: Rows) -> Bools:
    present: Bools = nodes.labels.column(key).codes[rows] != ABSENT
    return present
