"""Translation of in-tree volumes to the CSI drivers that they were migrated to.

A volume that names a disk of a cloud directly belongs to a storage plugin that no longer exists; a
CSI driver serves it instead. Plugins read the driver and handle that the volume has then, and the
node labels of its node affinity.

Source: Kubernetes v1.36, csi-translation-lib.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from stowplan.objects.selectors import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from stowplan.objects.storage import CSIVolume, PersistentVolume, PVSpec, VolumeNodeAffinity
from stowplan.objects.volume import AWSElasticBlockStore, AzureDisk, GCEPersistentDisk, Volume

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONE_SEPARATOR = "__"

_UNSPECIFIED = "UNSPECIFIED"


class TranslationError(ValueError):
    """An in-tree volume that has no CSI equivalent; the text is the original's."""


class InTreePlugin(msgspec.Struct, frozen=True):
    """An in-tree storage plugin that was migrated to a CSI driver.

    field: its source in a volume. driver: the CSI driver. zone_key: the node label of the driver
    for zones, "" where the topology is not translated. is_migrated: False for those whose volumes
    the scheduler does not translate.
    """

    name: str
    field: str
    driver: str
    zone_key: str = ""
    is_migrated: bool = True


PLUGINS = (
    InTreePlugin(
        "kubernetes.io/gce-pd",
        "gce_persistent_disk",
        "pd.csi.storage.gke.io",
        "topology.gke.io/zone",
    ),
    InTreePlugin(
        "kubernetes.io/aws-ebs",
        "aws_elastic_block_store",
        "ebs.csi.aws.com",
        "topology.ebs.csi.aws.com/zone",
    ),
    InTreePlugin(
        "kubernetes.io/cinder",
        "cinder",
        "cinder.csi.openstack.org",
        "topology.cinder.csi.openstack.org/zone",
    ),
    InTreePlugin("kubernetes.io/azure-disk", "azure_disk", "disk.csi.azure.com"),
    InTreePlugin("kubernetes.io/azure-file", "azure_file", "file.csi.azure.com", is_migrated=False),
    InTreePlugin(
        "kubernetes.io/vsphere-volume",
        "vsphere_volume",
        "csi.vsphere.vmware.com",
        is_migrated=False,
    ),
    InTreePlugin("kubernetes.io/portworx-volume", "portworx_volume", "pxd.portworx.com"),
)

_SOURCES = attrgetter(*(plugin.field for plugin in PLUGINS))
_NO_SOURCES = (None,) * len(PLUGINS)
_BY_NAME = {plugin.name: plugin for plugin in PLUGINS}


def in_tree_plugin_of(source: PVSpec | Volume) -> InTreePlugin | None:
    """The in-tree plugin of a volume's source, None for every other volume."""
    sources = _SOURCES(source)
    if sources == _NO_SOURCES:
        return None
    for plugin, one in zip(PLUGINS, sources, strict=True):
        if one is not None:
            return plugin
    return None


def in_tree_plugin_by_name(name: str) -> InTreePlugin | None:
    """The in-tree plugin of this name (as a provisioner), None when there is none."""
    return _BY_NAME.get(name)


def translate_inline_volume(volume: Volume, plugin: InTreePlugin) -> CSIVolume:
    """Driver and handle of an inline volume of a pod; raises TranslationError."""
    return CSIVolume(plugin.driver, _HANDLES[plugin.name](volume, {}))


def handle_of(volume: PersistentVolume, plugin: InTreePlugin) -> str:
    """The handle of an in-tree volume at the driver of its plugin; raises TranslationError."""
    return _HANDLES[plugin.name](volume.spec, volume.labels)


def translate_in_tree_volume(volume: PersistentVolume, plugin: InTreePlugin) -> PersistentVolume:
    """The volume with a CSI source and the driver's topology; raises TranslationError."""
    handle = handle_of(volume, plugin)
    spec = replace(
        volume.spec,
        csi=CSIVolume(plugin.driver, handle),
        node_affinity=_translated_affinity(volume, plugin.zone_key)
        if plugin.zone_key
        else volume.spec.node_affinity,
        **{plugin.field: None},
    )
    return replace(volume, spec=spec)


# Handles.


def _gce_handle(disk: GCEPersistentDisk | None, labels: Mapping[str, str]) -> str:
    assert disk is not None
    label = labels.get(BETA_ZONE) or labels.get(ZONE) or ""
    zones = label.split(ZONE_SEPARATOR)
    if len(zones) > 1:
        region = _gce_region(zones)
        return f"projects/{_UNSPECIFIED}/regions/{region}/disks/{disk.pd_name}"
    return f"projects/{_UNSPECIFIED}/zones/{zones[0] or _UNSPECIFIED}/disks/{disk.pd_name}"


