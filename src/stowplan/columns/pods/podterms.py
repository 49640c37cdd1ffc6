"""Pod affinity terms of existing pods: each distinct term once, with its rows, updated
incrementally.

Pods of one template have equal terms, so a cluster has few. Terms are found by the labels of pods
that they may match, and evaluated only then. Terms come from `spec.affinity` as the scheduler reads
it: a group (required affinity, for example) with an invalid selector counts as absent.

Source: kube-scheduler v1.36, framework/types PodInfo and kube-scheduler/framework AffinityTerm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from stowplan.columns.array_types import Ints
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podcounts import (
    TALLIES_MAX,
    LabelIndex,
    RowTally,
    admits,
    anchor,
    count_rows,
)
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.objects.pod import Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector, SelectorError, SelectorRequirement

Requirements = tuple[SelectorRequirement, ...]
Stated = list[tuple[PodAffinityTerm, int]]


class AffinityTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """A term with parsed selectors.

    requirements: on the labels of the matched pods; None matches no pod. namespaces: by name.
    namespace_requirements: on the labels of further namespaces; None adds none.
    """

    topology_key: str
    requirements: Requirements | None
    namespaces: frozenset[str]
    namespace_requirements: Requirements | None

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        """True when the term matches `pod`. namespace_labels: of the pod's namespace."""
        if self.requirements is None:
            return False
        reaches = pod.namespace in self.namespaces or (
            self.namespace_requirements is not None
            and admits(self.namespace_requirements, namespace_labels)
        )
        return reaches and admits(self.requirements, pod.labels)


class TermRole(Enum):
    """Roles of terms; preferred terms have a weight, negative for anti-affinity."""

    REQUIRED_AFFINITY = "required affinity"
    REQUIRED_ANTI_AFFINITY = "required anti-affinity"
    PREFERRED = "preferred"

    # Enum members hash by identity: without this a lookup by role hashes the name each time.
    __hash__ = object.__hash__


class WeightedTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """A term in its role. weight: 0 for required terms."""

    role: TermRole
    term: AffinityTerm
    weight: int = 0


