"""Claims that are alike: pods whose claims are bound to volumes of the same kind get equal answers.

A bound claim counts by what its volume allows: the nodes that reach it, its zones, and the driver
that attaches it. Two volumes that agree in these are of one kind, whatever their names are. What a
node attaches is compared with its limit by upper bounds, in which every claim of a pod counts.

Source: kube-scheduler v1.36, plugins/volumebinding, volumezone, nodevolumelimits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.deciders.kernel_terms import RunLimit
from stowplan.objects.pod import Pod
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.attached_volumes import AttachmentColumns
from stowplan.plugins.volumes.csi_translation import (
    InTreePlugin,
    TranslationError,
    handle_of,
    in_tree_plugin_of,
    translate_in_tree_volume,
)
from stowplan.plugins.volumes.volume_claims import is_fully_bound, volume_uses_of
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_topology import AccessibleTopology, volume_topology
from stowplan.plugins.volumes.volume_usage import VolumeUsage
from stowplan.plugins.volumes.volume_zone import TOPOLOGY_LABELS, topology_labels_of

READ_WRITE_ONCE_POD = "ReadWriteOncePod"

NO_PLACES = (None,) * len(TOPOLOGY_LABELS)
"""The values of the zone labels of a volume without any."""

KINDS_MAX = 1_000_000
"""Volumes whose kind is kept, before all are forgotten."""

ALIKE_MAX = 65_536
"""Combinations of kinds that are kept, before all are forgotten."""


class VolumeKind(msgspec.Struct, frozen=True, cache_hash=True):
    """What the plugins read of the volume of a bound claim.

    reach, migrated_reach: the nodes that reach it, and those once its in-tree `plugin` is migrated.
    zones: label and values of its zone labels. driver: attaches it on nodes with a CSINode, "" for
    none.
    """

    reach: AccessibleTopology
    zones: tuple[tuple[str, frozenset[str]], ...]
    driver: str
    plugin: str
    migrated_reach: AccessibleTopology


class BoundClaims(msgspec.Struct, frozen=True, cache_hash=True):
    """The claims of a pod, all bound. drivers: driver -> number of volumes."""

    kinds: tuple[VolumeKind, ...]
    csi_nodes: int
    drivers: tuple[tuple[str, int], ...]


def bound_claims(pod: Pod, object_store: ObjectStore) -> BoundClaims | None:
    """The pod's claims as a hashable value; None for a pod without claims, and where one of them is
    not bound or needs to be looked at by name.

    csi_nodes: revision of the CSINodes where one of the volumes may be migrated.
    """
    uses = volume_uses_of(pod.spec)
    names = uses.named_claims
    if not names or uses.disks or len(names) != len(uses.attachable):
        return None
    namespace, kinds = pod.namespace, []
    for name in names:
        claim = object_store.find(PersistentVolumeClaim, f"{namespace}/{name}")
        kind = None if claim is None else kind_of_bound(claim, object_store)
        if kind is None:
            return None
        kinds.append(kind)
    return claims_of_kinds(kinds, object_store)


def claims_of_kinds(kinds: Sequence[VolumeKind], object_store: ObjectStore) -> BoundClaims:
    """Bound claims by the kinds of their volumes, which are the values of `kind_of_bound`."""
    csi_nodes = 0
    for kind in kinds:
        if kind.plugin:
            csi_nodes = object_store.version_of((CSINode,))
            break
    known = VolumeIndex.of(object_store).alike
    key = csi_nodes, *map(id, kinds)
    alike: BoundClaims | None = known.get(key)
    if alike is None:
        if len(known) >= ALIKE_MAX:
            known.clear()
        drivers = Counter(kind.driver for kind in kinds if kind.driver)
        # It holds the kinds, so no others have their identities.
        alike = known[key] = BoundClaims(tuple(kinds), csi_nodes, tuple(drivers.items()))
    return alike


def kind_of_bound(claim: PersistentVolumeClaim, object_store: ObjectStore) -> VolumeKind | None:
    """The kind of the volume of a claim, equal ones are one object; None for a claim that is not
    bound or has to be looked at by name."""
    spec = claim.spec
    if (
        not is_fully_bound(claim)
        or claim.status.phase == "Lost"
        or claim.metadata.deletion_timestamp is not None
        or READ_WRITE_ONCE_POD in spec.access_modes
    ):
        return None
    volume = object_store.find(PersistentVolume, spec.volume_name)
    if volume is None:
        return None
    index = VolumeIndex.of(object_store)
    known = index.kinds
    found = known.get(spec.volume_name)
    if found is None or found[0] is not volume:
        if len(known) >= KINDS_MAX:
            index.forget_kinds()
        found = known[spec.volume_name] = volume, _kind_of_volume(volume, index)
    kind: VolumeKind | None = found[1]
    return kind


def _kind_of_volume(volume: PersistentVolume, index: VolumeIndex) -> VolumeKind | None:
    """The kind, made once for all volumes that say the same of what it is made of."""
    spec, labels = volume.spec, volume.metadata.labels
    plugin = in_tree_plugin_of(spec)
    if plugin is not None and not plugin.is_migrated:
        plugin = None
    driver, handle = ("", "") if spec.csi is None else (spec.csi.driver, spec.csi.volume_handle)
    if plugin is not None:
        try:
            translated = handle_of(volume, plugin)
        except TranslationError:
            return None
        if spec.csi is None:
            driver, handle = plugin.driver, translated
    if not handle:
        driver = ""
    name = "" if plugin is None else plugin.name
    places = tuple(map(labels.get, TOPOLOGY_LABELS)) if labels else NO_PLACES
    content = driver, name, places, spec.node_affinity
    kind: VolumeKind | None = index.kinds_by_content.get(content)
    if kind is None:
        kind = _read_kind(volume, plugin, driver)
        # Equal ones are one object.
        kind = index.distinct_kinds.setdefault(kind, kind)
        index.kinds_by_content[content] = kind
    return kind


def _read_kind(volume: PersistentVolume, plugin: InTreePlugin | None, driver: str) -> VolumeKind:
    """The kind of a volume. plugin: of a migrated in-tree volume. Raises TranslationError."""
    there = reach = volume_topology(volume)
    if plugin is not None:
        there = volume_topology(translate_in_tree_volume(volume, plugin))
    zones = tuple((label.key, label.values) for label in topology_labels_of(volume))
    return VolumeKind(reach, zones, driver, "" if plugin is None else plugin.name, there)


def volume_run_limit(drivers: Sequence[tuple[str, int]]) -> RunLimit:
    """How many pods with so many volumes per driver a run may have so that no row can exceed a
    limit."""

    def limit(snapshot: Snapshot) -> int:
        return pods_below_limits(drivers, snapshot)

    return RunLimit(limit)


def pods_below_limits(drivers: Sequence[tuple[str, int]], snapshot: Snapshot) -> int:
    """The number of pods with so many volumes per driver that every single row can attach, by upper
    bounds; 0 where volumes have to be counted."""
    nodes = snapshot.nodes
    columns = AttachmentColumns.of(nodes, snapshot.object_store)
    use, n_nodes = VolumeUsage.of(nodes), nodes.n_nodes
    if any(columns.is_limited[row] for row in use.delicate):
        return 0
    most = use.attachable[:n_nodes] + columns.listed[:n_nodes]
    found = int(AttachmentColumns.UNLIMITED)
    n_volumes = sum(n_new for _, n_new in drivers)
    for driver, _ in drivers:
        if driver in columns.limits:
            left = columns.limits[driver][:n_nodes] - most
            found = min(found, int(left.min(initial=found)) // n_volumes)
    return max(found, 0)
