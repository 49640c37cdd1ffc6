"""After any events what is kept by delta equals what a rebuild from scratch gives."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import NodeInfo, NodeTable, Overlay, PodInfo, Replica
from stowplan.columns.nodetable import table_of
from stowplan.columns.pods import podcounts as module
from stowplan.columns.pods.podcounts import MatchingPods, PodSelection, RowTally, sums_by_value
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.framework import CycleState, ObjectStore, Snapshot
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node
from stowplan.objects.pod import Affinity, Pod, PodSpec
from stowplan.objects.selectors import LabelSelectorRequirement
from stowplan.objects.workload import Namespace, Service, ServiceSpec
from stowplan.plugins.pod_affinity import inter_pod_affinity
from stowplan.plugins.pod_affinity.inter_pod_affinity import (
    InterPodAffinity,
    InterPodAffinityPreFilterState,
    InterPodAffinityPreScoreState,
)
from stowplan.plugins.topology_spread.pod_topology_spread import (
    PodTopologySpread,
    TopologySpreadPreScoreState,
)
from stowplan.testing import affinity, pod, spread, term
from tests.plugins.clusters import Walks, counts_by_pair
from tests.soak import examples

N_EVENTS = 500
EVENTS_PER_CHECK = 50

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NAMESPACES = ("n", "prod")
MOMENT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

WISHES: tuple[Affinity | None, ...] = (
    None,
    None,
    affinity(apart=[term("app=a", HOST)]),
    affinity(near=[term("app", ZONE)], apart=[term("app notin (a)", HOST, namespaces=["prod"])]),
    affinity(prefer_near=[(2, term("app=b", ZONE, namespace_selector="team=x"))]),
    affinity(prefer_apart=[(3, term("", HOST, namespace_selector="!team"))]),
)
LABELS: tuple[dict[str, str], ...] = ({}, {"app": "a"}, {"app": "b"}, {"app": "a", "tier": "t"})
"""Pods of one template share their labels."""

SPECS = tuple(PodSpec(affinity=each) for each in WISHES)


def wants(key: str, operator: str, *values: str) -> LabelSelectorRequirement:
    return LabelSelectorRequirement(key=key, operator=operator, values=values)


SELECTIONS = tuple(
    PodSelection(requirements, namespaces, terminating)
    for requirements in (
        (),
        (wants("app", "In", "a"),),
        (wants("app", "In", "a", "b"), wants("tier", "DoesNotExist")),
        (wants("app", "NotIn", "a"),),
        (wants("tier", "Exists"),),
    )
    for namespaces, terminating in ((None, True), (frozenset({"n"}), False))
)

ASKING = (
    pod(
        "q1",
        namespace="n",
        labels={"app": "a"},
        affinity=affinity(
            near=[term("app", ZONE, namespace_selector="team=x")],
            apart=[term("app=b", HOST)],
            prefer_near=[(5, term("app=b", ZONE, namespace_selector="team"))],
        ),
        spread=[spread("app", ZONE, hard=False), spread("app=b", HOST, hard=False)],
    ),
    pod("q2", namespace="prod", labels={"app": "b", "tier": "t"}),
)


class Life:
    """A cluster that things happen to, drawn by seeded dice."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.table = NodeTable()
        self.object_store = ObjectStore()
        self.replica = Replica(self.table)
        self.pods: dict[str, Pod] = {}
        self.n_created = 0

    def pick(self, things: Any) -> Any:
        chosen = list(things)
        return chosen[int(self.rng.integers(len(chosen)))]

    def happen(self) -> None:
        """One event. What cannot happen now does not."""
        events = (
            [self.add_pod] * 6
            + [self.place_run] * 2
            + [self.remove_pod] * 4
            + [self.relabel_pod, self.end_pod, self.add_node, self.add_node, self.change_node]
            + [self.remove_node, self.relabel_namespace, self.change_service, self.suppose]
            + [self.ask, self.ask, self.follow]
        )
        self.pick(events)()

    def labels(self) -> dict[str, str]:
        return self.pick(LABELS)

    def new_pod(self) -> Pod:
        self.n_created += 1
        meta = ObjectMeta(
            name=f"p{self.n_created}", namespace=self.pick(NAMESPACES), labels=self.labels()
        )
        return Pod(metadata=meta, spec=self.pick(SPECS))

    def add_pod(self) -> None:
        home = self.pick([*self.table.names, "absent"])
        self.put(self.new_pod(), home)

    def place_run(self) -> None:
        """Pods that a kernel has placed enter together; some are of one template."""
        if not self.table.names:
            return
        pods: list[Pod] = []
        for _ in range(int(self.rng.integers(1, 14))):
            one, like = self.new_pod(), pods[-1] if pods else None
            if like is not None and self.rng.integers(4):
                meta = msgspec.structs.replace(one.metadata, labels=like.metadata.labels)
                one = Pod(metadata=meta, spec=like.spec)
            if not self.rng.integers(8):
                meta = msgspec.structs.replace(one.metadata, deletion_timestamp=MOMENT)
                one = msgspec.structs.replace(one, metadata=meta)
            pods.append(one)
        rows = self.rng.integers(self.table.n_nodes, size=len(pods)).tolist()
        infos = [PodInfo.of(one) for one in pods]
        for info, row in zip(infos, rows, strict=True):
            # As kernels write amounts before pods enter.
            self.table._count(row, info, 1)
        self.table.enter(infos, rows)
        self.pods.update((one.uid, one) for one in pods)

    def put(self, one: Pod, home: str) -> None:
        self.table.add_pod(one, home)
        self.pods[one.uid] = one

    def remove_pod(self) -> None:
        if self.pods:
            uid = self.pick(self.pods)
            self.table.remove_pod(uid)
            del self.pods[uid]

    def rewrite(self, **changes: Any) -> None:
        if self.pods:
            one = self.pods[self.pick(self.pods)]
            row = self.table.row_of_pod(one.uid)
            self.table.remove_pod(one.uid)
            meta = msgspec.structs.replace(one.metadata, **changes)
            home = self.table.names[row] if row >= 0 else "absent"
            self.put(msgspec.structs.replace(one, metadata=meta), home)

    def relabel_pod(self) -> None:
        self.rewrite(labels=self.labels())

    def end_pod(self) -> None:
        self.rewrite(deletion_timestamp=MOMENT)

    def node(self, name: str) -> Node:
        zone = self.pick([{}, {ZONE: "a"}, {ZONE: "b"}, {ZONE: ""}])
        return Node(metadata=ObjectMeta(name=name, labels={HOST: name, **zone}))

    def add_node(self) -> None:
        name = f"n{int(self.rng.integers(12))}"
        if self.table.row(name) < 0:
            self.table.add_node(self.node(name))

    def change_node(self) -> None:
        if self.table.names:
            self.table.update_node(self.node(self.pick(self.table.names)))

    def remove_node(self) -> None:
        if self.table.names:
            self.table.remove_node(self.pick(self.table.names))

    def relabel_namespace(self) -> None:
        labels = self.pick([{}, {"team": "x"}, {"team": "y"}])
        meta = ObjectMeta(name=self.pick(NAMESPACES), labels=labels)
        self.object_store.put(Namespace(metadata=meta))

    def change_service(self) -> None:
        meta = ObjectMeta(name="s", namespace="prod")
        selector = self.pick([None, {"app": "a"}, {"app": "b"}, {"tier": "t"}])
        self.object_store.put(Service(metadata=meta, spec=ServiceSpec(selector=selector)))

    def suppose(self) -> None:
        """Pods put and taken away for a while, with questions in between."""
        if not self.table.names or not self.pods:
            return
        with Overlay(self.table) as overlay:
            row = int(self.rng.integers(self.table.n_nodes))
            overlay.place(PodInfo.of(pod("guess", labels=self.labels())), row)
            self.ask()
            for info in self.table.pods[row][:1]:
                overlay.take(info.uid, row)
            self.ask()

    def ask(self) -> None:
        selection = self.pick(SELECTIONS)
        MatchingPods.of(self.table).counts(selection)
        MatchingPods.of(self.replica.table).counts(selection)

    def follow(self) -> None:
        self.replica.follow()


