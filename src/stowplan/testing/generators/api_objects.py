"""Generated objects beside nodes and pods: volumes, claims, classes, services, owners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.pod import Pod
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
    CSIStorageCapacity,
    CSIVolume,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    PVSpec,
    StorageClass,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from stowplan.objects.volume import (
    EphemeralVolumeSource,
    GCEPersistentDisk,
    PVCSpec,
    PVCTemplate,
    PVCVolumeSource,
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
from stowplan.testing.builders import ZONE
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

NAMESPACES = ("default", "prod")
APPS = ("web", "db", "cache")
ZONES = ("a", "b", "c")
DRIVER = "csi.example.com"
CLAIMS = ("bound", "bound-too", "waiting", "waiting-too", "bound", "eager", "missing")
_BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_DISKS = ("disk-1", "disk-2")


def volumes(rng: RandomSource) -> tuple[Volume, ...]:
    """The volumes of a pod: usually none."""
    if not chance(rng, 3):
        return ()
    claim, disk = pick(rng, CLAIMS), pick(rng, _DISKS)
    return pick(
        rng,
        (
            (Volume(name="v", persistent_volume_claim=PVCVolumeSource(claim_name=claim)),),
            (
                Volume(name="v", persistent_volume_claim=PVCVolumeSource(claim_name="bound")),
                Volume(name="w", persistent_volume_claim=PVCVolumeSource(claim_name=claim)),
            ),
            (
                Volume(
                    name="v",
                    gce_persistent_disk=GCEPersistentDisk(pd_name=disk, read_only=chance(rng, 3)),
                ),
            ),
            (
                Volume(
                    name="v",
                    ephemeral=EphemeralVolumeSource(
                        volume_claim_template=PVCTemplate(spec=_claim_spec("waits", ""))
                    ),
                ),
            ),
        ),
    )


def generate_objects(rng: RandomSource, node_names: Sequence[str]) -> tuple[Object, ...]:
    """The other objects of a cluster with these nodes."""
    return (
        *_namespaces(),
        *_classes(),
        *(each for namespace in NAMESPACES for each in _claims(rng, namespace, node_names)),
        *_drivers(rng, node_names),
        *_selector_objects(rng),
    )


def ephemeral_claims(rng: RandomSource, pods: Iterable[Pod]) -> tuple[Object, ...]:
    """The generated claims of the ephemeral volumes of these pods; a few are missing."""
    return tuple(
        PersistentVolumeClaim(
            metadata=ObjectMeta(
                name=f"{pod.name}-{volume.name}",
                namespace=pod.namespace,
                uid=f"{pod.uid}-{volume.name}",
                owner_references=(
                    OwnerReference(kind="Pod", name=pod.name, uid=pod.uid, controller=True),
                ),
            ),
            spec=_claim_spec("waits", ""),
            status=PhaseStatus(phase="Pending"),
        )
        for pod in pods
        for volume in pod.spec.volumes
        if volume.ephemeral is not None and not chance(rng, 4)
    )


def _namespaces() -> Iterator[Object]:
    for name in NAMESPACES:
        yield Namespace(metadata=ObjectMeta(name=name, labels={"name": name}))


def _classes() -> Iterator[Object]:
    late = "WaitForFirstConsumer"
    for name, mode in (("waits", late), ("local", late), ("eager", "Immediate")):
        yield StorageClass(
            metadata=ObjectMeta(name=name),
            provisioner=_NO_PROVISIONER if name == "local" else DRIVER,
            volume_binding_mode=mode,
        )


def _claims(rng: RandomSource, namespace: str, node_names: Sequence[str]) -> Iterator[Object]:
    for name in ("bound", "bound-too"):
        volume = f"{namespace}-{name}"
        alone = chance(rng, 3)
        yield _volume(rng, volume, namespace, name)
        yield PersistentVolumeClaim(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=volume, annotations=_BOUND),
            spec=_claim_spec("waits", volume, "ReadWriteOncePod" if alone else "ReadWriteOnce"),
            status=PhaseStatus(phase="Bound"),
        )
    for name, storage_class in (("waiting", "local"), ("waiting-too", "waits"), ("eager", "eager")):
        chosen = {_SELECTED_NODE: pick(rng, node_names)} if chance(rng, 4) else {}
        yield PersistentVolumeClaim(
            metadata=ObjectMeta(
                name=name, namespace=namespace, uid=f"{namespace}-{name}", annotations=chosen
            ),
            spec=_claim_spec(storage_class, ""),
            status=PhaseStatus(phase="Pending"),
        )
    yield PersistentVolume(
        metadata=ObjectMeta(name=f"{namespace}-free"),
        spec=PVSpec(
            capacity={"storage": "10Gi"},
            access_modes=("ReadWriteOnce",),
            storage_class_name="local",
            node_affinity=_in_zone(pick(rng, ZONES)),
        ),
        status=PhaseStatus(phase="Available"),
    )


def _claim_spec(storage_class: str, volume: str, mode: str = "ReadWriteOnce") -> PVCSpec:
    return PVCSpec(
        access_modes=(mode,),
        resources=VolumeResources(requests={"storage": "5Gi"}),
        storage_class_name=storage_class,
        volume_name=volume,
    )


def _volume(rng: RandomSource, name: str, namespace: str, claim: str) -> PersistentVolume:
    zone = pick(rng, ZONES)
    claim_ref = ObjectReference(
        kind="PersistentVolumeClaim", namespace=namespace, name=claim, uid=name
    )
    return PersistentVolume(
        metadata=ObjectMeta(name=name, labels={ZONE: zone} if chance(rng, 2) else {}),
        spec=PVSpec(
            capacity={"storage": "5Gi"},
            access_modes=("ReadWriteOnce",),
            claim_ref=claim_ref,
            storage_class_name="waits",
            node_affinity=_in_zone(zone) if chance(rng, 2) else None,
            csi=CSIVolume(driver=DRIVER, volume_handle=name),
        ),
        status=PhaseStatus(phase="Bound"),
    )


def _in_zone(zone: str) -> VolumeNodeAffinity:
    requirement = NodeSelectorRequirement(key=ZONE, operator="In", values=(zone,))
    term = NodeSelectorTerm(match_expressions=(requirement,))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


def _drivers(rng: RandomSource, node_names: Sequence[str]) -> Iterator[Object]:
    yield CSIDriver(
        metadata=ObjectMeta(name=DRIVER),
        spec=CSIDriverSpec(attach_required=True, storage_capacity=chance(rng, 2)),
    )
    for zone in ZONES:
        yield CSIStorageCapacity(
            metadata=ObjectMeta(name=f"in-{zone}", namespace="default"),
            node_topology=LabelSelector(match_labels={ZONE: zone}),
            storage_class_name="waits",
            capacity=pick(rng, ("20Gi", "7Gi", "1Gi")),
        )
    for name in node_names:
        limit = pick(rng, (None, 1, 2, 0))
        driver = CSINodeDriver(
            name=DRIVER,
            node_id=name,
            topology_keys=(ZONE,),
            allocatable=VolumeNodeResources(count=limit),
        )
        yield CSINode(metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers=(driver,)))


def _selector_objects(rng: RandomSource) -> Iterator[Object]:
    """Objects that select pods: services, owners, budgets."""
    for namespace in NAMESPACES:
        app = pick(rng, APPS)
        named = ObjectMeta(name=app, namespace=namespace)
        labels = LabelSelector(match_labels={"app": app})
        yield Service(metadata=named, spec=ServiceSpec(selector={"app": app}))
        yield ReplicaSet(metadata=named, spec=WorkloadSpec(selector=labels))
        yield PodDisruptionBudget(
            metadata=named,
            spec=PodDisruptionBudgetSpec(selector=labels),
            status=PodDisruptionBudgetStatus(disruptions_allowed=random_int(rng, 0, 2)),
        )
