"""InterPodAffinity against a scan that looks at every node, every pod and every term."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeInfo, NodeTable, PodInfo
from stowplan.columns.nodetable import table_of
from stowplan.columns.pods.podcounts import PodSelection
from stowplan.columns.pods.podterms import AffinityTerm, terms_of
from stowplan.framework import OK, CycleState, ObjectStore, Snapshot, Status
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import label_selector_matches
from stowplan.objects.workload import Namespace
from stowplan.plugins.pod_affinity import inter_pod_affinity as module
from stowplan.plugins.pod_affinity.inter_pod_affinity import (
    InterPodAffinity,
    InterPodAffinityArgs,
    InterPodAffinityPreFilterState,
    InterPodAffinityPreScoreState,
    RequiredAffinityTerms,
)
from stowplan.testing import affinity, pod, term
from tests.plugins.clusters import counts_by_pair, is_found

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"

Pairs = dict[tuple[str, str], int]


def is_about(
    wanted: PodAffinityTerm, owner: str, target: Pod, labels: Mapping[str, str], names: set[str]
) -> bool:
    """owner: the namespace of the pod with the term. names: namespaces that were looked up."""
    own = {owner} if not wanted.namespaces and wanted.namespace_selector is None else set()
    reaches = target.namespace in {*own, *wanted.namespaces, *names} or label_selector_matches(
        wanted.namespace_selector, labels
    )
    return reaches and label_selector_matches(wanted.label_selector, target.labels)


def looked_up(wanted: PodAffinityTerm, object_store: ObjectStore) -> set[str]:
    selector = wanted.namespace_selector
    return {
        n.name for n in object_store.all(Namespace) if label_selector_matches(selector, n.labels)
    }


def groups(one: Pod) -> tuple[PodAffinity, PodAffinity]:
    pod_affinity = one.spec.affinity or Affinity()
    return (
        pod_affinity.pod_affinity or PodAffinity(),
        pod_affinity.pod_anti_affinity or PodAffinity(),
    )


def namespace_labels(one: Pod, object_store: ObjectStore) -> Mapping[str, str]:
    found = object_store.find(Namespace, one.namespace)
    return found.labels if found else {}


def scanned(one: Pod, snapshot: Snapshot) -> tuple[Pairs, Pairs, Pairs]:
    """Counts per pair: all own affinity terms matched, own anti-affinity, that of the others."""
    object_store, (near, apart) = snapshot.object_store, groups(one)
    affinities: Pairs = Counter()
    antis: Pairs = Counter()
    existing: Pairs = Counter()
    for node in snapshot.nodes.infos():
        for info in node.pods:
            there = info.pod
            matched = [
                is_about(t, one.namespace, there, {}, looked_up(t, object_store))
                for t in near.required
            ]
            for wanted in near.required if all(matched) else ():
                count_on(node, wanted, affinities)
            for wanted in apart.required:
                if is_about(wanted, one.namespace, there, {}, looked_up(wanted, object_store)):
                    count_on(node, wanted, antis)
            for wanted in groups(there)[1].required:
                if is_about(
                    wanted, there.namespace, one, namespace_labels(one, object_store), set()
                ):
                    count_on(node, wanted, existing)
    return dict(affinities), dict(antis), dict(existing)


def count_on(node: NodeInfo, wanted: PodAffinityTerm, counts: Pairs) -> None:
    if wanted.topology_key in node.labels:
        counts[wanted.topology_key, node.labels[wanted.topology_key]] += 1


def scanned_scores(one: Pod, snapshot: Snapshot) -> Pairs:
    """The score of every pair that some preference is met in, with a hard weight of 1."""
    object_store, (near, apart) = snapshot.object_store, groups(one)
    found: Pairs = {}
    for node in snapshot.nodes.infos():
        for info in node.pods:
            for wanted, weight in preferences(one, info.pod, near, apart, object_store):
                if wanted.topology_key in node.labels:
                    pair = wanted.topology_key, node.labels[wanted.topology_key]
                    found[pair] = found.get(pair, 0) + weight
    return found


def preferences(
    one: Pod, there: Pod, near: PodAffinity, apart: PodAffinity, object_store: ObjectStore
) -> Iterator[tuple[PodAffinityTerm, int]]:
    for sign, own, theirs in ((1, near, groups(there)[0]), (-1, apart, groups(there)[1])):
        for weighted in own.preferred:
            wanted = weighted.pod_affinity_term
            if is_about(wanted, one.namespace, there, {}, looked_up(wanted, object_store)):
                yield wanted, sign * weighted.weight
        for weighted in theirs.preferred:
            wanted = weighted.pod_affinity_term
            if is_about(wanted, there.namespace, one, namespace_labels(one, object_store), set()):
                yield wanted, sign * weighted.weight
    for wanted in groups(there)[0].required:
        if is_about(wanted, there.namespace, one, namespace_labels(one, object_store), set()):
            yield wanted, 1


def kept_counts(state: CycleState) -> tuple[Pairs, Pairs, Pairs]:
    kept = state.find(InterPodAffinity.name)
    if not isinstance(kept, InterPodAffinityPreFilterState):
        return {}, {}, {}
    return (
        counts_by_pair(kept.affinity),
        counts_by_pair(kept.anti),
        counts_by_pair(kept.existing_anti),
    )


def kept_scores(state: CycleState) -> Pairs:
    kept = state.find("PreScoreInterPodAffinity")
    if not isinstance(kept, InterPodAffinityPreScoreState):
        return {}
    return {
        (key, value): int(found[item])
        for key, (column, found) in kept.by_key.items()
        for item, value in enumerate(column.vocabulary.values)
        if found[item]
    }


selectors = st.sampled_from(["app=a", "app in (a,b)", "app notin (a)", "app", "!app", "", None])
namespace_selectors = st.sampled_from([None, None, "", "team=x", "team notin (x)", "!team"])
terms = st.builds(
    term,
    selectors,
    st.sampled_from([HOST, ZONE, "disk"]),
    namespaces=st.lists(st.sampled_from(["n", "prod"]), max_size=1),
    namespace_selector=namespace_selectors,
)
several = st.lists(terms, max_size=2)
weighted = st.lists(st.tuples(st.integers(0, 3), terms), max_size=2)
wishes = st.none() | st.builds(
    affinity, near=several, apart=several, prefer_near=weighted, prefer_apart=weighted
)
pod_labels = st.sampled_from([{}, {"app": "a"}, {"app": "b"}])


@st.composite
def cases(draw_one: st.DrawFn) -> tuple[Pod, Snapshot]:
    """A pending pod, and up to four nodes with up to five pods."""
    labels = st.fixed_dictionaries(
        {}, optional={ZONE: st.sampled_from("ab"), "disk": st.sampled_from(["", "ssd"])}
    )
    nodes = [
        Node(metadata=ObjectMeta(name=name, labels={HOST: name, **draw_one(labels)}))
        for name in ("n1", "n2", "n3", "n4")[: draw_one(st.integers(1, 4))]
    ]

    def one_pod(name: str, on: str) -> Pod:
        namespace = draw_one(st.sampled_from(["n", "prod", "unknown"]))
        return pod(
            name,
            namespace=namespace,
            on=on,
            labels=draw_one(pod_labels),
            affinity=draw_one(wishes),
        )

    homes = draw_one(st.lists(st.sampled_from([node.name for node in nodes]), max_size=5))
    pods = [one_pod(f"p{i}", home) for i, home in enumerate(homes)]
    teams = draw_one(st.sampled_from([{}, {"team": "x"}]))
    object_store = ObjectStore(
        [
            Namespace(metadata=ObjectMeta(name="n", labels={"team": "x"})),
            Namespace(metadata=ObjectMeta(name="prod", labels=teams)),
        ]
    )
    return one_pod("new", ""), Snapshot(table_of(nodes, pods), object_store)


def states(case: tuple[Pod, Snapshot]) -> tuple[InterPodAffinity, CycleState]:
    rule, state = InterPodAffinity(InterPodAffinityArgs()), CycleState()
    assert rule.pre_filter(*case, state).code in (0, 5)
    assert rule.pre_score(*case, state).code in (0, 5)
    return rule, state


def counts_differ(case: tuple[Pod, Snapshot]) -> bool:
    """True when what is kept by delta is not what a scan of everything finds."""
    _, state = states(case)
    wanted = {pair: n for pair, n in scanned_scores(*case).items() if n}
    return kept_counts(state) != scanned(*case) or kept_scores(state) != wanted


def walks_differ(case: tuple[Pod, Snapshot]) -> bool:
    one, snapshot = case
    rule, state = states(case)
    nodes = snapshot.nodes
    rows = np.arange(nodes.n_nodes)[::-1].copy()
    if isinstance(state.find(InterPodAffinity.name), InterPodAffinityPreFilterState):
        codes = rule.filter_column(one, nodes, rows, state).tolist()
        column = [rule.filter_status(code) if code else OK for code in codes]
        if column != [rule.filter(one, nodes.info(row), state) for row in rows.tolist()]:
            return True
    if isinstance(state.find("PreScoreInterPodAffinity"), InterPodAffinityPreScoreState):
        column_scores = rule.score_column(rows, state).tolist()
        return column_scores != [rule.score(nodes.info(row), state) for row in rows.tolist()]
    return False


def what_if_differs(case: tuple[Pod, Snapshot]) -> bool:
    """True when taking every pod off and putting all but one back counts wrong."""
    one, snapshot = case
    rule, state = states(case)
    if not isinstance(state.find(InterPodAffinity.name), InterPodAffinityPreFilterState):
        return False
    trial, nodes = state.clone(), snapshot.nodes
    everybody = [
        (nodes.info(row), info) for row in range(nodes.n_nodes) for info in nodes.pods[row]
    ]
    for node, info in everybody:
        rule.remove_pod(one, info, node, trial)
    if kept_counts(trial) != ({}, {}, {}):
        return True
    for node, info in everybody[1:]:
        rule.add_pod(one, info, node, trial)
    left = table_of(nodes.nodes, [info.pod for _, info in everybody[1:]])
    without = scanned(one, Snapshot(left, snapshot.object_store))
    if kept_counts(trial) != without or kept_counts(state) != scanned(*case):
        return True
    fresh = verdicts(rule, one, Snapshot(left, snapshot.object_store))
    return fresh != [rule.filter(one, nodes.info(row), trial) for row in range(nodes.n_nodes)]


def verdicts(rule: InterPodAffinity, one: Pod, snapshot: Snapshot) -> list[Status]:
    state = CycleState()
    if rule.pre_filter(one, snapshot, state).is_skip:
        return [OK] * snapshot.nodes.n_nodes
    return [rule.filter(one, node, state) for node in snapshot.nodes.infos()]


@given(cases())
def test_kept_counts_are_those_of_a_scan(case: tuple[Pod, Snapshot]) -> None:
    assert not counts_differ(case)


@given(cases())
def test_both_walks_agree(case: tuple[Pod, Snapshot]) -> None:
    assert not walks_differ(case)


@given(cases())
def test_what_if_counts_like_a_scan(case: tuple[Pod, Snapshot]) -> None:
    assert not what_if_differs(case)


RIGHT_TERMS, RIGHT_SELECTION = module.required_terms, module.resolve_namespaces


def without_the_second_question(wanted: AffinityTerm, object_store: ObjectStore) -> PodSelection:
    """Wrong: a namespace selector is not asked about no labels."""
    if wanted.requirements is None or wanted.namespace_requirements is None:
        return RIGHT_SELECTION(wanted, object_store)
    names = module.namespace_index_of(object_store).admitted(wanted.namespace_requirements)
    return PodSelection(wanted.requirements, wanted.namespaces | names)


def one_term_is_enough(one: Pod, object_store: ObjectStore) -> RequiredAffinityTerms:
    """Wrong: pods that match the first of the affinity terms are company."""
    right, own = RIGHT_TERMS(one, object_store), terms_of(one).required_affinity
    near = RIGHT_SELECTION(own[0].term, object_store) if own else right.near
    return RequiredAffinityTerms(right.affinity, near, right.anti, right.namespace_labels)


class ForgetsAffinityOfAdded(InterPodAffinity):
    """Wrong: AddPod and RemovePod count anti-affinity only."""

    def _change(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState, by: int) -> None:
        kept = state.read(self.name, InterPodAffinityPreFilterState)
        for key, selection in kept.required.anti:
            if selection.takes(info.pod):
                kept.anti.change(key, node.labels, by)

    def add_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        self._change(pod, info, node, state, 1)
        return OK

    def remove_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        self._change(pod, info, node, state, -1)
        return OK


class FirstRefusesFirst(InterPodAffinity):
    """Wrong: the column asks the placed pods before the pod itself."""

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Any, state: CycleState) -> Any:
        kept = state.read(self.name, InterPodAffinityPreFilterState)
        codes = super().filter_column(pod, nodes, rows, state)
        for key in kept.existing_anti.keys():  # noqa: SIM118
            codes[kept.existing_anti.counted(key, rows)] = module.EXISTING_ANTI_AFFINITY
        return codes


@pytest.mark.parametrize(
    ("name", "wrong", "fault"),
    [
        ("required_terms", one_term_is_enough, counts_differ),
        ("resolve_namespaces", without_the_second_question, counts_differ),
        ("InterPodAffinity", FirstRefusesFirst, walks_differ),
        ("InterPodAffinity", ForgetsAffinityOfAdded, what_if_differs),
    ],
)
def test_wrong_variants_are_caught(
    name: str, wrong: Any, fault: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sys.modules[__name__] if name == "InterPodAffinity" else module
    monkeypatch.setattr(place, name, wrong)
    assert is_found(cases(), fault)