# What is kept, and what it should be.


def scanned(selection: PodSelection, nodes: NodeTable) -> list[int]:
    return [sum(selection.takes(info.pod) for info in pods) for pods in nodes.pods]


def rebuilt(nodes: NodeTable) -> NodeTable:
    """The same nodes on the same rows, and the same pods, in a new table."""
    fresh = table_of(nodes.nodes)
    for name, pods in zip(nodes.names, nodes.pods, strict=True):
        for info in pods:
            fresh.add_pod(info.pod, name)
    return fresh


def terms_held(nodes: NodeTable) -> dict[Any, tuple[dict[int, int], list[int]]]:
    held = ExistingPodTerms.of(nodes)
    return {
        one.weighted: (dict(sorted(one.rows.items())), held.counts(one).tolist())
        for one in held.all()
    }


def read(one: Pod, snapshot: Snapshot) -> tuple[Any, ...]:
    """What the two plugins make of all counts for a pod."""
    state = CycleState()
    near, even = rules()
    near.pre_filter(one, snapshot, state)
    near.pre_score(one, snapshot, state)
    even.pre_score(one, snapshot, snapshot.nodes.all_rows, state)
    required = state.find(InterPodAffinity.name)
    preferred = state.find("PreScoreInterPodAffinity")
    spreading = state.find("PreScorePodTopologySpread")
    nodes: list[NodeInfo] = [*snapshot.nodes.infos()]
    return (
        [counts_by_pair(c) for c in (required.affinity, required.anti, required.existing_anti)]
        if isinstance(required, InterPodAffinityPreFilterState)
        else None,
        [near.score(node, state) for node in nodes]
        if isinstance(preferred, InterPodAffinityPreScoreState)
        else None,
        [even.score(node, state) for node in nodes]
        if isinstance(spreading, TopologySpreadPreScoreState)
        else None,
    )


