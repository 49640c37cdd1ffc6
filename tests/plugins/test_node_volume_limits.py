"""NodeVolumeLimits: how many CSI volumes a node attaches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.columns import NodeTable
from stowplan.framework import CycleState, ObjectStore
from stowplan.objects.meta import Object
from stowplan.objects.storage import CSINode, VolumeAttachment
from stowplan.plugins.volumes import node_volume_limits
from stowplan.plugins.volumes.attached_volumes import AttachmentColumns, Ints, VolumeDrivers
from stowplan.plugins.volumes.node_volume_limits import NodeVolumeLimits
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_usage import VolumeUsage
from tests.plugins.volume_cases import (
    AWS,
    CLAIMS,
    DRIVER,
    NODES,
    VOLUMES,
    Case,
    agree,
    attachment,
    case,
    cases,
    claim,
    csi_driver,
    csi_node,
    fails,
    framework_of,
    is_caught,
    node,
    pod,
    refusals,
    storage_class,
    volume,
)
from tests.soak import examples

FULL = f"Unschedulable: {NodeVolumeLimits.EXCEEDED.message}"
N1 = node("n1")


def bound(*names: str) -> list[Object]:
    """Claims `cX` bound to volumes `pX`."""
    found: list[Object] = []
    for name in names:
        found += [claim(f"c{name}", volume=f"p{name}"), volume(f"p{name}", of=f"c{name}")]
    return found


def limit(count: int | None, name: str = "n1", migrated: str = "") -> CSINode:
    return csi_node(name, migrated, csi_example_com=count)


@pytest.mark.parametrize(
    ("count", "wanted", "there", "is_full"),
    [
        (0, "c1", "", True),
        (1, "c1", "", False),
        (1, "c1", "c2", True),
        (2, "c1", "c2", False),
        (2, "c1 c3", "c2", True),
        # A volume that is attached already does not count again.
        (1, "c1", "c1", False),
        (1, "c1", "c1 c2", False),
        (1, "c1 c1", "", False),
        (None, "c1", "c2", False),
    ],
)
def test_volumes_count_once(count: int | None, wanted: str, there: str, is_full: bool) -> None:
    users = [pod(name, name=f"on-{name}", on="n1") for name in there.split()]
    asked_for = case(pod(*wanted.split()), [N1], [limit(count), *bound("1", "2", "3")], users)
    assert refusals(NodeVolumeLimits, asked_for) == ({"n1": FULL} if is_full else {})


def test_a_node_without_csi_node_has_no_limit() -> None:
    asked_for = case(pod("c1"), [N1, node("n2")], [limit(0, "n2"), *bound("1")])
    assert refusals(NodeVolumeLimits, asked_for) == {"n2": FULL}


def test_drivers_are_counted_apart() -> None:
    other = {"csi": {"driver": "other", "volumeHandle": "h"}}
    objects = [
        csi_node("n1", csi_example_com=1, other=1),
        *bound("1"),
        claim("c2", volume="p2"),
        volume("p2", source=other),
    ]
    there = [pod("c2", name="p", on="n1")]
    assert refusals(NodeVolumeLimits, case(pod("c1"), [N1], objects, there)) == {}


def test_a_claim_without_volume_counts_for_the_driver_of_its_class() -> None:
    objects = [limit(1), storage_class("wait"), claim("c1"), claim("c2"), claim("c3", "gone")]
    there = [pod("c2", name="p", on="n1")]
    assert refusals(NodeVolumeLimits, case(pod("c1"), [N1], objects, there)) == {"n1": FULL}
    assert refusals(NodeVolumeLimits, case(pod("c2"), [N1], objects, there)) == {}
    assert refusals(NodeVolumeLimits, case(pod("c3"), [N1], objects, there)) == {}


@pytest.mark.parametrize(
    ("objects", "is_full"),
    [
        ([attachment("a", "n1", "p2")], True),
        ([attachment("a", "n2", "p2")], False),
        ([attachment("a", "n1", "gone")], False),
        ([attachment("a", "n1", None)], False),
        # The one that the pod brings counts twice, as in the original.
        ([attachment("a", "n1", "p1")], True),
    ],
)
def test_attachments_count_beside_what_pods_use(objects: list[Object], is_full: bool) -> None:
    asked_for = case(pod("c1"), [N1], [limit(1), *bound("1", "2"), *objects])
    assert refusals(NodeVolumeLimits, asked_for) == ({"n1": FULL} if is_full else {})


def test_an_attachment_of_a_volume_in_use_counts_once() -> None:
    there = [pod("c2", name="p", on="n1")]
    objects = [limit(2), *bound("1", "2"), attachment("a", "n1", "p2")]
    assert refusals(NodeVolumeLimits, case(pod("c1"), [N1], objects, there)) == {}


def test_in_tree_volumes_count_for_the_driver_that_took_them_over() -> None:
    disk = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    ebs = csi_node("n1", ebs_csi_aws_com=0)
    assert refusals(NodeVolumeLimits, case(pod(disk), [N1, node("n2")], [ebs])) == {"n1": FULL}
    through_claim = [ebs, claim("c", volume="p"), volume("p", source=disk)]
    assert refusals(NodeVolumeLimits, case(pod("c"), [N1], through_claim)) == {"n1": FULL}
    to_be_made = [ebs, claim("c", "old"), storage_class("old", AWS)]
    assert refusals(NodeVolumeLimits, case(pod("c"), [N1], to_be_made)) == {"n1": FULL}
    vsphere = {"vsphereVolume": {"volumePath": "x"}}
    assert refusals(NodeVolumeLimits, case(pod(vsphere), [N1], [ebs])) == {}


def test_claims_amiss() -> None:
    nodes = [N1, node("n2")]
    missing = (
        "UnschedulableAndUnresolvable: looking up PVC default/c: "
        'persistentvolumeclaim "c" not found'
    )
    assert refusals(NodeVolumeLimits, case(pod("c"), nodes)) == {"n1": missing, "n2": missing}
    unnamed = "Error: PersistentVolumeClaim had no name"
    assert refusals(NodeVolumeLimits, case(pod(""), nodes)) == {"n1": unnamed, "n2": unnamed}
    bad = {"awsElasticBlockStore": {"volumeID": "aws://a/x"}}
    assert refusals(NodeVolumeLimits, case(pod(bad), nodes, [csi_node("n2")])) == {
        "n2": "Error: converting volume(v0) from inline to csi: failed to translate Kubernetes ID "
        "to EBS Volume ID Invalid format for AWS volume (aws://a/x)"
    }


def test_a_pod_on_the_node_whose_claim_is_not_its_own_is_an_error() -> None:
    made = pod({"name": "d", "ephemeral": {}}, name="p", on="n1")
    objects = [limit(9), *bound("1"), claim("p-d")]
    assert refusals(NodeVolumeLimits, case(pod("c1"), [N1], objects, [made])) == {
        "n1": "Error: PVC default/p-d was not created for pod default/p (pod is not owner)"
    }
    # Where there is no limit nobody looks.
    assert refusals(NodeVolumeLimits, case(pod("c1"), [N1], objects[1:], [made])) == {}


def test_a_missing_driver_refuses_behind_its_gate() -> None:
    missing = f"Unschedulable: {DRIVER} CSI driver is not installed on the node"
    needed = csi_driver(preventPodSchedulingIfMissing=True)
    nodes = [N1, node("n2"), node("n3")]
    objects = [needed, limit(None), csi_node("n2", other=1), *bound("1")]
    asked_for = case(pod("c1"), nodes, objects)
    assert refusals(NodeVolumeLimits, asked_for) == {}
    gated = refusals(NodeVolumeLimits, asked_for, volume_limit_scaling=True)
    assert gated == {"n2": missing, "n3": missing}
    optional = case(pod("c1"), nodes, [csi_driver(), *objects[1:]])
    assert refusals(NodeVolumeLimits, optional, volume_limit_scaling=True) == {}


@pytest.mark.parametrize(
    ("volumes", "is_skipped"),
    [
        ([], True),
        ([{"configMap": {"name": "x"}}], True),
        ([{"iscsi": {"iqn": "q"}}], True),
        (["c"], False),
        ([{"ephemeral": {}}], False),
        ([{"azureFile": {"secretName": "s"}}], False),
    ],
)
def test_pods_without_attachable_volumes_are_skipped(volumes: list[Any], is_skipped: bool) -> None:
    asked_for = case(pod(*volumes), [N1])
    state = CycleState()
    framework_of(NodeVolumeLimits).run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert state.skip_filter == ({"NodeVolumeLimits"} if is_skipped else set())


def test_explanation_has_need_and_have() -> None:
    there = [pod("c2", name="p", on="n1")]
    asked_for = case(pod("c1", "c3"), [N1], [limit(2), *bound("1", "2", "3")], there)
    framework, state = framework_of(NodeVolumeLimits), CycleState()
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    rule: NodeVolumeLimits = framework.members["NodeVolumeLimits"].plugin
    needs = f"{DRIVER}: needs 2 more, 1 of 2 attached"
    assert rule.explain(asked_for.nodes.info(0), state) == [needs]


# Both walks.


@pytest.mark.parametrize("gated", [False, True])
@given(volume_case=cases())
def test_walks_agree(gated: bool, volume_case: Case) -> None:
    assert agree(NodeVolumeLimits, volume_case, volume_limit_scaling=gated)


class TrustsClaims(AttachmentColumns):
    """Wrong: rows are passed over though their pods may have volumes that cannot be counted."""

    def rows_to_count(self, new: VolumeDrivers, nodes: NodeTable) -> Ints:
        delicate = list(VolumeUsage.of(nodes).delicate)
        return np.setdiff1d(super().rows_to_count(new, nodes), delicate)


class ForgetsAttachments(AttachmentColumns):
    """Wrong: the bound leaves out what VolumeAttachments list."""

    def _write(self, row: int, name: str, index: VolumeIndex) -> None:
        super()._write(row, name, index)
        self.listed[row] = 0


@pytest.mark.parametrize("wrong", [TrustsClaims, ForgetsAttachments])
def test_wrong_columns_are_caught(
    wrong: type[AttachmentColumns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_volume_limits, "AttachmentColumns", wrong)
    assert is_caught(NodeVolumeLimits)


# What is kept from one pod to the next.


def pod_comes_or_goes(data: st.DataObject, nodes: NodeTable, object_store: ObjectStore) -> None:
    name = data.draw(st.sampled_from(("p0", "p1", "p2")))
    if nodes.pod(f"default/{name}") is not None:
        nodes.remove_pod(f"default/{name}")
    else:
        used = data.draw(st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=2))
        nodes.add_pod(pod(*used, name=name, on=data.draw(st.sampled_from(NODES[:3]))))


def node_comes_or_goes(data: st.DataObject, nodes: NodeTable, object_store: ObjectStore) -> None:
    name = data.draw(st.sampled_from(NODES[:3]))
    if nodes.row(name) >= 0:
        nodes.remove_node(name)
    else:
        nodes.add_node(node(name))


def limit_changes(data: st.DataObject, nodes: NodeTable, object_store: ObjectStore) -> None:
    name = data.draw(st.sampled_from(NODES[:3]))
    if object_store.find(CSINode, name) is not None and data.draw(st.booleans()):
        object_store.drop(CSINode, name)
    else:
        object_store.put(limit(data.draw(st.integers(0, 2)), name))


def storage_changes(data: st.DataObject, nodes: NodeTable, object_store: ObjectStore) -> None:
    kind = data.draw(st.sampled_from(("claim", "claim", "volume", "attachment")))
    of = data.draw(st.sampled_from(VOLUMES))
    if kind == "claim":
        object_store.put(claim(data.draw(st.sampled_from(CLAIMS)), volume=of))
    elif kind == "volume":
        driver = data.draw(st.sampled_from((DRIVER, "other")))
        object_store.put(volume(of, source={"csi": {"driver": driver, "volumeHandle": of}}))
    elif object_store.find(VolumeAttachment, "a") is not None:
        object_store.drop(VolumeAttachment, "a")
    else:
        object_store.put(attachment("a", data.draw(st.sampled_from(NODES[:3])), of))


EVENTS: tuple[Callable[[st.DataObject, NodeTable, ObjectStore], None], ...] = (
    pod_comes_or_goes,
    pod_comes_or_goes,
    node_comes_or_goes,
    limit_changes,
    storage_changes,
    storage_changes,
)


def follow(data: st.DataObject) -> None:
    """Let events happen; after each the kept columns answer as the node by node walk does."""
    limits = [limit(1, name) for name in NODES[:3]]
    asked_for = case(pod("c0"), [node(name) for name in NODES[:2]], [*limits, *bound(*"0123")])
    for _ in range(12):
        event = data.draw(st.sampled_from(EVENTS))
        event(data, asked_for.nodes, asked_for.object_store)
        assert agree(NodeVolumeLimits, asked_for)


@settings(max_examples=examples(40))
@given(st.data())
def test_kept_columns_follow_every_event(data: st.DataObject) -> None:
    follow(data)


class KeepsCounts(AttachmentColumns):
    """Wrong: what was counted on a row stays though the world has changed."""

    def refresh(self, nodes: NodeTable, object_store: ObjectStore) -> None:
        self._version = object_store.version
        super().refresh(nodes, object_store)


class KeepsLimits(AttachmentColumns):
    """Wrong: the limits of a row are read once."""

    def _write(self, row: int, name: str, index: VolumeIndex) -> None:
        if row >= self.is_limited.shape[0] or not self.is_limited[row]:
            super()._write(row, name, index)


@pytest.mark.parametrize("wrong", [KeepsCounts, KeepsLimits])
def test_stale_columns_are_caught(
    wrong: type[AttachmentColumns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_volume_limits, "AttachmentColumns", wrong)
    assert fails(follow)


def test_signature_is_claims_and_in_tree_volumes() -> None:
    rule: NodeVolumeLimits = framework_of(NodeVolumeLimits).members["NodeVolumeLimits"].plugin
    disk = {"cinder": {"volumeID": "x"}}
    assert rule.signature(pod("c")) == rule.signature(pod("c", name="b"))
    assert rule.signature(pod("c")) != rule.signature(pod("c", disk))
    assert rule.signature(pod()) == rule.signature(pod({"iscsi": {"iqn": "q"}}))
