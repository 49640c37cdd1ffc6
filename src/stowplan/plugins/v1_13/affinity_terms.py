"""Malformed pod affinity terms: in 1.13 one of them can end an attempt.

Valid terms are evaluated as by InterPodAffinity.

Source: Kubernetes v1.13, predicates/metadata.go and priorities/interpod_affinity.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podterms import terms_of
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import PodInfo
from stowplan.objects.pod import Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import SelectorError

NO_AFFINITY = PodAffinity()


def affinity_of(pod: Pod) -> PodAffinity:
    """`spec.affinity.podAffinity`, empty where it is missing."""
    affinity = pod.spec.affinity
    return NO_AFFINITY if affinity is None else affinity.pod_affinity or NO_AFFINITY


def anti_affinity_of(pod: Pod) -> PodAffinity:
    """`spec.affinity.podAntiAffinity`, empty where it is missing."""
    affinity = pod.spec.affinity
    return NO_AFFINITY if affinity is None else affinity.pod_anti_affinity or NO_AFFINITY


def preferred_terms(pod: Pod) -> list[PodAffinityTerm]:
    """The preferred terms of the pod, of both kinds."""
    stated = (*affinity_of(pod).preferred, *anti_affinity_of(pod).preferred)
    return [weighted.pod_affinity_term for weighted in stated]


def selector_error(terms: Iterable[PodAffinityTerm]) -> str:
    """The error of malformed label selectors of terms, "" for none."""
    for term in terms:
        try:
            if term.label_selector is not None:
                assert term.label_selector.requirements is not None
        except SelectorError as fault:
            return str(fault)
    return ""


class FaultyTerms(TableWatcher):
    """The pods on nodes that have a malformed term."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._pods: dict[str, Pod] = {}

    def pods(self) -> Iterator[Pod]:
        """The pods."""
        return iter(self._pods.values())

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""
        if info.footprint.has_affinity and terms_of(info.pod).faults:
            self._pods[info.uid] = info.pod

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""
        if info.footprint.has_affinity:
            self._pods.pop(info.uid, None)
