"""InterPodAffinity: pods near the pods they want, and away from those they, or which, reject.

Every term counts pods per topology pair: a label key and a value that nodes share. PreFilter
counts three ways: pods that match all of the pod's required affinity, pods that match its
required anti-affinity, and terms of required anti-affinity of the pods on the nodes that match
the pod. Preferred terms add up to a score per pair, from both sides.

Source: kube-scheduler v1.36, plugins/interpodaffinity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.labels import ABSENT, LabelColumn
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection, admits, sums_by_value
from stowplan.columns.pods.podterms import AffinityTerm, ExistingPodTerms, TermRole, terms_of
from stowplan.framework import (
    OK,
    SCORE_MAX,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    ObjectStore,
    PodInfo,
    Problem,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import (
    KernelTerm,
    PeerAffinityTerms,
    TopologyTermKind,
    TopologyTerms,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorRequirement
from stowplan.objects.workload import Namespace
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.pod_affinity.hints import inter_pod_affinity_events
from stowplan.plugins.pod_affinity.kernel_terms import (
    IncomingPodAffinity,
    existing_anti_affinity_terms,
    incoming_pod_terms,
    preferred_affinity_terms,
)

Pair = tuple[str, str]

SELECTS_NO_POD = PodSelection((), frozenset())
_NO_LABELS: Mapping[str, str] = {}
_PRE_SCORE = "PreScoreInterPodAffinity"

AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY = 1, 2, 3
"""Codes of `filter_column`, in the order of evaluation."""


class InterPodAffinityArgs(PluginArgs, frozen=True):
    """hard_pod_affinity_weight: weight of required affinity terms of existing pods in scores.
    ignore_preferred_terms_of_existing_pods: whether pods without preferences are not scored."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the arguments. path: their place in the configuration."""
        weight = self.hard_pod_affinity_weight
        if not 0 <= weight <= 100:
            yield Problem(f"{path}.hardPodAffinityWeight", str(weight), "0 to 100")


class TopologyPairCounts:
    """Counts per topology pair: those of the columns, and what changed on a clone since."""

    __slots__ = ("_changes", "_columns", "_sums", "_total")

    def __init__(self) -> None:
        self._columns: dict[str, LabelColumn] = {}
        self._sums: dict[str, Ints] = {}
        self._changes: dict[Pair, int] = {}
        self._total = 0

    def add(self, nodes: NodeTable, key: str, counts: Ints) -> None:
        """Count the rows that have the label. counts: int64 (n_nodes,), at least 0."""
        column = nodes.labels.column(key)
        sums = sums_by_value(column.codes[nodes.all_rows], len(column.vocabulary), counts)
        self._total += int(sums.sum())
        if key in self._sums:
            sums += self._sums[key]
        self._columns[key], self._sums[key] = column, sums

    def change(self, key: str, labels: Mapping[str, str], by: int) -> None:
        """Count one more or less on a node with these labels."""
        if key in labels:
            pair = key, labels[key]
            self._changes[pair] = self._changes.get(pair, 0) + by
            self._total += by

    def of(self, key: str, value: str) -> int:
        """The count of a pair."""
        n_counted = self._changes.get((key, value), 0)
        if key in self._sums:
            item = self._columns[key].vocabulary.find(value)
            n_counted += int(self._sums[key][item]) if item >= 0 else 0
        return n_counted

    @property
    def is_empty(self) -> bool:
        """True when no pair has a count; none is ever below 0."""
        return self._total == 0

    def keys(self) -> set[str]:
        """The label keys of all pairs."""
        return {*self._sums, *(key for key, _ in self._changes)}

    def counted(self, key: str, rows: Rows) -> Bools:
        """bool (n_rows,): rows whose pair has a count. Not for a clone that was changed."""
        if key not in self._sums:
            return np.zeros(n_rows_of(rows), dtype=np.bool_)
        chosen: Bools = (self._sums[key] > 0)[self._columns[key].codes[rows]]
        return chosen

    def clone(self) -> TopologyPairCounts:
        """A copy that changes independently."""
        copy = TopologyPairCounts()
        copy._columns, copy._sums, copy._total = self._columns, self._sums, self._total
        copy._changes = dict(self._changes)
        return copy


