"""InterPodAffinity: who may be near whom, first ones, namespaces, scores, and what if."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stowplan.framework import OK, CycleState, ObjectStore, Snapshot
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Affinity, Pod, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.workload import Namespace
from stowplan.plugins.pod_affinity.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs
from stowplan.testing import affinity, draw, pod, term
from tests.plugins.clusters import Walks

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
BOTH = Walks(InterPodAffinity)
FAR = f"UnschedulableAndUnresolvable: {InterPodAffinity.NO_AFFINITY.message}"
HATED = f"Unschedulable: {InterPodAffinity.REJECTED_BY_POD.message}"
HATING = f"Unschedulable: {InterPodAffinity.REJECTED_BY_EXISTING.message}"

NODES = """
    node  zone
    a1    a
    a2    a
    b1    b
    far   -
"""

CLUSTER_TEXT = (
    Namespace(metadata=ObjectMeta(name="default", labels={"team": "x"})),
    Namespace(metadata=ObjectMeta(name="prod", labels={"team": "y"})),
    Namespace(metadata=ObjectMeta(name="bare")),
)


def snapshot_of(text: str, *more: Pod, object_store: tuple[Any, ...] = CLUSTER_TEXT) -> Snapshot:
    """The nodes above, the pods of `text` and further ones with a node."""
    table = draw(NODES + text).table
    for one in more:
        table.add_pod(one)
    return Snapshot(table, ObjectStore(object_store))


def refusals(one: Pod, snapshot: Snapshot, walks: Walks = BOTH) -> dict[str, str]:
    """Node -> why it refuses the pod; the same by both walks."""
    found = []
    for framework in (walks.rows, walks.each):
        state = CycleState()
        outcome = framework.run_pre_filter(one, snapshot, state)
        if not outcome.status.is_success:
            return {"": f"{outcome.status.code.title}: {outcome.status.message}"}
        nodes = snapshot.nodes
        answers = framework.filters_separately(one, nodes, nodes.all_rows, state)
        verdicts = answers.get(InterPodAffinity.name)
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
    one: Pod, snapshot: Snapshot, walks: Walks = BOTH
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Node -> raw and normalised score, the same by both walks; None where it is not scored."""
    found = []
    for framework in (walks.rows, walks.each):
        state, rows = CycleState(), np.arange(snapshot.nodes.n_nodes)
        assert framework.run_pre_score(one, snapshot, rows, state).is_success
        result = framework.run_scores(one, snapshot.nodes, rows, state)
        if InterPodAffinity.name not in result.raw:
            found.append(None)
            continue
        names = snapshot.nodes.names
        raw = dict(zip(names, result.raw[InterPodAffinity.name].tolist(), strict=True))
        found.append((raw, dict(zip(names, result.total.tolist(), strict=True))))
    assert found[0] == found[1]
    return found[0]


ONE_WEB = """
    pod  on  labels
    web  a1  app=web
"""
WEB_HERE, WEB_IN_ZONE = term("app=web", HOST), term("app=web", ZONE)
FAR_FROM_ALL = dict.fromkeys(["a1", "a2", "b1", "far"], FAR)


@pytest.mark.parametrize(
    ("near", "apart", "refused"),
    [
        ([WEB_IN_ZONE], [], {"b1": FAR, "far": FAR}),
        ([WEB_HERE], [], {"a2": FAR, "b1": FAR, "far": FAR}),
        ([WEB_HERE, WEB_IN_ZONE], [], {"a2": FAR, "b1": FAR, "far": FAR}),
        ([WEB_IN_ZONE, term("tier", ZONE)], [], FAR_FROM_ALL),
        ([term("", ZONE)], [], {"b1": FAR, "far": FAR}),
        ([term(None, ZONE)], [], FAR_FROM_ALL),
        ([], [WEB_IN_ZONE], {"a1": HATED, "a2": HATED}),
        ([], [WEB_HERE], {"a1": HATED}),
        ([], [term("app=db", HOST)], {}),
        ([], [term(None, HOST)], {}),
        ([WEB_IN_ZONE], [WEB_HERE], {"a1": HATED, "b1": FAR, "far": FAR}),
    ],
)
def test_required_terms(
    near: list[PodAffinityTerm], apart: list[PodAffinityTerm], refused: dict[str, str]
) -> None:
    new = pod("new", affinity=affinity(near=near, apart=apart))
    assert refusals(new, snapshot_of(ONE_WEB)) == refused


