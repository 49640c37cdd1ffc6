"""TaintToleration: keep pods off nodes whose taints they do not tolerate.

Source: kube-scheduler v1.36, plugins/tainttoleration.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import OK, Handle, NodeInfo, NodeTable, Rows, Status, unresolvable
from stowplan.framework.clusterevents import NODE, POD, Action, QueueingHint, RegisteredEvents, on
from stowplan.framework.plugin import Plugin
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod import Pod
from stowplan.objects.taints import HARD_EFFECTS, SOFT_EFFECTS, is_untolerated
from stowplan.plugins.arithmetic import default_normalize_score_reversed
from stowplan.plugins.pod_hints import after_own_update, queueing_hint


class TaintToleration:
    """Filter on hard taints, score on soft ones."""

    name = "TaintToleration"
    declaration = Plugin(
        name=name,
        weight=3,
        reads=(),
        row_local=True,
        node_only=True,
        by_outline=True,
        normalizes="reversed",
    )
    # Unresolvable: evicting pods from a node cannot remove its taints.
    REJECTED = unresolvable("node(s) had untolerated taint(s)")

    def __init__(self, handle: Handle) -> None:
        self._comparisons = handle.gates.taint_toleration_comparison_operators

    # The rule over one taint; the walks below only select the taints.

    def is_untolerated(self, taint: Taint, pod: Pod, effects: frozenset[str]) -> bool:
        """True when `taint` has one of `effects` and no toleration of `pod` covers it."""
        return is_untolerated(taint, pod.tolerations, effects, self._comparisons)

    # One node.

    def tolerates_node(self, pod: Pod, node: NodeInfo | Node) -> bool:
        """True where the pod tolerates every hard taint."""
        return not any(self.is_untolerated(t, pod, HARD_EFFECTS) for t in node.taints)

    def filter(self, pod: Pod, node: NodeInfo) -> Status:
        """Success where the pod tolerates every hard taint."""
        return OK if self.tolerates_node(pod, node) else self.REJECTED

    def explain(self, pod: Pod, node: NodeInfo) -> list[str]:
        """The hard taints that the pod does not tolerate, as kubectl writes them."""
        return [
            f"taint {t.key}{'=' + t.value if t.value else ''}:{t.effect} is not tolerated"
            for t in node.taints
            if self.is_untolerated(t, pod, HARD_EFFECTS)
        ]

    def explain_column(self, pod: Pod, nodes: NodeTable, rows: Ints) -> list[list[str]]:
        """`explain` of each row; once for nodes with equal taints."""
        known: dict[tuple[Taint, ...], list[str]] = {}
        texts = []
        for row in rows.tolist():
            taints = nodes.nodes[row].taints
            if taints not in known:
                known[taints] = self.explain(pod, nodes.info(row))
            texts.append(known[taints])
        return texts

    def pre_score(self) -> Status:
        """Success: every pod is scored. Configurations may name PreScore of this plugin."""
        return OK

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """Untolerated soft taints on `node`; lower is better until normalised."""
        return sum(self.is_untolerated(t, pod, SOFT_EFFECTS) for t in node.taints)

    # Every node: the same answers, with one call of the rule per distinct taint.

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Bools:
        """bool (n_rows,): True where `filter` succeeds."""
        repelled = nodes.taints.count_where(
            lambda t: self.is_untolerated(t, pod, HARD_EFFECTS), rows
        )
        return np.equal(repelled, 0)

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return nodes.taints.count_where(lambda t: self.is_untolerated(t, pod, SOFT_EFFECTS), rows)

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 100]: the fewest untolerated taints score highest."""
        return default_normalize_score_reversed(scores)

    def events_to_register(self) -> RegisteredEvents:
        """A node is added or has other taints, or the pod tolerates more."""
        return (
            on(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, self._after_node),
            on(POD, Action.UPDATE_POD_TOLERATION, after_own_update),
        )

    def _after_node(self, pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        tolerated_before = old is not None and self.tolerates_node(pod, old)
        return queueing_hint(not tolerated_before and self.tolerates_node(pod, new))

    def signature(self, pod: Pod) -> object:
        """What the tolerations cover, in any order."""
        return tolerations_signature(pod)


def tolerations_signature(pod: Pod) -> object:
    """What the tolerations cover, in any order."""
    return frozenset((t.key, t.operator, t.value, t.effect) for t in pod.tolerations)