def rules() -> tuple[InterPodAffinity, PodTopologySpread]:
    near = NEAR.rows.members[InterPodAffinity.name].plugin
    even = EVEN.rows.members[PodTopologySpread.name].plugin
    return near, even


NEAR, EVEN = Walks(InterPodAffinity), Walks(PodTopologySpread)


def differences(life: Life) -> Iterator[str]:
    """Where something kept is not what a rebuild or a scan gives."""
    life.replica.follow()
    for which, nodes in (("table", life.table), ("replica", life.replica.table)):
        fresh = rebuilt(nodes)
        for selection in SELECTIONS:
            kept = MatchingPods.of(nodes).counts(selection).tolist()
            anew = MatchingPods.of(fresh).counts(selection).tolist()
            if not kept == anew == scanned(selection, nodes):
                yield f"{which}, {selection}: kept {kept}, rebuilt {anew}"
        if terms_held(nodes) != terms_held(fresh):
            yield f"{which}: terms kept {terms_held(nodes)}, rebuilt {terms_held(fresh)}"
        object_store = ObjectStore(
            [*life.object_store.all(Namespace), *life.object_store.all(Service)]
        )
        for one in ASKING:
            kept_read = read(one, Snapshot(nodes, life.object_store))
            anew_read = read(one, Snapshot(fresh, object_store))
            if kept_read != anew_read:
                yield f"{which}, {one.name}: kept {kept_read}, rebuilt {anew_read}"


def first_difference(seed: int, n_events: int = N_EVENTS) -> str:
    """The first difference in a life of so many events; "" when there is none."""
    life = Life(seed)
    for number in range(n_events):
        life.happen()
        if number % EVENTS_PER_CHECK == EVENTS_PER_CHECK - 1:
            found = next(differences(life), "")
            if found:
                return f"after {number + 1} events: {found}"
    return ""


@pytest.fixture(autouse=True)
def _few_tallies(monkeypatch: pytest.MonkeyPatch) -> None:
    # So few that selections are forgotten and counted anew all the time.
    monkeypatch.setattr(module, "TALLIES_MAX", 4)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(30))
