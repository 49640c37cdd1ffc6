"""predicates: the filters of kube-scheduler, resources aside.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/predicates/predicates.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import (
    PASSES,
    UNSCHEDULABLE,
    NodeScoreUse,
    RowScores,
)
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean, integer
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Bools, Floats, Ints

ALWAYS_ON = "predicate.NodeUnschedulableEnable"
"""Name of the filter that cannot be turned off."""

VOLUMES, DEVICES = "predicate.VolumeBindingEnable", "predicate.DynamicResourceAllocationEnable"
"""The filters that score as well."""

FILTERS = (
    ALWAYS_ON,
    "predicate.NodeAffinityEnable",
    "predicate.TaintTolerationEnable",
    "predicate.NodePortsEnable",
    "predicate.PodAffinityEnable",
    "predicate.NodeVolumeLimitsEnable",
    "predicate.VolumeZoneEnable",
    "predicate.PodTopologySpreadEnable",
    VOLUMES,
    DEVICES,
)
"""Arguments that turn filters off, in the order in which the filters are called."""


class VolcanoPredicates(VolcanoPlugin):
    """Filters; keeps them informed of what is placed and evicted."""

    name = "predicates"

    def open(self, session: VolcanoSession) -> None:
        """Choose the filters."""
        self._session = session
        self._rules = session.rules
        option = session.options.option(self.name)
        # Without one of these switches a dry run does not tell the filters what has gone.
        self._sees_gone = option is not None and bool(
            option.enabled & {"enablePreemptable", "enabledAllocatable"}
        )
        enabled = [
            name
            for name in FILTERS
            if name == ALWAYS_ON or boolean(self.arguments, name, default=True)
        ]
        self._filters = self._rules.filters(enabled)
        # By identity: codes of all rows, which stay alive here, and those of the session's nodes.
        self._constant: dict[int, tuple[Ints, Ints]] = {}
        weights = {VOLUMES: integer(self.arguments, "volumebinding.weight", 1), DEVICES: 1}
        uses = [NodeScoreUse(name, weights[name]) for name in enabled if name in weights]
        self._scores = self._rules.scores(uses)

    def pre_predicate(self, task: VolcanoTask) -> bool:
        """Compute what the filters read; False if the task fits nowhere."""
        return self._filters.prepare(task)

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Codes of the filters; a node without room for one more pod is unschedulable."""
        session = self._session
        rows = session.rows_of(nodes)
        codes = self._filters.codes(task, rows)
        n_pods = self._rules.pod_counts(rows)
        limits = session.pod_limits[session.places_of(nodes)]
        full = (limits <= n_pods) & (codes == PASSES)
        result: Ints = np.where(full, UNSCHEDULABLE, codes)
        return result

    @property
    def version(self) -> int:
        """Number of placed or removed pods with affinity."""
        return self._rules.n_affine

    def constant_codes(self, task: VolcanoTask) -> Ints | None:
        """Codes of the filters, where they are constant."""
        codes = self._filters.constant_codes(task)
        if codes is None:
            return None
        # Kinds that differ by their labels alone share their codes.
        known = self._constant.get(id(codes))
        if known is None:
            rows = self._session.rows_of(self._session.node_list)
            known = self._constant[id(codes)] = codes, codes[rows]
        return known[1]

    def takes_more(self, rows: Ints, places: Ints | slice) -> Bools:
        """Nodes below their maximum number of pods."""
        found: Bools = self._session.pod_limits[places] > self._rules.pod_counts(rows)
        return found

    def score_column(self, task: VolcanoTask) -> RowScores | None:
        """Scores of filters, by row."""
        return self._scores.column(task)

    def simulate_predicate(
        self, task: VolcanoTask, node: VolcanoNode, gone: Sequence[VolcanoTask]
    ) -> bool:
        """True if the pod affinity of the task allows a node once some tasks on it are gone."""
        seen = gone if self._sees_gone else ()
        return int(self._filters.codes_without(task, node.row, seen)[0]) == PASSES

    def batch_node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats | None:
        """Scores of filters that have one."""
        return self._scores.totals(task, self._session.rows_of(nodes))

    def allocated(self, task: VolcanoTask) -> bool:
        """Tell the filters that a pod is on a node; False if its volumes cannot be reserved."""
        node = self._session.nodes.get(task.node)
        if node is None:
            return True
        if not self._filters.reserve(task):
            return False
        self._rules.place(task, node.row)
        return True

    def released(self, task: VolcanoTask) -> None:
        """Tell the filters that a pod is no longer on a node."""
        node = self._session.nodes.get(task.node)
        if node is not None:
            self._filters.unreserve(task)
            self._rules.take(task, node.row)
