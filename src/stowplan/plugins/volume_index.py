"""What the volume rules look up in the world, ordered for looking up: made once per version.

Source: kube-scheduler v1.36, the indexers that plugins/volumebinding and plugins/nodevolumelimits
put on their informers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeVar
from weakref import WeakKeyDictionary, ref

from stowplan.framework import World
from stowplan.objects.meta import Object
from stowplan.objects.storage import (
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    VolumeAttachment,
)
from stowplan.plugins.volume_claims import class_name

T = TypeVar("T", bound=Object)

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The in-tree plugins that CSI drivers took over on a node, as its CSINode says."""
    if csi_node is None:
        return frozenset()
    text = csi_node.metadata.annotations.get(MIGRATED_PLUGINS)
    return frozenset(text.split(",")) if text else frozenset()


def volume_limits(csi_node: CSINode | None) -> dict[str, int]:
    """Driver -> how many volumes it attaches to a node at most; drivers without a limit are out."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


class VolumeIndex:
    """A world's storage objects by what they are looked up by. Each part is made when asked for."""

    def __init__(self, world: World) -> None:
        self.version = world.version
        # Weak, because the index is kept for as long as its world lives.
        self._world = ref(world)

    def _all(self, kind: type[T]) -> Iterator[T]:
        world = self._world()
        assert world is not None, "an index is used only by a reader of its world"
        return world.all(kind)

    @cached_property
    def unclaimed_of_class(self) -> dict[str, list[PersistentVolume]]:
        """Storage class ("" for none) -> its volumes without a claim, in order of arrival."""
        found: dict[str, list[PersistentVolume]] = {}
        for volume in self._all(PersistentVolume):
            if volume.spec.claim_ref is None:
                found.setdefault(class_name(volume), []).append(volume)
        return found

    @cached_property
    def claimed_of_class(self) -> dict[tuple[str, str], list[PersistentVolume]]:
        """(storage class, claim as `NAMESPACE/NAME`) -> the volumes that name the claim."""
        found: dict[tuple[str, str], list[PersistentVolume]] = {}
        for volume in self._all(PersistentVolume):
            claim = volume.spec.claim_ref
            if claim is not None:
                key = class_name(volume), f"{claim.namespace}/{claim.name}"
                found.setdefault(key, []).append(volume)
        return found

    @cached_property
    def capacities_of_class(self) -> dict[str, list[CSIStorageCapacity]]:
        """Storage class -> what its driver can still provision, in order of arrival."""
        found: dict[str, list[CSIStorageCapacity]] = {}
        for capacity in self._all(CSIStorageCapacity):
            found.setdefault(capacity.storage_class_name, []).append(capacity)
        return found

    @cached_property
    def migrating(self) -> dict[str, list[str]]:
        """In-tree plugin -> the nodes on which a CSI driver took it over."""
        found: dict[str, list[str]] = {}
        for csi_node in self._all(CSINode):
            for plugin in migrated_plugins(csi_node):
                found.setdefault(plugin, []).append(csi_node.name)
        return found

    @cached_property
    def limits(self) -> dict[str, dict[str, int]]:
        """Node -> `volume_limits` of it; nodes without any are out."""
        limits = {csi_node.name: volume_limits(csi_node) for csi_node in self._all(CSINode)}
        return {name: counts for name, counts in limits.items() if counts}

    @cached_property
    def attachments_of_node(self) -> dict[str, list[VolumeAttachment]]:
        """Node -> what is attached to it, or being attached."""
        found: dict[str, list[VolumeAttachment]] = {}
        for attachment in self._all(VolumeAttachment):
            found.setdefault(attachment.spec.node_name, []).append(attachment)
        return found


_INDEX: WeakKeyDictionary[World, VolumeIndex] = WeakKeyDictionary()


def index_of(world: World) -> VolumeIndex:
    """The index of a world as it is now."""
    index = _INDEX.get(world)
    if index is None or index.version != world.version:
        index = _INDEX[world] = VolumeIndex(world)
    return index