def test_every_kept_count_is_that_of_a_rebuild(seed: int) -> None:
    assert first_difference(seed) == ""


@given(
    values=st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 5)), max_size=12),
    n_values=st.integers(4, 6),
)
def test_sums_by_value(values: list[tuple[int, int]], n_values: int) -> None:
    codes = np.array([code for code, _ in values], dtype=np.int32)
    counts = np.array([count for _, count in values], dtype=np.int64)
    want = [sum(count for code, count in values if code == item) for item in range(n_values)]
    assert sums_by_value(codes, n_values, counts).tolist() == [*want, 0]


def test_what_is_not_asked_for_is_forgotten() -> None:
    kept = MatchingPods.of(NodeTable())
    for selection in SELECTIONS[:4]:
        kept.counts(selection)
    kept.counts(SELECTIONS[0])
    kept.counts(SELECTIONS[5])
    assert tuple(kept._tallies) == (SELECTIONS[2], SELECTIONS[3], SELECTIONS[0], SELECTIONS[5])


# Wrong variants, each as it might have been written.


def rows_stay_where_they_were(self: Any, source: int, target: int) -> None:
    """Wrong: nothing is done when a node takes another's row."""


def counts_only_what_comes(self: MatchingPods, row: int, info: PodInfo) -> None:
    """Wrong: a pod that leaves is taken from its kind, not from the selections that count it."""
    kind = self._kinds[module.kind_key(info.pod)]
    kind.rows[row] -= 1


def kind_without_its_end(one: Pod) -> Any:
    """Wrong: a pod that is being deleted is of the kind of those that are not."""
    return one.namespace, tuple(one.labels.items()), False


def first_labels_for_ever(object_store: ObjectStore) -> Any:
    """Wrong: the index of namespaces is made once per world."""
    return inter_pod_affinity._NAMESPACES.setdefault(
        object_store, inter_pod_affinity.NamespaceIndex(object_store)
    )


def forgets_only_the_tally(self: MatchingPods, selection: PodSelection) -> None:
    """Wrong: a selection that is no longer counted still stands for new kinds to find."""
    del self._tallies[selection]


def counts_a_row_once(self: RowTally, rows: Sequence[int]) -> None:
    """Wrong: of several pods that come to a row together one is counted."""
    self._counts[np.array(rows, dtype=np.int64)] += 1


def first_pod_stands_for_all(
    self: MatchingPods | ExistingPodTerms, placed: Sequence[PodInfo], rows: Sequence[int]
) -> None:
    """Wrong: pods that come together are taken for pods of one template."""
    for row in rows:
        self.pod_added(row, placed[0])


def labels_make_the_kind(
    self: MatchingPods, placed: Sequence[PodInfo], rows: Sequence[int]
) -> None:
    """Wrong: pods that share their labels are of one kind, in whichever namespace they are."""
    first: dict[int, PodInfo] = {}
    for info, row in zip(placed, rows, strict=True):
        self.pod_added(row, first.setdefault(id(info.pod.metadata.labels), info))


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [
        (RowTally, "count_all", counts_a_row_once),
        (MatchingPods, "pods_added", first_pod_stands_for_all),
        (MatchingPods, "pods_added", labels_make_the_kind),
        (ExistingPodTerms, "pods_added", first_pod_stands_for_all),
        (MatchingPods, "row_moved", rows_stay_where_they_were),
        (ExistingPodTerms, "row_moved", rows_stay_where_they_were),
        (MatchingPods, "pod_removed", counts_only_what_comes),
        (module, "kind_key", kind_without_its_end),
        (inter_pod_affinity, "namespace_index_of", first_labels_for_ever),
        (MatchingPods, "_forget", forgets_only_the_tally),
    ],
)
def test_wrong_variants_are_caught(
    place: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, wrong)
    assert any(is_wrong(seed) for seed in range(10))


def is_wrong(seed: int) -> bool:
    """True when a life shows a difference, or goes out of step so far that it cannot go on."""
    try:
        return first_difference(seed) != ""
    except KeyError:
        return True
