"""InterPodAffinityPriority: near pods that either side prefers, away from the others.

Source: Kubernetes v1.13, priorities/interpod_affinity.go.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.labels import LabelColumn
from stowplan.columns.pods.podcounts import sums_by_value
from stowplan.framework import CycleState, Handle, NodeInfo, Problem, Rows, Snapshot, Status
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.pod_affinity.inter_pod_affinity import (
    InterPodAffinityPreScoreState,
    preferences,
)
from stowplan.plugins.v1_13.affinity_terms import (
    FaultyTerms,
    affinity_of,
    preferred_terms,
    selector_error,
)
from stowplan.plugins.v1_13.priorities.priority_errors import (
    FailingPriority,
    priority_errors_status,
)

WEIGHT_MIN, WEIGHT_MAX = 1, 100


class HardPodAffinityWeightArgs(PluginArgs, frozen=True):
    """hard_pod_affinity_weight: weight of a required affinity term of an existing pod."""

    hard_pod_affinity_weight: int = 1

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments. path: their place in the configuration."""
        weight = self.hard_pod_affinity_weight
        if not WEIGHT_MIN <= weight <= WEIGHT_MAX:
            wanted = f"{WEIGHT_MIN} to {WEIGHT_MAX}"
            yield Problem(f"{path}.hardPodAffinityWeight", str(weight), wanted)


class InterPodAffinityPriority(FailingPriority):
    """Score by preferred terms of the pod and of existing pods, and required ones of the latter."""

    name = "InterPodAffinityPriority"
    declaration = Plugin(name=name, reads=(Namespace,), whole_list=True)
    Args = HardPodAffinityWeightArgs

    def __init__(self, args: HardPodAffinityWeightArgs, handle: Handle) -> None:
        self.args = args
        self._handle = handle

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Sum the preferences of both sides per pair of label and value.

        An error where a term is malformed; it names the errors of the other priorities as well.
        """
        nodes = snapshot.nodes
        scores: dict[str, tuple[LabelColumn, Ints]] = {}
        for key, weight, counts in preferences(pod, snapshot, self.args.hard_pod_affinity_weight):
            column = nodes.labels.column(key)
            codes = column.codes[nodes.all_rows]
            sums = sums_by_value(codes, len(column.vocabulary), counts) * weight
            scores[key] = column, scores[key][1] + sums if key in scores else sums
        state.write(self.name, InterPodAffinityPreScoreState(scores))
        return priority_errors_status(self._handle.framework, pod, snapshot)

    def failure(self, pod: Pod, snapshot: Snapshot) -> str:
        """The error of malformed terms, "" for none.

        Unproved: no recorded answer has a malformed term.
        """
        for placed in FaultyTerms.of(snapshot.nodes).pods():
            required = affinity_of(placed).required if self.args.hard_pod_affinity_weight else ()
            fault = selector_error((*required, *preferred_terms(placed)))
            if fault:
                return fault
        has_pods = bool(snapshot.nodes.pod_count.any())
        return selector_error(preferred_terms(pod)) if has_pods else ""

    def score(self, node: NodeInfo, state: CycleState) -> int:
        """The sum over the node's pairs: any int64, more is better."""
        return state.read(self.name, InterPodAffinityPreScoreState).score(node)

    def score_column(self, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return state.read(self.name, InterPodAffinityPreScoreState).score_column(rows)

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: from the lowest to the highest sum; 0 is always in that
        range."""
        lowest, highest = int(scores.min(initial=0)), int(scores.max(initial=0))
        if lowest == highest:
            return np.zeros(scores.shape, dtype=np.int64)
        shares = (scores - lowest) / float(highest - lowest)
        normal: Ints = (float(PRIORITY_MAX) * shares).astype(np.int64)
        return normal
