"""Kinds of volumes by claim, read as claims and volumes come.

A pod with a claim needs the kind of one volume. It is read of the claim and the volume when these
arrive, while they are in the processor's cache: a pod that comes later finds it by one look-up.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import msgspec

from stowplan.framework import ObjectStore
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.csi_translation import (
    InTreePlugin,
    TranslationError,
    handle_of,
    in_tree_plugin_of,
    translate_in_tree_volume,
)
from stowplan.plugins.volumes.volume_claims import is_fully_bound
from stowplan.plugins.volumes.volume_topology import AccessibleTopology, volume_topology
from stowplan.plugins.volumes.volume_zone import TOPOLOGY_LABELS, topology_labels_of

READ_WRITE_ONCE_POD = "ReadWriteOncePod"

NO_PLACES = (None,) * len(TOPOLOGY_LABELS)
"""The values of the zone labels of a volume without any."""

KINDS_MAX = 65_536
"""Kinds that are found by what they are made of, before all are forgotten there."""


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


class KnownVolume(msgspec.Struct, eq=False, gc=False):
    """A volume that exists or that claims name.

    kind: None where there is none. unread: the volume where its kind was not asked for so far.
    n_claims: bound claims that name it.
    """

    name: str
    kind: VolumeKind | None = None
    unread: PersistentVolume | None = None
    exists: bool = False
    n_claims: int = 0


class ClaimKinds:
    """The kinds of the volumes of bound claims of an object store."""

    @classmethod
    def of(cls, object_store: ObjectStore) -> ClaimKinds:
        """The kinds of an object store."""
        kinds: ClaimKinds | None = object_store.indexes.get(cls)
        if kinds is None:
            kinds = object_store.indexes[cls] = cls()
            object_store.follow(PersistentVolume, kinds.volume_changed)
            object_store.follow(PersistentVolumeClaim, kinds.claim_changed)
        return kinds

    def __init__(self) -> None:
        self._volumes: dict[str, KnownVolume] = {}
        # By key of a claim that is bound and not looked at by name.
        self._of_claim: dict[str, KnownVolume] = {}
        # The kinds, each once, and by what of a volume they are made of.
        self._distinct: dict[VolumeKind, VolumeKind] = {}
        self._by_content: dict[Hashable, VolumeKind] = {}
        # What pods have of them, see `bound_claims.claims_of_kinds`.
        self.alike: dict[Hashable, Any] = {}

    def find(self, key: str) -> VolumeKind | None:
        """The kind of the volume of a claim `NAMESPACE/NAME`, mostly one object for equal ones;
        None for a claim that does not exist, is not bound or has to be looked at by name."""
        known = self._of_claim.get(key)
        if known is None:
            return None
        if known.unread is not None:
            self._read(known, known.unread)
        return known.kind

    def volume_changed(self, name: str, volume: PersistentVolume | None) -> None:
        """Read a volume that came or changed."""
        known = self._volumes.get(name)
        if volume is None:
            if known is not None:
                known.kind, known.unread, known.exists = None, None, False
                if not known.n_claims:
                    del self._volumes[name]
            return
        if known is None:
            known = self._volumes[name] = KnownVolume(name)
        known.exists = True
        if volume.spec.claim_ref is None:
            # Volumes that are free are many, and most of them are never asked for.
            known.kind, known.unread = None, volume
        else:
            self._read(known, volume)

    def claim_changed(self, key: str, claim: PersistentVolumeClaim | None) -> None:
        """Read a claim that came or changed."""
        before, name = self._of_claim.get(key), ""
        if claim is not None and counts_by_volume(claim):
            name = claim.spec.volume_name
        known = self._volumes.get(name) if name else None
        if name and known is None:
            known = self._volumes[name] = KnownVolume(name)
        if known is before:
            return
        if before is not None:
            del self._of_claim[key]
            before.n_claims -= 1
            if not before.exists and not before.n_claims:
                del self._volumes[before.name]
        if known is not None:
            known.n_claims += 1
            self._of_claim[key] = known

    def _read(self, known: KnownVolume, volume: PersistentVolume) -> None:
        known.kind, known.unread = self._kind_of(volume), None

    def _kind_of(self, volume: PersistentVolume) -> VolumeKind | None:
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
        kind = self._by_content.get(content)
        if kind is None:
            if len(self._by_content) >= KINDS_MAX:
                self._by_content.clear()
                self._distinct.clear()
            kind = _read_kind(volume, plugin, driver)
            # Equal ones are one object.
            kind = self._by_content[content] = self._distinct.setdefault(kind, kind)
        return kind


def counts_by_volume(claim: PersistentVolumeClaim) -> bool:
    """True for a bound claim that no rule looks at by name."""
    return (
        is_fully_bound(claim)
        and claim.status.phase != "Lost"
        and claim.metadata.deletion_timestamp is None
        and READ_WRITE_ONCE_POD not in claim.spec.access_modes
    )


def _read_kind(volume: PersistentVolume, plugin: InTreePlugin | None, driver: str) -> VolumeKind:
    """The kind of a volume. plugin: of a migrated in-tree volume. Raises TranslationError."""
    there = reach = volume_topology(volume)
    if plugin is not None:
        there = volume_topology(translate_in_tree_volume(volume, plugin))
    zones = tuple((label.key, label.values) for label in topology_labels_of(volume))
    return VolumeKind(reach, zones, driver, "" if plugin is None else plugin.name, there)
