"""VolumeBinding: bound claims, claims that wait for their first pod, and what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns import NodeTable, Rows
from stowplan.framework import ConfigError, CycleState, ObjectStore
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.utilization_shape import UtilizationShapePoint
from stowplan.plugins.volumes import volume_binding, volume_search
from stowplan.plugins.volumes.volume_binding import REASONS, VolumeBinding, VolumeBindingArgs
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_matching import VolumeCandidates, find_volume_candidates
from stowplan.plugins.volumes.volume_search import (
    BIND_CONFLICT,
    NODE_CONFLICT,
    NOT_ENOUGH_SPACE,
    PV_NOT_EXIST,
    Ints,
    VolumeSearch,
)
from tests.plugins.volume_cases import (
    AWS,
    BETA_ZONE,
    HOST,
    NODES,
    SELECTED,
    VOLUMES,
    ZONE,
    Case,
    agree,
    capacity,
    case,
    cases,
    claim,
    csi_driver,
    csi_node,
    fails,
    framework_of,
    is_caught,
    node,
    nodes,
    pod,
    refusals,
    storage_class,
    volume,
    within,
)

UNRESOLVABLE = "UnschedulableAndUnresolvable: "
TWO = (node("n1", "a"), node("n2", "b"))
WAIT = storage_class("wait")
LOCAL = storage_class("local", "kubernetes.io/no-provisioner")


def bindings(asked_for: Case, node_name: str) -> dict[str, list[Any]]:
    framework, state = framework_of(VolumeBinding), CycleState()
    outcome = framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert outcome.status.is_success
    rule: VolumeBinding = framework.members["VolumeBinding"].plugin
    return rule.bindings(state, node_name)


def refused(*conflicts: int) -> str:
    return UNRESOLVABLE + ", ".join(REASONS[bit] for bit in conflicts)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        (
            [claim("c", volume="p", phase="Lost")],
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "p"',
        ),
        (
            [claim("c", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})],
            'persistentvolumeclaim "c" is being deleted',
        ),
        ([claim("c", "gone")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim("c", volume="p", annotations={}), WAIT],
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_claims_that_no_node_can_serve(objects: list[Object], why: str) -> None:
    asked_for = case(pod("c"), [node("n1")], objects)
    assert refusals(VolumeBinding, asked_for) == {"n1": UNRESOLVABLE + why}


def test_a_class_without_binding_mode_is_an_error() -> None:
    asked_for = case(pod("c"), [node("n1")], [claim("c"), storage_class("wait", mode=None)])
    assert refusals(VolumeBinding, asked_for) == {
        "n1": 'Error: running PreFilter plugin "VolumeBinding": '
        'VolumeBindingMode not set for StorageClass "wait"'
    }


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (
            None,
            "waiting for ephemeral volume controller to create the "
            'persistentvolumeclaim "web-data"',
        ),
        ("other", "PVC default/web-data was not created for pod default/web (pod is not owner)"),
        ("default/web", ""),
    ],
)
def test_a_claim_made_with_the_pod(owner: str | None, why: str) -> None:
    web = pod({"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}, name="web")
    meta = {"ownerReferences": [{"uid": owner, "controller": True}]}
    objects = [] if owner is None else [claim("web-data", meta=meta), WAIT]
    found = refusals(VolumeBinding, case(web, [node("n1")], objects))
    assert found == ({"n1": UNRESOLVABLE + why} if why else {})


def test_a_pod_without_claims_costs_nothing() -> None:
    framework, state = framework_of(VolumeBinding), CycleState()
    asked_for = case(pod({"emptyDir": {}}), TWO)
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert state.skip_filter == {"VolumeBinding"}
    assert framework.run_reserve(asked_for.pod, "n1", state).is_success
    assert framework.run_pre_bind_pre_flight(asked_for.pod, "n1", state).is_skip


def test_bound_claims_need_their_volume_within_reach() -> None:
    in_b = [claim("c", volume="p"), volume("p", affinity=within(ZONE, "b"))]
    assert refusals(VolumeBinding, case(pod("c"), TWO, in_b)) == {"n1": refused(NODE_CONFLICT)}
    gone = refused(PV_NOT_EXIST)
    assert refusals(VolumeBinding, case(pod("c"), TWO, in_b[:1])) == {"n1": gone, "n2": gone}


def test_reasons_of_bound_and_unbound_claims_come_together() -> None:
    objects = [
        claim("c", volume="p"),
        volume("p", affinity=within(ZONE, "b")),
        claim("d", "local"),
        LOCAL,
    ]
    assert refusals(VolumeBinding, case(pod("c", "d"), TWO, objects)) == {
        "n1": refused(NODE_CONFLICT, BIND_CONFLICT),
        "n2": refused(BIND_CONFLICT),
    }


def test_a_node_that_migrated_the_plugin_is_asked_for_the_drivers_zone() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    in_a = volume("p", affinity=within(ZONE, "a"), source=disk)
    driver_zone = {"topology.ebs.csi.aws.com/zone": "a"}
    asked_for = case(
        pod("c"),
        [node("old", "a"), node("bare", "a"), node("new", "b", **driver_zone)],
        [claim("c", volume="p"), in_a, csi_node("bare", AWS), csi_node("new", AWS)],
    )
    assert refusals(VolumeBinding, asked_for) == {"bare": refused(NODE_CONFLICT)}


def test_a_volume_that_cannot_be_translated_ends_the_attempt_where_it_must_be() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "aws://a/nothing"}}
    objects = [claim("c", volume="p"), volume("p", source=disk), csi_node("n2", AWS)]
    assert refusals(VolumeBinding, case(pod("c"), TWO, objects)) == {
        "n2": "Error: could not translate pv: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://a/nothing)"
    }


def test_the_smallest_volume_that_suits_is_bound() -> None:
    objects = [
        LOCAL,
        claim("c", "local", size="5Gi", selector={"matchLabels": {"tier": "x"}}),
        volume("small", "local", size="4Gi", labels={"tier": "x"}),
        volume("large", "local", size="20Gi", labels={"tier": "x"}),
        volume("fits", "local", size="5368709120", labels={"tier": "x"}),
        volume("taken", "local", size="5Gi", labels={"tier": "x"}, of="other"),
        volume("unlabelled", "local", size="5Gi"),
        volume("used", "local", size="5Gi", labels={"tier": "x"}, phase="Released"),
        volume("raw", "local", size="5Gi", labels={"tier": "x"}, volumeMode="Block"),
        volume("shared", "local", size="5Gi", labels={"tier": "x"}, modes=["ReadOnlyMany"]),
        volume("other", size="5Gi", labels={"tier": "x"}),
    ]
    assert bindings(case(pod("c"), TWO, objects), "n1") == {"static": [["c", "fits"]]}


def test_a_volume_that_names_the_claim_is_the_only_one_considered() -> None:
    objects = [
        WAIT,
        claim("c", size="1Gi"),
        volume("free", size="1Gi"),
        volume("named", size="9Gi", of="c", affinity=within(ZONE, "b"), phase="Bound"),
    ]
    asked_for = case(pod("c"), TWO, objects)
    assert bindings(asked_for, "n2") == {"static": [["c", "named"]]}
    # Out of its reach the claim is not given another one, it is provisioned.
    assert bindings(asked_for, "n1") == {"dynamic": ["c"]}


def test_each_volume_is_bound_once_and_small_claims_choose_first() -> None:
    objects = [
        LOCAL,
        claim("big", "local", size="5Gi"),
        claim("small", "local", size="1Gi"),
        volume("p5", "local", size="5Gi", affinity=within(HOST, "n1", "n2")),
        volume("p9", "local", size="9Gi", affinity=within(HOST, "n1")),
    ]
    asked_for = case(pod("big", "small"), TWO, objects)
    assert bindings(asked_for, "n1") == {"static": [["small", "p5"], ["big", "p9"]]}
    assert refusals(VolumeBinding, asked_for) == {"n2": refused(BIND_CONFLICT)}


def test_a_claim_used_twice_is_matched_twice() -> None:
    objects = [LOCAL, claim("c", "local"), volume("p", "local")]
    assert refusals(VolumeBinding, case(pod("c", "c"), [node("n1")], objects)) == {
        "n1": refused(BIND_CONFLICT)
    }


def test_a_selected_node_is_kept() -> None:
    objects = [WAIT, claim("c", annotations={SELECTED: "n2"}), volume("free")]
    asked_for = case(pod("c"), TWO, objects)
    assert refusals(VolumeBinding, asked_for) == {"n1": refused(BIND_CONFLICT)}
    assert bindings(asked_for, "n2") == {"dynamic": ["c"]}


@pytest.mark.parametrize(
    ("topologies", "names"),
    [
        (None, ""),
        ([], ""),
        ([{"matchLabelExpressions": [{"key": ZONE, "values": ["b", "c"]}]}], "n1"),
        ([{}], "n1 n2"),
        ([{"matchLabelExpressions": [{"key": ZONE, "values": []}]}], "n1 n2"),
        ([{}, {"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}], "n2"),
    ],
)
def test_allowed_topologies(topologies: list[Any] | None, names: str) -> None:
    objects = [claim("c"), storage_class("wait", allowedTopologies=topologies)]
    found = refusals(VolumeBinding, case(pod("c"), TWO, objects))
    assert found == dict.fromkeys(names.split(), refused(BIND_CONFLICT))


@pytest.mark.parametrize(
    ("size", "capacities", "names"),
    [
        ("5Gi", [], "n1 n2"),
        ("5Gi", [capacity("k", "wait", "a", capacity="5Gi")], "n2"),
        ("5Gi", [capacity("k", "wait", "", capacity="5Gi")], ""),
        ("5Gi", [capacity("k", "wait", None, capacity="5Gi")], "n1 n2"),
        ("5Gi", [capacity("k", "other", "a", capacity="5Gi")], "n1 n2"),
        ("5Gi", [capacity("k", "wait", "a", capacity="9Gi", maximumVolumeSize="1Gi")], "n1 n2"),
        ("5Gi", [capacity("k", "wait", "a", maximumVolumeSize="5Gi")], "n2"),
        ("5Gi", [capacity("k", "wait", "a")], "n1 n2"),
        (None, [], ""),
    ],
)
def test_storage_capacity(size: str | None, capacities: list[Object], names: str) -> None:
    objects = [WAIT, claim("c", size=size), *capacities]
    opted_in = case(pod("c"), TWO, [*objects, csi_driver(storageCapacity=True)])
    assert refusals(VolumeBinding, opted_in) == dict.fromkeys(
        names.split(), refused(NOT_ENOUGH_SPACE)
    )
    assert refusals(VolumeBinding, case(pod("c"), TWO, [*objects, csi_driver()])) == {}


def full_after_a_change() -> list[dict[str, str]]:
    """The refusals while one capacity shrinks, and then the class allows one zone only."""
    asked_for = case(
        pod("c"),
        TWO,
        [WAIT, claim("c", size="5Gi"), csi_driver(storageCapacity=True)]
        + [capacity(zone, "wait", zone, capacity="9Gi") for zone in ("a", "b")],
    )
    found = [refusals(VolumeBinding, asked_for)]
    asked_for.object_store.put(capacity("a", "wait", "a", capacity="1Gi"))
    found.append(refusals(VolumeBinding, asked_for))
    in_zone = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    asked_for.object_store.put(storage_class("wait", allowedTopologies=in_zone))
    found.append(refusals(VolumeBinding, asked_for))
    return found


FULL = [
    {},
    {"n1": refused(NOT_ENOUGH_SPACE)},
    {"n1": refused(NOT_ENOUGH_SPACE), "n2": refused(BIND_CONFLICT)},
]


def test_changes_of_capacities_and_classes_are_followed() -> None:
    assert full_after_a_change() == FULL


def test_kept_capacities_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: what a class can provision is evaluated once."""
    right = VolumeIndex.supply

    def once(self: VolumeIndex, key: Any, reads: Any, make: Any) -> Any:
        return right(self, key, (), make)

    monkeypatch.setattr(VolumeIndex, "supply", once)
    with pytest.raises(AssertionError):
        assert full_after_a_change() == FULL


