"""Pods on other nodes that keep a pod from a node: of a topology domain, or by their claims."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.columns import PodInfo
from stowplan.columns.pods.podterms import terms_of
from stowplan.cycle.attempt import Attempt
from stowplan.insight.changes.node_problems import POD_AFFINITY, SPREAD, VOLUMES
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinityPreFilterState
from stowplan.plugins.topology_spread.pod_topology_spread import TopologySpreadPreFilterState
from stowplan.plugins.volumes.volume_restrictions import ClaimConflicts

SCANNED_MAX = 5_000
"""Pods of other nodes that are looked at in one search."""


class DomainPods:
    """The pods of other nodes that count for a pod by anti-affinity, topology spread, or because
    they use a claim for one pod only.

    is_cut: whether pods were not looked at.
    """

    def __init__(self, attempt: Attempt) -> None:
        self.pod = attempt.pod
        self.nodes = attempt.snapshot.nodes
        self.is_cut = False
        self._n_scanned = 0
        state, skipped = attempt.state, attempt.state.skip_filter
        self._affinity: InterPodAffinityPreFilterState | None = None
        self._spread: TopologySpreadPreFilterState | None = None
        self._claims: ClaimConflicts | None = None
        if attempt.verdicts is None:
            return
        names = {member.name for member in attempt.framework.at("filter")}
        if POD_AFFINITY in names - set(skipped):
            self._affinity = state.read(POD_AFFINITY, InterPodAffinityPreFilterState)
        if SPREAD in names - set(skipped):
            self._spread = state.read(SPREAD, TopologySpreadPreFilterState)
        if VOLUMES in names - set(skipped):
            claims: ClaimConflicts | None = state.find(VOLUMES)
            self._claims = claims if claims is not None and claims.uses > 0 else None

    def of(self, row: int) -> list[PodInfo]:
        """Pods that keep the pod from this node, in the order of their nodes."""
        if self._affinity is None and self._spread is None and self._claims is None:
            return []
        labels = self.nodes.nodes[row].labels
        found: list[PodInfo] = []
        for other in self.nodes.order.tolist():
            if other == row:
                continue
            pods = self.nodes.pods[other]
            self._n_scanned += len(pods)
            if self._n_scanned > SCANNED_MAX:
                self.is_cut = True
                return found
            theirs = self.nodes.nodes[other].labels
            shared = {key for key, value in theirs.items() if labels.get(key) == value}
            found += [
                info
                for info in pods
                if self._uses_claim(info.pod) or not shared.isdisjoint(self._keys(info.pod))
            ]
        return found

    def _uses_claim(self, other: Pod) -> bool:
        """True for a pod that uses a claim which only one pod may use."""
        if self._claims is None or other.namespace != self.pod.namespace:
            return False
        return self._claims.uses_by(other) > 0

    def _keys(self, other: Pod) -> Iterator[str]:
        """The topology keys of the rules by which another pod counts."""
        if self._affinity is not None:
            required = self._affinity.required
            for weighted in terms_of(other).required_anti_affinity:
                if weighted.term.matches(self.pod, required.namespace_labels):
                    yield weighted.term.topology_key
            yield from (key for key, selection in required.anti if selection.takes(other))
        if self._spread is not None and other.namespace == self.pod.namespace:
            for constraint in self._spread.constraints:
                if constraint.matches(other.labels):
                    yield constraint.topology_key
