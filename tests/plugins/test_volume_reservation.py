"""Reserve, Unreserve and what has to be done before a pod is bound, as values."""

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework import OK, CycleState, Framework, ObjectStore, PreBindWait
from stowplan.framework.status import Code, Status
from stowplan.objects.storage import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from stowplan.plugins.volumes.volume_binding import VolumeBinding
from stowplan.plugins.volumes.volume_claims import BOUND_BY_CONTROLLER_ANNOTATION
from stowplan.plugins.volumes.volume_matching import volume_bound_to_claim
from stowplan.plugins.volumes.volume_reservation import AssumedPodVolumes, check_bindings
from tests.plugins.volume_cases import (
    AWS,
    BOUND,
    HOST,
    SELECTED,
    ZONE,
    Case,
    case,
    claim,
    csi_node,
    framework_of,
    node,
    pod,
    storage_class,
    volume,
    within,
)

NODE = node("n1", "a")
CLASSES = (storage_class("local", "kubernetes.io/no-provisioner"), storage_class("wait"))


def two_claims() -> Case:
    """A pod with a claim to be bound to a volume and one to be provisioned."""
    local = volume("p", "local", affinity=within(HOST, "n1"))
    return case(pod("c", "d"), [NODE], [*CLASSES, claim("c", "local"), claim("d"), local])


def reserve(asked_for: Case) -> tuple[Framework, CycleState, AssumedPodVolumes]:
    framework, state = framework_of(VolumeBinding), CycleState()
    framework.shared.object_store = asked_for.object_store
    outcome = framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert outcome.status.is_success or "VolumeBinding" in state.skip_filter
    assert framework.run_reserve(asked_for.pod, "n1", state).is_success
    rule: VolumeBinding = framework.members["VolumeBinding"].plugin
    reserved = rule.reserved(state)
    assert reserved is not None
    return framework, state, reserved


def pre_bind(framework: Framework, asked_for: Case, node_name: str, state: CycleState) -> Any:
    """What the plugin's PreBind answers."""
    member = framework.members["VolumeBinding"]
    return framework.run_pre_bind_of(member, asked_for.pod, node_name, state)


def test_reserve_settles_what_is_to_be_written() -> None:
    _, _, reserved = reserve(two_claims())
    (update,) = reserved.volumes
    assert update.after.spec.claim_ref == ObjectReference(
        "v1", "PersistentVolumeClaim", "default", "c", "uid-c"
    )
    assert update.after.metadata.annotations == {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}
    assert update.before.spec.claim_ref is None
    (to_make,) = reserved.claims
    assert to_make.after.metadata.annotations == {SELECTED: "n1"}


def test_nothing_is_to_be_done_where_all_is_bound() -> None:
    bound = case(pod("c"), [NODE], [claim("c", volume="p"), volume("p")])
    framework, state, reserved = reserve(bound)
    assert reserved.is_empty
    assert pre_bind(framework, bound, "n1", state) == OK


def test_a_pod_without_volumes_reserves_nothing() -> None:
    bare = case(pod(), [NODE])
    framework, state = framework_of(VolumeBinding), CycleState()
    framework.run_pre_filter(bare.pod, bare.snapshot, state)
    assert framework.run_reserve(bare.pod, "n1", state).is_success
    assert pre_bind(framework, bare, "n1", state) == OK


def test_pre_bind_has_the_changes_written_volumes_first() -> None:
    asked_for = two_claims()
    framework, state, reserved = reserve(asked_for)
    assert framework.run_pre_bind_pre_flight(asked_for.pod, "n1", state).is_success
    answer = pre_bind(framework, asked_for, "n1", state)
    assert isinstance(answer, PreBindWait)
    assert answer.timeout_s == 600
    assert [change.value for change in answer.changes] == [
        reserved.volumes[0].after,
        reserved.claims[0].after,
    ]
    to_claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "c",
        "uid": "uid-c",
    }
    assert [change.patch for change in answer.changes] == [
        {
            "spec": {"claimRef": to_claim},
            "metadata": {"annotations": {BOUND_BY_CONTROLLER_ANNOTATION: "yes"}},
        },
        {"metadata": {"annotations": {SELECTED: "n1"}}},
    ]


