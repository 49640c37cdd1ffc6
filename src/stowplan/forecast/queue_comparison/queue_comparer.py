"""QueueComparer: compares what another scheduler decides with what a queue model decides.

Both decide on the same cluster: that of the latest listing without the decisions made since the
listing before. What the model alone decides counts when it would decide it twice in a row, because
the other scheduler may not have come to it yet.

Differs: nodes count as equally good where they have the same size, labels, taints and use; their
scores are not compared, as Volcano draws among equal nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from stowplan.assembly.deciders import Deciders
from stowplan.forecast.queue_comparison.cluster_decisions import (
    QUOTA_RESERVED,
    WAITING_PHASES,
    ClusterDecisions,
    decisions_between,
    has_condition,
    is_victim,
    without_decisions,
    workloads,
)
from stowplan.forecast.queue_comparison.model_decisions import model_decisions
from stowplan.inputs.cluster_reader import Cluster
from stowplan.objects.pod_requests import requested
from stowplan.objects.podgroup import PodGroup

SAME, AS_GOOD, OTHER_NODE = "same", "equallyGood", "otherNode"
THERE_ONLY, HERE_ONLY = "thereOnly", "hereOnly"
"""Results of a comparison."""
STARTED, EVICTED, ADMITTED = "start", "eviction", "admission"
"""What is compared: whether and where a pod starts, victims, PodGroups and Workloads."""
HOST_LABEL = "kubernetes.io/hostname"
REPEATED = 2
"""How often in a row the model alone decides something until that is a difference."""


class DecisionMismatch(msgspec.Struct, frozen=True):
    """A decision that differs. what: STARTED, EVICTED or ADMITTED. here, there: nodes, or `yes` and
    `no`. why: what the model says about it."""

    what: str
    key: str
    here: str
    there: str
    why: str = ""


class QueueComparer:
    """counts: (what, result) -> number since the beginning."""

    def __init__(self, deciders: Deciders) -> None:
        self.deciders = deciders
        self.counts: Counter[tuple[str, str]] = Counter()
        self._before: Cluster | None = None
        self._only_here: Counter[tuple[str, str]] = Counter()

    def next(self, listed: Cluster) -> list[DecisionMismatch]:
        """Compare with the listing before; the first one has nothing to compare with."""
        before, self._before = self._before, listed
        if before is None:
            return []
        names = () if self.deciders.batch is None else self.deciders.batch.scheduler_names
        there = decisions_between(before, listed, names)
        if there.is_empty and not _has_pending(listed, names):
            self._only_here.clear()
            return []
        cluster = without_decisions(before, listed, there)
        here = model_decisions(cluster, self.deciders)
        found = list(self._starts(cluster, here, there))
        found += self._others(here, there)
        # What is in both listings, and in the same state.
        unchanged = {key for key, _ in _states(before) & _states(listed)}
        found += self._repeated(here, unchanged)
        return found

    def _starts(
        self, cluster: Cluster, here: ClusterDecisions, there: ClusterDecisions
    ) -> Iterator[DecisionMismatch]:
        kinds: Mapping[str, Any] | None = None
        for key, node in there.started.items():
            mine = here.started.get(key, "")
            if mine == node:
                self.counts[STARTED, SAME] += 1
                continue
            if not mine:
                self.counts[STARTED, THERE_ONLY] += 1
                yield DecisionMismatch(STARTED, key, "", node, here.reasons.get(key, ""))
                continue
            kinds = node_kinds(cluster) if kinds is None else kinds
            if node in kinds and kinds[node] == kinds.get(mine):
                self.counts[STARTED, AS_GOOD] += 1
                continue
            self.counts[STARTED, OTHER_NODE] += 1
            yield DecisionMismatch(STARTED, key, mine, node)

    def _others(
        self, here: ClusterDecisions, there: ClusterDecisions
    ) -> Iterator[DecisionMismatch]:
        """Victims, and what was admitted."""
        victims = ", ".join(sorted(here.evicted)) or "nothing"
        for key in there.evicted:
            is_same = key in here.evicted
            self.counts[EVICTED, SAME if is_same else THERE_ONLY] += 1
            if not is_same:
                yield DecisionMismatch(EVICTED, key, "no", "yes", f"here: {victims}")
        for key in sorted(there.admitted):
            is_same = key in here.admitted
            self.counts[ADMITTED, SAME if is_same else THERE_ONLY] += 1
            if not is_same:
                yield DecisionMismatch(ADMITTED, key, "no", "yes", here.reasons.get(key, ""))

    def _repeated(self, here: ClusterDecisions, unchanged: set[str]) -> Iterator[DecisionMismatch]:
        """What only the model decides, for the second time in a row."""
        only: dict[tuple[str, str], DecisionMismatch] = {}
        for key, node in here.started.items():
            only[STARTED, key] = DecisionMismatch(STARTED, key, node, "")
        for key, why in here.evicted.items():
            only[EVICTED, key] = DecisionMismatch(EVICTED, key, "yes", "no", why)
        for key in sorted(here.admitted):
            only[ADMITTED, key] = DecisionMismatch(ADMITTED, key, "yes", "no")
        only = {one: found for one, found in only.items() if one[1] in unchanged}
        self._only_here = Counter({one: self._only_here[one] + 1 for one in only})
        for one, found in only.items():
            if self._only_here[one] == REPEATED:
                self.counts[one[0], HERE_ONLY] += 1
                yield found


def _has_pending(cluster: Cluster, names: Collection[str]) -> bool:
    """True where a pod of these schedulers, a PodGroup or a Workload waits."""
    return (
        any(pod.spec.scheduler_name in names for pod in cluster.pending())
        or any(
            isinstance(one, PodGroup) and one.status.phase in WAITING_PHASES
            for one in cluster.objects
        )
        or any(not has_condition(tree, QUOTA_RESERVED) for tree in workloads(cluster).values())
    )


def _states(cluster: Cluster) -> set[tuple[str, bool]]:
    """Pods with whether they have a node, PodGroups and Workloads with whether they are admitted;
    without pods that end."""
    pods = {
        (pod.key, bool(pod.node_name))
        for pod in cluster.pods
        if not pod.is_finished and pod.metadata.deletion_timestamp is None and not is_victim(pod)
    }
    groups = {
        (f"podgroup {one.key}", one.status.phase not in WAITING_PHASES)
        for one in cluster.objects
        if isinstance(one, PodGroup)
    }
    trees = {
        (f"workload {key}", has_condition(tree, QUOTA_RESERVED))
        for key, tree in workloads(cluster).items()
    }
    return pods | groups | trees


def node_kinds(cluster: Cluster) -> dict[str, Any]:
    """Node -> what distinguishes it from others: size, labels but the host's name, taints, and what
    its pods request."""
    used: dict[str, Counter[str]] = {}
    for pod in cluster.bound():
        amounts = used.setdefault(pod.node_name, Counter())
        amounts.update(requested(pod))
        amounts["pods"] += 1
    found = {}
    for node in cluster.nodes:
        labels = {name: n for name, n in node.metadata.labels.items() if name != HOST_LABEL}
        own = (node.status.allocatable, labels, node.spec.taints, node.spec.unschedulable)
        found[node.name] = (own, used.get(node.name, Counter()))
    return found
