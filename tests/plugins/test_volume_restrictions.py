"""VolumeRestrictions: disks that only one pod may mount, and claims of one pod only."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, PodInfo, Rows
from stowplan.framework import CycleState
from stowplan.objects.pod import Pod
from stowplan.plugins.volumes import volume_restrictions
from stowplan.plugins.volumes.volume_restrictions import ClaimConflicts, VolumeRestrictions
from tests.plugins.volume_cases import (
    Case,
    agree,
    case,
    cases,
    claim,
    framework_of,
    is_caught,
    node,
    pod,
    refusals,
)

DISK = f"Unschedulable: {VolumeRestrictions.DISK_CONFLICT.message}"
IN_USE = f"Unschedulable: {VolumeRestrictions.CLAIM_CONFLICT.message}"
NODES = (node("n1"), node("n2"))
Tree = dict[str, Any]


def gce(name: str, *, ro: bool = False) -> Tree:
    return {"gcePersistentDisk": {"pdName": name, "readOnly": ro}}


def aws(name: str, *, ro: bool = False) -> Tree:
    return {"awsElasticBlockStore": {"volumeID": name, "readOnly": ro}}


def iscsi(iqn: str, *, ro: bool = False, lun: int = 0) -> Tree:
    return {"iscsi": {"iqn": iqn, "readOnly": ro, "lun": lun}}


def rbd(monitors: str, image: str = "i", *, ro: bool = False) -> Tree:
    return {"rbd": {"monitors": monitors.split(), "pool": "p", "image": image, "readOnly": ro}}


@pytest.mark.parametrize(
    ("wanted", "there", "conflict"),
    [
        (gce("d"), gce("d"), True),
        (gce("d"), gce("e"), False),
        (gce("d", ro=True), gce("d"), True),
        (gce("d", ro=True), gce("d", ro=True), False),
        (aws("d", ro=True), aws("d", ro=True), True),
        (aws("d"), aws("e"), False),
        (aws("d"), gce("d"), False),
        (iscsi("q"), iscsi("q", lun=1), True),
        (iscsi("q", ro=True), iscsi("q", ro=True), False),
        (iscsi("q"), iscsi("r"), False),
        (rbd("m1 m2"), rbd("m2 m3"), True),
        (rbd("m1"), rbd("m2"), False),
        (rbd("m1"), rbd("m1", "j"), False),
        (rbd("m1", ro=True), rbd("m1", ro=True), False),
        (rbd("m1", ro=True), rbd("m1"), True),
        ({"cinder": {"volumeID": "d"}}, {"cinder": {"volumeID": "d"}}, False),
    ],
)
def test_disks(wanted: Tree, there: Tree, conflict: bool) -> None:
    asked_for = case(pod(wanted), NODES, pods=[pod("x", there, name="p", on="n2")])
    assert refusals(VolumeRestrictions, asked_for) == ({"n2": DISK} if conflict else {})


def once(name: str) -> Any:
    return claim(name, modes=["ReadWriteOncePod"])


def test_a_claim_of_one_pod_that_is_in_use_refuses_every_node() -> None:
    user = pod("c", name="p", on="n2")
    asked_for = case(pod("c"), NODES, [once("c")], [user])
    assert refusals(VolumeRestrictions, asked_for) == {"n1": IN_USE, "n2": IN_USE}
    shared = case(pod("c"), NODES, [claim("c")], [user])
    assert refusals(VolumeRestrictions, shared) == {}
    elsewhere = pod("c", name="p", on="n2", namespace="prod")
    assert refusals(VolumeRestrictions, case(pod("c"), NODES, [once("c")], [elsewhere])) == {}


def test_a_disk_in_use_is_named_before_a_claim_in_use() -> None:
    user = pod("c", gce("d"), name="p", on="n2")
    asked_for = case(pod("c", gce("d")), NODES, [once("c")], [user])
    assert refusals(VolumeRestrictions, asked_for) == {"n1": IN_USE, "n2": DISK}


def test_a_missing_claim() -> None:
    asked_for = case(pod("c"), NODES[:1])
    assert refusals(VolumeRestrictions, asked_for) == {
        "n1": 'UnschedulableAndUnresolvable: persistentvolumeclaim "c" not found'
    }


def test_nothing_to_check_is_skipped() -> None:
    asked_for = case(pod("c", {"emptyDir": {}}), NODES, [once("c")])
    state = CycleState()
    framework_of(VolumeRestrictions).run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert state.skip_filter == {"VolumeRestrictions"}


def test_what_if_the_user_of_the_claim_were_gone() -> None:
    users = [pod("c", name="p", on="n2")]
    asked_for = case(pod("c"), NODES, [once("c")], users)
    framework, state = framework_of(VolumeRestrictions), CycleState()
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    what_if, info = state.clone(), asked_for.nodes.info(1).copy()
    gone = info.remove_pod(users[0].uid)
    assert framework.run_remove_pod(asked_for.pod, gone, info, what_if).is_success
    assert framework.filter_node(asked_for.pod, info, what_if).is_success
    # The question has changed nothing.
    assert not framework.filter_node(asked_for.pod, asked_for.nodes.info(1), state).is_success
    assert framework.run_add_pod(asked_for.pod, gone, info, what_if).is_success
    assert not framework.filter_node(asked_for.pod, info, what_if).is_success


def test_what_if_does_not_look_at_the_namespace() -> None:
    conflicts = ClaimConflicts(frozenset({"c"}), 1)
    assert conflicts.uses_by(pod("c", "d", "c", namespace="prod")) == 2


def test_without_pre_filter_only_disks_are_known() -> None:
    framework = framework_of(VolumeRestrictions)
    asked_for = case(pod("c"), NODES)
    info = PodInfo.of(pod("c", name="p"))
    status = framework.run_add_pod(asked_for.pod, info, asked_for.nodes.info(0), CycleState())
    assert status.message.endswith('cannot read "PreFilterVolumeRestrictions" from cycleState')


@given(cases("disks"))
def test_walks_agree(volume_case: Case) -> None:
    assert agree(VolumeRestrictions, volume_case)


class NamesTheClaimFirst(VolumeRestrictions):
    """Wrong: where both rules refuse, the column walk names the claim."""

    def filter_column(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[np.int64]:
        codes = super().filter_column(pod, nodes, rows, state)
        return np.full_like(codes, 2) if state.find(self.name).uses > 0 else codes


def test_a_wrong_order_of_reasons_is_caught() -> None:
    assert is_caught(NamesTheClaimFirst, "disks")


def test_a_disk_that_is_not_looked_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: of several sources only the first kind is looked up."""
    keys = volume_restrictions.disk_keys
    monkeypatch.setattr(
        volume_restrictions, "disk_keys", lambda v: (k for k in keys(v) if k[0] != "rbd")
    )
    assert is_caught(VolumeRestrictions, "disks")


def test_signature_is_claims_and_disks() -> None:
    rule = VolumeRestrictions()
    assert rule.signature(pod("c", gce("d"))) == rule.signature(pod("c", gce("d"), name="b"))
    assert rule.signature(pod("c")) != rule.signature(pod("c", gce("d")))
    assert rule.signature(pod(gce("d"))) != rule.signature(pod(gce("d", ro=True)))
    assert hash(rule.signature(pod("c", rbd("m1"))))
