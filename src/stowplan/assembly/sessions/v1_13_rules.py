"""Session rules of Kubernetes 1.13: the predicates and priorities that kube-batch v0.5 calls.

Source: kube-batch v0.5, plugins/predicates and plugins/nodeorder.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

import numpy as np

from stowplan.assembly.sessions.profile_rules import table_of_session
from stowplan.assembly.sessions.v1_13_pod_affinity import (
    PlacedPod,
    preferred_affinity_scores,
    satisfies_pod_affinity,
)
from stowplan.batch.session_rules import NodeScoreWeights, PressureChecks, ScoringError
from stowplan.batch.state.jobs import OCCUPYING, TaskInfo
from stowplan.batch.state.nodes import NodeLedger
from stowplan.batch.state.session_state import SessionState
from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.framework import CycleState, FeatureGates, Handle, Snapshot
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.v1_13.affinity_terms import anti_affinity_of
from stowplan.plugins.v1_13.predicates.check_node_condition import (
    CheckNodeCondition,
    CheckNodeDiskPressure,
    CheckNodeMemoryPressure,
    CheckNodePIDPressure,
    CheckNodeUnschedulable,
)
from stowplan.plugins.v1_13.predicates.general_predicates import PodFitsHostPorts
from stowplan.plugins.v1_13.predicates.match_node_selector import MatchNodeSelector
from stowplan.plugins.v1_13.priorities.balanced_resource_allocation import (
    BalancedResourceAllocation,
    BalancedResourceAllocationArgs,
)
from stowplan.plugins.v1_13.priorities.node_affinity_priority import NodeAffinityPriority
from stowplan.plugins.v1_13.priorities.resource_priorities import LeastRequestedPriority
from stowplan.plugins.v1_13.taint_toleration import PodToleratesNodeTaints


class Release113Rules:
    """Predicates and priorities on a table of the session's nodes and their pods."""

    def __init__(self, state: SessionState) -> None:
        self._session_state = state
        # The rows of the table are those of the session.
        assert all(node is not None for node in state.nodes.nodes)
        self._table = table_of_session(state)
        self._conditions = CheckNodeCondition()
        self._filters = (
            CheckNodeUnschedulable(),
            MatchNodeSelector(),
            PodFitsHostPorts(),
            PodToleratesNodeTaints(),
        )
        self._snapshot = Snapshot(self._table)
        self._affinity = NodeAffinityPriority(Handle(FeatureGates()))
        self._least_requested = LeastRequestedPriority()
        self._balanced = BalancedResourceAllocation(BalancedResourceAllocationArgs())

    def row_kind(self, task: TaskInfo) -> Hashable:
        """None: pod affinity is evaluated anew each time."""
        return None

    def passing(self, task: TaskInfo, rows: Ints, pressures: PressureChecks) -> Bools:
        """bool (n_rows,): rows on which all predicates pass."""
        pod, table = task.pod, self._table
        result: Bools = self._conditions.filter_column(table, rows) == 0
        for rule in self._filters:
            result &= rule.filter_column(pod, table, rows)
        if pressures.memory:
            result &= CheckNodeMemoryPressure().filter_column(pod, table, rows)
        if pressures.disk:
            result &= CheckNodeDiskPressure().filter_column(pod, table, rows)
        if pressures.pid:
            result &= CheckNodePIDPressure().filter_column(pod, table, rows)
        return result & self._pod_affinity_passes(pod, rows, result)

    def refusals(self, task: TaskInfo, pressures: PressureChecks) -> Mapping[str, int]:
        """One common reason; these predicates are not reported separately."""
        rows = np.arange(self._table.n_nodes)
        refused = int(np.count_nonzero(~self.passing(task, rows, pressures)))
        return {"node(s) didn't pass the predicates": refused} if refused else {}

    def scores(self, task: TaskInfo, rows: Ints, weights: NodeScoreWeights) -> Floats:
        """float64 (n_rows,): weighted sum of four priorities, 0 to 10 each."""
        pod, table = task.pod, self._table
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for scores, weight in (
            (self._least_requested.score_column(pod, table, rows), weights.least_requested),
            (
                self._balanced.score_column(pod, table, rows, CycleState()),
                weights.balanced_resource,
            ),
            (self._node_affinity(pod, rows), weights.node_affinity),
            (self._pod_affinity(pod, rows), weights.pod_affinity),
        ):
            total += scores * (1 if weight is None else weight)
        return total

    def placed(self, task: TaskInfo, row: int) -> None:
        """Add a pod to its node."""
        self._table.add_pod(task.pod, self._session_state.nodes.names[row])

    def unplaced(self, task: TaskInfo, row: int) -> None:
        """Remove a pod from its node."""
        self._table.remove_pod(task.uid)

    def close(self) -> None:
        """The table belongs to the session; nothing to restore."""

    # Inside.

    def _node_affinity(self, pod: Pod, rows: Ints) -> Ints:
        fault = self._affinity.failure(pod, self._snapshot)
        if fault:
            raise ScoringError(fault)
        scores = self._affinity.score_column(pod, self._table, rows)
        return self._affinity.normalize_score(scores)

    def _pod_affinity_passes(self, pod: Pod, rows: Ints, asked: Bools) -> Bools:
        """bool (n_rows,): rows that satisfy pod affinity; rows not asked for are undefined."""
        result = np.ones(asked.shape[0], dtype=np.bool_)
        placed = list(self._placed_pods())
        affinity = pod.spec.affinity
        cares = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
        if not cares and not any(anti_affinity_of(other.pod).required for other in placed):
            # A pod on an unknown node makes the original fail for every node.
            result[:] = all(self._session_state.nodes.row(other.node) >= 0 for other in placed)
            return result
        nodes = self._nodes()
        for place in np.flatnonzero(asked).tolist():
            row = int(rows[place])
            here = [held.task.pod for held in self._session_state.nodes.tasks_on(row)]
            result[place] = satisfies_pod_affinity(pod, self._table.nodes[row], here, placed, nodes)
        return result

    def _placed_pods(self) -> Iterator[PlacedPod]:
        """Pods of the session's jobs that are on nodes, in the original's order."""
        for job in self._session_state.jobs.values():
            for status in OCCUPYING:
                for task in job.of(status).values():
                    yield PlacedPod(task.pod, task.node)

    def _pod_affinity(self, pod: Pod, rows: Ints) -> Ints:
        ledger = self._session_state.nodes
        held = [
            (self._table.nodes[row], [h.task.pod for h in ledger.tasks_on(row)])
            for row in rows.tolist()
        ]
        candidates = [node for node, _ in held]
        return preferred_affinity_scores(
            pod, candidates, held, self._nodes(), node_of_unassigned_pods(ledger)
        )

    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._table.nodes}


def node_of_unassigned_pods(nodes: NodeLedger) -> Node | None:
    """The first node that holds a pod without a node name in its spec; the original assumes all
    such pods there, wherever the session placed them."""
    for row, node in enumerate(nodes.nodes):
        if any(not held.task.pod.node_name for held in nodes.tasks_on(row)):
            return node
    return None