def test_a_malformed_selector_of_a_claim_is_an_error() -> None:
    bad = {"matchExpressions": [{"key": "tier", "operator": "Near"}]}
    asked_for = case(pod("c"), [node("n1")], [WAIT, claim("c", selector=bad)])
    assert refusals(VolumeBinding, asked_for) == {
        "n1": "Error: error creating internal label selector for claim: default/c: "
        '"Near" is not a valid label selector operator'
    }


def test_explanations_name_claim_and_volume() -> None:
    objects = [
        WAIT,
        LOCAL,
        claim("c", volume="p"),
        volume("p", affinity=within(ZONE, "b")),
        claim("d", "local"),
    ]
    asked_for = case(pod("c", "d"), TWO, objects)
    framework, state = framework_of(VolumeBinding), CycleState()
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    rule: VolumeBinding = framework.members["VolumeBinding"].plugin
    assert rule.explain(asked_for.pod, asked_for.nodes.info(0), state) == [
        "claim c: needs volume p, which this node cannot reach",
        "claim d: needs 5Gi of class local, no free volume fits; its class makes none",
    ]


# Both walks, and a third that is slow and simple.


@given(cases())
def test_walks_agree(volume_case: Case) -> None:
    assert agree(VolumeBinding, volume_case)


class TakesAVolumeTwice(VolumeSearch):
    """Wrong: the column walk forgets what earlier claims of the pod have chosen."""

    def _choice(
        self, found: VolumeCandidates, chosen: Sequence[Ints], nodes: NodeTable, rows: Rows
    ) -> Ints:
        return super()._choice(found, [], nodes, rows)


