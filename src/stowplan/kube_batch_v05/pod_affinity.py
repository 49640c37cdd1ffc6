"""Pod affinity of release 1.13 without precomputed metadata, evaluated pod by pod.

This evaluation differs from that of Kubernetes 1.13 with metadata: several terms must all match one
pod, for affinity as for anti-affinity, and a pod placed by the session is looked up by its spec,
which names no node yet.

Source: Kubernetes v1.13, predicates.PodAffinityChecker and priorities.InterPodAffinity, as
kube-batch v0.5 calls them (plugins/util, plugins/nodeorder).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stowplan.objects.node import Node
from stowplan.objects.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import SelectorError, label_selector_matches

SCORE_MAX = 10.0
HARD_WEIGHT = 1

_NO_POD_AFFINITY = PodAffinity()
_NO_AFFINITY = Affinity()


class AffinityError(Exception):
    """Raised if nodes cannot be compared or scored; the original returns an error."""


class PlacedPod(msgspec.Struct, frozen=True):
    """A pod and its node, "" if its spec names none."""

    pod: Pod
    node: str


def _affinity(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity or _NO_AFFINITY).pod_affinity or _NO_POD_AFFINITY


def _anti_affinity(pod: Pod) -> PodAffinity:
    return (pod.spec.affinity or _NO_AFFINITY).pod_anti_affinity or _NO_POD_AFFINITY


def term_matches(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    """True if a term of `owner` selects `pod`; raises AffinityError for a malformed term."""
    namespaces = term.namespaces or (owner.namespace,)
    try:
        return pod.namespace in namespaces and label_selector_matches(
            term.label_selector, pod.labels
        )
    except SelectorError as fault:
        raise AffinityError(str(fault)) from fault


def is_same_domain(a: Node, b: Node, key: str) -> bool:
    """True if both nodes have the label with the same value."""
    return bool(key) and key in a.labels and a.labels[key] == b.labels.get(key)


def satisfies_pod_affinity(
    pod: Pod,
    node: Node,
    here: Iterable[Pod],
    others: Sequence[PlacedPod],
    nodes: Mapping[str, Node],
) -> bool:
    """True if a node satisfies a pod's required terms and those of existing pods.

    here: pods on the node. others: pods with a node, this one or another. nodes: by name.
    """
    present = {other.key for other in here}
    # A pod whose spec names this node counts only if it is on it.
    placed_pods = [
        other for other in others if other.pod.node_name != node.name or other.pod.key in present
    ]
    try:
        return not _violates_existing_anti_affinity(
            pod, node, placed_pods, nodes
        ) and _satisfies_own_terms(pod, node, placed_pods, nodes)
    except AffinityError:
        return False


def _node_of(other: PlacedPod, nodes: Mapping[str, Node]) -> Node:
    found = nodes.get(other.node)
    if found is None:
        raise AffinityError(f"failed to find node <{other.node}>")
    return found


def _violates_existing_anti_affinity(
    pod: Pod, node: Node, placed_pods: Sequence[PlacedPod], nodes: Mapping[str, Node]
) -> bool:
    """True if the anti-affinity of an existing pod excludes this pod from the node's domain."""
    pairs: set[tuple[str, str]] = set()
    for other in placed_pods:
        home = _node_of(other, nodes)
        for term in _anti_affinity(other.pod).required:
            if term_matches(term, other.pod, pod) and term.topology_key in home.labels:
                pairs.add((term.topology_key, home.labels[term.topology_key]))
    return any(pair in pairs for pair in node.labels.items())


def _satisfies_own_terms(
    pod: Pod, node: Node, placed_pods: Sequence[PlacedPod], nodes: Mapping[str, Node]
) -> bool:
    """True if the node satisfies the pod's own required terms."""
    near, apart = _affinity(pod).required, _anti_affinity(pod).required
    found = known = False
    for other in placed_pods:
        if near and not found:
            about, found = _meets(near, pod, other, node, nodes)
            known |= about
        if apart:
            try:
                if _meets(apart, pod, other, node, nodes)[1]:
                    return False
            except AffinityError:
                return False
    if found or not near:
        return True
    # The first pod of a group may go anywhere if it matches its own terms.
    return not known and all(term_matches(term, pod, pod) for term in near)


def _meets(
    terms: Sequence[PodAffinityTerm],
    pod: Pod,
    other: PlacedPod,
    node: Node,
    nodes: Mapping[str, Node],
) -> tuple[bool, bool]:
    """Whether all terms select an existing pod, and whether it is in the node's domain for all."""
    # All selectors are parsed before the first is evaluated.
    about = [term_matches(term, pod, other.pod) for term in terms]
    if not all(about):
        return False, False
    home = _node_of(other, nodes)
    for term in terms:
        if not term.topology_key:
            raise AffinityError("empty topologyKey")
        if not is_same_domain(node, home, term.topology_key):
            return True, False
    return True, True


def preferred_affinity_scores(
    pod: Pod,
    held: Sequence[tuple[Node, Sequence[Pod]]],
    nodes: Mapping[str, Node],
    default_node: Node | None,
) -> list[int]:
    """Scores in [0, 10] of the nodes in `held`: preferred affinity of the pod and of existing pods.

    held: (node, its pods). nodes: all nodes by name. default_node: the node assumed for pods
    without a node name. Raises AffinityError.
    """
    counts = [0.0] * len(held)
    affinity = pod.spec.affinity
    cares = affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity)
    for other in (other for _, pods in held for other in pods):
        theirs = other.spec.affinity
        if not cares and not (theirs and (theirs.pod_affinity or theirs.pod_anti_affinity)):
            continue
        home = nodes.get(other.node_name) or default_node
        if home is None:
            raise AffinityError(f"failed to find node <{other.node_name}>")
        for term, weight in _matching_preferred_terms(pod, other):
            for place, (candidate, _) in enumerate(held):
                if is_same_domain(candidate, home, term.topology_key):
                    counts[place] += weight
    lowest, highest = min(counts, default=0.0), max(counts, default=0.0)
    lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    if highest - lowest <= 0:
        return [0] * len(held)
    return [int(SCORE_MAX * ((count - lowest) / (highest - lowest))) for count in counts]


def _matching_preferred_terms(pod: Pod, other: Pod) -> Iterator[tuple[PodAffinityTerm, float]]:
    """Preferred terms of either pod that select the other, with their weights."""
    for affinity, owner, about, sign in (
        (_affinity(pod), pod, other, 1),
        (_anti_affinity(pod), pod, other, -1),
        (_affinity(other), other, pod, 1),
        (_anti_affinity(other), other, pod, -1),
    ):
        if owner is other and sign == 1:
            for required in affinity.required:
                if term_matches(required, owner, about):
                    yield required, float(HARD_WEIGHT)
        for weighted in affinity.preferred:
            if term_matches(weighted.pod_affinity_term, owner, about):
                yield weighted.pod_affinity_term, float(weighted.weight * sign)