def _gce_region(zones: Iterable[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        labels = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            "failed to get region from zones: "
            f"multiple or no regions gotten from zones, got: map[{labels}]"
        )
    return regions.pop()


def _aws_handle(disk: AWSElasticBlockStore | None) -> str:
    """The volume id, extracted from `aws://ZONE/ID` where it has that form."""
    assert disk is not None
    given = disk.volume_id
    if not given.startswith("aws://"):
        return given
    # Unproved: the original also refuses what no URL may contain, with the URL parser's words.
    path = given.removeprefix("aws://").partition("#")[0].partition("?")[0].partition("/")[2]
    handle = unquote(path).strip("/")
    if not handle.startswith("vol-") or "/" in handle:
        raise TranslationError(
            "failed to translate Kubernetes ID to EBS Volume ID "
            f"Invalid format for AWS volume ({given})"
        )
    return handle


def _azure_handle(disk: AzureDisk | None) -> str:
    assert disk is not None
    if disk.kind is not None and disk.kind.lower() != "managed":
        raise TranslationError(f"kind({disk.kind}) is not supported in csi migration")
    return disk.disk_uri


def _volume_id(source: PVSpec | Volume) -> str:
    """The handle of plugins that use the id unchanged (Cinder, Portworx)."""
    disk = source.cinder or source.portworx_volume
    assert disk is not None
    return disk.volume_id


_HANDLES: dict[str, Callable[[PVSpec | Volume, Mapping[str, str]], str]] = {
    "kubernetes.io/gce-pd": lambda v, labels: _gce_handle(v.gce_persistent_disk, labels),
    "kubernetes.io/aws-ebs": lambda v, _: _aws_handle(v.aws_elastic_block_store),
    "kubernetes.io/cinder": lambda v, _: _volume_id(v),
    "kubernetes.io/azure-disk": lambda v, _: _azure_handle(v.azure_disk),
    "kubernetes.io/portworx-volume": lambda v, _: _volume_id(v),
}
"""In-tree plugin -> the handle of a volume with these labels; an inline volume has none."""


# Topology.


def _translated_affinity(volume: PersistentVolume, zone_key: str) -> VolumeNodeAffinity | None:
    """Node affinity on the driver's zone label: renamed where it exists, else from the labels."""
    affinity = volume.spec.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    zone, region = _labels_in_use(volume, terms)
    if _has_values_for(terms, zone):
        terms = _rename_keys(terms, zone, zone_key)
    elif zone in volume.labels:
        terms = _with_zones(terms, zone_key, volume.labels[zone].split(ZONE_SEPARATOR))
    if region == BETA_REGION and _has_values_for(terms, region):
        terms = _rename_keys(terms, region, REGION)
    return VolumeNodeAffinity(NodeSelector(terms)) if terms else affinity


def _labels_in_use(
    volume: PersistentVolume, terms: tuple[NodeSelectorTerm, ...]
) -> tuple[str, str]:
    """(zone, region) label in the spelling that the volume uses; its affinity counts before its
    labels."""
    keys = {r.key for term in terms for r in term.match_expressions}
    for names in (keys, volume.labels):
        if ZONE in names:
            return ZONE, REGION
        if BETA_ZONE in names:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _has_values_for(terms: tuple[NodeSelectorTerm, ...], key: str) -> bool:
    """True when a requirement on `key` names values."""
    return any(r.key == key and r.values for term in terms for r in term.match_expressions)


def _rename_keys(
    terms: tuple[NodeSelectorTerm, ...], old: str, new: str
) -> tuple[NodeSelectorTerm, ...]:
    return tuple(
        NodeSelectorTerm(
            tuple(replace(r, key=new) if r.key == old else r for r in term.match_expressions),
            term.match_fields,
        )
        for term in terms
    )


def _with_zones(
    terms: tuple[NodeSelectorTerm, ...], key: str, zones: Iterable[str]
) -> tuple[NodeSelectorTerm, ...]:
    """Every term, or a first one, with the zones as one more requirement; blank ones do not
    count."""
    values = tuple(sorted({zone.strip() for zone in zones} - {""}))
    if not values:
        return terms
    condition = NodeSelectorRequirement(key, "In", values)
    return tuple(
        NodeSelectorTerm((*term.match_expressions, condition), term.match_fields)
        for term in terms or (NodeSelectorTerm(),)
    )
