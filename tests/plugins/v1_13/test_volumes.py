"""The predicates of 1.13 on volumes: how many, of which zone, within reach or to be made."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.framework import CycleState
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.plugins.v1_13.predicates.check_volume_binding import CheckVolumeBinding
from stowplan.plugins.v1_13.predicates.max_csi_volume_count import MaxCSIVolumeCountPred, limit_key
from stowplan.plugins.v1_13.predicates.max_pd_volume_count import (
    ATTACHED_VOLUMES_STATE,
    MaxEBSVolumeCount,
    MaxGCEPDVolumeCount,
)
from stowplan.plugins.v1_13.predicates.no_volume_zone_conflict import NoVolumeZoneConflict
from stowplan.plugins.v1_13.priorities.balanced_resource_allocation import (
    BalancedResourceAllocation,
)
from stowplan.testing import node
from tests.plugins.v1_13.ask import Rule

EXCEEDED = ["node(s) exceed max volume count"]
ZONE = "failure-domain.beta.kubernetes.io/zone"
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
WAITS = "WaitForFirstConsumer"


def pod(name: str, on: str = "", *volumes: dict[str, Any]) -> Pod:
    named = [{"name": f"v{i}", **volume} for i, volume in enumerate(volumes)]
    spec = {"nodeName": on, "containers": [{}], "volumes": named}
    return convert({"metadata": {"name": name, "namespace": "n"}, "spec": spec}, Pod)


def ebs(name: str) -> dict[str, Any]:
    return {"awsElasticBlockStore": {"volumeID": name}}


def use(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def claim(name: str, volume: str = "", *, bound: bool = True, **spec: Any) -> PersistentVolumeClaim:
    meta = {"name": name, "namespace": "n", "annotations": BOUND if bound and volume else {}}
    return convert(
        {"metadata": meta, "spec": {"volumeName": volume, **spec}}, PersistentVolumeClaim
    )


def volume(name: str, labels: dict[str, str] | None = None, **spec: Any) -> PersistentVolume:
    tree = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
    return convert({**tree, "status": {"phase": "Available"}}, PersistentVolume)


def storage_class(name: str, mode: str | None, provisioner: str = "x", **more: Any) -> StorageClass:
    tree = {"metadata": {"name": name}, "provisioner": provisioner, **more}
    return convert({**tree, "volumeBindingMode": mode} if mode else tree, StorageClass)


# How many.


def test_the_limit_is_of_the_node_or_of_its_machine_type() -> None:
    full = [
        pod(f"{name}{i}", name, ebs(f"{name}-{i}")) for name in ("old", "new") for i in range(25)
    ]
    nodes = [
        node("old"),
        node("new", labels={"beta.kubernetes.io/instance-type": "m5.large"}),
        node("none", resources={"attachable-volumes-aws-ebs": "0"}),
    ]
    rule = Rule(MaxEBSVolumeCount, nodes, full)
    assert rule.refusals(pod("p", "", ebs("more"))) == {"new": EXCEEDED, "none": EXCEEDED}
    # What is attached already is not attached again.
    assert rule.refusals(pod("p", "", ebs("new-3"))) == {"none": EXCEEDED}
    assert rule.refusals(pod("p", "", {"gcePersistentDisk": {"pdName": "d"}})) == {}
    regardless = Rule(MaxEBSVolumeCount, nodes, full, attachVolumeLimit=False)
    assert regardless.refusals(pod("p", "", ebs("more"))).keys() == {"new"}


def test_a_claim_that_leads_nowhere_counts_once_and_one_without_name_is_an_error() -> None:
    nodes = [node("n", resources={"attachable-volumes-gce-pd": "2"})]
    objects = [claim("unbound"), claim("lost", "gone"), claim("other", "v"), volume("v")]
    rule = Rule(MaxGCEPDVolumeCount, nodes, [pod("q", "n", use("missing"))], objects)
    assert rule.refusals(pod("p", "", use("unbound"), use("other"), use("missing"))) == {}
    assert rule.refusals(pod("p", "", use("unbound"), use("lost"))) == {"n": EXCEEDED}
    text = "PersistentVolumeClaim had no name"
    assert rule.refusals(pod("p", "", use(""))) == {"n": ["error", text]}
    crooked = Rule(MaxGCEPDVolumeCount, nodes, [pod("q", "n", use(""))])
    assert crooked.refusals(pod("p", "", use("a"))) == {"n": ["error", text]}


def csi(name: str, driver: str) -> PersistentVolume:
    return volume(name, csi={"driver": driver, "volumeHandle": name})


def test_csi_volumes_count_against_what_nodes_offer_for_their_driver() -> None:
    objects = [csi("a", "d"), csi("b", "d"), csi("c", "other")]
    objects += [claim(one, one) for one in ("a", "b", "c")]
    nodes = [node("n", resources={"attachable-volumes-csi-d": "1"}), node("m")]
    rule = Rule(MaxCSIVolumeCountPred, nodes, [pod("q", "n", use("a"))], objects)
    assert rule.refusals(pod("p", "", use("b"))) == {"n": EXCEEDED}
    assert rule.refusals(pod("p", "", use("a"), use("c"), use("missing"))) == {}
    assert rule.refusals(pod("p", "", use(""))).keys() == {"n"}


@pytest.mark.parametrize(
    ("driver", "key"),
    [
        ("x" * 39, "attachable-volumes-csi-" + "x" * 39),
        ("x" * 40, "attachable-volumes-csi-" + "x" * 23 + "47372a7b27569d25"),
    ],
)
def test_long_names_of_drivers_are_shortened(driver: str, key: str) -> None:
    assert limit_key(driver) == key


def test_the_last_kind_that_a_pod_has_is_what_balance_looks_at() -> None:
    nodes = [node("n", cpu="4", memory="4Gi", resources={"attachable-volumes-gce-pd": "2"})]
    rule = Rule(BalancedResourceAllocation, nodes, balanceAttachedVolumes=True)
    counted = Rule(MaxGCEPDVolumeCount, nodes)
    asks = pod("p", "", {"gcePersistentDisk": {"pdName": "d"}})
    state = CycleState()
    counted.walks[0].run_pre_filter(asks, counted.snapshot, state)
    assert state.find(ATTACHED_VOLUMES_STATE) is not None
    row = rule.snapshot.nodes.info(0)
    by_rows, by_node = (walk.members[rule.name] for walk in rule.walks)
    with_volumes = by_node.call("score", asks, row, state, rule.snapshot.nodes)
    column = by_rows.scores(asks, rule.snapshot.nodes, rule.snapshot.nodes.all_rows, state)
    # cpu 100m of 4, memory 200Mi of 4Gi, one volume of two: the variance of the three.
    assert with_volumes == column.tolist()[0] == 9
    assert rule.scores(asks) == {"n": 9}


# Of which zone.


def test_zones() -> None:
    objects = [
        claim("here", "a"),
        volume("a", {ZONE: "z1__z2"}),
        claim("odd", "b"),
        volume("b", {ZONE: "z1__"}),
        claim("waits", storageClassName="late"),
        storage_class("late", WAITS),
        storage_class("mute", None),
        claim("mute", storageClassName="mute"),
    ]
    nodes = [
        node("in", labels={ZONE: "z2"}),
        node("out", labels={ZONE: "z3"}),
        node("region", labels={"failure-domain.beta.kubernetes.io/region": "r"}),
        node("bare", zone="z3"),
    ]
    rule = Rule(NoVolumeZoneConflict, nodes, [], objects)
    refused = ["node(s) had no available volume zone"]
    zoned = {"out": refused, "region": refused}
    assert rule.refusals(pod("p", "", use("here"))) == zoned
    assert rule.refusals(pod("p", "", use("odd"), use("waits"))) == {}
    # What comes after a claim that is amiss does not count, what comes before it does.
    mute = ["error", 'VolumeBindingMode not set for StorageClass "mute"']
    after = rule.refusals(pod("p", "", use("here"), use("mute"), use("gone")))
    assert after == {**zoned, "in": mute}
    gone = ["error", 'persistentvolumeclaim "gone" not found']
    found = rule.refusals(pod("p", "", use("gone"), use("here")))
    assert found == dict.fromkeys(("in", "out", "region"), gone)


# Within reach, or to be made.


def on_label(value: str) -> dict[str, Any]:
    expressions = [{"key": "disk", "operator": "In", "values": [value]}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def sized(name: str, size: str, **more: Any) -> PersistentVolume:
    return volume(name, capacity={"storage": size}, storageClassName="local", **more)


def wants(name: str, size: str, **more: Any) -> PersistentVolumeClaim:
    spec = {"resources": {"requests": {"storage": size}}, "storageClassName": "local", **more}
    return claim(name, **spec)


LOCAL = storage_class("local", WAITS, "kubernetes.io/no-provisioner")
DISKS = [node("n", labels={"disk": "ssd"}), node("m")]
NO_VOLUME = ["node(s) didn't find available persistent volumes to bind"]


def test_bound_claims_need_their_volume_within_reach() -> None:
    objects = [claim("c", "v"), volume("v", nodeAffinity=on_label("ssd")), claim("l", "lost")]
    rule = Rule(CheckVolumeBinding, DISKS, [], objects)
    conflict = ["node(s) had volume node affinity conflict"]
    assert rule.refusals(pod("p", "", use("c"))) == {"m": conflict}
    missing = ["error", 'could not find v1.PersistentVolume "lost"']
    assert rule.refusals(pod("p", "", use("c"), use("l"))) == {"n": missing, "m": conflict}


def test_claims_that_wait_take_the_smallest_volumes_that_fit_smallest_claim_first() -> None:
    objects = [LOCAL, sized("big", "9Gi"), sized("small", "2Gi"), wants("a", "1Gi")]
    objects += [wants("b", "3Gi"), wants("c", "1Gi")]
    rule = Rule(CheckVolumeBinding, DISKS, [], objects)
    assert rule.refusals(pod("p", "", use("b"), use("a"))) == {}
    assert rule.refusals(pod("p", "", use("b"), use("a"), use("c"))) == {
        "n": NO_VOLUME,
        "m": NO_VOLUME,
    }


def test_a_volume_that_names_the_claim_is_taken_or_ends_the_search() -> None:
    ref = {"namespace": "n", "name": "c"}
    named = sized("v", "5Gi", claimRef=ref, nodeAffinity=on_label("ssd"))
    rule = Rule(CheckVolumeBinding, DISKS, [], [LOCAL, named, sized("w", "5Gi"), wants("c", "1Gi")])
    assert rule.refusals(pod("p", "", use("c"))) == {"m": NO_VOLUME}


def test_what_finds_no_volume_has_to_be_made() -> None:
    allowed = [{"matchLabelExpressions": [{"key": "disk", "values": ["ssd"]}]}]
    objects = [storage_class("made", WAITS, allowedTopologies=allowed)]
    objects += [wants("c", "1Gi", storageClassName="made"), claim("now")]
    rule = Rule(CheckVolumeBinding, DISKS, [], objects)
    assert rule.refusals(pod("p", "", use("c"))) == {"m": NO_VOLUME}
    immediate = ["error", "pod has unbound immediate PersistentVolumeClaims"]
    assert rule.refusals(pod("p", "", use("now"))) == {"n": immediate, "m": immediate}
    text = 'error getting PVC "n/gone": could not find v1.PersistentVolumeClaim "n/gone"'
    assert rule.refusals(pod("p", "", use("gone")))["n"] == ["error", text]
    assert rule.refusals(pod("p")) == {}


def test_reserve_settles_what_was_found() -> None:
    objects = [LOCAL, sized("v", "5Gi"), wants("c", "1Gi")]
    rule = Rule(CheckVolumeBinding, DISKS, [], objects)
    asks, state = pod("p", "", use("c")), CycleState()
    walk = rule.walks[0]
    walk.shared.object_store = rule.snapshot.object_store
    walk.run_pre_filter(asks, rule.snapshot, state)
    assert walk.run_reserve(asks, "n", state).is_success
    seen = rule.snapshot.object_store.find(PersistentVolume, "v")
    assert seen is not None
    assert seen.spec.claim_ref is not None
    walk.run_unreserve(asks, "n", state)
    seen = rule.snapshot.object_store.find(PersistentVolume, "v")
    assert seen is not None
    assert seen.spec.claim_ref is None
