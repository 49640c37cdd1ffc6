"""Which pods of a DaemonSet are created and deleted, by node.

Source: kube-controller-manager v1.36, pkg/controller/daemon (daemon_controller.go, update.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from stowplan.controller_runtime.object_fields import int_or_percent_of
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controllers.workloads.controller_revisions import HASH_LABEL
from stowplan.objects.encoding.tree import Tree

GENERATION_LABEL = "pod-template-generation"
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"


@dataclass(frozen=True, slots=True)
class NodePlacement:
    """Whether a DaemonSet places a pod on a node, and whether a running one is kept there."""

    should_run: bool
    should_continue: bool


@dataclass(slots=True)
class DaemonPodChanges:
    """nodes: those that get a pod. pods: those that are deleted, by name."""

    nodes: list[str] = field(default_factory=list)
    pods: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DaemonSetView:
    """A DaemonSet, its nodes and pods at `now` (Unix seconds).

    hash: label of pods of the current template; generation: their former label, "" for none.
    placements: by node. pods: by node; finished ones that are terminating are left out.
    """

    strategy: Tree
    wait_s: int
    hash: str
    generation: str
    now: float
    placements: Mapping[str, NodePlacement]
    pods: Mapping[str, Sequence[PodFacts]]

    def is_updated(self, pod: PodFacts) -> bool:
        """True for a pod of the current template."""
        if self.hash and pod.labels.get(HASH_LABEL) == self.hash:
            return True
        return bool(self.generation) and pod.labels.get(GENERATION_LABEL) == self.generation

    def is_available(self, pod: PodFacts) -> bool:
        """True for a pod that has been ready for `minReadySeconds`."""
        return pod.ready and (not self.wait_s or pod.ready_since + self.wait_s <= self.now)

    def should_run(self, node: str) -> bool:
        """Whether a node gets a pod; False for one that does not exist."""
        found = self.placements.get(node)
        return found is not None and found.should_run

    def surge(self, desired: int) -> int:
        """`maxSurge`, of `desired` pods."""
        return self._limit("maxSurge", desired)

    def unavailable(self, desired: int) -> int:
        """`maxUnavailable`, of `desired` pods."""
        return self._limit("maxUnavailable", desired)

    @property
    def desired(self) -> int:
        """Number of nodes that get a pod."""
        return sum(each.should_run for each in self.placements.values())

    @cached_property
    def allows_surge(self) -> bool:
        """True when a node may have two pods during an update."""
        return self.surge(1) > 0

    def _limit(self, name: str, desired: int) -> int:
        if self.strategy["type"] != "RollingUpdate":
            return 0
        return int_or_percent_of(
            (self.strategy.get("rollingUpdate") or {}).get(name), desired, True
        )


def oldest_first(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Bound pods first, then by creation time and name."""
    return sorted(pods, key=lambda pod: (not pod.node, pod.created, pod.key[1]))


def excess_pods(view: DaemonSetView, running: Sequence[PodFacts]) -> list[str]:
    """The pods of a node, beyond those it may have, to delete.

    With a surge a node may have two: an old one that is ready, and a new one that is not available.
    """
    ordered = oldest_first(running)
    if not view.allows_surge:
        return [pod.key[1] for pod in ordered[1:]]
    kept: dict[bool, PodFacts] = {}
    excess = []
    for pod in ordered:
        is_new = pod.labels.get(HASH_LABEL) == view.hash
        if kept.setdefault(is_new, pod) is not pod:
            excess.append(pod.key[1])
    if len(kept) == 2 and (not kept[False].ready or view.is_available(kept[True])):
        excess.append(kept[False].key[1])
    return excess


def pods_without_node(view: DaemonSetView) -> list[str]:
    """Unbound pods for nodes that do not exist; they would never be scheduled."""
    found = (pods for node, pods in view.pods.items() if node not in view.placements)
    return [pod.key[1] for pods in found for pod in pods if not pod.node]


def rolling_update(view: DaemonSetView) -> DaemonPodChanges:
    """The pods that a rolling update replaces now. Nodes are processed by name."""
    desired = view.desired
    surge, unavailable = view.surge(desired), view.unavailable(desired)
    if desired and not unavailable and not surge:
        unavailable = 1
    nodes = {name for name, each in view.placements.items() if each.should_run} | view.pods.keys()
    if surge:
        return _with_surge(view, sorted(nodes), surge, desired)
    return _without_surge(view, sorted(nodes), unavailable)


def _without_surge(view: DaemonSetView, nodes: Sequence[str], unavailable: int) -> DaemonPodChanges:
    """Delete old pods that are unavailable, and as many others as may be unavailable."""
    missing = 0
    replaced: list[str] = []
    candidates: list[str] = []
    for node in nodes:
        pair = _new_and_old(view, node)
        if pair is None or (pair[0] is None) == (pair[1] is None):
            missing += 1
            continue
        new, old = pair
        if new is not None:
            missing += not view.is_available(new)
        elif old is not None and not view.is_available(old):
            replaced.append(old.key[1])
            missing += 1
        elif old is not None and missing < unavailable:
            candidates.append(old.key[1])
    return DaemonPodChanges(pods=replaced + candidates[: max(unavailable - missing, 0)])


@dataclass(slots=True)
class _SurgeState:
    """Result of the pass over the nodes. n_surge: nodes with a new pod that is not available."""

    n_surge: int = 0
    n_available: int = 0
    deleted: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    """Old pods, available, on nodes that are no longer selected."""
    allowed: list[str] = field(default_factory=list)
    candidates: list[str] = field(default_factory=list)


def _with_surge(
    view: DaemonSetView, nodes: Sequence[str], surge: int, desired: int
) -> DaemonPodChanges:
    """Create new pods beside old ones; old ones go when the new one is available."""
    state = _SurgeState()
    for node in nodes:
        pair = _new_and_old(view, node)
        if pair is None:
            state.n_surge += 1
            continue
        new, old = pair
        counted = old if old is not None else new
        state.n_available += counted is not None and view.is_available(counted)
        if old is not None and new is not None:
            if view.is_available(new):
                state.deleted.append(old.key[1])
            else:
                state.n_surge += 1
        elif old is not None:
            _surge_candidate(view, node, old, state, surge)
    spare = max(state.n_available - desired, 0)
    room = max(surge - state.n_surge, 0)
    return DaemonPodChanges(
        nodes=state.allowed + state.candidates[:room],
        pods=state.deleted + state.misplaced[:spare],
    )


def _surge_candidate(
    view: DaemonSetView, node: str, old: PodFacts, state: _SurgeState, surge: int
) -> None:
    """Sort a node that has an old pod only."""
    available = view.is_available(old)
    if not view.should_run(node):
        (state.misplaced if available else state.deleted).append(old.key[1])
    elif not available:
        state.allowed.append(node)
    elif state.n_surge < surge:
        state.candidates.append(node)


def _new_and_old(view: DaemonSetView, node: str) -> tuple[PodFacts | None, PodFacts | None] | None:
    """The updated and the outdated pod of a node; None if there are several of either."""
    found: dict[bool, PodFacts] = {}
    for pod in view.pods.get(node, ()):
        if pod.deleting:
            continue
        if found.setdefault(view.is_updated(pod), pod) is not pod:
            return None
    return found.get(True), found.get(False)
