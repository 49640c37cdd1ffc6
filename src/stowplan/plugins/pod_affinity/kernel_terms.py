"""Kernel terms of InterPodAffinity: per topology key, what the pods of a domain count for or
against.

Existing pods count twice: by their labels, for the terms of the incoming pod, and by their own
terms, where those match it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection, anchor
from stowplan.columns.pods.podterms import ExistingPodTerms, TermRole, WeightedTerm, terms_of
from stowplan.framework import NodeTable
from stowplan.framework.deciders.kernel_terms import (
    PeerAffinityTerms,
    TopologyTerm,
    TopologyTermKind,
)
from stowplan.objects.pod import Pod


class IncomingPodAffinity(msgspec.Struct, frozen=True):
    """An incoming pod, the labels of its namespace, and the term counts kept beside the columns."""

    pod: Pod
    namespace_labels: dict[str, str]
    nodes: NodeTable
    peers: PeerAffinityTerms

    def about(self, terms: Iterable[WeightedTerm], key: str) -> Iterator[WeightedTerm]:
        """Those of `terms` with one topology key that match the pod."""
        for weighted in terms:
            term = weighted.term
            if term.topology_key == key and term.matches(self.pod, self.namespace_labels):
                yield weighted

    def by_key(self, role: TermRole) -> dict[str, frozenset[WeightedTerm]]:
        """By topology key all terms in a role that match the pod, of existing or possible pods."""
        held = ExistingPodTerms.of(self.nodes).matching(role, self.pod, self.namespace_labels)
        found = {one.weighted for one in held}
        for weighted in self.peers.terms(role, self.pod):
            if weighted.term.matches(self.pod, self.namespace_labels):
                found.add(weighted)
        keys = {weighted.term.topology_key for weighted in found}
        return {
            key: frozenset(one for one in found if one.term.topology_key == key) for key in keys
        }

    def held(self, role: TermRole, key: str, weight: int | None) -> Ints:
        """int64 (n_nodes,): the weights of the terms on each row that match the pod; None without
        terms."""
        total = np.zeros(self.nodes.n_nodes, dtype=np.int64)
        terms = ExistingPodTerms.of(self.nodes)
        for one in terms.matching(role, self.pod, self.namespace_labels):
            if one.weighted.term.topology_key == key:
                total += terms.counts(one) * (one.weighted.weight if weight is None else weight)
        return total


def incoming_pod_terms(
    sides: IncomingPodAffinity,
    kind: TopologyTermKind,
    wanted: Iterable[tuple[str, PodSelection]],
    matches: int = 0,
) -> Iterator[TopologyTerm]:
    """A kernel term per (topology key, selected pods) of the pod's own terms."""
    for key, selection in wanted:
        counting = _counting_term(sides.nodes, selection)
        anchors = anchor(selection.requirements)
        counted = selection if kind is TopologyTermKind.APART else None
        yield TopologyTerm(
            kind, key, counting, _selecting_term(selection), matches=matches, anchors=anchors,
            counted=counted,
        )  # fmt: skip


def existing_anti_affinity_terms(sides: IncomingPodAffinity) -> Iterator[TopologyTerm]:
    """Per topology key the required anti-affinity of existing pods that matches the pod."""
    role = TermRole.REQUIRED_ANTI_AFFINITY
    for key, matching in sorted(sides.by_key(role).items()):

        def counts(key: str = key) -> Ints:
            return sides.held(role, key, 1)

        def adds(other: Pod, key: str = key) -> int:
            return sum(1 for _ in sides.about(terms_of(other).required_anti_affinity, key))

        yield TopologyTerm(TopologyTermKind.APART, key, counts, adds, counted=matching)


def preferred_affinity_terms(
    sides: IncomingPodAffinity, own: dict[str, list[tuple[int, PodSelection]]], hard_weight: int
) -> Iterator[TopologyTerm]:
    """Per topology key the preferences of both sides.

    own: topology key -> the pod's preferences: weight and selected pods. hard_weight: weight of the
    required affinity of existing pods.
    """
    roles = {TermRole.PREFERRED: None, TermRole.REQUIRED_AFFINITY: hard_weight}
    if hard_weight <= 0:
        del roles[TermRole.REQUIRED_AFFINITY]
    matching = {role: sides.by_key(role) for role in roles}
    for key in sorted({*own, *(key for found in matching.values() for key in found)}):

        def counts(key: str = key) -> Ints:
            total = np.zeros(sides.nodes.n_nodes, dtype=np.int64)
            for weight, selection in own.get(key, ()):
                total += MatchingPods.of(sides.nodes).counts(selection) * weight
            for role, fixed in roles.items():
                total += sides.held(role, key, fixed)
            return total

        def adds(other: Pod, key: str = key) -> int:
            total = sum(w for w, selection in own.get(key, ()) if selection.takes(other))
            for role, fixed in roles.items():
                for weighted in sides.about(terms_of(other).of(role), key):
                    total += weighted.weight if fixed is None else fixed
            return total

        counted = (
            hard_weight,
            tuple(own.get(key, ())),
            *(found.get(key, frozenset()) for found in matching.values()),
        )
        yield TopologyTerm(TopologyTermKind.WEIGHTED_AFFINITY, key, counts, adds, counted=counted)


def _counting_term(nodes: NodeTable, selection: PodSelection) -> Callable[[], Ints]:
    return lambda: MatchingPods.of(nodes).counts(selection)


def _selecting_term(selection: PodSelection) -> Callable[[Pod], int]:
    return lambda other: int(selection.takes(other))
