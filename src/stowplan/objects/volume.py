"""Volumes of pods, with the sources that plugins read."""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import ObjectMeta, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import LabelSelector


class GCEPersistentDisk(Value, frozen=True):
    """A Google Cloud disk, by name."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Value, frozen=True):
    """An AWS disk, by volume id."""

    volume_id: str = field(default="", name="volumeID")
    read_only: bool = False


class ISCSI(Value, frozen=True):
    """An iSCSI target."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class RBD(Value, frozen=True):
    """A Ceph block image."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class AzureDisk(Value, frozen=True):
    """An Azure disk."""

    disk_name: str = ""
    disk_uri: str = field(default="", name="diskURI")
    kind: str | None = None


class Cinder(Value, frozen=True):
    """An OpenStack volume."""

    volume_id: str = field(default="", name="volumeID")


class AzureFile(Value, frozen=True):
    """An Azure file share."""

    secret_name: str = ""
    share_name: str = ""


class PortworxVolume(Value, frozen=True):
    """A Portworx volume."""

    volume_id: str = field(default="", name="volumeID")


class VsphereVolume(Value, frozen=True):
    """A vSphere virtual disk."""

    volume_path: str = ""


class CSIVolumeSource(Value, frozen=True):
    """An inline ephemeral CSI volume."""

    driver: str = ""


class ImageVolume(Value, frozen=True):
    """A volume whose content is an image."""

    reference: str = ""


class PVCVolumeSource(Value, frozen=True):
    """A volume backed by a claim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class VolumeResources(Value, frozen=True):
    """`resources` of a claim."""

    requests: dict[str, Quantity] = {}


class PVCSpec(Value, frozen=True):
    """`spec` of a PersistentVolumeClaim."""

    access_modes: tuple[str, ...] = ()
    resources: VolumeResources = VolumeResources()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PVCTemplate(Value, frozen=True):
    """Template of the claim of a generic ephemeral volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PVCSpec = PVCSpec()


class EphemeralVolumeSource(Value, frozen=True):
    """A volume whose claim is created with the pod."""

    volume_claim_template: PVCTemplate | None = None


class EmptyDirVolume(Value, frozen=True):
    """A directory of the node that ends with the pod. medium: "" or Memory."""

    medium: str = ""


class HostPathVolume(Value, frozen=True):
    """A file or directory of the node."""

    path: str = ""


class Volume(Value, frozen=True):
    """An entry of a pod's `spec.volumes`."""

    name: str = ""
    persistent_volume_claim: PVCVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    image: ImageVolume | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    iscsi: ISCSI | None = None
    rbd: RBD | None = None
    azure_disk: AzureDisk | None = None
    azure_file: AzureFile | None = None
    cinder: Cinder | None = None
    portworx_volume: PortworxVolume | None = None
    vsphere_volume: VsphereVolume | None = None
