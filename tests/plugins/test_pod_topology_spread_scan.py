"""PodTopologySpread against a scan that looks at every node and every pod."""

from __future__ import annotations

import datetime
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeInfo, NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.framework import OK, CycleState, Snapshot, Status
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod import Pod, TopologySpreadConstraint
from stowplan.objects.selectors import LabelSelector, label_selector_matches
from stowplan.objects.taints import HARD_EFFECTS, is_tolerated
from stowplan.plugins.node_affinity.node_selector import matches_node_selector_and_affinity
from stowplan.plugins.topology_spread import pod_topology_spread as module
from stowplan.plugins.topology_spread.pod_topology_spread import (
    PodTopologySpread,
    TopologySpreadPreFilterState,
)
from stowplan.testing import pod, spread
from tests.plugins.clusters import Walks, is_found

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def rule_alone() -> PodTopologySpread:
    """The plugin with its defaults."""
    found = Walks(PodTopologySpread).rows.members[PodTopologySpread.name].plugin
    assert isinstance(found, PodTopologySpread)
    return found


def going_away(one: Pod) -> Pod:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    meta = msgspec.structs.replace(one.metadata, deletion_timestamp=moment)
    return msgspec.structs.replace(one, metadata=meta)


def counts(state: CycleState) -> list[dict[str, int]]:
    kept = state.find(PodTopologySpread.name)
    return (
        [d.by_value() for d in kept.domains]
        if isinstance(kept, TopologySpreadPreFilterState)
        else []
    )


def own(one: Pod, action: str) -> list[TopologySpreadConstraint]:
    return [c for c in one.spec.topology_spread_constraints if c.when_unsatisfiable == action]


def selects(constraint: TopologySpreadConstraint, one: Pod, labels: dict[str, str]) -> bool:
    keys = constraint.match_label_keys if constraint.label_selector is not None else ()
    return label_selector_matches(constraint.label_selector, labels) and all(
        labels.get(key) == one.labels[key] for key in keys if key in one.labels
    )


def n_counted(constraint: TopologySpreadConstraint, one: Pod, node: NodeInfo) -> int:
    selector = constraint.label_selector
    keys = [key for key in constraint.match_label_keys if key in one.labels]
    if selector == LabelSelector() and not keys:
        return 0
    return sum(
        info.pod.namespace == one.namespace
        and info.pod.metadata.deletion_timestamp is None
        and selects(constraint, one, info.pod.labels)
        for info in node.pods
    )


def included(constraint: TopologySpreadConstraint, one: Pod, node: NodeInfo) -> bool:
    repelling = (t for t in node.taints if t.effect in HARD_EFFECTS)
    tolerated = all(is_tolerated(t, one.tolerations) for t in repelling)
    return (
        constraint.node_affinity_policy == "Ignore"
        or matches_node_selector_and_affinity(one, node.labels, node.name)
    ) and (constraint.node_taints_policy != "Honor" or tolerated)


def scanned(one: Pod, snapshot: Snapshot, action: str) -> list[dict[str, int]]:
    """The domains of each constraint."""
    constraints = own(one, action)
    found: list[dict[str, int]] = [Counter() for _ in constraints]
    for node in snapshot.nodes.infos():
        if not all(c.topology_key in node.labels for c in constraints):
            continue
        for constraint, domains in zip(constraints, found, strict=True):
            if included(constraint, one, node):
                domains[node.labels[constraint.topology_key]] += n_counted(constraint, one, node)
    return [dict(domains) for domains in found]


def filter_status(one: Pod, node: NodeInfo, domains: list[dict[str, int]]) -> Status:
    for constraint, found in zip(own(one, "DoNotSchedule"), domains, strict=True):
        if constraint.topology_key not in node.labels:
            return PodTopologySpread.NO_LABEL
        fewest = 1 if constraint.min_domains is None else constraint.min_domains
        least = 0 if len(found) < fewest else min(found.values())
        mine = selects(constraint, one, one.labels)
        if found.get(node.labels[constraint.topology_key], 0) + mine - least > constraint.max_skew:
            return PodTopologySpread.REJECTED
    return OK


