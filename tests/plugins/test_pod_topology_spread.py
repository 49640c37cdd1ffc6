"""PodTopologySpread: domains, skew, inclusion policies, defaults, scores, and what if."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from stowplan.columns.nodetable import table_of
from stowplan.framework import OK, CycleState, ObjectStore, Snapshot
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import ObjectMeta, OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, TopologySpreadConstraint
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.workload import ReplicaSet, ReplicationController, Service, StatefulSet
from stowplan.plugins.topology_spread.pod_topology_spread import (
    PodTopologySpread,
    TopologySpreadPreFilterState,
    TopologySpreadPreScoreState,
)
from stowplan.plugins.topology_spread.spread_constraint import PodTopologySpreadArgs
from stowplan.testing import draw, pod, spread
from tests.plugins.clusters import Walks

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BOTH = Walks(PodTopologySpread)
SKEWED = f"Unschedulable: {PodTopologySpread.REJECTED.message}"
BARE = f"UnschedulableAndUnresolvable: {PodTopologySpread.NO_LABEL.message}"
PRE_SCORE = "PreScorePodTopologySpread"

# Two of the app in zone a, one in b, none in c.
CLUSTER = """
    node  zone  taints
    a1    a     -
    a2    a     -
    b1    b     -
    c1    c     gpu:NoSchedule
    bare  -     -

    pod   on    labels
    one   a1    app=web,track=1
    two   a2    app=web,track=2
    three b1    app=web,track=1
    other c1    app=db
"""


def snapshot_of(text: str = CLUSTER, *more: Pod, object_store: Iterable[Any] = ()) -> Snapshot:
    table = draw(text).table
    for one in more:
        table.add_pod(one)
    return Snapshot(table, ObjectStore(object_store))


def rule_alone() -> PodTopologySpread:
    """The plugin with its defaults."""
    found = Walks(PodTopologySpread).rows.members[PodTopologySpread.name].plugin
    assert isinstance(found, PodTopologySpread)
    return found


def web(*constraints: TopologySpreadConstraint, **more: Any) -> Pod:
    return pod("new", labels={"app": "web", "track": "1"}, spread=constraints, **more)


def refusals(one: Pod, snapshot: Snapshot, walks: Walks = BOTH) -> dict[str, str]:
    """Node -> why it refuses the pod; the same by both walks."""
    found = []
    for framework in (walks.rows, walks.each):
        state = CycleState()
        outcome = framework.run_pre_filter(one, snapshot, state)
        assert outcome.status.is_success, outcome
        nodes = snapshot.nodes
        answers = framework.filters_separately(one, nodes, nodes.all_rows, state)
        verdicts = answers.get(PodTopologySpread.name)
        codes = [0] * nodes.n_nodes if verdicts is None else verdicts.codes.tolist()
        statuses = [verdicts.explain(code) if verdicts and code else OK for code in codes]
        found.append(
            {
                name: f"{status.code.title}: {status.message}"
                for name, status in zip(nodes.names, statuses, strict=True)
                if not status.is_success
            }
        )
    assert found[0] == found[1]
    return found[0]


def scores(
    one: Pod, snapshot: Snapshot, walks: Walks = BOTH, rows: Sequence[int] | None = None
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Node -> raw and normalised score, the same by both walks; None where it is not scored."""
    nodes, found = snapshot.nodes, []
    asked = np.arange(nodes.n_nodes) if rows is None else np.array(rows, dtype=np.int64)
    for framework in (walks.rows, walks.each):
        state = CycleState()
        status = framework.run_pre_score(one, snapshot, asked, state)
        assert status.is_success, status
        result = framework.run_scores(one, nodes, asked, state)
        if PodTopologySpread.name not in result.raw:
            found.append(None)
            continue
        names = [nodes.names[row] for row in asked.tolist()]
        raw = dict(zip(names, result.raw[PodTopologySpread.name].tolist(), strict=True))
        found.append((raw, dict(zip(names, result.total.tolist(), strict=True))))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize(
    ("constraint", "refused"),
    [
        (spread("app=web", ZONE), "a1 a2 b1"),
        (spread("app=web", ZONE, max_skew=2), "a1 a2"),
        (spread("app=web", ZONE, max_skew=3), ""),
        (spread("app=db", ZONE), ""),
        (spread("app=db", ZONE, max_skew=0), "c1"),
        (spread("app=web", HOST), "a1 a2 b1"),
        # Too few domains: the emptiest counts as empty, which it is here anyway.
        (spread("app=web", ZONE, max_skew=2, min_domains=4), "a1 a2"),
        (spread("track=1", ZONE, match_label_keys=["app"]), "a1 a2 b1"),
        (spread("app=web", ZONE, match_label_keys=["track"]), "a1 a2 b1"),
        (spread("app=web", ZONE, match_label_keys=["nothing"]), "a1 a2 b1"),
        # Tainted c is out, and so b is the emptiest.
        (spread("app=web", ZONE, node_taints_policy="Honor"), "a1 a2"),
        (spread("app=web", ZONE, node_taints_policy="Honor", min_domains=3), "a1 a2 b1"),
        # An empty selector counts nobody, but the pod itself matches it.
        (spread("", ZONE), ""),
        (spread("", ZONE, max_skew=0), "a1 a2 b1 c1"),
        (spread(None, ZONE, max_skew=0), ""),
        (spread(None, ZONE, max_skew=0, match_label_keys=["app"]), ""),
    ],
)
def test_one_constraint(constraint: TopologySpreadConstraint, refused: str) -> None:
    want = dict.fromkeys(refused.split(), SKEWED)
    if constraint.topology_key == ZONE:
        want["bare"] = BARE
    assert refusals(web(constraint), snapshot_of()) == want


