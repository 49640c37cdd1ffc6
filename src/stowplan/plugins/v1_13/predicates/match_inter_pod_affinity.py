"""MatchInterPodAffinity: required affinity and anti-affinity, of the pod and of existing pods.

It counts as InterPodAffinity does and decides otherwise: the first pod of its kind may run on any
node, with or without the label, and terms of existing pods are evaluated first.

Source: Kubernetes v1.13, predicates.PodAffinityChecker and predicates/metadata.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.framework import (
    OK,
    CycleState,
    NodeInfo,
    NodeTable,
    PodInfo,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.pod_affinity.inter_pod_affinity import (
    InterPodAffinityPreFilterState,
    count_existing_anti_affinity,
    count_incoming_affinity,
    is_first_pod_of_affinity,
    required_terms,
)
from stowplan.plugins.v1_13.affinity_terms import (
    FaultyTerms,
    affinity_of,
    anti_affinity_of,
    selector_error,
)

NO_MATCH = "node(s) didn't match pod affinity/anti-affinity"
EXISTING, AFFINITY, ANTI_AFFINITY, FAULT = 1, 2, 3, 4
"""Codes of `filter_column`, in the order of evaluation."""


class AffinityPredicateMetadata:
    """Result of PreFilter: the counts, and the effect of malformed terms on all nodes.

    verdict: a code that holds for every node but those that existing pods refuse; 0 for none.
    fault: the text of an error that ends the attempt, "" for none.
    """

    def __init__(
        self, counts: InterPodAffinityPreFilterState, verdict: int = 0, fault: str = ""
    ) -> None:
        self.counts = counts
        self.verdict = verdict
        self.fault = fault

    def clone(self) -> AffinityPredicateMetadata:
        """A copy that changes independently."""
        return AffinityPredicateMetadata(self.counts.clone(), self.verdict, self.fault)


class MatchInterPodAffinity:
    """Filter on required affinity and anti-affinity between pods."""

    name = "MatchInterPodAffinity"
    declaration = Plugin(name=name, reads=(Namespace,))
    # Unresolvable: evicting pods cannot satisfy affinity.
    NO_AFFINITY = unresolvable(NO_MATCH, "node(s) didn't match pod affinity rules")
    REJECTED_BY_POD = unschedulable(NO_MATCH, "node(s) didn't match pod anti-affinity rules")
    REJECTED_BY_EXISTING = unschedulable(
        NO_MATCH, "node(s) didn't satisfy existing pods anti-affinity rules"
    )

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Count what Filter reads."""
        nodes = snapshot.nodes
        counts = InterPodAffinityPreFilterState(required_terms(pod, snapshot.object_store))
        count_existing_anti_affinity(counts, pod, nodes, ExistingPodTerms.of(nodes))
        count_incoming_affinity(counts, nodes)
        state.write(self.name, _apply_faulty_terms(AffinityPredicateMetadata(counts), pod, nodes))
        return OK

    def add_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Count a pod that was added to a node."""
        state.read(self.name, AffinityPredicateMetadata).counts.change(pod, info, node, 1)
        return OK

    def remove_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Stop counting a pod that was removed from a node."""
        state.read(self.name, AffinityPredicateMetadata).counts.change(pod, info, node, -1)
        return OK

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where all required terms, the pod's and those of existing pods, hold."""
        metadata = state.read(self.name, AffinityPredicateMetadata)
        code = _code(pod, node, metadata)
        return self.filter_status(code, state) if code else OK

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else which group of terms refuses first."""
        metadata = state.read(self.name, AffinityPredicateMetadata)
        counts = metadata.counts
        codes = np.full(
            n_rows_of(rows), FAULT if metadata.fault else metadata.verdict, dtype=np.int64
        )
        if metadata.fault:
            return codes
        if not metadata.verdict:
            for key, _ in counts.required.anti:
                codes[counts.anti.counted(key, rows)] = ANTI_AFFINITY
            if counts.required.affinity and not is_first_pod_of_affinity(pod, counts):
                for key in counts.required.affinity:
                    codes[~counts.affinity.counted(key, rows)] = AFFINITY
        for key in sorted(counts.existing_anti.keys()):
            codes[counts.existing_anti.counted(key, rows)] = EXISTING
        return codes

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        if code == FAULT:
            return error(state.read(self.name, AffinityPredicateMetadata).fault)
        if code == EXISTING:
            return self.REJECTED_BY_EXISTING
        return self.NO_AFFINITY if code == AFFINITY else self.REJECTED_BY_POD


def _code(pod: Pod, node: NodeInfo, metadata: AffinityPredicateMetadata) -> int:
    if metadata.fault:
        return FAULT
    counts, labels = metadata.counts, node.labels
    if not counts.existing_anti.is_empty and any(
        counts.existing_anti.of(key, value) > 0 for key, value in labels.items()
    ):
        return EXISTING
    if metadata.verdict:
        return metadata.verdict
    keys = counts.required.affinity
    near = all(key in labels and counts.affinity.of(key, labels[key]) > 0 for key in keys)
    if not near and not is_first_pod_of_affinity(pod, counts):
        return AFFINITY
    anti = counts.required.anti
    if any(key in labels and counts.anti.of(key, labels[key]) > 0 for key, _ in anti):
        return ANTI_AFFINITY
    return 0


def _apply_faulty_terms(
    metadata: AffinityPredicateMetadata, pod: Pod, nodes: NodeTable
) -> AffinityPredicateMetadata:
    """Apply malformed terms: those of existing pods, then the pod's own.

    Unproved: no recorded answer has a malformed term.
    """
    for placed in FaultyTerms.of(nodes).pods():
        fault = selector_error(anti_affinity_of(placed).required)
        if fault:
            text = f"Failed to get all terms that pod {pod.key} matches, err: {fault}"
            return AffinityPredicateMetadata(metadata.counts, fault=text)
    has_pods = bool(nodes.pod_count.any())
    fault = selector_error(affinity_of(pod).required)
    if fault and has_pods:
        return AffinityPredicateMetadata(
            metadata.counts, fault=f"Cannot schedule pod {pod.key}: {fault}"
        )
    if fault:
        return AffinityPredicateMetadata(metadata.counts, verdict=AFFINITY)
    if has_pods and selector_error(anti_affinity_of(pod).required):
        return AffinityPredicateMetadata(metadata.counts, verdict=ANTI_AFFINITY)
    return metadata