def scored(one: Pod, snapshot: Snapshot) -> list[int]:
    """The raw score of every node, all of them candidates."""
    constraints = own(one, "ScheduleAnyway")
    domains = scanned(one, snapshot, "ScheduleAnyway")
    nodes = [*snapshot.nodes.infos()]
    valid = [n for n in nodes if all(c.topology_key in n.labels for c in constraints)]
    found = []
    for node in nodes:
        total = 0.0
        for constraint, sums in zip(constraints, domains, strict=True) if node in valid else ():
            key = constraint.topology_key
            at_host = key == HOST
            size = len(valid) if at_host else len({n.labels[key] for n in valid})
            here = n_counted(constraint, one, node) if at_host else sums.get(node.labels[key], 0)
            total += here * math.log(size + 2) + (constraint.max_skew - 1)
        found.append(math.floor(total + 0.5))
    return found


constraints = st.builds(
    spread,
    st.sampled_from(["app=a", "app in (a,b)", "app notin (a)", "app", "app", "", None]),
    st.sampled_from([HOST, ZONE, "disk"]),
    max_skew=st.sampled_from([0, 1, 2]),
    hard=st.sampled_from([True, True, False]),
    min_domains=st.sampled_from([None, 2, 3]),
    match_label_keys=st.sampled_from([[], [], ["app"]]),
    node_affinity_policy=st.sampled_from([None, "Ignore", "Honor"]),
    node_taints_policy=st.sampled_from([None, "Ignore", "Honor"]),
)
pod_labels = st.sampled_from([{}, {"app": "a"}, {"app": "b"}])


@st.composite
def cases(draw_one: st.DrawFn) -> tuple[Pod, Snapshot]:
    """A pending pod, and up to four nodes with up to eight pods."""
    labels = st.fixed_dictionaries(
        {}, optional={ZONE: st.sampled_from("ab"), "disk": st.sampled_from(["", "ssd"])}
    )
    taints = st.sampled_from([(), (), (Taint(key="t", effect="NoSchedule"),)])
    nodes = []
    for name in ("n1", "n2", "n3", "n4")[: draw_one(st.integers(1, 4))]:
        meta = ObjectMeta(name=name, labels={HOST: name, **draw_one(labels)})
        made = Node(metadata=meta)
        spec = msgspec.structs.replace(made.spec, taints=draw_one(taints))
        nodes.append(msgspec.structs.replace(made, spec=spec))
    homes = draw_one(st.lists(st.sampled_from([node.name for node in nodes]), max_size=8))
    pods = []
    for i, home in enumerate(homes):
        namespace = draw_one(st.sampled_from(["n", "n", "other"]))
        one = pod(f"p{i}", namespace=namespace, on=home, labels=draw_one(pod_labels))
        pods.append(going_away(one) if draw_one(st.integers(0, 9)) == 0 else one)
    new = pod(
        "new",
        namespace="n",
        labels=draw_one(pod_labels),
        node_selector=draw_one(st.sampled_from([None, None, {ZONE: "a"}])),
        tolerations=draw_one(st.sampled_from([[], ["t"]])),
        spread=draw_one(st.lists(constraints, max_size=3)),
    )
    return new, Snapshot(table_of(nodes, pods))


def states(case: tuple[Pod, Snapshot]) -> tuple[PodTopologySpread, CycleState]:
    rule, state = rule_alone(), CycleState()
    assert rule.pre_filter(*case, state).code in (0, 5)
    assert rule.pre_score(*case, case[1].nodes.all_rows, state).code in (0, 5)
    return rule, state


def answers_differ(case: tuple[Pod, Snapshot]) -> bool:
    """True when counts, verdicts or scores are not what a scan of everything gives."""
    one, snapshot = case
    rule, state = states(case)
    nodes = snapshot.nodes
    rows = np.arange(nodes.n_nodes)[::-1].copy()
    infos = [nodes.info(row) for row in rows.tolist()]
    domains = scanned(one, snapshot, "DoNotSchedule")
    if counts(state) != domains:
        return True
    if domains:
        codes = rule.filter_column(one, rows, state).tolist()
        column = [rule.filter_status(code) if code else OK for code in codes]
        each = [rule.filter(one, node, state) for node in infos]
        if column != each or each != [filter_status(one, node, domains) for node in infos]:
            return True
    if not own(one, "ScheduleAnyway"):
        return False
    want = scored(one, snapshot)[::-1]
    each_score = [rule.score(node, state) for node in infos]
    return each_score != want or rule.score_column(nodes, rows, state).tolist() != want