class RequiredAffinityTerms(msgspec.Struct, frozen=True):
    """Required terms of a pod, namespaces resolved.

    affinity: the topology keys of its affinity terms. near: the pods that match all of them. anti:
    topology key -> pods, for each anti-affinity term.
    """

    affinity: tuple[str, ...]
    near: PodSelection
    anti: tuple[tuple[str, PodSelection], ...]
    namespace_labels: Mapping[str, str]


class InterPodAffinityPreFilterState:
    """Result of PreFilter, read by Filter."""

    __slots__ = ("affinity", "anti", "existing_anti", "required")

    def __init__(self, required: RequiredAffinityTerms) -> None:
        self.required = required
        self.affinity = TopologyPairCounts()
        self.anti = TopologyPairCounts()
        self.existing_anti = TopologyPairCounts()

    def clone(self) -> InterPodAffinityPreFilterState:
        """A state whose counts change independently."""
        copy = InterPodAffinityPreFilterState(self.required)
        copy.affinity = self.affinity.clone()
        copy.anti = self.anti.clone()
        copy.existing_anti = self.existing_anti.clone()
        return copy

    def change(self, pod: Pod, info: PodInfo, node: NodeInfo, by: int) -> None:
        """Count a pod on a node once more or less, for the incoming pod."""
        required, labels = self.required, node.labels
        for weighted in terms_of(info.pod).required_anti_affinity:
            if weighted.term.matches(pod, required.namespace_labels):
                self.existing_anti.change(weighted.term.topology_key, labels, by)
        if required.affinity and required.near.takes(info.pod):
            for key in required.affinity:
                self.affinity.change(key, labels, by)
        for key, selection in required.anti:
            if selection.takes(info.pod):
                self.anti.change(key, labels, by)