def test_the_nodes_that_a_pod_may_use_are_the_domains() -> None:
    chosen = {"node_selector": {ZONE: "a"}}
    assert refusals(web(spread("app=web", ZONE), **chosen), snapshot_of()) == {"bare": BARE}
    ignoring = spread("app=web", ZONE, node_affinity_policy="Ignore")
    assert set(refusals(web(ignoring, **chosen), snapshot_of())) == {"a1", "a2", "b1", "bare"}
    # No domain at all: the emptiest counts as empty.
    nowhere = web(spread("app=web", ZONE), node_selector={ZONE: "z"})
    assert refusals(nowhere, snapshot_of()) == {"bare": BARE}
    # Only a pod that the API refuses asks for 0 domains; then there is no bound.
    none = web(spread("app=web", ZONE, max_skew=0, min_domains=0), node_selector={ZONE: "z"})
    assert refusals(none, snapshot_of()) == {"bare": BARE}


def test_the_first_constraint_that_refuses_gives_the_reason() -> None:
    snapshot = snapshot_of()
    both = [spread("app=web", HOST), spread("app=web", ZONE, max_skew=2)]
    # Nodes without one of the keys are no domains, so for the hosts too only c1 is empty.
    assert refusals(web(*both), snapshot) == {
        "a1": SKEWED, "a2": SKEWED, "b1": SKEWED, "bare": BARE,
    }  # fmt: skip
    crowded = pod("more", on="bare", labels={"app": "web"})
    snapshot.nodes.add_pod(crowded)
    # A pod on a node that is no domain does not count there either.
    assert refusals(web(*both), snapshot)["bare"] == BARE
    assert refusals(web(spread("app=web", HOST)), snapshot)["bare"] == SKEWED


def test_who_is_counted() -> None:
    constraint = spread("app=web", ZONE, max_skew=1)
    assert "c1" not in refusals(web(constraint), snapshot_of())
    elsewhere = pod("x", namespace="prod", on="c1", labels={"app": "web"})
    going = going_away(pod("y", on="c1", labels={"app": "web"}))
    snapshot = snapshot_of(CLUSTER, elsewhere, going)
    assert set(refusals(web(constraint), snapshot)) == {"a1", "a2", "b1", "bare"}
    snapshot.nodes.add_pod(pod("z", on="c1", labels={"app": "web"}))
    assert set(refusals(web(constraint), snapshot)) == {"a1", "a2", "bare"}
    # A pod that is not counted itself adds nothing.
    stranger = pod("new", labels={"app": "db"}, spread=[constraint])
    assert set(refusals(stranger, snapshot)) == {"bare"}


