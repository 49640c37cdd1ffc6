"""Queueing hints where no recorded script goes: malformed objects, rarer volumes, defaults."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.framework import FeatureGates, Handle, ObjectStore
from stowplan.framework.clusterevents import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    DEVICE_CLASS,
    NODE,
    POD,
    VOLUME_ATTACHMENT,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    event_matches,
)
from stowplan.framework.handle_state import HandleState
from stowplan.objects import pod as pods
from stowplan.objects.devices.device import DeviceClass
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from stowplan.objects.storage import CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment
from stowplan.objects.workload import Service
from stowplan.plugins.node_affinity.node_affinity import NodeAffinityArgs, NodeAffinityPlugin
from stowplan.plugins.node_ports import NodePorts
from stowplan.plugins.pod_affinity.hints import inter_pod_affinity_events
from stowplan.plugins.resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from stowplan.plugins.topology_spread.pod_topology_spread import PodTopologySpread
from stowplan.plugins.topology_spread.spread_constraint import PodTopologySpreadArgs
from stowplan.plugins.volumes.hints import node_volume_limits_events, volume_binding_events
from stowplan.testing.builders import affinity, node, pod

QUEUE, SKIP = QueueingHint.QUEUE, QueueingHint.SKIP


def hint_answer(
    events: tuple[ClusterEventWithHint, ...],
    resource: str,
    action: Action,
    of: Pod,
    old: Any,
    new: Any,
) -> QueueingHint:
    """What the one registration that hears of an event says."""
    event = ClusterEvent(resource, action)
    (hint,) = [one.hint for one in events if event_matches(one.event, event)]
    return QUEUE if hint is None else hint(of, old, new)


# NodeAffinity.


def selecting(*terms: NodeSelectorTerm) -> Pod:
    return pod("a", affinity=Affinity(pods.NodeAffinity(required=NodeSelector(terms))))


GOOD = NodeSelectorTerm((NodeSelectorRequirement("tier", "In", ("gold",)),))
FAULTY = NodeSelectorTerm((NodeSelectorRequirement("tier", "Unknown", ()),))
GOLD, IRON = node("n", labels={"tier": "gold"}), node("n", labels={"tier": "iron"})


@pytest.mark.parametrize(
    ("of", "old", "new", "wanted"),
    [
        (selecting(GOOD), None, GOLD, QUEUE),
        (selecting(GOOD), None, IRON, SKIP),
        (selecting(GOOD), IRON, GOLD, QUEUE),
        (selecting(GOOD), GOLD, GOLD, SKIP),
        # A fault lets the pod through, unless a sound term decides.
        (selecting(FAULTY), None, IRON, QUEUE),
        (selecting(FAULTY, GOOD), None, IRON, QUEUE),
        (selecting(FAULTY, GOOD), GOLD, GOLD, SKIP),
        (selecting(FAULTY, GOOD), IRON, GOLD, QUEUE),
        (pod("a", node_selector={"tier": "gold"}), None, IRON, SKIP),
        (pod("a", node_selector={"tier": "gold"}), IRON, GOLD, QUEUE),
    ],
)
def test_node_affinity(of: Pod, old: Node | None, new: Node, wanted: QueueingHint) -> None:
    events = NodeAffinityPlugin(NodeAffinityArgs()).events_to_register()
    assert hint_answer(events, NODE, Action.ADD, of, old, new) is wanted


def test_a_node_that_the_profile_excludes_is_no_candidate() -> None:
    nowhere = NodeAffinityArgs(affinity(nodes="tier=none").node_affinity)
    events = NodeAffinityPlugin(nowhere).events_to_register()
    assert hint_answer(events, NODE, Action.ADD, selecting(FAULTY), None, GOLD) is SKIP


# NodePorts.


@pytest.mark.parametrize(
    ("mine", "theirs", "on", "wanted"),
    [
        ([80], [80], "n1", QUEUE),
        ([80], [80], "", SKIP),
        ([80], [81], "n1", SKIP),
        ([80], ["80/UDP"], "n1", SKIP),
        (["10.0.0.1:80"], ["10.0.0.2:80"], "n1", SKIP),
        (["10.0.0.1:80"], [80], "n1", QUEUE),
        ([80], ["10.0.0.2:80"], "n1", QUEUE),
        ([], [80], "n1", SKIP),
        ([80], [], "n1", SKIP),
    ],
)
def test_node_ports(
    mine: list[int | str], theirs: list[int | str], on: str, wanted: QueueingHint
) -> None:
    gone = pod("gone", ports=theirs, on=on)
    events = NodePorts().events_to_register()
    assert hint_answer(events, POD, Action.DELETE, pod("a", ports=mine), gone, None) is wanted


# NodeResourcesFit.


def device_class(name: str, extended: str | None = None) -> DeviceClass:
    tree: dict[str, Any] = {"metadata": {"name": name}, "spec": {}}
    if extended is not None:
        tree["spec"]["extendedResourceName"] = extended
    return convert(tree, DeviceClass)


def fit(*classes: DeviceClass, devices: bool = True) -> tuple[ClusterEventWithHint, ...]:
    handle = Handle(FeatureGates(dra_extended_resource=devices))
    handle.shared.object_store = ObjectStore(classes)
    return NodeResourcesFit(NodeResourcesFitArgs(), handle).events_to_register()


GPU = pod("a", resources={"example.com/gpu": "2"})


@pytest.mark.parametrize(
    ("events", "old", "new", "wanted"),
    [
        (fit(), None, node("n", resources={"example.com/gpu": "2"}), QUEUE),
        (fit(), None, node("n", resources={"example.com/gpu": "1"}), SKIP),
        (fit(), None, node("n"), SKIP),
        (fit(device_class("x", "example.com/gpu")), None, node("n"), QUEUE),
        (fit(device_class("x", "example.com/gpu"), devices=False), None, node("n"), SKIP),
        (fit(device_class("x", "example.com/tpu")), None, node("n"), SKIP),
        # What the node has of it counts first, and is not enough.
        (
            fit(device_class("x", "example.com/gpu")),
            None,
            node("n", resources={"example.com/gpu": "1"}),
            SKIP,
        ),
        (fit(), None, node("n", pods=0, resources={"example.com/gpu": "2"}), SKIP),
        (
            fit(),
            node("n", resources={"example.com/gpu": "1"}),
            node("n", resources={"example.com/gpu": "2"}),
            QUEUE,
        ),
        (
            fit(),
            node("n", cpu="1", resources={"example.com/gpu": "2"}),
            node("n", cpu="2", resources={"example.com/gpu": "2"}),
            SKIP,
        ),
        (
            fit(),
            node("n", pods=1, resources={"example.com/gpu": "2"}),
            node("n", pods=2, resources={"example.com/gpu": "2"}),
            QUEUE,
        ),
    ],
)
def test_fit_after_a_node(
    events: tuple[ClusterEventWithHint, ...], old: Node | None, new: Node, wanted: QueueingHint
) -> None:
    assert hint_answer(events, NODE, Action.ADD, GPU, old, new) is wanted


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (None, device_class("x", "example.com/gpu"), QUEUE),
        (None, device_class("x", "example.com/tpu"), SKIP),
        (None, device_class("x"), SKIP),
        (device_class("x"), device_class("x", "example.com/gpu"), QUEUE),
        (device_class("x", "example.com/gpu"), device_class("x", "example.com/gpu"), SKIP),
        (device_class("x", "example.com/gpu"), device_class("x"), SKIP),
    ],
)
def test_fit_after_a_device_class(
    old: DeviceClass | None, new: DeviceClass, wanted: QueueingHint
) -> None:
    assert hint_answer(fit(), DEVICE_CLASS, Action.ADD, GPU, old, new) is wanted


def test_a_class_may_be_asked_for_by_its_own_name() -> None:
    of = pod("a", resources={"deviceclass.resource.kubernetes.io/x": "1"})
    assert hint_answer(fit(), DEVICE_CLASS, Action.ADD, of, None, device_class("x")) is QUEUE
    assert hint_answer(fit(device_class("x")), NODE, Action.ADD, of, None, node("n")) is QUEUE
    assert hint_answer(fit(device_class("y")), NODE, Action.ADD, of, None, node("n")) is SKIP


@pytest.mark.parametrize(
    ("of", "old", "new", "wanted"),
    [
        (pod("a", cpu="1"), pod("b", on="n", cpu="2"), pod("b", on="n", cpu="1"), QUEUE),
        (pod("a", memory="1Gi"), pod("b", on="n", cpu="2"), pod("b", on="n", cpu="1"), SKIP),
        (pod("a", cpu="1"), pod("b", cpu="2"), pod("b", cpu="1"), SKIP),
        (pod("a", memory="1"), pod("a", cpu="2"), pod("a", cpu="1"), QUEUE),
        (pod("a", cpu="1"), pod("b", on="n"), None, QUEUE),
        (pod("a", cpu="1"), pod("b", nominated="n"), None, QUEUE),
        (pod("a", cpu="1"), pod("b"), None, SKIP),
    ],
)
def test_fit_after_a_pod(of: Pod, old: Pod, new: Pod | None, wanted: QueueingHint) -> None:
    action = Action.DELETE if new is None else Action.UPDATE_POD_SCALE_DOWN
    assert hint_answer(fit(), POD, action, of, old, new) is wanted


# InterPodAffinity.


def term(*conditions: LabelSelectorRequirement, **wider: Any) -> PodAffinityTerm:
    selector = LabelSelector({"app": "db"}, conditions)
    return PodAffinityTerm(label_selector=selector, topology_key="zone", **wider)


BROKEN = LabelSelectorRequirement("app", "Unknown", ())
DB, WEB = pod("db", on="n", labels={"app": "db"}), pod("web", on="n", labels={"app": "web"})


def near(*terms: PodAffinityTerm) -> Pod:
    return pod("a", affinity=Affinity(pod_affinity=PodAffinity(required=terms)))


def away(*terms: PodAffinityTerm) -> Pod:
    return pod("a", affinity=Affinity(pod_anti_affinity=PodAffinity(required=terms)))


@pytest.mark.parametrize(
    ("of", "old", "new", "wanted"),
    [
        (near(term()), None, DB, QUEUE),
        (near(term()), None, WEB, SKIP),
        (near(term()), DB, None, SKIP),
        (near(term()), WEB, DB, QUEUE),
        (near(term()), DB, WEB, SKIP),
        (near(term()), None, replace(DB, spec=pods.PodSpec()), SKIP),
        (near(term(), term(LabelSelectorRequirement("x", "Exists"))), None, DB, SKIP),
        (near(term(BROKEN)), None, WEB, QUEUE),
        (near(term(BROKEN)), None, replace(DB, spec=pods.PodSpec()), SKIP),
        (away(term()), DB, None, QUEUE),
        (away(term()), WEB, None, SKIP),
        (away(term()), DB, WEB, QUEUE),
        (away(term()), WEB, DB, SKIP),
        (pod("a", labels={"app": "db"}), away(term()), None, SKIP),
        # Of namespaces only names count here, as in the original, or a selector of everything.
        (near(term(namespaces=("other",))), None, DB, SKIP),
        (near(term(namespace_selector=LabelSelector({"team": "x"}))), None, DB, SKIP),
        (near(term(namespace_selector=LabelSelector())), None, DB, QUEUE),
    ],
)
def test_pod_affinity_after_a_pod(
    of: Pod, old: Pod | None, new: Pod | None, wanted: QueueingHint
) -> None:
    action = (
        Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_POD_LABEL
    )
    assert hint_answer(inter_pod_affinity_events(), POD, action, of, old, new) is wanted


def test_a_pod_that_wanted_to_be_alone_leaves() -> None:
    lonely = replace(away(term()), metadata=DB.metadata)
    lonely = replace(lonely, spec=replace(lonely.spec, node_name="n"))
    of = pod("a", labels={"app": "db"})
    assert hint_answer(inter_pod_affinity_events(), POD, Action.DELETE, of, lonely, None) is QUEUE


@pytest.mark.parametrize(
    ("of", "old", "new", "wanted"),
    [
        (near(term()), None, "z", QUEUE),
        (near(term()), None, "", SKIP),
        (near(term()), "", "z", QUEUE),
        (near(term()), "y", "z", QUEUE),
        (near(term()), "z", "", SKIP),
        (near(term(BROKEN)), "z", "z", QUEUE),
        (away(term()), None, "", QUEUE),
        (away(term()), "", "z", SKIP),
        (away(term()), "y", "z", QUEUE),
        (away(term()), "z", "", QUEUE),
        (away(term(BROKEN)), "z", "z", QUEUE),
        (pod("a"), None, "z", SKIP),
    ],
)
def test_pod_affinity_after_a_node(
    of: Pod, old: str | None, new: str, wanted: QueueingHint
) -> None:
    def zoned(name: str | None) -> Node | None:
        return None if name is None else node("n", labels={"zone": name} if name else {})

    events = inter_pod_affinity_events()
    assert hint_answer(events, NODE, Action.ADD, of, zoned(old), zoned(new)) is wanted


# PodTopologySpread: the profile's own constraints, for which other objects are read.


def test_default_constraints_are_those_of_the_pods_services() -> None:
    tree = {
        "defaultingType": "List",
        "defaultConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    }
    shared = HandleState()
    plugin = PodTopologySpread(convert(tree, PodTopologySpreadArgs), Handle(FeatureGates(), shared))
    events = plugin.events_to_register()
    of, bound = pod("a", labels={"app": "db"}), pod("b", on="n", labels={"app": "db"})
    assert hint_answer(events, POD, Action.ADD, of, None, bound) is SKIP
    service = {"metadata": {"name": "s"}, "spec": {"selector": {"app": "db"}}}
    shared.object_store.put(convert(service, Service))
    assert hint_answer(events, POD, Action.ADD, of, None, bound) is QUEUE


# Volumes.


def with_volume(name: str = "a", on: str = "", **source: Any) -> Pod:
    tree = {
        "metadata": {"name": name},
        "spec": {"nodeName": on, "volumes": [{"name": "v", **source}]},
    }
    return convert(tree, Pod)


INLINE = with_volume(awsElasticBlockStore={"volumeID": "vol-1"})


@pytest.mark.parametrize(
    ("of", "attacher", "wanted"),
    [
        (INLINE, "ebs.csi.aws.com", QUEUE),
        (INLINE, "pd.csi.storage.gke.io", SKIP),
        (with_volume(persistentVolumeClaim={"claimName": "c"}), "anybody", QUEUE),
        (with_volume(csi={"driver": "d"}), "d", SKIP),
        (with_volume(ephemeral={}), "d", SKIP),
    ],
)
def test_limits_after_a_detachment(of: Pod, attacher: str, wanted: QueueingHint) -> None:
    gone = convert({"metadata": {"name": "x"}, "spec": {"attacher": attacher}}, VolumeAttachment)
    events = node_volume_limits_events()
    assert hint_answer(events, VOLUME_ATTACHMENT, Action.DELETE, of, gone, None) is wanted


@pytest.mark.parametrize(
    ("gone", "wanted"),
    [
        (with_volume("b", "n", persistentVolumeClaim={"claimName": "c"}), QUEUE),
        (with_volume("b", "n", ephemeral={}), QUEUE),
        (with_volume("b", "n", awsElasticBlockStore={"volumeID": "vol-1"}), QUEUE),
        (with_volume("b", "n", csi={"driver": "d"}), SKIP),
        (with_volume("b", "", persistentVolumeClaim={"claimName": "c"}), SKIP),
    ],
)
def test_limits_after_a_pod(gone: Pod, wanted: QueueingHint) -> None:
    events = node_volume_limits_events()
    assert hint_answer(events, POD, Action.DELETE, pod("a"), gone, None) is wanted


def csi_node(annotations: dict[str, str] | None = None, **limits: int | None) -> CSINode:
    drivers = [
        {"name": name, **({} if count is None else {"allocatable": {"count": count}})}
        for name, count in limits.items()
    ]
    tree = {
        "metadata": {"name": "n", "annotations": annotations or {}},
        "spec": {"drivers": drivers},
    }
    return convert(tree, CSINode)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (csi_node(d=1), csi_node(d=2), QUEUE),
        (csi_node(d=2), csi_node(d=1), SKIP),
        (csi_node(), csi_node(d=1), QUEUE),
        (csi_node(d=1), csi_node(d=None), SKIP),
        (csi_node(d=None), csi_node(d=1), QUEUE),
    ],
)
def test_limits_after_a_csi_node(old: CSINode, new: CSINode, wanted: QueueingHint) -> None:
    assert (
        hint_answer(node_volume_limits_events(), CSI_NODE, Action.UPDATE, pod("a"), old, new)
        is wanted
    )


def test_binding_after_a_migration() -> None:
    migrated = csi_node({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs"})
    events = volume_binding_events()
    assert hint_answer(events, CSI_NODE, Action.UPDATE, pod("a"), csi_node(), migrated) is QUEUE
    assert hint_answer(events, CSI_NODE, Action.UPDATE, pod("a"), migrated, migrated) is SKIP


def capacity(size: str | None, largest: str | None = None) -> CSIStorageCapacity:
    tree: dict[str, Any] = {"metadata": {"name": "c", "namespace": "default"}}
    tree |= {} if size is None else {"capacity": size}
    tree |= {} if largest is None else {"maximumVolumeSize": largest}
    return convert(tree, CSIStorageCapacity)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (None, capacity("1Gi"), QUEUE),
        (capacity("1Gi"), capacity("2Gi"), QUEUE),
        (capacity("1Gi"), capacity("1024Mi"), SKIP),
        (capacity("1Gi"), capacity(None), SKIP),
        (capacity(None), capacity("1Gi"), QUEUE),
        (capacity("1Gi", "1Gi"), capacity("9Gi", "1Gi"), SKIP),
        (capacity("9Gi"), capacity("9Gi", "10Gi"), QUEUE),
    ],
)
def test_binding_after_capacity(
    old: CSIStorageCapacity | None, new: CSIStorageCapacity, wanted: QueueingHint
) -> None:
    events = volume_binding_events()
    assert hint_answer(events, CSI_STORAGE_CAPACITY, Action.ADD, pod("a"), old, new) is wanted


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [(True, False, QUEUE), (True, None, QUEUE), (False, True, SKIP), (None, False, SKIP)],
)
def test_binding_after_a_driver(
    before: bool | None, after: bool | None, wanted: QueueingHint
) -> None:
    def driver(counts: bool | None) -> CSIDriver:
        spec = {} if counts is None else {"storageCapacity": counts}
        return convert({"metadata": {"name": "d"}, "spec": spec}, CSIDriver)

    events, of = volume_binding_events(), with_volume(csi={"driver": "d"})
    assert (
        hint_answer(events, CSI_DRIVER, Action.UPDATE, of, driver(before), driver(after)) is wanted
    )
    assert (
        hint_answer(events, CSI_DRIVER, Action.UPDATE, pod("b"), driver(True), driver(False))
        is SKIP
    )