class InterPodAffinityPreScoreState(msgspec.Struct, frozen=True):
    """Result of PreScore, read by Score: key -> (column, int64 (n_values + 1,) score by value)."""

    by_key: dict[str, tuple[LabelColumn, Ints]]

    def score(self, node: NodeInfo) -> int:
        """The sum over the node's pairs: any int64, more is better."""
        total = 0
        for key, (column, scores) in self.by_key.items():
            item = column.vocabulary.find(node.labels[key]) if key in node.labels else -1
            total += int(scores[item]) if item >= 0 else 0
        return total

    def score_column(self, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        total = np.zeros(n_rows_of(rows), dtype=np.int64)
        for column, scores in self.by_key.values():
            total += scores[column.codes[rows]]
        return total


class InterPodAffinity:
    """Filter on required, score on preferred affinity and anti-affinity between pods."""

    name = "InterPodAffinity"
    declaration = Plugin(name=name, weight=2, reads=(Namespace,), reads_no_requests=True)
    Args = InterPodAffinityArgs
    # Unresolvable: evicting pods cannot satisfy affinity.
    NO_AFFINITY = unresolvable("node(s) didn't match pod affinity rules")
    REJECTED_BY_POD = unschedulable("node(s) didn't match pod anti-affinity rules")
    REJECTED_BY_EXISTING = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._hard_weight = args.hard_pod_affinity_weight
        self._ignores_existing = args.ignore_preferred_terms_of_existing_pods

    # Filter.

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Count what Filter reads. Skip where neither the pod nor existing pods require
        anything."""
        terms = terms_of(pod)
        if terms.faults:
            return unresolvable(f"parsing pod: {terms.fault}")
        held = ExistingPodTerms.of(snapshot.nodes)
        requires = bool(terms.required_affinity or terms.required_anti_affinity)
        if not requires and not held.has(TermRole.REQUIRED_ANTI_AFFINITY):
            return SKIP
        kept = InterPodAffinityPreFilterState(required_terms(pod, snapshot.object_store))
        count_existing_anti_affinity(kept, pod, snapshot.nodes, held)
        if not requires and kept.existing_anti.is_empty:
            return SKIP
        count_incoming_affinity(kept, snapshot.nodes)
        state.write(self.name, kept)
        return OK

    def add_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Count a pod that was added to a node."""
        state.read(self.name, InterPodAffinityPreFilterState).change(pod, info, node, 1)
        return OK

    def remove_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """Stop counting a pod that was removed from a node."""
        state.read(self.name, InterPodAffinityPreFilterState).change(pod, info, node, -1)
        return OK

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where all required terms, the pod's and those of existing pods, hold."""
        kept = state.read(self.name, InterPodAffinityPreFilterState)
        labels = node.labels
        if not self._is_near(pod, labels, kept):
            return self.NO_AFFINITY
        if any(
            kept.anti.of(key, labels[key]) > 0 for key, _ in kept.required.anti if key in labels
        ):
            return self.REJECTED_BY_POD
        if not kept.existing_anti.is_empty and any(
            kept.existing_anti.of(key, value) > 0 for key, value in labels.items()
        ):
            return self.REJECTED_BY_EXISTING
        return OK

    def _is_near(
        self, pod: Pod, labels: Mapping[str, str], kept: InterPodAffinityPreFilterState
    ) -> bool:
        keys = kept.required.affinity
        if not all(key in labels for key in keys):
            return False
        return all(
            kept.affinity.of(key, labels[key]) > 0 for key in keys
        ) or is_first_pod_of_affinity(pod, kept)

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else which group of terms refuses first."""
        kept = state.read(self.name, InterPodAffinityPreFilterState)
        codes = np.zeros(n_rows_of(rows), dtype=np.int64)
        for key in kept.existing_anti.keys():  # noqa: SIM118
            codes[kept.existing_anti.counted(key, rows)] = EXISTING_ANTI_AFFINITY
        for key in kept.anti.keys():  # noqa: SIM118
            codes[kept.anti.counted(key, rows)] = ANTI_AFFINITY
        if kept.required.affinity:
            first = is_first_pod_of_affinity(pod, kept)
            for key in kept.required.affinity:
                has_label = nodes.labels.column(key).codes[rows] >= 0
                near = has_label if first else kept.affinity.counted(key, rows)
                codes[~near] = AFFINITY
        return codes

    def filter_status(self, code: int) -> Status:
        """The refusal of a code of `filter_column`."""
        if code == AFFINITY:
            return self.NO_AFFINITY
        return self.REJECTED_BY_POD if code == ANTI_AFFINITY else self.REJECTED_BY_EXISTING

    # Score.

    def pre_score(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Sum the preferences of both sides. Skip where none matches anywhere."""
        affinity = pod.spec.affinity
        groups = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
        prefers = any(group is not None and group.preferred for group in groups)
        if self._ignores_existing and not prefers:
            return SKIP
        terms = terms_of(pod)
        if terms.faults:
            return error(f"failed to parse pod: {terms.fault}")
        held = ExistingPodTerms.of(snapshot.nodes)
        if not (prefers or held.has(TermRole.PREFERRED) or held.has(TermRole.REQUIRED_AFFINITY)):
            return SKIP
        scores: dict[str, tuple[LabelColumn, Ints]] = {}
        for key, (met, weighed) in self._met(pod, snapshot).items():
            column = snapshot.nodes.labels.column(key)
            codes = column.codes[snapshot.nodes.all_rows]
            # Matches on a node with the label, even if weights cancel out: not skipped.
            if (met[codes != ABSENT] > 0).any():
                scores[key] = column, sums_by_value(codes, len(column.vocabulary), weighed)
        if not scores:
            return SKIP
        state.write(_PRE_SCORE, InterPodAffinityPreScoreState(scores))
        return OK

    def _met(self, pod: Pod, snapshot: Snapshot) -> dict[str, tuple[Ints, Ints]]:
        """Topology key -> int64 (n_nodes,) twice: how often the pods of each row match a
        preference, and the same weighted."""
        met: dict[str, tuple[Ints, Ints]] = {}
        for key, weight, counts in preferences(pod, snapshot, self._hard_weight):
            times, weighed = met.get(key, (0, 0))
            met[key] = times + counts, weighed + counts * weight
        return met

    def score(self, node: NodeInfo, state: CycleState) -> int:
        """The sum over the node's pairs: any int64, more is better."""
        return state.read(_PRE_SCORE, InterPodAffinityPreScoreState).score(node)

    def score_column(self, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return state.read(_PRE_SCORE, InterPodAffinityPreScoreState).score_column(rows)

    def normalize_score(self, scores: Ints) -> Ints:
        """int64 (n_rows,) in [0, 100]: from the lowest to the highest score; 0 if all are equal."""
        spread = int(np.ptp(scores)) if scores.size else 0
        if spread == 0:
            return np.zeros(scores.shape, dtype=np.int64)
        share = (scores - scores.min()).astype(np.float64) / float(spread)
        normal: Ints = (SCORE_MAX * share).astype(np.int64)
        return normal

    def kernel_terms(
        self, pod: Pod, snapshot: Snapshot, peers: PeerAffinityTerms
    ) -> tuple[KernelTerm, ...] | None:
        """A kernel term per topology key and kind; None where a selector cannot be parsed."""
        terms = terms_of(pod)
        if terms.faults:
            return None
        if not (terms.all or peers.have_terms or ExistingPodTerms.of(snapshot.nodes).all()):
            return ()
        required = required_terms(pod, snapshot.object_store)
        sides = IncomingPodAffinity(pod, dict(required.namespace_labels), snapshot.nodes, peers)
        near = [(key, required.near) for key in required.affinity]
        found = [*incoming_pod_terms(sides, TopologyTermKind.APART, required.anti)]
        found += incoming_pod_terms(
            sides, TopologyTermKind.NEAR, near, int(required.near.takes(pod))
        )
        found += existing_anti_affinity_terms(sides)
        if terms.preferred or not self._ignores_existing:
            own: dict[str, list[tuple[int, PodSelection]]] = {}
            for one in terms.preferred:
                selection = resolve_namespaces(one.term, snapshot.object_store)
                own.setdefault(one.term.topology_key, []).append((one.weight, selection))
            found += preferred_affinity_terms(sides, own, self._hard_weight)
        return (TopologyTerms(tuple(found)),) if found else ()

    def answers_by_outline(self, pod: Pod, snapshot: Snapshot, peers: PeerAffinityTerms) -> bool:
        """True where neither the pod nor any other has a term; see `PluginPoints`."""
        terms = terms_of(pod)
        if terms.faults or terms.all or peers.have_terms:
            return False
        return not ExistingPodTerms.of(snapshot.nodes).all()

    def events_to_register(self) -> RegisteredEvents:
        """Pods are added or deleted, or nodes change domains."""
        return inter_pod_affinity_events()

    def signature(self, pod: Pod) -> object:
        """The labels, the namespace and the terms."""
        return pod.namespace, frozenset(pod.labels.items()), terms_of(pod)

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> Sequence[str]:
        """Per topology key that refuses the node: the required and the existing pods."""
        kept = state.read(self.name, InterPodAffinityPreFilterState)
        status, labels = self.filter(pod, node, state), node.labels
        if status is self.NO_AFFINITY:
            return [
                f"{key}: needs a pod of its affinity, "
                + (f"0 in {labels[key]!r}" if key in labels else "the node has no such label")
                for key in dict.fromkeys(kept.required.affinity)
                if key not in labels or kept.affinity.of(key, labels[key]) <= 0
            ]
        if status is self.REJECTED_BY_POD:
            wanted, counts = "no pod of its anti-affinity", kept.anti
        else:
            wanted, counts = "no pod with an anti-affinity to it", kept.existing_anti
        return [
            f"{key}: needs {wanted}, {counts.of(key, labels[key])} in {labels[key]!r}"
            for key in sorted(counts.keys() & labels.keys())
            if counts.of(key, labels[key]) > 0
        ]


def preferences(pod: Pod, snapshot: Snapshot, hard_weight: int) -> Iterator[tuple[str, int, Ints]]:
    """Topology key, weight and int64 (n_nodes,) matches by row, of each preference of both sides.

    hard_weight: weight of required affinity of existing pods; they do not count with 0.
    """
    preferred = terms_of(pod).preferred
    if preferred:
        pods = MatchingPods.of(snapshot.nodes)
        for own in preferred:
            selection = resolve_namespaces(own.term, snapshot.object_store)
            yield own.term.topology_key, own.weight, pods.counts(selection)
    held = ExistingPodTerms.of(snapshot.nodes)
    labels = namespace_labels_of(pod, snapshot.object_store)
    for one in held.matching(TermRole.PREFERRED, pod, labels):
        yield one.weighted.term.topology_key, one.weighted.weight, held.counts(one)
    if hard_weight > 0:
        for one in held.matching(TermRole.REQUIRED_AFFINITY, pod, labels):
            yield one.weighted.term.topology_key, hard_weight, held.counts(one)


def is_first_pod_of_affinity(pod: Pod, kept: InterPodAffinityPreFilterState) -> bool:
    """True for a pod that only itself matches: the first of a group that has affinity to itself."""
    return kept.affinity.is_empty and kept.required.near.takes(pod)


def required_terms(pod: Pod, object_store: ObjectStore) -> RequiredAffinityTerms:
    """The pod's required terms, ready for counting."""
    terms = terms_of(pod)
    affinity = [weighted.term for weighted in terms.required_affinity]
    return RequiredAffinityTerms(
        affinity=tuple(term.topology_key for term in affinity),
        near=reduce(and_, [resolve_namespaces(term, object_store) for term in affinity])
        if affinity
        else SELECTS_NO_POD,
        anti=tuple(
            (weighted.term.topology_key, resolve_namespaces(weighted.term, object_store))
            for weighted in terms.required_anti_affinity
        ),
        namespace_labels=namespace_labels_of(pod, object_store),
    )


def count_existing_anti_affinity(
    kept: InterPodAffinityPreFilterState, pod: Pod, nodes: NodeTable, held: ExistingPodTerms
) -> None:
    """Count the required anti-affinity terms of existing pods that match the pod."""
    by_key: dict[str, Ints] = {}
    labels = kept.required.namespace_labels
    for one in held.matching(TermRole.REQUIRED_ANTI_AFFINITY, pod, labels):
        key, counts = one.weighted.term.topology_key, held.counts(one)
        by_key[key] = by_key[key] + counts if key in by_key else counts
    for key, counts in by_key.items():
        kept.existing_anti.add(nodes, key, counts)


def count_incoming_affinity(kept: InterPodAffinityPreFilterState, nodes: NodeTable) -> None:
    """Count the existing pods that match the pod's required terms."""
    required = kept.required
    if not (required.affinity or required.anti):
        return
    pods = MatchingPods.of(nodes)
    for key in required.affinity:
        kept.affinity.add(nodes, key, pods.counts(required.near))
    for key, selection in required.anti:
        kept.anti.add(nodes, key, pods.counts(selection))


def namespace_labels_of(pod: Pod, object_store: ObjectStore) -> Mapping[str, str]:
    """The labels of the pod's namespace; none when the namespace is not known."""
    namespace = object_store.find(Namespace, pod.namespace)
    return _NO_LABELS if namespace is None else namespace.labels


def resolve_namespaces(term: AffinityTerm, object_store: ObjectStore) -> PodSelection:
    """The pods that a term of the incoming pod selects.

    A namespace selector that a namespace without labels meets selects every namespace: the original
    evaluates it again, without labels, after it has looked up the names.
    """
    if term.requirements is None:
        return SELECTS_NO_POD
    selector = term.namespace_requirements
    if selector is None:
        return PodSelection(term.requirements, term.namespaces)
    if admits(selector, _NO_LABELS):
        return PodSelection(term.requirements)
    return PodSelection(
        term.requirements, term.namespaces | namespace_index_of(object_store).admitted(selector)
    )


class NamespaceIndex:
    """Names of the namespaces by selectors that were evaluated."""

    def __init__(self, object_store: ObjectStore) -> None:
        self.version = object_store.version_of((Namespace,))
        self._namespaces = tuple(object_store.all(Namespace))
        self._admitted: dict[tuple[SelectorRequirement, ...], frozenset[str]] = {}

    def admitted(self, selector: tuple[SelectorRequirement, ...]) -> frozenset[str]:
        """Names of the namespaces whose labels meet `selector`."""
        names = self._admitted.get(selector)
        if names is None:
            names = self._admitted[selector] = frozenset(
                namespace.name
                for namespace in self._namespaces
                if admits(selector, namespace.labels)
            )
        return names


_NAMESPACES: WeakKeyDictionary[ObjectStore, NamespaceIndex] = WeakKeyDictionary()


def namespace_index_of(object_store: ObjectStore) -> NamespaceIndex:
    """The index of the current object store."""
    index = _NAMESPACES.get(object_store)
    if index is None or index.version != object_store.version_of((Namespace,)):
        index = _NAMESPACES[object_store] = NamespaceIndex(object_store)
    return index