def going_away(one: Pod) -> Pod:
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    meta = msgspec.structs.replace(one.metadata, deletion_timestamp=moment)
    return msgspec.structs.replace(one, metadata=meta)


MALFORMED = msgspec.structs.replace(
    spread("app=web", ZONE),
    label_selector=convert({"matchExpressions": [{"key": "a", "operator": "Near"}]}, LabelSelector),
)


def test_a_malformed_selector_is_an_error() -> None:
    text = 'topology spread constraints: "Near" is not a valid label selector operator'
    rule = rule_alone()
    status = rule.pre_filter(web(MALFORMED), snapshot_of(), CycleState())
    assert (status.code.title, status.message) == (
        "Error",
        f"get constraints from pod: obtaining pod's hard {text}",
    )
    soft = msgspec.structs.replace(MALFORMED, when_unsatisfiable="ScheduleAnyway")
    assert rule.pre_filter(web(soft), snapshot_of(), CycleState()).is_skip
    status = rule.pre_score(web(soft), snapshot_of(), slice(0, 5), CycleState())
    assert (status.code.title, status.message) == (
        "Error",
        f"calculating preScoreState: obtaining pod's soft {text}",
    )


def test_scores() -> None:
    soft = spread("app=web", ZONE, hard=False)
    names = ("a1", "a2", "b1", "c1", "bare")
    raw, final = scores(web(soft), snapshot_of()) or ({}, {})
    # Three zones weigh ln 5 = 1.61 a pod: 3.2, 1.6 and 0. The node without the label gets 0.
    assert raw == dict(zip(names, (3, 3, 2, 0, 0), strict=True))
    assert final == dict(zip(names, (0, 0, 33, 100, 0), strict=True))
    # Among candidates in two zones only, ln 4 = 1.39.
    raw, final = scores(web(soft), snapshot_of(), rows=[0, 2]) or ({}, {})
    assert (raw, final) == ({"a1": 3, "b1": 1}, {"a1": 33, "b1": 100})
    wide = spread("app=web", HOST, hard=False, max_skew=4)
    raw, _ = scores(web(wide), snapshot_of()) or ({}, {})
    # ln 7 = 1.95 a pod, and 3 for a skew of 4.
    assert raw == dict(zip(names, (5, 5, 5, 3, 3), strict=True))
    assert scores(web(spread("app=web", ZONE)), snapshot_of()) is None
    raw, final = scores(web(spread("app=zzz", ZONE, hard=False)), snapshot_of()) or ({}, {})
    assert final == dict(zip(names, (100, 100, 100, 100, 0), strict=True))


def test_a_score_of_minus_one_counts_as_none() -> None:
    flat = spread("app=web", ZONE, hard=False, max_skew=0)
    assert scores(web(flat), snapshot_of(), rows=[3]) == ({"c1": -1}, {"c1": 0})


SERVICE = convert({"metadata": {"name": "s"}, "spec": {"selector": {"app": "web"}}}, Service)


def owned(one: Pod, kind: str, version: str = "apps/v1", controller: bool = True) -> Pod:
    owner = OwnerReference(api_version=version, kind=kind, name="o", controller=controller)
    meta = msgspec.structs.replace(one.metadata, owner_references=(owner,))
    return msgspec.structs.replace(one, metadata=meta)


def test_system_defaults_need_a_service_or_a_controller() -> None:
    assert scores(web(), snapshot_of()) is None
    raw, _ = scores(web(), snapshot_of(object_store=[SERVICE])) or ({}, {})
    # Host: ln 7 a pod and 2; zone: ln 6 (the node without a zone is a domain, too) and 4.
    assert raw == {"a1": 12, "a2": 12, "b1": 10, "c1": 6, "bare": 2}
    assert scores(pod("new", labels={"app": "x"}), snapshot_of(object_store=[SERVICE])) is None
    foreign = pod("new", namespace="prod", labels={"app": "web"})
    assert scores(foreign, snapshot_of(object_store=[SERVICE])) is None
    assert refusals(web(), snapshot_of(object_store=[SERVICE])) == {}