def test_placed_pods_keep_others_away() -> None:
    hater = pod("hater", on="a1", affinity=affinity(apart=[term("app=web", ZONE)]))
    lonely = pod("lonely", on="far", affinity=affinity(apart=[term("app=web", ZONE)]))
    snapshot = snapshot_of("", hater, lonely)
    assert refusals(pod("new", labels={"app": "web"}), snapshot) == {"a1": HATING, "a2": HATING}
    assert refusals(pod("new", labels={"app": "db"}), snapshot) == {}
    assert refusals(pod("new", namespace="prod", labels={"app": "web"}), snapshot) == {}


def test_the_first_of_its_kind_may_go_anywhere_with_the_label() -> None:
    required = affinity(near=[term("app=web", ZONE)])
    first = pod("new", labels={"app": "web"}, affinity=required)
    assert refusals(first, snapshot_of("")) == {"far": FAR}
    # One that does not want itself waits for others.
    assert len(refusals(pod("new", affinity=required), snapshot_of(""))) == 4
    # A pod that matches, but where no label makes it count, leaves the way open.
    elsewhere = pod("web", on="far", labels={"app": "web"})
    assert refusals(first, snapshot_of("", elsewhere)) == {"far": FAR}
    # Pods that match one term of two are no company, and do not end the rule either.
    two = affinity(near=[term("app=web", ZONE), term("tier=front", ZONE)])
    pair = pod("new", labels={"app": "web", "tier": "front"}, affinity=two)
    assert refusals(pair, snapshot_of(ONE_WEB)) == {"far": FAR}


@pytest.mark.parametrize(
    ("namespaces", "selector", "reached"),
    [
        ((), None, "default"),
        (("prod",), None, "prod"),
        ((), "", "default prod bare unknown"),
        ((), "team=y", "prod"),
        (("bare",), "team=y", "bare prod"),
        # The original asks the selector again, about no labels at all.
        ((), "team notin (y)", "default prod bare unknown"),
        ((), "!team", "default prod bare unknown"),
        ((), "team", "default prod"),
        ((), "team=z", ""),
    ],
)
def test_namespaces_of_the_pods_own_terms(
    namespaces: tuple[str, ...], selector: str | None, reached: str
) -> None:
    wanted = term("app=web", HOST, namespaces=namespaces, namespace_selector=selector)
    new = pod("new", affinity=affinity(apart=[wanted]))
    for namespace in ("default", "prod", "bare", "unknown"):
        there = pod("web", namespace=namespace, on="b1", labels={"app": "web"})
        want = {"b1": HATED} if namespace in reached.split() else {}
        assert refusals(new, snapshot_of("", there)) == want, namespace


@pytest.mark.parametrize(
    ("selector", "reached"),
    [
        (None, "default"),
        ("", "default prod bare unknown"),
        ("team=y", "prod"),
        ("team notin (y)", "default bare unknown"),
        ("!team", "bare unknown"),
    ],
)
def test_namespaces_of_the_terms_of_placed_pods(selector: str | None, reached: str) -> None:
    wanted = term("app=web", HOST, namespace_selector=selector)
    hater = pod("hater", on="b1", affinity=affinity(apart=[wanted]))
    snapshot = snapshot_of("", hater)
    for namespace in ("default", "prod", "bare", "unknown"):
        new = pod("new", namespace=namespace, labels={"app": "web"})
        want = {"b1": HATING} if namespace in reached.split() else {}
        assert refusals(new, snapshot) == want, namespace


