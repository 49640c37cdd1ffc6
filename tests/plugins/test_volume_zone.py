"""VolumeZone: zone and region labels of volumes against those of nodes."""

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

from stowplan.columns import NodeTable, Rows
from stowplan.framework import CycleState
from stowplan.objects.meta import Object
from stowplan.plugins.volumes.volume_zone import VolumeZone
from tests.plugins.volume_cases import (
    BETA_ZONE,
    ZONE,
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
    storage_class,
    volume,
)

UNRESOLVABLE = "UnschedulableAndUnresolvable: "
REFUSED = UNRESOLVABLE + VolumeZone.REJECTED.message
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
NODES = (
    node("bare"),
    node("a", "a"),
    node("b", "b"),
    node("old", **{BETA_ZONE: "a"}),
    node("both", "b", **{BETA_ZONE: "a"}),
)


def bound(**labels: str) -> list[Object]:
    """A claim and its volume with these labels, `zone` and so on in short."""
    keys = {"zone": ZONE, "old_zone": BETA_ZONE, "old_region": BETA_REGION}
    named = {keys[key]: value for key, value in labels.items()}
    return [claim("c", volume="p"), volume("p", labels=named)]


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        ({}, ""),
        ({"zone": "a"}, "b old both"),
        ({"zone": "a__b"}, "old"),
        ({"zone": "a__ b "}, "old"),
        # A label with an empty part is as if it were not there.
        ({"zone": "a__"}, ""),
        ({"old_zone": "a"}, "b"),
        ({"old_zone": "a", "zone": "b"}, "a b old"),
        ({"old_region": "r"}, "a b old both"),
    ],
)
def test_labels(labels: dict[str, str], refused: str) -> None:
    found = refusals(VolumeZone, case(pod("c"), NODES, bound(**labels)))
    assert found == dict.fromkeys(refused.split(), REFUSED)


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c", volume="p")], 'persistentvolume "p" not found'),
        ([claim("c", None)], VolumeZone.CLASS_UNNAMED.message),
        ([claim("c")], 'storageclass.storage.k8s.io "wait" not found'),
        (
            [claim("c"), storage_class("wait", mode=None)],
            'VolumeBindingMode not set for StorageClass "wait"',
        ),
        ([claim("c"), storage_class("wait", mode="Immediate")], VolumeZone.VOLUME_UNNAMED.message),
    ],
)
def test_claims_whose_volume_is_not_known(objects: list[Object], why: str) -> None:
    asked_for = case(pod("c"), [node("n")], objects)
    assert refusals(VolumeZone, asked_for) == {"n": UNRESOLVABLE + why}


def test_a_claim_without_name() -> None:
    asked_for = case(pod(""), [node("n")])
    assert refusals(VolumeZone, asked_for) == {"n": UNRESOLVABLE + VolumeZone.CLAIM_UNNAMED.message}


def test_claims_that_wait_and_claims_made_with_the_pod_are_skipped() -> None:
    made = {"ephemeral": {"volumeClaimTemplate": {}}}
    asked_for = case(pod("c", made), NODES, [claim("c"), storage_class("wait")])
    assert refusals(VolumeZone, asked_for) == {}
    state = CycleState()
    framework_of(VolumeZone).run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    assert state.skip_filter == {"VolumeZone"}


def test_explanation() -> None:
    asked_for = case(pod("c"), NODES, bound(old_zone="a", old_region="r"))
    framework, state = framework_of(VolumeZone), CycleState()
    framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    rule: VolumeZone = framework.members["VolumeZone"].plugin
    assert rule.explain(asked_for.nodes.info(2), state) == [
        f"volume p: needs {ZONE} a, node has b",
        "volume p: needs topology.kubernetes.io/region r, node has no such label",
    ]


@given(cases())
def test_walks_agree(volume_case: Case) -> None:
    assert agree(VolumeZone, volume_case)


class ForgetsTheNewLabel(VolumeZone):
    """Wrong: a volume with an old label is not looked for under the new one."""

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> NDArray[np.int64]:
        codes = super().filter_column(nodes, rows, state)
        for topology in state.find(self.name):
            column = nodes.labels.column(topology.key)
            codes |= (codes == 0) & ~column.where_in(tuple(topology.values), rows)
        return codes


class AsksNodesWithoutZones(VolumeZone):
    """Wrong: a node without zone labels is refused like one in the wrong zone."""

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> NDArray[np.int64]:
        codes = super().filter_column(nodes, rows, state)
        bare = ~nodes.labels.column(ZONE).where(lambda zone: zone is not None, rows)
        bare &= ~nodes.labels.column(BETA_ZONE).where(lambda zone: zone is not None, rows)
        return np.where(bare, 1, codes)


@pytest.mark.parametrize("wrong", [ForgetsTheNewLabel, AsksNodesWithoutZones])
def test_wrong_columns_are_caught(wrong: type[VolumeZone]) -> None:
    assert is_caught(wrong)


def test_signature_is_the_named_claims() -> None:
    rule = VolumeZone()
    assert rule.signature(pod("c", name="a")) == rule.signature(pod("c", name="b"))
    assert rule.signature(pod("c")) != rule.signature(pod("d"))
    assert rule.signature(pod()) == rule.signature(pod({"ephemeral": {}}))