class IgnoresMigration(VolumeSearch):
    """Wrong: the column walk reads in-tree volumes the same way on every node."""

    def _bound_column(self, nodes: NodeTable, rows: Rows) -> Ints:
        nothing, right = ObjectStore(), self._index
        self._index = VolumeIndex(nothing)
        codes = super()._bound_column(nodes, rows)
        self._index = right
        return codes


class ReachesNamedVolumesAnywhere(VolumeSearch):
    """Wrong: a volume that names the claim counts wherever it is."""

    def _choice(
        self, found: VolumeCandidates, chosen: Sequence[Ints], nodes: NodeTable, rows: Rows
    ) -> Ints:
        choice = super()._choice(found, chosen, nodes, rows)
        return np.maximum(choice, 0) if found.prebound else choice


@pytest.mark.parametrize(
    "wrong", [TakesAVolumeTwice, IgnoresMigration, ReachesNamedVolumesAnywhere]
)
def test_wrong_columns_are_caught(
    wrong: type[VolumeSearch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume_binding, "VolumeSearch", wrong)
    assert is_caught(VolumeBinding)


def slow_match(
    claim: PersistentVolumeClaim, there: Sequence[PersistentVolume], node: Node, taken: set[str]
) -> PersistentVolume | None:
    """The rule as one loop over all volumes of the claim's class. Sizes are whole Gi or Mi."""
    best: PersistentVolume | None = None
    for one in there:
        ref = one.spec.claim_ref
        mine = ref is not None and (ref.name, ref.uid) == (claim.name, claim.metadata.uid)
        if one.name in taken or (ref is not None and not mine):
            continue
        if one.spec.storage_class_name != (claim.spec.storage_class_name or ""):
            continue
        if mib(one.spec.capacity) < mib(claim.spec.resources.requests):
            continue
        required = one.spec.node_affinity.required if one.spec.node_affinity else None
        near = required is None or any(
            all(
                r.operator == "In" and node.labels.get(r.key) in r.values
                for r in t.match_expressions
            )
            for t in required.node_selector_terms
        )
        if mine:
            return one if near else None
        selected = claim.spec.selector is None or one.labels.get("tier") == "x"
        moded = set(claim.spec.access_modes) <= set(one.spec.access_modes)
        if one.status.phase != "Available" or not (near and selected and moded):
            continue
        if best is None or mib(one.spec.capacity) < mib(best.spec.capacity):
            best = one
    return best


def mib(sizes: dict[str, Any]) -> int:
    text = sizes.get("storage", "0Mi")
    return int(text[:-2]) * (1024 if text.endswith("Gi") else 1)


simple_affinities = st.sampled_from(
    (
        None,
        None,
        within(ZONE, "a"),
        within(ZONE, "a", "b"),
        within(BETA_ZONE, "b"),
        within(HOST, "n1"),
    )
)


def compare_matching(data: st.DataObject) -> None:
    """Bindings and verdicts of a drawn case against the slow loop."""
    homes = [data.draw(nodes(name)) for name in NODES[:3]]
    there = [
        volume(
            name,
            data.draw(st.sampled_from(("wait", "local", "local", "local"))),
            of=data.draw(st.sampled_from(("", "", "", "", "c0", "c1"))),
            size=data.draw(st.sampled_from(("1Gi", "5Gi", "5120Mi", "10Gi"))),
            affinity=data.draw(simple_affinities),
            labels=data.draw(st.sampled_from(({"tier": "x"}, {"tier": "x"}, {}))),
            phase=data.draw(st.sampled_from(("Available",) * 5 + ("Bound",))),
        )
        for name in VOLUMES
    ]
    wanted = [
        claim(
            name,
            data.draw(st.sampled_from(("wait", "local", "local", "local"))),
            size=data.draw(st.sampled_from(("1Gi", "5Gi", "10Gi"))),
            modes=data.draw(st.sampled_from((["ReadWriteOnce"],) * 5 + (["ReadOnlyMany"],))),
            selector=data.draw(st.sampled_from((None, {"matchLabels": {"tier": "x"}}))),
        )
        for name in ("c0", "c1", "c2")
    ]
    asked_for = case(pod("c0", "c1", "c2"), homes, [WAIT, LOCAL, *there, *wanted])
    refused_by = refusals(VolumeBinding, asked_for)
    for home in homes:
        taken: set[str] = set()
        static, fits = [], True
        for one in sorted(wanted, key=lambda c: mib(c.spec.resources.requests)):
            found = slow_match(one, there, home, taken)
            if found is not None:
                taken.add(found.name)
                static.append([one.name, found.name])
            fits &= found is not None or one.spec.storage_class_name == "wait"
        assert fits == (home.name not in refused_by)
        if fits:
            assert bindings(asked_for, home.name).get("static", []) == static


@given(st.data())
def test_matching_is_the_slow_loop(data: st.DataObject) -> None:
    compare_matching(data)


def test_wrong_matching_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_order_of_arrival(*given: Any) -> VolumeCandidates:
        found = find_volume_candidates(*given)
        return VolumeCandidates(found.prebound, tuple(sorted(found.others, key=lambda v: v.name)))

    monkeypatch.setattr(volume_search, "find_volume_candidates", in_order_of_arrival)
    assert fails(compare_matching)


# Scores, behind their gate.


def scores(asked_for: Case, shape: str = "") -> list[int] | None:
    points = [point.split(":") for point in shape.split()]
    args = VolumeBindingArgs(
        shape=tuple(UtilizationShapePoint(int(u), int(s)) for u, s in points) or None
    )
    framework = framework_of(VolumeBinding, args=args, storage_capacity_scoring=True)
    state = CycleState()
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    rows = np.arange(asked_for.nodes.n_nodes)
    framework.run_pre_score(asked_for.pod, asked_for.snapshot, rows, state)
    found = framework.run_scores(asked_for.pod, asked_for.nodes, rows, state)
    return found.raw["VolumeBinding"].tolist() if "VolumeBinding" in found.raw else None


def test_the_fuller_the_volume_the_lower_the_score_by_the_default_shape() -> None:
    objects = [
        LOCAL,
        WAIT,
        claim("c", "local", size="5Gi"),
        claim("d", size="1Gi"),
        volume("half", "local", size="10Gi", affinity=within(HOST, "n1")),
        volume("full", "local", size="5Gi", affinity=within(HOST, "n2")),
        volume("more", size="3Gi", affinity=within(HOST, "n1")),
    ]
    asked_for = case(pod("c", "d"), TWO, objects)
    # n1: the mean of 50 (5 of 10) and 67 (1 of 3); n2: 5 of 5, and d is provisioned, not counted.
    assert scores(asked_for) == [59, 0]
    assert scores(asked_for, "0:0 100:10") == [42, 100]


def test_storage_to_be_provisioned_counts_only_where_nothing_is_bound() -> None:
    objects = [
        WAIT,
        claim("c", size="5Gi"),
        claim("d", size="2Gi"),
        csi_driver(storageCapacity=True),
        capacity("k1", "wait", "a", capacity="10Gi"),
        capacity("k2", "wait", "b", maximumVolumeSize="9Gi"),
    ]
    # The capacity counts once for both claims; one without a size counts as none.
    assert scores(case(pod("c", "d"), TWO, objects)) == [30, 0]
    assert scores(case(pod(), TWO)) == [0, 0]


def test_without_the_gate_nothing_is_scored() -> None:
    framework, state = framework_of(VolumeBinding), CycleState()
    asked_for = case(pod(), TWO)
    framework.run_pre_score(asked_for.pod, asked_for.snapshot, np.arange(2), state)
    assert state.skip_score == {"VolumeBinding"}


def test_args() -> None:
    wrong = VolumeBindingArgs(-1, (UtilizationShapePoint(50, 11), UtilizationShapePoint(50, 0)))
    assert [str(p) for p in wrong.problems("args")] == [
        "args.bindTimeoutSeconds: Invalid value: -1: expected 0 or more",
        "args.shape[1].utilization: Invalid value: 50: expected more than 50",
        "args.shape[0].score: Invalid value: 11: expected 0 to 10",
    ]
    assert not list(VolumeBindingArgs().problems("args"))
    with pytest.raises(ConfigError, match="StorageCapacityScoring"):
        framework_of(VolumeBinding, args=VolumeBindingArgs(shape=()))


def test_signature_is_the_claims() -> None:
    rule: VolumeBinding = framework_of(VolumeBinding).members["VolumeBinding"].plugin
    assert rule.signature(pod("c", name="a")) == rule.signature(pod("c", name="b"))
    assert rule.signature(pod("c")) != rule.signature(pod("d"))
    assert rule.signature(pod("c")) != rule.signature(pod("c", namespace="prod"))
    made = {"ephemeral": {"volumeClaimTemplate": {}}}
    assert rule.signature(pod(made, name="a")) != rule.signature(pod(made, name="b"))
    assert rule.signature(pod()) == rule.signature(pod({"emptyDir": {}}))
