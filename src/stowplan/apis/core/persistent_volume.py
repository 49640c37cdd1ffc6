"""PersistentVolume.

Source: kubernetes v1.36, pkg/registry/core/persistentvolume, pkg/apis/core/validation.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.core.volume_claim_spec import VOLUME_MODES, access_modes
from stowplan.apis.core.volume_source import csi_driver_name, host_path, nfs
from stowplan.apis.kind.printing import UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import restore_field
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported, required
from stowplan.apis.machinery.resource import ApiCall, ResourceStrategy
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.internal_form import internal_diff, internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PersistentVolumeReclaimPolicy PersistentVolumePhase = string

GlusterfsPersistentVolumeSource
  +GlusterfsVolumeSource
  endpointsNamespace string?

RBDPersistentVolumeSource
  +RBDVolumeSource
  secretRef SecretReference?

CinderPersistentVolumeSource
  +CinderVolumeSource
  secretRef SecretReference?

CephFSPersistentVolumeSource
  +CephFSVolumeSource
  secretRef SecretReference?

SecretReference
  name string
  namespace string

FlexPersistentVolumeSource
  +FlexVolumeSource
  secretRef SecretReference?

ISCSIPersistentVolumeSource
  +ISCSIVolumeSource
  secretRef SecretReference?

AzureFilePersistentVolumeSource
  +AzureFileVolumeSource
  secretNamespace string?!

ScaleIOPersistentVolumeSource
  +ScaleIOVolumeSource
  secretRef SecretReference?!

StorageOSPersistentVolumeSource
  +StorageOSVolumeSource
  secretRef ObjectReference?

LocalVolumeSource
  path string!
  fsType string?

CSIPersistentVolumeSource
  driver string!
  volumeHandle string!
  readOnly bool
  fsType string
  volumeAttributes {string}
  controllerPublishSecretRef SecretReference?
  nodeStageSecretRef SecretReference?
  nodePublishSecretRef SecretReference?
  controllerExpandSecretRef SecretReference?
  nodeExpandSecretRef SecretReference?

PersistentVolume -- a storage resource of the cluster.
  +PartialObjectMetadata
  spec PersistentVolumeSpec
  status PersistentVolumeStatus

PersistentVolumeSource
  gcePersistentDisk GCEPersistentDiskVolumeSource?
  awsElasticBlockStore AWSElasticBlockStoreVolumeSource?
  hostPath HostPathVolumeSource?
  glusterfs GlusterfsPersistentVolumeSource?
  nfs NFSVolumeSource?
  rbd RBDPersistentVolumeSource?
  iscsi ISCSIPersistentVolumeSource?
  cinder CinderPersistentVolumeSource?
  cephfs CephFSPersistentVolumeSource?
  fc FCVolumeSource?
  flocker FlockerVolumeSource?
  flexVolume FlexPersistentVolumeSource?
  azureFile AzureFilePersistentVolumeSource?
  vsphereVolume VsphereVirtualDiskVolumeSource?
  quobyte QuobyteVolumeSource?
  azureDisk AzureDiskVolumeSource?
  photonPersistentDisk PhotonPersistentDiskVolumeSource?
  portworxVolume PortworxVolumeSource?
  scaleIO ScaleIOPersistentVolumeSource?
  local LocalVolumeSource?
  storageos StorageOSPersistentVolumeSource?
  csi CSIPersistentVolumeSource?

PersistentVolumeSpec
  capacity ResourceList?
  +PersistentVolumeSource
  accessModes [PersistentVolumeAccessMode]
  claimRef ObjectReference? -- the claim that it is bound to.
  persistentVolumeReclaimPolicy PersistentVolumeReclaimPolicy =Retain
  storageClassName string
  mountOptions [string]
  volumeMode PersistentVolumeMode? =Filesystem
  nodeAffinity VolumeNodeAffinity? -- the nodes that can access it.
  volumeAttributesClassName string?

VolumeNodeAffinity
  required NodeSelector?

PersistentVolumeStatus
  phase PersistentVolumePhase =Pending
  message string
  reason string
  lastPhaseTransitionTime Time?
"""
_RECLAIM = ("Delete", "Recycle", "Retain")
_NOT_SOURCES = frozenset(
    {
        "capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy",
        "storageClassName", "mountOptions", "volumeMode", "nodeAffinity",
        "volumeAttributesClassName",
    }
)  # fmt: skip
_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"


class PersistentVolumeStrategy(ResourceStrategy):
    """PersistentVolume."""

    returns_deleted = True

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        since = timestamps.format_time(call.now)
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": since}

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "status")

    def validate(self, obj: Tree, call: ApiCall) -> Iterable[Cause]:
        return _validate_spec(obj["spec"], "spec")

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from _validate_spec(new["spec"], "spec")
        yield from _validate_spec_update(new["spec"], old["spec"])


