"""Volumes, claims, storage classes and CSI drivers.

Source: Kubernetes core/v1 and storage/v1 APIs, v1.36.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import LabelSelector, NodeSelector
from stowplan.objects.volume import (
    AWSElasticBlockStore,
    AzureDisk,
    AzureFile,
    Cinder,
    GCEPersistentDisk,
    PortworxVolume,
    PVCSpec,
    VsphereVolume,
)


class ObjectReference(Value, frozen=True):
    """A pointer to a namespaced object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class CSIVolume(Value, frozen=True):
    """The CSI source of a PersistentVolume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Value, frozen=True):
    """`nodeAffinity` of a PersistentVolume: the nodes that can access it."""

    required: NodeSelector | None = None


class PVSpec(Value, frozen=True):
    """`spec` of a PersistentVolume."""

    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None
    vsphere_volume: VsphereVolume | None = None


class PhaseStatus(Value, frozen=True):
    """`status` of a volume or a claim: its phase."""

    phase: str = ""


class PersistentVolume(Object, frozen=True):
    """A PersistentVolume."""

    spec: PVSpec = PVSpec()
    status: PhaseStatus = PhaseStatus()


class PersistentVolumeClaim(NamespacedObject, frozen=True):
    """A PersistentVolumeClaim."""

    spec: PVCSpec = PVCSpec()
    status: PhaseStatus = PhaseStatus()


class TopologySelectorRequirement(Value, frozen=True):
    """A label and the values it may have."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Value, frozen=True):
    """Requirements that must all hold."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    """A StorageClass."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(Value, frozen=True):
    """`allocatable` of a driver on a node; no count means no limit."""

    count: int | None = None


class CSINodeDriver(Value, frozen=True):
    """A CSI driver as it runs on a node."""

    name: str = ""
    node_id: str = field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Value, frozen=True):
    """`spec` of a CSINode."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """The CSI drivers of the node of the same name."""

    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Value, frozen=True):
    """`spec` of a CSIDriver."""

    storage_capacity: bool | None = None
    attach_required: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Object, frozen=True):
    """A CSIDriver."""

    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(NamespacedObject, frozen=True):
    """A CSIStorageCapacity: how much a driver can provision on the nodes of `node_topology`."""

    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Value, frozen=True):
    """The attached volume: by name, or an inline spec."""

    persistent_volume_name: str | None = None
    inline_volume_spec: PVSpec | None = None


class VolumeAttachmentSpec(Value, frozen=True):
    """`spec` of a VolumeAttachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True):
    """A volume that a driver attaches to a node."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
