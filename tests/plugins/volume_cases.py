"""Clusters with storage for the tests of the volume rules: written down, or drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.framework import CycleState, FeatureGates, Framework, ObjectStore, Registry, Snapshot
from stowplan.framework.extension_points import points_of
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.status import Status
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stowplan.plugins.priority_sort import PrioritySort
from tests.soak import found_within

Tree = dict[str, Any]

ZONE = "topology.kubernetes.io/zone"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
BOUND = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
AWS = "kubernetes.io/aws-ebs"
DRIVER = "csi.example.com"


# Written down.


def node(name: str, zone: str = "", **labels: str) -> Node:
    zones = {ZONE: zone} if zone else {}
    meta = {"name": name, "labels": {HOST: name, **zones, **labels}}
    return convert({"metadata": meta}, Node)


def pod(*volumes: Tree | str, name: str = "pod", on: str = "", **meta: Any) -> Pod:
    """A pod with these volumes; a text is the name of a claim."""
    named = [
        {"name": f"v{i}", **(using(v) if isinstance(v, str) else v)} for i, v in enumerate(volumes)
    ]
    spec = {"nodeName": on, "containers": [{"name": "c"}], "volumes": named}
    return convert({"metadata": {"name": name, **meta}, "spec": spec}, Pod)


def using(claim_name: str) -> Tree:
    return {"persistentVolumeClaim": {"claimName": claim_name}}


def within(key: str, *values: str) -> Tree:
    """Node affinity on one label."""
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}
    return {"required": {"nodeSelectorTerms": [term]}}


def claim(
    name: str,
    storage_class: str | None = "wait",
    *,
    volume: str = "",
    size: str | None = "5Gi",
    modes: Iterable[str] = ("ReadWriteOnce",),
    phase: str = "",
    annotations: dict[str, str] | None = None,
    meta: Tree | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    """A claim, bound where it has a volume and no annotations say otherwise."""
    marks = ({BOUND: "yes"} if volume else {}) if annotations is None else annotations
    tree = {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": marks, **(meta or {})},
        "spec": {
            "storageClassName": storage_class,
            "volumeName": volume,
            "accessModes": list(modes),
            "resources": {"requests": {} if size is None else {"storage": size}},
            **spec,
        },
        "status": {"phase": phase},
    }
    return convert(tree, PersistentVolumeClaim)


def volume(
    name: str,
    storage_class: str = "wait",
    *,
    of: str = "",
    size: str = "10Gi",
    affinity: Tree | None = None,
    labels: dict[str, str] | None = None,
    modes: Iterable[str] = ("ReadWriteOnce",),
    phase: str = "Available",
    source: Tree | None = None,
    **spec: Any,
) -> PersistentVolume:
    """A volume. of: the claim that it names."""
    ref = {"namespace": "default", "name": of, "uid": f"uid-{of}"} if of else None
    tree = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": size},
            "accessModes": list(modes),
            "claimRef": ref,
            "nodeAffinity": affinity,
            **({"csi": {"driver": DRIVER, "volumeHandle": name}} if source is None else source),
            **spec,
        },
        "status": {"phase": phase},
    }
    return convert(tree, PersistentVolume)


def storage_class(
    name: str, provisioner: str = DRIVER, mode: str | None = "WaitForFirstConsumer", **rest: Any
) -> StorageClass:
    tree = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
    return convert({**tree, **rest}, StorageClass)


def csi_node(name: str, migrated: str = "", **limits: int | None) -> CSINode:
    """limits: driver (with `_` for `.`) -> how many volumes, None for no limit."""
    drivers = [
        {"name": driver.replace("_", "."), "allocatable": None if n is None else {"count": n}}
        for driver, n in limits.items()
    ]
    marks = {MIGRATED: migrated} if migrated else {}
    tree = {"metadata": {"name": name, "annotations": marks}, "spec": {"drivers": drivers}}
    return convert(tree, CSINode)


def csi_driver(name: str = DRIVER, **spec: bool) -> CSIDriver:
    return convert({"metadata": {"name": name}, "spec": spec}, CSIDriver)


def capacity(name: str, storage_class: str, zone: str | None, **sizes: str) -> CSIStorageCapacity:
    """zone: None for no topology at all."""
    topology = None if zone is None else {"matchLabels": {ZONE: zone} if zone else {}}
    tree = {"metadata": {"name": name}, "storageClassName": storage_class, **sizes}
    return convert({**tree, "nodeTopology": topology}, CSIStorageCapacity)


def attachment(name: str, node_name: str, volume_name: str | None) -> VolumeAttachment:
    spec = {"nodeName": node_name, "attacher": DRIVER}
    source = {"persistentVolumeName": volume_name}
    return convert(
        {"metadata": {"name": name}, "spec": {**spec, "source": source}}, VolumeAttachment
    )


class Case(msgspec.Struct):
    """A pending pod and all that a volume rule reads."""

    pod: Pod
    nodes: NodeTable
    object_store: ObjectStore

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.nodes, self.object_store)


def case(
    pod: Pod, nodes: Iterable[Node], objects: Iterable[Object] = (), pods: Iterable[Pod] = ()
) -> Case:
    return Case(pod, table_of(nodes, pods), ObjectStore(objects))


# A rule asked both ways.


def framework_of(
    plugin: type[Any], *, columns: bool = True, args: Any = None, **gates: bool
) -> Framework:
    """A framework with one plugin."""
    points = {point: (PluginUse(plugin.name),) for point in points_of(plugin)}
    points["queueSort"] = (PluginUse(PrioritySort.name),)
    profile = Profile("test", points, {} if args is None else {plugin.name: args})
    registry = Registry([PrioritySort, plugin])
    return Framework(profile, registry, FeatureGates(**gates), columns=columns)


def asked(framework: Framework, asked_for: Case, *, turned: bool = False) -> list[Status]:
    """The plugin's verdict per row; what PreFilter refuses, all rows do.

    turned: ask for the rows by number and backwards.
    """
    state, nodes = CycleState(), asked_for.nodes
    outcome = framework.run_pre_filter(asked_for.pod, asked_for.snapshot, state)
    if not outcome.status.is_success:
        return [outcome.status] * nodes.n_nodes
    rows = nodes.order[::-1].copy() if turned else nodes.all_rows
    answers = framework.filters_separately(asked_for.pod, nodes, rows, state)
    found = [Status()] * nodes.n_nodes
    for verdicts in answers.values():
        numbers = rows.tolist() if not isinstance(rows, slice) else range(nodes.n_nodes)
        for row, code in zip(numbers, verdicts.codes.tolist(), strict=True):
            found[row] = verdicts.explain(code) if code else Status()
    return found


def agree(plugin: type[Any], asked_for: Case, **gates: bool) -> bool:
    """True when the column walk says what the scalar walk says, for rows in any order."""
    by_column = framework_of(plugin, **gates)
    wanted = asked(framework_of(plugin, columns=False, **gates), asked_for)
    return (
        asked(by_column, asked_for) == wanted and asked(by_column, asked_for, turned=True) == wanted
    )


def refusals(plugin: type[Any], asked_for: Case, **gates: bool) -> dict[str, str]:
    """Node -> why it refuses, for those that do; the same by both walks."""
    assert agree(plugin, asked_for, **gates)
    found = asked(framework_of(plugin, **gates), asked_for)
    return {
        name: f"{status.code.title}: {status.message}"
        for name, status in zip(asked_for.nodes.names, found, strict=True)
        if not status.is_success
    }


# The first example found will do, however large.
BRIEF = settings(max_examples=found_within(2000), phases=[Phase.generate])


def is_caught(wrong: type[Any], kinds: str = "claims", **gates: bool) -> bool:
    """True when a drawn cluster shows that the walks of a plugin disagree."""
    try:
        find(
            cases(kinds),
            lambda generated: not agree(wrong, generated, **gates),
            settings=BRIEF,
            # A seed with which wrong variants are found soon.
            random=Random(1),
        )
    except NoSuchExample:
        return False
    return True


def fails(statement: Callable[[st.DataObject], None]) -> bool:
    """True when what is drawn shows that a statement about it does not hold."""

    @BRIEF
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        statement(data)

    try:
        holds()
    except (AssertionError, LookupError, StopIteration):
        return True
    return False


# Drawn: few values of everything, so that claims, volumes and nodes meet.

CLAIMS = ("c0", "c1", "c2", "c3")
VOLUMES = ("p0", "p1", "p2", "p3", "p4")
ZONES = ("a", "b")
NODES = ("n0", "n1", "n2", "n3")
CLASSES = ("wait", "local", "eager", "zoned", "old", "gone")
DRIVERS = (DRIVER, "other.example.com", "ebs.csi.aws.com")

zones = st.sampled_from(ZONES)
sizes = st.sampled_from(("1Gi", "5Gi", "5120Mi", "10Gi"))
one_in_four = st.sampled_from((False,) * 3 + (True,))
one_in_eight = st.sampled_from((False,) * 7 + (True,))


def terms(*terms: str) -> Tree:
    """Node affinity of several terms; a condition is `KEY OPERATOR VALUES`, a term joins some."""
    found = []
    for term in terms:
        conditions = [part.split() for part in term.split(" and ")] if term else []
        found.append(
            {
                "matchExpressions": [
                    {"key": key, "operator": operator, "values": values}
                    for key, operator, *values in conditions
                ]
            }
        )
    return {"required": {"nodeSelectorTerms": found}}


AFFINITIES = (
    None,
    None,
    within(ZONE, "a"),
    within(ZONE, "a", "b"),
    within(BETA_ZONE, "b"),
    within(HOST, "n1"),
    within(HOST, "n2", "n3"),
    within("topology.ebs.csi.aws.com/zone", "a"),
    terms("", f"{ZONE} Exists"),
    terms(f"{ZONE} NotIn a", f"{HOST} In n0 and {ZONE} In a"),
    terms("rank Gt 1"),
    terms(f"{ZONE} In"),
    terms(),
    {
        "required": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
            ]
        }
    },
)
DISKS = (
    {"gcePersistentDisk": {"pdName": "d1"}},
    {"gcePersistentDisk": {"pdName": "d1", "readOnly": True}},
    {"awsElasticBlockStore": {"volumeID": "vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}},
    {"awsElasticBlockStore": {"volumeID": "aws://a/none"}},
    {"iscsi": {"iqn": "q1"}},
    {"iscsi": {"iqn": "q1", "readOnly": True}},
    {"rbd": {"monitors": ["m1", "m2"], "pool": "p", "image": "i"}},
    {"rbd": {"monitors": ["m2"], "pool": "p", "image": "i", "readOnly": True}},
    {"rbd": {"monitors": ["m3"], "pool": "p", "image": "i"}},
    {"cinder": {"volumeID": "x"}},
    {"vsphereVolume": {"volumePath": "x"}},
    {"configMap": {"name": "x"}},
)  # fmt: skip


KINDS = {
    "claims": ("claim",) * 6 + ("disk", "disk", "ephemeral"),
    "disks": ("claim",) + ("disk",) * 4,
}
"""What a test is about -> kinds of volumes to draw from."""


@st.composite
def pods(
    draw: st.DrawFn, name: str = "pod", on: str = "", least: int = 0, kinds: str = "claims"
) -> Pod:
    volumes: list[Tree] = []
    for i in range(draw(st.integers(least, 3))):
        kind = draw(st.sampled_from(KINDS[kinds]))
        if kind == "claim":
            volumes.append(using(draw(st.sampled_from(CLAIMS))))
        elif kind == "disk":
            volumes.append(draw(st.sampled_from(DISKS)))
        else:
            volumes.append({"name": f"e{i}", "ephemeral": {"volumeClaimTemplate": {}}})
    return pod(*volumes, name=name, on=on)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    labels = {HOST: name, "rank": draw(st.sampled_from(("0", "2")))}
    for key in (ZONE, BETA_ZONE, "topology.ebs.csi.aws.com/zone"):
        if draw(st.booleans()):
            labels[key] = draw(zones)
    return convert({"metadata": {"name": name, "labels": labels}}, Node)


@st.composite
def claims(draw: st.DrawFn, name: str, owner: str = "") -> PersistentVolumeClaim:
    bound = draw(one_in_four)
    marks = {SELECTED: draw(st.sampled_from(NODES))} if draw(one_in_eight) and not bound else None
    meta: Tree = {}
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    selector: Tree | None = {"matchLabels": {"tier": "x"}} if draw(one_in_four) else None
    return claim(
        name,
        draw(st.sampled_from(("wait", "local") * 4 + (*CLASSES, None))),
        volume=draw(st.sampled_from((*VOLUMES, "lost"))) if bound else "",
        size=draw(sizes | st.none()),
        modes=draw(st.sampled_from((["ReadWriteOnce"], ["ReadWriteOncePod"], []))),
        annotations=marks,
        meta=meta,
        selector=BAD_SELECTOR if draw(one_in_eight) and draw(one_in_four) else selector,
    )


BAD_SELECTOR = {"matchExpressions": [{"key": "tier", "operator": "In", "values": []}]}


@st.composite
def volumes(draw: st.DrawFn, name: str) -> PersistentVolume:
    label_values = st.sampled_from(("a", "b", "a__b", "a__"))
    labels = {k: draw(label_values) for k in (ZONE, BETA_ZONE) if draw(one_in_four)}
    source = draw(
        st.sampled_from(
            (
                None,
                {"csi": {"driver": "other.example.com", "volumeHandle": name}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{name}"}},
                {"awsElasticBlockStore": {"volumeID": "aws://a/none"}},
                {"portworxVolume": {"volumeID": name}},
                {"vsphereVolume": {"volumePath": name}},
            )
        )
    )
    return volume(
        name,
        draw(st.sampled_from(("wait", "local", "local", "zoned"))),
        of=draw(st.sampled_from(("", "", "", *CLAIMS))),
        size=draw(sizes),
        affinity=draw(st.sampled_from(AFFINITIES)),
        labels={**labels, "tier": "x"} if draw(st.booleans()) else labels,
        modes=draw(st.sampled_from((["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteOncePod"]))),
        phase=draw(st.sampled_from(("Available", "Available", "Available", "Bound"))),
        source=source,
    )


@st.composite
def random_objects(draw: st.DrawFn, ephemeral: Iterable[tuple[str, str]] = ()) -> list[Object]:
    """ephemeral: (claim, uid of its pod) of claims made with pods."""
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    found: list[Object] = [
        storage_class("wait"),
        storage_class("local", "kubernetes.io/no-provisioner"),
        storage_class("eager", mode="Immediate"),
        storage_class("zoned", allowedTopologies=draw(st.sampled_from((topologies, [{}], None)))),
        storage_class("old", AWS),
        csi_driver(
            storageCapacity=draw(st.booleans()), preventPodSchedulingIfMissing=draw(st.booleans())
        ),
    ]
    found += [
        draw(claims(name)) for name in CLAIMS if not (draw(one_in_eight) and draw(one_in_four))
    ]
    for name, uid in ephemeral:
        found.append(draw(claims(name, owner=draw(st.sampled_from((uid, uid, uid, "other"))))))
    found += [draw(volumes(name)) for name in VOLUMES if not draw(one_in_eight)]
    for name in NODES:
        if draw(st.booleans()):
            limits = {
                driver.replace(".", "_"): draw(st.sampled_from((None, 0, 1, 1, 2)))
                for driver in DRIVERS
                if not draw(one_in_four)
            }
            found.append(csi_node(name, draw(st.sampled_from(("", AWS))), **limits))
    for i in range(draw(st.integers(0, 3))):
        where = draw(st.sampled_from(("a", "b", "", None)))
        sizes_there = draw(st.sampled_from(({"capacity": "5Gi"}, {"maximumVolumeSize": "1Gi"}, {})))
        found.append(capacity(f"k{i}", "wait", where, **sizes_there))
    for i in range(draw(st.integers(0, 4))):
        to = draw(st.sampled_from((*VOLUMES, None)))
        found.append(attachment(f"a{i}", draw(st.sampled_from(NODES)), to))
    return found


@st.composite
def cases(draw: st.DrawFn, kinds: str = "claims") -> Case:
    """A pending pod with volumes, up to four nodes with up to four pods, and storage."""
    names = NODES[: draw(st.integers(1, len(NODES)))]
    pending = draw(pods(least=1, kinds=kinds))
    homes = draw(st.lists(st.sampled_from(names), max_size=4))
    there = [draw(pods(f"p{i}", home, kinds=kinds)) for i, home in enumerate(homes)]
    ephemeral = [
        (f"{one.name}-{v.name}", one.uid)
        for one in (pending, *there)
        for v in one.spec.volumes
        if v.ephemeral is not None
    ]
    generated = [draw(nodes(name)) for name in names]
    return case(pending, generated, draw(random_objects(ephemeral)), there)