def test_a_pod_whose_claims_are_bound_has_nothing_to_wait_for() -> None:
    bound = case(pod("c"), [NODE], [claim("c", volume="p"), volume("p")])
    framework, state, _ = reserve(bound)
    assert framework.run_pre_bind_pre_flight(bound.pod, "n1", state).is_skip
    assert state.skip_pre_bind == {"VolumeBinding"}


def test_a_volume_that_another_pod_has_decided_on_is_written_all_the_same() -> None:
    """The two share the claim; the other pod may fail before it has written anything."""
    asked_for = two_claims()
    _, _, first = reserve(asked_for)
    framework, state, second = reserve(asked_for)
    assert second.volumes[0].before is first.volumes[0].after
    answer = pre_bind(framework, asked_for, "n1", state)
    assert isinstance(answer, PreBindWait)
    assert answer.changes[0].patch["spec"]["claimRef"]["uid"] == "uid-c"
    # And what the first takes back does not come up again when the second does.
    first.revert(asked_for.object_store)
    second.revert(asked_for.object_store)
    for kind, key in ((PersistentVolume, "p"), (PersistentVolumeClaim, "default/d")):
        assert asked_for.object_store.find(kind, key) is asked_for.object_store.observed(kind, key)


def test_pre_bind_wants_a_reservation_on_that_node() -> None:
    asked_for = two_claims()
    framework, state, _ = reserve(asked_for)
    assert isinstance(pre_bind(framework, asked_for, "n1", state), PreBindWait)
    nowhere = 'no pod volume found for node "n2"'
    assert nowhere in pre_bind(framework, asked_for, "n2", state).message
    assert nowhere in framework.run_pre_bind_pre_flight(asked_for.pod, "n2", state).message
    framework.run_unreserve(asked_for.pod, "n1", state)
    framework.run_unreserve(asked_for.pod, "n1", state)
    assert pre_bind(framework, asked_for, "n1", state).code == Code.ERROR


def test_a_volume_that_names_the_claim_in_full_is_left_alone() -> None:
    named = volume("p", of="c")
    assert volume_bound_to_claim(named, claim("c")) is named
    # Named by hand, without the uid: that is filled in, and nobody claims to have bound it.
    assert named.spec.claim_ref is not None
    by_hand = replace(
        named, spec=replace(named.spec, claim_ref=replace(named.spec.claim_ref, uid=""))
    )
    filled = volume_bound_to_claim(by_hand, claim("c"))
    assert filled.spec.claim_ref is not None
    assert filled.spec.claim_ref.uid == "uid-c"
    assert filled.metadata.annotations == {}


def test_a_reservation_is_seen_by_the_next_pod_until_it_is_taken_back() -> None:
    asked_for = two_claims()
    taker, held, reserved = reserve(asked_for)
    other = Case(pod("e", name="other"), asked_for.nodes, asked_for.object_store)
    other.object_store.put(claim("e", "local"))
    framework = framework_of(VolumeBinding)

    def fits() -> bool:
        state = CycleState()
        framework.run_pre_filter(other.pod, other.snapshot, state)
        return framework.filter_node(other.pod, other.nodes.info(0), state).is_success

    assert not fits()
    taker.run_unreserve(asked_for.pod, "n1", held)
    assert fits()
    reserved.revert(other.object_store)
    assert fits()


def test_what_has_arrived_since_is_not_reverted() -> None:
    asked_for = two_claims()
    _, _, reserved = reserve(asked_for)
    newer = volume("p", "local", of="c", phase="Bound")
    asked_for.object_store.put(newer)
    reserved.revert(asked_for.object_store)
    assert asked_for.object_store.find(PersistentVolume, "p") is newer
    back = asked_for.object_store.find(PersistentVolumeClaim, "default/d")
    assert back is not None
    assert SELECTED not in back.metadata.annotations


# Progress of the binding, as the world shows it.

BOUND_C = claim("c", "local", volume="p")
MADE_D = claim("d", volume="q", annotations={SELECTED: "n1", BOUND: "yes"})
BOUND_P = volume("p", "local", of="c", phase="Bound")
OUT_OF_REACH = 'node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


def started() -> tuple[AssumedPodVolumes, ObjectStore]:
    """What is reserved, and the world as it is when that has been written."""
    asked_for = two_claims()
    _, _, reserved = reserve(asked_for)
    for change in reserved.changes:
        asked_for.object_store.put(change.value)
    return reserved, asked_for.object_store


