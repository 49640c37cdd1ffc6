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
from stowplan.plugins.volumes.attached_volumes import AttachmentColumns, csi_of_claim
from stowplan.plugins.volumes.csi_translation import (
    TranslationError,
    in_tree_plugin_of,
    translate_in_tree_volume,
)
from stowplan.plugins.volumes.volume_claims import find_claim, is_fully_bound, volume_uses_of
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_topology import AccessibleTopology, volume_topology
from stowplan.plugins.volumes.volume_usage import VolumeUsage
from stowplan.plugins.volumes.volume_zone import topology_labels_of

READ_WRITE_ONCE_POD = "ReadWriteOncePod"

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
    if not uses.claims or uses.disks or len(uses.claims) != len(uses.attachable):
        return None
    kinds: list[VolumeKind] = []
    for use in uses.claims:
        claim = None if use.is_ephemeral else find_claim(object_store, pod, use.name)
        kind = None if claim is None else kind_of_bound(claim, object_store)
        if kind is None:
            return None
        kinds.append(kind)
    return claims_of_kinds(kinds, object_store)


def claims_of_kinds(kinds: Sequence[VolumeKind], object_store: ObjectStore) -> BoundClaims:
    """Bound claims by the kinds of their volumes, which are the values of `kind_of_bound`."""
    has_plugin = any(kind.plugin for kind in kinds)
    csi_nodes = object_store.version_of((CSINode,)) if has_plugin else 0
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
    if (
        not is_fully_bound(claim)
        or claim.status.phase == "Lost"
        or claim.metadata.deletion_timestamp is not None
        or READ_WRITE_ONCE_POD in claim.spec.access_modes
    ):
        return None
    volume = object_store.find(PersistentVolume, claim.spec.volume_name)
    if volume is None:
        return None
    known = VolumeIndex.of(object_store).kinds
    found = known.get(volume.name)
    if found is None or found[0] is not volume:
        if len(known) >= KINDS_MAX:
            VolumeIndex.of(object_store).forget_kinds()
        read = _read_kind(claim, volume, object_store)
        if read is not None:
            read = VolumeIndex.of(object_store).distinct_kinds.setdefault(read, read)
        found = known[volume.name] = volume, read
    kind: VolumeKind | None = found[1]
    return kind


def _read_kind(
    claim: PersistentVolumeClaim, volume: PersistentVolume, object_store: ObjectStore
) -> VolumeKind | None:
    driver, handle = csi_of_claim(claim, object_store, has_csi_node=True)
    reach = volume_topology(volume)
    plugin = in_tree_plugin_of(volume.spec)
    name, there = "", reach
    if plugin is not None and plugin.is_migrated:
        try:
            name, there = plugin.name, volume_topology(translate_in_tree_volume(volume, plugin))
        except TranslationError:
            return None
    zones = tuple((label.key, label.values) for label in topology_labels_of(volume))
    return VolumeKind(reach, zones, driver if handle else "", name, there)


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
