"""SelectorSpreadPriority, ServiceSpreadingPriority: spread the pods of a service or controller.

Source: Kubernetes v1.13, priorities/selector_spreading.go and util/node GetZoneKey.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Floats, Ints
from stowplan.columns.pods.podcounts import MatchingPods, admits
from stowplan.framework import OK, CycleState, NodeInfo, NodeTable, Rows, Snapshot, Status
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.objects.pod import Pod
from stowplan.plugins.topology_spread.default_selector import SELECTOR_KINDS
from stowplan.plugins.v1_13.priorities.priority_metadata import PriorityMetadata
from stowplan.plugins.v1_13.spread_selectors import Requirements, selected_pods
from stowplan.plugins.volumes.csi_translation import BETA_REGION, BETA_ZONE

ZONE_WEIGHT = 2.0 / 3.0


class SelectorSpreadPriority:
    """Score by how few pods of the same selectors are on the node, and in its zone."""

    name = "SelectorSpreadPriority"
    reads = SELECTOR_KINDS

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Create the pod's metadata."""
        PriorityMetadata.of(pod, snapshot, state)
        return OK

    def score(self, pod: Pod, node: NodeInfo, state: CycleState) -> int:
        """Number of pods on the node that any of the pod's selectors selects, without terminating
        ones."""
        selectors = PriorityMetadata.read(state).selectors
        return sum(_matches_any_selector(info.pod, pod, selectors) for info in node.pods)

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        selectors = PriorityMetadata.read(state).selectors
        counts = np.zeros(nodes.n_nodes, dtype=np.int64)
        pods = MatchingPods.of(nodes)
        columns = [pods.counts(selected_pods(one, pod.namespace)) for one in selectors]
        if len(columns) == 1:
            counts += columns[0]
        elif columns:
            # Several selectors may select a pod, so rows that more than one finds are counted
            # again.
            found = np.array(columns)
            counts += found.sum(axis=0)
            for row in np.flatnonzero((found > 0).sum(axis=0) > 1).tolist():
                on_row = nodes.pods[row]
                counts[row] = sum(
                    _matches_any_selector(info.pod, pod, selectors) for info in on_row
                )
        chosen: Ints = counts[rows]
        return chosen

    def normalize_score(self, scores: Ints, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,) in [0, 10]: a third for the node's count, two for that of its zone.

        Only rows that are scored count. Where none has a zone the node's count is all.
        """
        shares = _free_shares(scores, int(scores.max(initial=0)))
        zones = _zones(nodes, rows)
        zoned = zones > 0
        if zoned.any():
            # Sums of weights are doubles, exact for whole numbers up to 2**53.
            sums = np.bincount(zones[zoned], weights=scores[zoned]).astype(np.int64)
            by_zone = _free_shares(sums, int(sums.max(initial=0)))
            of_zone = ZONE_WEIGHT * by_zone[zones[zoned]]
            shares[zoned] = shares[zoned] * (1.0 - ZONE_WEIGHT) + of_zone
        truncated: Ints = shares.astype(np.int64)
        return truncated


class ServiceSpreadingPriority(SelectorSpreadPriority):
    """Equal to SelectorSpreadPriority: the metadata has the selectors of all kinds."""

    name = "ServiceSpreadingPriority"


def _matches_any_selector(placed: Pod, pod: Pod, selectors: tuple[Requirements, ...]) -> bool:
    return (
        placed.namespace == pod.namespace
        and placed.metadata.deletion_timestamp is None
        and any(admits(one, placed.labels) for one in selectors)
    )


def _free_shares(counts: Ints, most: int) -> Floats:
    """float64 (n,): 10 for a count of 0 down to 0 for the highest; 10 where all are 0."""
    if most == 0:
        return np.full(counts.shape, float(PRIORITY_MAX))
    shares: Floats = float(PRIORITY_MAX) * ((most - counts) / float(most))
    return shares


def _zones(nodes: NodeTable, rows: Rows) -> Ints:
    """int64 (n_rows,): a number per zone, above 0; 0 where region and zone are empty or missing."""
    codes = []
    for key in (BETA_REGION, BETA_ZONE):
        column = nodes.labels.column(key)
        code = column.codes[rows].astype(np.int64) + 1
        code[code == column.vocabulary.find("") + 1] = 0
        codes.append(code)
    regions, zones = codes
    return regions * (int(zones.max(initial=0)) + 1) + zones