def test_binding_takes_its_course() -> None:
    reserved, object_store = started()
    assert check_bindings(reserved, object_store, NODE).code == Code.WAIT
    object_store.put(BOUND_P)
    assert check_bindings(reserved, object_store, NODE).code == Code.WAIT
    object_store.put(BOUND_C)
    assert check_bindings(reserved, object_store, NODE).code == Code.WAIT
    object_store.put(MADE_D)
    # The claim is there before the volume that was made for it.
    assert check_bindings(reserved, object_store, NODE).code == Code.WAIT
    object_store.put(volume("q"))
    assert check_bindings(reserved, object_store, NODE).is_success


@pytest.mark.parametrize(
    ("arrived", "why"),
    [
        (volume("p", "local", phase="Released"), 'ClaimRef got reset for pv "p"'),
        (volume("p", "local", of="c", affinity=within(ZONE, "b")), f'pv "p" {OUT_OF_REACH}'),
        (claim("c", "local", volume="z"), 'pvc "c" is bound to pv "z"'),
        (claim("d"), 'selectedNode annotation reset for PVC "d"'),
        (claim("d", annotations={"other": "x"}), 'provisioning failed for PVC "d"'),
        (claim("d", annotations={SELECTED: "n2"}), 'provisioning failed for PVC "d"'),
        (volume("q", affinity=within(ZONE, "b")), f'pv "q" {OUT_OF_REACH}'),
    ],
)
def test_binding_fails(arrived: PersistentVolume | PersistentVolumeClaim, why: str) -> None:
    reserved, object_store = started()
    for one in (BOUND_P, BOUND_C, MADE_D, volume("q")):
        object_store.put(one)
    object_store.put(arrived)
    status = check_bindings(reserved, object_store, NODE)
    assert (status.code, status.message) == (Code.ERROR, f"binding volumes: {why}")


@pytest.mark.parametrize(
    ("kind", "key", "why"),
    [
        (PersistentVolume, "p", 'failed to check binding: persistentvolumes "p" not found'),
        (
            PersistentVolumeClaim,
            "default/c",
            'failed to check binding: persistentvolumeclaims "default/c" not found',
        ),
        (
            PersistentVolumeClaim,
            "default/d",
            'failed to check provisioning pvc: persistentvolumeclaims "default/d" not found',
        ),
    ],
)
def test_binding_fails_when_an_object_is_gone(
    kind: type[PersistentVolume | PersistentVolumeClaim], key: str, why: str
) -> None:
    reserved, object_store = started()
    for one in (BOUND_P, BOUND_C):
        object_store.put(one)
    object_store.drop(kind, key)
    assert check_bindings(reserved, object_store, NODE).message == f"binding volumes: {why}"


def test_what_is_only_assumed_is_no_progress() -> None:
    reserved, object_store = started()
    for one in (BOUND_P, BOUND_C, MADE_D, volume("q")):
        object_store.put(one)
    object_store.put(claim("d"))
    object_store.assume(MADE_D)
    assert check_bindings(reserved, object_store, NODE).message.endswith(
        'annotation reset for PVC "d"'
    )


def test_binding_fails_when_the_node_is_gone() -> None:
    asked_for = two_claims()
    framework, state, _ = reserve(asked_for)
    member = framework.members["VolumeBinding"]

    def status() -> Status:
        return framework.run_pre_bind_progress(
            member, asked_for.pod, "n1", asked_for.snapshot, state
        )

    for one in (BOUND_P, BOUND_C, MADE_D, volume("q")):
        asked_for.object_store.put(one)
    assert status().is_success
    asked_for.nodes.remove_node("n1")
    why = 'binding volumes: failed to get node "n1": node "n1" not found'
    assert status().message == f'running PreBind plugin "VolumeBinding": {why}'


def test_a_volume_that_cannot_be_translated_fails() -> None:
    reserved, object_store = started()
    object_store.put(csi_node("n1", AWS))
    disk = {"awsElasticBlockStore": {"volumeID": "aws://a/x"}}
    object_store.put(volume("p", "local", of="c", source=disk))
    assert check_bindings(reserved, object_store, NODE).message.startswith(
        "binding volumes: failed to translate pv to csi: could not translate pv: "
    )