SET = {"metadata": {"name": "o"}, "spec": {"selector": {"matchLabels": {"track": "1"}}}}
OLD = {"metadata": {"name": "o"}, "spec": {"selector": {"track": "1"}}}
BAD = {"metadata": {"name": "o"}, "spec": {"selector": {"matchExpressions": [{"key": "a"}]}}}


@pytest.mark.parametrize(
    ("kind", "version", "object_store", "counted"),
    [
        ("ReplicaSet", "apps/v1", [convert(SET, ReplicaSet)], 2),
        ("StatefulSet", "apps/v1", [convert(SET, StatefulSet)], 2),
        ("ReplicationController", "v1", [convert(OLD, ReplicationController)], 2),
        ("ReplicaSet", "apps/v1", [convert(SET, ReplicaSet), SERVICE], 2),
        ("ReplicationController", "v1", [convert(OLD, ReplicationController), SERVICE], 2),
        ("ReplicaSet", "v1", [convert(SET, ReplicaSet)], None),
        ("ReplicaSet", "apps/v1", [convert(SET, StatefulSet)], None),
        ("ReplicaSet", "apps/v1", [convert(BAD, ReplicaSet)], None),
        ("Job", "batch/v1", [SERVICE], 3),
        ("ReplicaSet", "apps/v1", [SERVICE], 3),
    ],
)
def test_what_default_constraints_count(
    kind: str, version: str, object_store: list[Any], counted: int | None
) -> None:
    rule = rule_alone()
    snapshot, state = snapshot_of(object_store=object_store), CycleState()
    status = rule.pre_score(owned(web(), kind, version), snapshot, slice(0, 5), state)
    assert status.is_skip is (counted is None)
    if counted is not None:
        kept = state.read(PRE_SCORE, TopologySpreadPreScoreState)
        assert kept.constraints[0].counts(snapshot.nodes).sum() == counted
    assert rule.pre_score(
        owned(web(), kind, version, False), snapshot_of(), slice(0, 5), state
    ).is_skip


def test_a_changed_service_counts_at_once() -> None:
    snapshot = snapshot_of(object_store=[SERVICE])
    assert scores(web(), snapshot) is not None
    snapshot.object_store.drop(Service, "default/s")
    assert scores(web(), snapshot) is None


RACK = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}


def test_listed_defaults() -> None:
    listed = {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
            RACK,
        ],
    }
    walks = Walks(PodTopologySpread, listed)
    snapshot = snapshot_of(object_store=[SERVICE])
    assert set(refusals(web(), snapshot, walks)) == {"a1", "a2", "b1", "bare"}
    # Unlike the system's, listed constraints leave nodes without a label unscored.
    found = scores(web(), snapshot, walks)
    assert found is not None
    assert set(found[1].values()) == {0}
    assert refusals(web(), snapshot_of(), walks) == {}
    # A pod with constraints of its own, of whatever kind, takes no default.
    soft = web(spread("app=web", ZONE, hard=False))
    assert refusals(soft, snapshot, walks) == {}


def test_a_zone_without_a_name_and_no_zone_are_one_domain_for_the_system() -> None:
    text = """
        node  zone  labels
        n1    -     topology.kubernetes.io/zone=
        n2    -     -

        pod   on    labels
        p1    n1    app=web
        p2    n2    app=web
    """
    raw, _ = scores(web(), snapshot_of(text, object_store=[SERVICE])) or ({}, {})
    # n1: host ln 4 + 2, zone 2 ln 3 + 4; n2 has no zone of its own: host only.
    assert raw == {"n1": 10, "n2": 3}