def what_if_differs(case: tuple[Pod, Snapshot]) -> bool:
    """True when emptying the first node, and filling it again, counts wrong.

    Pods that are going and empty selectors are left out: they count differently then.
    """
    one, snapshot = case
    if any(c.label_selector == LabelSelector() for c in own(one, "DoNotSchedule")):
        return False
    rule, state = states(case)
    nodes = snapshot.nodes
    everybody = [info for pods in nodes.pods for info in pods]
    if not counts(state) or any(i.pod.metadata.deletion_timestamp for i in everybody):
        return False
    first, trial = nodes.info(0), state.clone()
    for info in nodes.pods[0]:
        rule.remove_pod(one, info, first, trial)
    left = table_of(nodes.nodes, [i.pod for i in everybody if i not in nodes.pods[0]])
    if counts(trial) != scanned(one, Snapshot(left), "DoNotSchedule"):
        return True
    emptied = [filter_status(one, node, counts(trial)) for node in left.infos()]
    if [rule.filter(one, node, trial) for node in left.infos()] != emptied:
        return True
    for info in nodes.pods[0]:
        rule.add_pod(one, info, first, trial)
    return counts(trial) != counts(state) or counts(state) != scanned(
        one, snapshot, "DoNotSchedule"
    )


@given(cases())
def test_answers_are_those_of_a_scan(case: tuple[Pod, Snapshot]) -> None:
    assert not answers_differ(case)


@given(cases())
def test_what_if_counts_like_a_scan(case: tuple[Pod, Snapshot]) -> None:
    assert not what_if_differs(case)


def sums_with_strangers(rows_with_keys: Any) -> Any:
    """Wrong: nodes that lack another constraint's key are domains all the same."""

    def wrong(constraints: Sequence[Any], nodes: NodeTable) -> Any:
        return rows_with_keys(constraints[:1], nodes)

    return wrong


class FirstReasonLast(PodTopologySpread):
    """Wrong: of several constraints the last one gives the reason."""

    def filter_column(self, pod: Pod, rows: Any, state: CycleState) -> Any:
        kept = state.read(self.name, TopologySpreadPreFilterState)
        turned = TopologySpreadPreFilterState(kept.constraints[::-1], kept.domains[::-1])
        other = CycleState()
        other.write(self.name, turned)
        return super().filter_column(pod, rows, other)


class StaleMinimum(module.CriticalPaths):
    """Wrong: what a clone changed does not bear on the emptiest domain."""

    def least(self) -> int:
        return int(self.counted.sums[self.counted.present].min(initial=module.INT32_MAX))


class CutsOff(PodTopologySpread):
    """Wrong: the column cuts the score off instead of rounding it."""

    def score_column(self, nodes: NodeTable, rows: Any, state: CycleState) -> Any:
        right = module.round_half_away_from_zero
        module.round_half_away_from_zero = lambda values: values.astype(np.int64)
        try:
            return super().score_column(nodes, rows, state)
        finally:
            module.round_half_away_from_zero = right


@pytest.mark.parametrize(
    ("name", "wrong", "fault"),
    [
        ("rows_with_keys", sums_with_strangers(module.rows_with_keys), answers_differ),
        ("PodTopologySpread", FirstReasonLast, answers_differ),
        ("PodTopologySpread", CutsOff, answers_differ),
        ("CriticalPaths", StaleMinimum, what_if_differs),
    ],
)
def test_wrong_variants_are_caught(
    name: str, wrong: Any, fault: Callable[[Any], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = sys.modules[__name__] if name == "PodTopologySpread" else module
    monkeypatch.setattr(place, name, wrong)
    assert is_found(cases(), fault)