def test_a_relabelled_namespace_counts_at_once() -> None:
    wanted = term("app=web", HOST, namespace_selector="team=y")
    new = pod("new", affinity=affinity(apart=[wanted]))
    there = pod("web", namespace="bare", on="b1", labels={"app": "web"})
    snapshot = snapshot_of("", there)
    assert refusals(new, snapshot) == {}
    snapshot.object_store.put(Namespace(metadata=ObjectMeta(name="bare", labels={"team": "y"})))
    assert refusals(new, snapshot) == {"b1": HATED}


MALFORMED = PodAffinityTerm(
    label_selector=convert({"matchExpressions": [{"key": "a", "operator": "Near"}]}, LabelSelector),
    topology_key=HOST,
)


def test_a_malformed_selector_refuses_the_pod() -> None:
    text = '"Near" is not a valid label selector operator'
    one = pod("new", affinity=affinity(near=[MALFORMED]))
    assert refusals(one, snapshot_of("")) == {
        "": f"UnschedulableAndUnresolvable: parsing pod: requiredAffinityTerms: {text}"
    }
    two = pod("new", affinity=affinity(near=[MALFORMED], prefer_apart=[(1, MALFORMED)]))
    assert refusals(two, snapshot_of("")) == {
        "": "UnschedulableAndUnresolvable: parsing pod: "
        f"[requiredAffinityTerms: {text}, preferredAntiAffinityTerms: {text}]"
    }


def test_a_malformed_group_of_a_placed_pod_counts_as_absent() -> None:
    required = affinity(
        near=[MALFORMED], prefer_near=[(3, MALFORMED)], apart=[term("app=web", HOST)]
    )
    snapshot = snapshot_of("", pod("odd", on="b1", affinity=required))
    assert refusals(pod("new", labels={"app": "web"}), snapshot) == {"b1": HATING}
    assert scores(pod("new", labels={"app": "web"}), snapshot) is None