class PersistentVolumeStatusStrategy(ResourceStrategy):
    """`persistentvolumes/status`: a change of phase sets lastPhaseTransitionTime."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        restore_field(new, old, "spec")
        status, before = new["status"], old["status"]
        since, was = status.get("lastPhaseTransitionTime"), before.get("lastPhaseTransitionTime")
        if status.get("phase") == before.get("phase"):
            if since is None and was is not None:
                status["lastPhaseTransitionTime"] = was
        elif since is None or since == was:
            status["lastPhaseTransitionTime"] = timestamps.format_time(call.now)


def _validate_spec(spec: Tree, path: str) -> Iterator[Cause]:
    modes = spec.get("accessModes", [])
    if not modes:
        yield required(f"{path}.accessModes")
    yield from access_modes(modes, f"{path}.accessModes")
    yield from _validate_capacity(spec.get("capacity"), f"{path}.capacity")
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if policy and policy not in _RECLAIM:
        yield not_supported(f"{path}.persistentVolumeReclaimPolicy", policy, _RECLAIM)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        wanted = affinity.get("required")
        if wanted is None:
            text = "must specify required node constraints"
            yield required(f"{path}.nodeAffinity.required", text)
        else:
            yield from pod_scheduling.node_selector(wanted, f"{path}.nodeAffinity.required")
    yield from _validate_source(spec, path)
    yield from _validate_other_fields(spec, path)


def _validate_capacity(given: dict[str, str] | None, path: str) -> Iterator[Cause]:
    if not given:
        yield required(path)
    if not given or "storage" not in given or len(given) > 1:
        yield not_supported(path, given, ["storage"])
    for name, value in sorted((given or {}).items()):
        here = f"{path}[{name}]"
        if canonical_quantity.is_negative(value):
            yield invalid(
                here, canonical_quantity.amount(value).value(), "must be a valid resource quantity"
            )
        if canonical_quantity.is_negative(value) or canonical_quantity.is_zero(value):
            yield invalid(here, value, field_checks.POSITIVE)


def _validate_source(spec: Tree, path: str) -> Iterator[Cause]:
    yield from _validate_one_source(spec, path)
    host = spec.get("hostPath", {}).get("path", "")
    root = "hostPath" in spec and posixpath.normpath(host).rstrip("/") == ""
    if root and spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden_field(f"{path}.persistentVolumeReclaimPolicy", text)


def _validate_one_source(spec: Tree, path: str) -> Iterator[Cause]:
    sources = [name for name in spec if name not in _NOT_SOURCES]
    for name in sources[1:]:
        yield forbidden_field(f"{path}.{name}", "may not specify more than 1 volume type")
    if not sources:
        yield required(path, "must specify a volume type")
        return
    name, source = sources[0], spec[sources[0]]
    here = f"{path}.{name}"
    match name:
        case "hostPath":
            yield from host_path(source, here)
        case "nfs":
            yield from nfs(source, here)
        case "local":
            yield from field_checks.needed(
                source["path"], field_checks.path_without_backsteps, f"{here}.path"
            )
            if "nodeAffinity" not in spec:
                yield required(f"{path}.nodeAffinity", "Local volume requires node affinity")
        case "csi":
            yield from csi_driver_name(source["driver"], f"{here}.driver")
            if not source["volumeHandle"]:
                yield required(f"{here}.volumeHandle")


def _validate_other_fields(spec: Tree, path: str) -> Iterator[Cause]:
    if spec.get("storageClassName"):
        yield from field_checks.dns_subdomain(spec["storageClassName"], f"{path}.storageClassName")
    mode = spec.get("volumeMode")
    yield from field_checks.one_of(mode, VOLUME_MODES, f"{path}.volumeMode")
    attributes = spec.get("volumeAttributesClassName")
    if attributes is not None:
        here = f"{path}.volumeAttributesClassName"
        if not attributes:
            yield required(here, "an empty string is disallowed")
        else:
            yield from field_checks.dns_subdomain(attributes, here)
        if "csi" not in spec:
            text = "has to be specified when using volumeAttributesClassName"
            yield required(f"{path}.csi", text)


def _source_of(spec: Tree) -> Tree:
    return {name: value for name, value in spec.items() if name not in _NOT_SOURCES}


def _validate_spec_update(new: Tree, old: Tree) -> Iterator[Cause]:
    if _source_of(new) != _source_of(old):
        diff = internal_diff("core/v1.PersistentVolumeSource", _source_of(old), _source_of(new))
        text = f"spec.persistentvolumesource is immutable after creation\n{diff}"
        yield forbidden_field("spec.persistentvolumesource", text)
    yield from field_checks.immutable(new.get("volumeMode"), old.get("volumeMode"), "volumeMode")
    if "nodeAffinity" in old and new.get("nodeAffinity") != old["nodeAffinity"]:
        printed = internal_form("core/v1.VolumeNodeAffinity", new.get("nodeAffinity"))
        text = f"{field_checks.IMMUTABLE}, except for updating from beta label to GA"
        yield invalid("nodeAffinity", printed, text)


def short_access_modes(given: list[str]) -> str:
    """Access modes as `RWO,ROX`."""
    return ",".join(short for name, short in _ACCESS_MODES.items() if name in given)


def storage_class_of(obj: Tree) -> str:
    """The storage class of a volume or claim, from the beta annotation if it has one."""
    old = obj["metadata"].get("annotations", {}).get(_OLD_CLASS)
    return str(old if old is not None else obj["spec"].get("storageClassName", ""))


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    claim = spec.get("claimRef")
    deleting = obj["metadata"].get("deletionTimestamp")
    return [
        short_access_modes(spec.get("accessModes", [])),
        "Terminating" if deleting else status.get("phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim is not None else "",
        storage_class_of(obj),
    ]


KIND = KindRegistration(
    kind="PersistentVolume",
    types=TYPES,
    namespaced=False,
    strategy=PersistentVolumeStrategy(),
    status=PersistentVolumeStatusStrategy(),
    short_names=("pv",),
    table=PrintedTable(
        "Name, Capacity=spec.capacity.storage|0, Access Modes, "
        "Reclaim Policy=spec.persistentVolumeReclaimPolicy, Status, Claim, StorageClass, "
        f"VolumeAttributesClass=spec.volumeAttributesClassName|{UNSET}, Reason=status.reason, Age, "
        f"VolumeMode+=spec.volumeMode|{UNSET}",
        _cells,
    ),
)
