"""What stands beside nodes and pods, by the dice: volumes, claims, classes, services, owners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from stowplan.objects.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIVolume,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    PVSpec,
    StorageClass,
    VolumeCount,
    VolumeNodeAffinity,
)
from stowplan.objects.volume import (
    EphemeralVolume,
    GCEPersistentDisk,
    PVCSpec,
    PVCTemplate,
    PVCUse,
    Volume,
    VolumeResources,
)
from stowplan.objects.workload import (
    Namespace,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    ReplicaSet,
    Service,
    ServiceSpec,
    WorkloadSpec,
)
from stowplan.testing.dice import Dice, chance, number, pick
from stowplan.testing.make import ZONE

NAMESPACES = ("default", "prod")
APPS = ("web", "db", "cache")
ZONES = ("a", "b", "c")
DRIVER = "csi.example.com"
CLAIMS = ("bound", "bound-too", "waiting", "eager", "missing")
_DISKS = ("disk-1", "disk-2")


def volumes(dice: Dice) -> tuple[Volume, ...]:
    """The volumes of a pod: usually none."""
    if not chance(dice, 4):
        return ()
    claim, disk = pick(dice, CLAIMS), pick(dice, _DISKS)
    return pick(
        dice,
        (
            (Volume(name="v", persistent_volume_claim=PVCUse(claim_name=claim)),),
            (
                Volume(name="v", persistent_volume_claim=PVCUse(claim_name="bound")),
                Volume(name="w", persistent_volume_claim=PVCUse(claim_name=claim)),
            ),
            (
                Volume(
                    name="v",
                    gce_persistent_disk=GCEPersistentDisk(pd_name=disk, read_only=chance(dice, 3)),
                ),
            ),
            (
                Volume(
                    name="v",
                    ephemeral=EphemeralVolume(
                        volume_claim_template=PVCTemplate(spec=_claim_spec("waits", ""))
                    ),
                ),
            ),
        ),
    )


def world_objects(dice: Dice, node_names: Sequence[str]) -> tuple[Object, ...]:
    """The other objects of a cluster with these nodes."""
    return (
        *_namespaces(),
        *_classes(),
        *(each for namespace in NAMESPACES for each in _claims(dice, namespace)),
        *_drivers(dice, node_names),
        *_selecting(dice),
    )


def _namespaces() -> Iterator[Object]:
    for name in NAMESPACES:
        yield Namespace(metadata=ObjectMeta(name=name, labels={"name": name}))


def _classes() -> Iterator[Object]:
    for name, mode in (("waits", "WaitForFirstConsumer"), ("eager", "Immediate")):
        yield StorageClass(
            metadata=ObjectMeta(name=name), provisioner=DRIVER, volume_binding_mode=mode
        )


def _claims(dice: Dice, namespace: str) -> Iterator[Object]:
    for name in ("bound", "bound-too"):
        volume = f"{namespace}-{name}"
        yield _volume(dice, volume, namespace, name)
        yield PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=volume),
            spec=_claim_spec("waits", volume),
            status=PhaseStatus(phase="Bound"),
        )
    for name, storage_class in (("waiting", "waits"), ("eager", "eager")):
        yield PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}-{name}"),
            spec=_claim_spec(storage_class, ""),
            status=PhaseStatus(phase="Pending"),
        )
    yield PersistentVolume(
        metadata=ObjectMeta(name=f"{namespace}-free"),
        spec=PVSpec(
            capacity={"storage": "10Gi"},
            access_modes=("ReadWriteOnce",),
            storage_class_name="waits",
            node_affinity=_in_zone(pick(dice, ZONES)),
        ),
        status=PhaseStatus(phase="Available"),
    )


def _claim_spec(storage_class: str, volume: str) -> PVCSpec:
    return PVCSpec(
        access_modes=("ReadWriteOnce",),
        resources=VolumeResources(requests={"storage": "5Gi"}),
        storage_class_name=storage_class,
        volume_name=volume,
    )


def _volume(dice: Dice, name: str, namespace: str, claim: str) -> PersistentVolume:
    zone = pick(dice, ZONES)
    claim_ref = ObjectReference(
        kind="PersistentVolumeClaim", namespace=namespace, name=claim, uid=name
    )
    return PersistentVolume(
        metadata=ObjectMeta(name=name, labels={ZONE: zone} if chance(dice, 2) else {}),
        spec=PVSpec(
            capacity={"storage": "5Gi"},
            access_modes=("ReadWriteOnce",),
            claim_ref=claim_ref,
            storage_class_name="waits",
            node_affinity=_in_zone(zone) if chance(dice, 2) else None,
            csi=CSIVolume(driver=DRIVER, volume_handle=name),
        ),
        status=PhaseStatus(phase="Bound"),
    )


def _in_zone(zone: str) -> VolumeNodeAffinity:
    requirement = NodeSelectorRequirement(key=ZONE, operator="In", values=(zone,))
    term = NodeSelectorTerm(match_expressions=(requirement,))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


def _drivers(dice: Dice, node_names: Sequence[str]) -> Iterator[Object]:
    yield CSIDriver(metadata=ObjectMeta(name=DRIVER), spec=CSIDriverSpec(attach_required=True))
    for name in node_names:
        limit = pick(dice, (None, 1, 2, 0))
        driver = CSINodeDriver(
            name=DRIVER, node_id=name, topology_keys=(ZONE,), allocatable=VolumeCount(count=limit)
        )
        yield CSINode(metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers=(driver,)))


def _selecting(dice: Dice) -> Iterator[Object]:
    """Objects that select pods: services, owners, budgets."""
    for namespace in NAMESPACES:
        app = pick(dice, APPS)
        named = ObjectMeta(name=app, namespace=namespace)
        labels = LabelSelector(match_labels={"app": app})
        yield Service(metadata=named, spec=ServiceSpec(selector={"app": app}))
        yield ReplicaSet(metadata=named, spec=WorkloadSpec(selector=labels))
        yield PodDisruptionBudget(
            metadata=named,
            spec=PodDisruptionBudgetSpec(selector=labels),
            status=PodDisruptionBudgetStatus(disruptions_allowed=number(dice, 0, 2)),
        )