class PodTerms(msgspec.Struct, frozen=True):
    """All terms of a pod. faults: errors of groups that were left out."""

    required_affinity: tuple[WeightedTerm, ...] = ()
    required_anti_affinity: tuple[WeightedTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[WeightedTerm, ...]:
        """All terms, of any role."""
        return self.required_affinity + self.required_anti_affinity + self.preferred

    def of(self, role: TermRole) -> tuple[WeightedTerm, ...]:
        """Terms of a role, in the order of the spec; affinity before anti-affinity."""
        if role is TermRole.PREFERRED:
            return self.preferred
        if role is TermRole.REQUIRED_AFFINITY:
            return self.required_affinity
        return self.required_anti_affinity

    @property
    def fault(self) -> str:
        """The original's error text for all faults, "" without faults."""
        distinct = tuple(dict.fromkeys(self.faults))
        return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


NO_TERMS = PodTerms()
_KEPT = "podterms"


def terms_of(pod: Pod) -> PodTerms:
    """The pod's terms, parsed once per spec and namespace."""
    affinity = pod.spec.affinity
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return NO_TERMS
    kept: dict[str, PodTerms] = pod.spec.__dict__.setdefault(_KEPT, {})
    found = kept.get(pod.namespace)
    if found is None:
        found = kept[pod.namespace] = _read(
            affinity.pod_affinity or PodAffinity(),
            affinity.pod_anti_affinity or PodAffinity(),
            pod.namespace,
        )
    return found


def _read(affinity: PodAffinity, anti: PodAffinity, namespace: str) -> PodTerms:
    faults: list[str] = []

    def read(group: str, role: TermRole, stated: Stated) -> tuple[WeightedTerm, ...]:
        try:
            return tuple(
                WeightedTerm(role, _term(term, namespace), weight) for term, weight in stated
            )
        except SelectorError as fault:
            faults.append(f"{group}: {fault}")
            return ()

    return PodTerms(
        required_affinity=read(
            "requiredAffinityTerms", TermRole.REQUIRED_AFFINITY, [(t, 0) for t in affinity.required]
        ),
        required_anti_affinity=read(
            "requiredAntiAffinityTerms",
            TermRole.REQUIRED_ANTI_AFFINITY,
            [(t, 0) for t in anti.required],
        ),
        preferred=read("preferredAffinityTerms", TermRole.PREFERRED, _weighed(affinity, 1))
        + read("preferredAntiAffinityTerms", TermRole.PREFERRED, _weighed(anti, -1)),
        faults=tuple(faults),
    )


def _weighed(affinity: PodAffinity, sign: int) -> Stated:
    return [(weighted.pod_affinity_term, sign * weighted.weight) for weighted in affinity.preferred]


def _term(term: PodAffinityTerm, namespace: str) -> AffinityTerm:
    requirements = _requirements(term.label_selector)
    selector = term.namespace_selector
    own = (namespace,) if selector is None and not term.namespaces else term.namespaces
    return AffinityTerm(term.topology_key, requirements, frozenset(own), _requirements(selector))


def _requirements(selector: LabelSelector | None) -> Requirements | None:
    return None if selector is None else selector.requirements


class ExistingPodTerm:
    """A term of existing pods, and where. rows: row -> number of pods with it."""

    __slots__ = ("rows", "tally", "weighted")

    def __init__(self, weighted: WeightedTerm) -> None:
        self.weighted = weighted
        self.rows: dict[int, int] = {}
        self.tally: RowTally | None = None


class ExistingPodTerms(TableWatcher):
    """Terms of existing pods.

    n_entered: number of times a new distinct term was added.
    """

    counts_alike = True

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.n_entered = 0
        self._held: dict[WeightedTerm, ExistingPodTerm] = {}
        self._by_label: dict[TermRole, LabelIndex[ExistingPodTerm]] = {
            role: LabelIndex() for role in TermRole
        }
        self._n_held = dict.fromkeys(TermRole, 0)
        self._tallied: dict[ExistingPodTerm, RowTally] = {}

    def has(self, role: TermRole) -> bool:
        """True when an existing pod has a term in this role."""
        return self._n_held[role] > 0

    def matching(
        self, role: TermRole, pod: Pod, namespace_labels: Mapping[str, str]
    ) -> list[ExistingPodTerm]:
        """Terms of a role that match `pod`."""
        found = self._by_label[role].found_by(pod.labels.items())
        return [held for held in found if held.weighted.term.matches(pod, namespace_labels)]

    def counts(self, held: ExistingPodTerm) -> Ints:
        """int64 (n_nodes,): number of pods with the term on each row; a view, read-only."""
        tally = self._tallied.pop(held, None)
        if tally is None:
            if len(self._tallied) >= TALLIES_MAX:
                self._forget(next(iter(self._tallied)))
            tally = held.tally = RowTally(self._table.n_nodes)
            tally.add(held.rows)
        self._tallied[held] = tally
        return tally.column(self._table.n_nodes)

    def all(self) -> Iterable[ExistingPodTerm]:
        """All terms of existing pods."""
        return self._held.values()

    # Table events.

    def begin(self) -> None:
        """Read the terms of the table's pods and follow its changes."""
        # Most pods have none. No column is kept yet that rows were added to.
        for row, pods in enumerate(self._table.pods):
            for info in pods:
                if info.footprint.has_affinity:
                    self.pod_added(row, info)
        self._table.watch_changes(self)

    def pod_added(self, row: int, info: PodInfo) -> None:
        if not info.footprint.has_affinity:
            return
        for weighted in terms_of(info.pod).all:
            held = self._held.get(weighted)
            if held is None:
                held = self._enter(weighted)
            held.rows[row] = held.rows.get(row, 0) + 1
            if held.tally is not None:
                held.tally.count(row, 1)

    def pods_added(self, placed: Sequence[PodInfo], rows: Sequence[int]) -> None:
        # Pods of one template have one spec.
        known: dict[tuple[int, str], list[int]] = {}
        found: list[tuple[Pod, list[int]]] = []
        spec, namespace = None, ""
        for info, row in zip(placed, rows, strict=True):
            if not info.footprint.has_affinity:
                continue
            pod = info.pod
            if pod.spec is not spec or pod.metadata.namespace != namespace:
                spec, namespace = pod.spec, pod.metadata.namespace
                key = id(spec), namespace
                if key not in known:
                    known[key] = []
                    found.append((pod, known[key]))
                with_terms = known[key]
            with_terms.append(row)
        for pod, with_terms in found:
            for weighted in terms_of(pod).all:
                held = self._held.get(weighted)
                if held is None:
                    held = self._enter(weighted)
                count_rows(held.rows, with_terms)
                if held.tally is not None:
                    held.tally.count_all(with_terms)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        if not info.footprint.has_affinity:
            return
        for weighted in terms_of(info.pod).all:
            held = self._held[weighted]
            held.rows[row] -= 1
            if held.tally is not None:
                held.tally.count(row, -1)
            if not held.rows[row]:
                del held.rows[row]
            if not held.rows:
                self._leave(weighted)

    def row_added(self, row: int) -> None:
        for tally in self._tallied.values():
            tally.make_room(row)

    def row_moved(self, source: int, target: int) -> None:
        for tally in self._tallied.values():
            tally.move(source, target)
        present = {
            weighted
            for info in self._table.pods[target]
            if info.footprint.has_affinity
            for weighted in terms_of(info.pod).all
        }
        for weighted in present:
            rows = self._held[weighted].rows
            rows[target] = rows.pop(source)

    # Internals.

    def _enter(self, weighted: WeightedTerm) -> ExistingPodTerm:
        held = self._held[weighted] = ExistingPodTerm(weighted)
        self.n_entered += 1
        self._n_held[weighted.role] += 1
        if weighted.term.requirements is not None:
            self._by_label[weighted.role].add(held, anchor(weighted.term.requirements))
        return held

    def _leave(self, weighted: WeightedTerm) -> None:
        held = self._held.pop(weighted)
        self._n_held[weighted.role] -= 1
        self._forget(held)
        if weighted.term.requirements is not None:
            self._by_label[weighted.role].drop(held, anchor(weighted.term.requirements))

    def _forget(self, held: ExistingPodTerm) -> None:
        held.tally = None
        self._tallied.pop(held, None)