@pytest.mark.parametrize(
    ("near", "apart", "raw", "final"),
    [
        ([(5, WEB_IN_ZONE)], [], [5, 5, 0, 0], [100, 100, 0, 0]),
        ([(5, WEB_HERE), (3, WEB_IN_ZONE)], [], [8, 3, 0, 0], [100, 37, 0, 0]),
        ([], [(7, WEB_HERE)], [-7, 0, 0, 0], [0, 100, 100, 100]),
        ([(7, WEB_HERE)], [(7, WEB_HERE)], [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_own_preferences(near: Any, apart: Any, raw: list[int], final: list[int]) -> None:
    new = pod("new", affinity=affinity(prefer_near=near, prefer_apart=apart))
    found = scores(new, snapshot_of(ONE_WEB))
    names = ("a1", "a2", "b1", "far")
    assert found == (dict(zip(names, raw, strict=True)), dict(zip(names, final, strict=True)))


def test_preferences_of_placed_pods() -> None:
    web = term("app=web", ZONE)
    snapshot = snapshot_of(
        "",
        pod("fan", on="a1", affinity=affinity(prefer_near=[(5, web)])),
        pod("foe", on="b1", affinity=affinity(prefer_apart=[(2, web)])),
        pod("bound", on="b1", affinity=affinity(near=[web])),
    )
    new = pod("new", labels={"app": "web"})
    found = scores(new, snapshot)
    assert found is not None
    assert found[0] == {"a1": 5, "a2": 5, "b1": -1, "far": 0}
    hard = Walks(InterPodAffinity, {"hardPodAffinityWeight": 10})
    found = scores(new, snapshot, hard)
    assert found is not None
    assert found[0] == {"a1": 5, "a2": 5, "b1": 8, "far": 0}
    soft = Walks(InterPodAffinity, {"hardPodAffinityWeight": 0})
    found = scores(new, snapshot, soft)
    assert found is not None
    assert found[0] == {"a1": 5, "a2": 5, "b1": -2, "far": 0}
    assert scores(pod("new", labels={"app": "db"}), snapshot) is None


def test_when_scoring_is_skipped() -> None:
    ignoring = Walks(InterPodAffinity, {"ignorePreferredTermsOfExistingPods": True})
    snapshot = snapshot_of(
        ONE_WEB, pod("fan", on="a1", affinity=affinity(prefer_near=[(5, term("app=web", ZONE))]))
    )
    new = pod("new", labels={"app": "web"})
    assert scores(new, snapshot) is not None
    assert scores(new, snapshot, ignoring) is None
    # Whoever prefers something itself is scored by the others' preferences, too.
    other = pod("new", labels={"app": "web"}, affinity=affinity(prefer_near=[(1, term("x", HOST))]))
    assert scores(other, snapshot, ignoring) == scores(new, snapshot)
    # A preference of weight 0 that is met, and two that cancel out, are not skipped.
    for near, apart in ((0, 0), (4, 4)):
        required = affinity(
            prefer_near=[(near, term("app=web", HOST))],
            prefer_apart=[(apart, term("app=web", HOST))],
        )
        assert scores(pod("new", affinity=required), snapshot_of(ONE_WEB)) is not None
    required = affinity(prefer_near=[(1, term("app=web", "no-such-label"))])
    assert scores(pod("new", affinity=required), snapshot_of(ONE_WEB)) is None


def hater_on(node: str) -> Pod:
    return pod("hater", on=node, affinity=affinity(apart=[term("", ZONE)]))


@pytest.mark.parametrize(
    ("required", "there", "skips"),
    [
        (None, [], True),
        (affinity(prefer_near=[(1, term("", ZONE))]), [], True),
        (affinity(near=[term("", ZONE)]), [], False),
        (affinity(apart=[term(None, ZONE)]), [], False),
        (None, [hater_on("a1")], False),
        (None, [hater_on("far")], True),
    ],
)
def test_filter_is_skipped_where_nothing_is_required(
    required: Affinity | None, there: list[Pod], skips: bool
) -> None:
    state = CycleState()
    new, snapshot = pod("new", affinity=required), snapshot_of(ONE_WEB, *there)
    assert BOTH.rows.run_pre_filter(new, snapshot, state).status.is_success
    assert (InterPodAffinity.name in state.skip_filter) is skips


def test_arguments() -> None:
    assert [str(p) for p in InterPodAffinityArgs(101).problems("args")] == [
        "args.hardPodAffinityWeight: Invalid value: 101: expected 0 to 100"
    ]
    assert not [*InterPodAffinityArgs(0).problems("args"), *InterPodAffinityArgs(100).problems("a")]


def test_explanations() -> None:
    new = pod("new", affinity=affinity(near=[term("app=db", ZONE)], apart=[term("app=web", HOST)]))
    db = pod("db", on="a2", labels={"app": "db"})
    snapshot = snapshot_of(
        ONE_WEB, db, pod("hater", on="a2", affinity=affinity(apart=[term("", HOST)]))
    )
    rule, state = InterPodAffinity(InterPodAffinityArgs()), CycleState()
    assert rule.pre_filter(new, snapshot, state) == OK
    assert {node.name: [*rule.explain(new, node, state)] for node in snapshot.nodes.infos()} == {
        "a1": [f"{HOST}: needs no pod of its anti-affinity, 1 in 'a1'"],
        "a2": [f"{HOST}: needs no pod with an anti-affinity to it, 1 in 'a2'"],
        "b1": [f"{ZONE}: needs a pod of its affinity, 0 in 'b'"],
        "far": [f"{ZONE}: needs a pod of its affinity, the node has no such label"],
    }