@pytest.mark.parametrize(
    ("args", "problems"),
    [
        ({}, []),
        ({"defaultingType": "List"}, []),
        ({"defaultingType": ""}, []),
        ({"defaultingType": "Some"}, ['x.defaultingType: Invalid value: "Some": '
        'expected List or System']),
        (
            {"defaultConstraints": [RACK]},
            ['x.defaultingType: Invalid value: "System": '
        'expected List, as defaultConstraints are given'],
        ),
        (
            {"defaultingType": "List", "defaultConstraints": [{"labelSelector": {}}]},
            [
                "x.defaultConstraints[0].maxSkew: Invalid value: 0: expected 1 or more",
                "x.defaultConstraints[0].topologyKey: expected a label key",
                "x.defaultConstraints[0].whenUnsatisfiable: "
        "expected DoNotSchedule or ScheduleAnyway",
                "x.defaultConstraints[0].labelSelector: Invalid value: a selector: "
                "expected none: the selector is deduced for each pod",
            ],
        ),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [RACK, {**RACK, "maxSkew": 2}],
            },
            [
                "x.defaultConstraints[1]: Invalid value: {rack, ScheduleAnyway} again: "
                "expected each topologyKey and whenUnsatisfiable once"
            ],
        ),
    ],
)  # fmt: skip
def test_arguments(args: dict[str, Any], problems: list[str]) -> None:
    decoded = convert(args, PodTopologySpreadArgs)
    assert [str(problem) for problem in decoded.problems("x")] == problems


def test_a_key_that_is_no_label_is_a_problem() -> None:
    entry = {**RACK, "topologyKey": "a b"}
    args = {"defaultingType": "List", "defaultConstraints": [entry]}
    (problem,) = convert(args, PodTopologySpreadArgs).problems("x")
    assert (problem.path, problem.got) == ("x.defaultConstraints[0].topologyKey", '"a b"')


def test_explanations() -> None:
    rule, state = rule_alone(), CycleState()
    new, snapshot = web(spread("app=web", ZONE)), snapshot_of()
    assert rule.pre_filter(new, snapshot, state) == OK
    found = {node.name: [*rule.explain(new, node, state)] for node in snapshot.nodes.infos()}
    assert found["a1"] == [
        f"{ZONE}: needs skew 1 or less, would be 3 in 'a' (2 pods there, 0 in the emptiest domain)"
    ]
    assert found["bare"] == [f"{ZONE}: needs the label, the node has none"]
    assert found["c1"] == []


# What if.


def changed(new: Pod, there: Pod, *, come: bool = True) -> tuple[dict[str, int], ...]:
    """The domains of the pod's constraints after `there` came to c1, or left it."""
    rule, state = rule_alone(), CycleState()
    snapshot = snapshot_of()
    assert rule.pre_filter(new, snapshot, state) == OK
    before, trial = counts(state), state.clone()
    node = snapshot.nodes.info(snapshot.nodes.row("c1"))
    (rule.add_pod if come else rule.remove_pod)(new, info_of(there), node, trial)
    assert counts(state) == before
    return tuple(counts(trial))


def info_of(one: Pod) -> Any:
    return table_of([Node(metadata=ObjectMeta(name="x"))], [on(one, "x")]).pods[0][0]


def on(one: Pod, node: str) -> Pod:
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=node))


def counts(state: CycleState) -> list[dict[str, int]]:
    kept = state.find(PodTopologySpread.name)
    return (
        [d.by_value() for d in kept.domains]
        if isinstance(kept, TopologySpreadPreFilterState)
        else []
    )


def test_pods_that_come_and_go() -> None:
    zone = spread("app=web", ZONE)
    coming = pod("x", labels={"app": "web"})
    assert changed(web(zone), coming) == ({"a": 2, "b": 1, "c": 1},)
    assert changed(web(zone), pod("x", labels={"app": "db"})) == ({"a": 2, "b": 1, "c": 0},)
    elsewhere = pod("x", namespace="prod", labels={"app": "web"})
    assert changed(web(zone), elsewhere) == ({"a": 2, "b": 1, "c": 0},)
    honest = spread("app=web", ZONE, node_taints_policy="Honor")
    assert changed(web(honest), coming) == ({"a": 2, "b": 1},)
    # Unlike the first count this one takes in pods that are going, and an empty selector.
    assert changed(web(zone), going_away(coming)) == ({"a": 2, "b": 1, "c": 1},)
    assert changed(web(spread("", ZONE)), coming) == ({"a": 0, "b": 0, "c": 1},)
    assert changed(web(spread("app=db", ZONE)), pod("other", labels={"app": "db"}), come=False) == (
        {"a": 0, "b": 0, "c": 0},
    )
