"""ServiceAntiAffinity: spread the pods of a service over the values of a node label.

Source: Kubernetes v1.13, priorities/selector_spreading.go (ServiceAntiAffinity).
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.labels import ABSENT
from stowplan.columns.pods.podcounts import MatchingPods, sums_by_value
from stowplan.framework import OK, CycleState, NodeInfo, NodeTable, Rows, Snapshot, Status
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.topology_spread.default_selector import SELECTOR_KINDS
from stowplan.plugins.v1_13.priorities.priority_metadata import PriorityMetadata
from stowplan.plugins.v1_13.spread_selectors import selected_pods


class ServiceAntiAffinityArgs(PluginArgs, frozen=True):
    """label: the key over whose values pods are spread."""

    label: str = ""


class ServiceAntiAffinityPriority:
    """Score by how few pods of the pod's first service are on nodes with the same label value."""

    name = "ServiceAntiAffinityPriority"
    declaration = Plugin(name=name, reads=SELECTOR_KINDS)
    Args = ServiceAntiAffinityArgs

    def __init__(self, args: ServiceAntiAffinityArgs) -> None:
        self.args = args

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Create the pod's metadata."""
        PriorityMetadata.of(pod, snapshot, state)
        return OK

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        """Number of pods of the service on the node, without terminating ones."""
        selector = PriorityMetadata.read(state).first_service_selector
        if selector is None:
            return 0
        selection = selected_pods(selector, pod.namespace)
        return sum(selection.takes(info.pod) for info in node.pods)

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        selector = PriorityMetadata.read(state).first_service_selector
        if selector is None:
            return np.zeros(n_rows_of(rows), dtype=np.int64)
        counts = MatchingPods.of(nodes).counts(selected_pods(selector, pod.namespace))
        return np.array(counts[rows])

    def normalize_score(self, scores: Ints, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,) in [0, 10]: 0 without the label, less the more pods share its value.

        Only rows that are scored count; pods on nodes without the label count in the total.
        """
        column = nodes.labels.column(self.args.label)
        codes = column.codes[rows]
        labelled = codes != ABSENT
        total = int(scores.sum())
        shares = np.full(scores.shape, float(PRIORITY_MAX))
        if total > 0:
            alike = sums_by_value(codes, len(column.vocabulary), scores)[codes]
            shares = float(PRIORITY_MAX) * ((total - alike) / float(total))
        spread: Ints = np.where(labelled, shares, 0.0).astype(np.int64)
        return spread
