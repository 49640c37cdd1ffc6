"""NodeAffinityPriority: prefer nodes that match the pod's preferred node affinity.

Source: Kubernetes v1.13, priorities/node_affinity.go.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from stowplan.columns.array_types import Ints
from stowplan.framework import Handle, NodeInfo, NodeTable, Rows, Snapshot, Status
from stowplan.framework.functions.priorities import PRIORITY_MAX, normalize_scores
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import PreferredSchedulingTerm, term_matches
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.node_affinity.node_selector import node_affinity_of, node_selector_term_column
from stowplan.plugins.v1_13.priorities.priority_errors import (
    FailingPriority,
    priority_errors_status,
)

_KEPT = "v1_13.preferred"


class NodeAffinityPriority(FailingPriority):
    """Score by the weights of the preferred terms that match, shares of the highest sum.

    Requirements on fields are ignored, and a term of nothing else matches nothing.
    """

    name = "NodeAffinityPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def pre_score(self, pod: Pod, snapshot: Snapshot) -> Status:
        """An error where a term is malformed; it names the errors of the other priorities as
        well."""
        return priority_errors_status(self._handle.framework, pod, snapshot)

    def failure(self, pod: Pod, snapshot: Snapshot) -> str:
        """The error of the pod's malformed terms, "" for none."""
        if snapshot.nodes.n_nodes == 0:
            return ""
        faults = (fault for term in _preferred(pod) for fault in term.preference.faults)
        return next(faults, "")

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """The sum of the weights of the terms that match."""
        return sum(
            term.weight
            for term in _preferred(pod)
            if term_matches(term.preference, node.labels, node.name)
        )

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        scores = np.zeros(n_rows_of(rows), dtype=np.int64)
        for term in _preferred(pod):
            scores[node_selector_term_column(term.preference, nodes, rows)] += term.weight
        return scores

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: shares of the highest sum."""
        return normalize_scores(scores, PRIORITY_MAX)

    def signature(self, pod: Pod) -> object:
        """The preferred terms."""
        return _preferred(pod)


def _preferred(pod: Pod) -> tuple[PreferredSchedulingTerm, ...]:
    """The terms with a weight, without their requirements on fields; cached per spec."""
    kept: tuple[PreferredSchedulingTerm, ...] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        affinity = node_affinity_of(pod)
        kept = pod.spec.__dict__[_KEPT] = tuple(
            replace(term, preference=replace(term.preference, match_fields=()))
            for term in (() if affinity is None else affinity.preferred)
            if term.weight != 0
        )
    return kept
