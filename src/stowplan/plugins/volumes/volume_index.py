"""Index of storage objects for the volume plugins; each part is rebuilt when its kind changes.

Source: kube-scheduler v1.36, the indexers that plugins/volumebinding and plugins/nodevolumelimits
put on their informers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.array_types import Bools
from stowplan.framework import ObjectStore
from stowplan.objects.meta import Object
from stowplan.objects.storage import CSINode, CSIStorageCapacity, PersistentVolume, VolumeAttachment
from stowplan.plugins.volumes.volume_claims import storage_class_of

T = TypeVar("T", bound=Object)
M = TypeVar("M")

SUPPLIES_MAX = 64
"""Answers to kinds of claims that are kept; with more all are forgotten."""

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The in-tree plugins that are migrated on a node, from its CSINode."""
    if csi_node is None:
        return frozenset()
    text = csi_node.metadata.annotations.get(MIGRATED_PLUGINS)
    return frozenset(text.split(",")) if text else frozenset()


def volume_limits(csi_node: CSINode | None) -> dict[str, int]:
    """Driver -> limit of attached volumes per node; drivers without a limit are left out."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


class VolumeIndex:
    """Storage objects of an object store by key.

    Each part is built on first use, and again when an object of its kind has changed.
    """

    @classmethod
    def of(cls, object_store: ObjectStore) -> VolumeIndex:
        """The index of an object store."""
        # No table with weak keys: the index refers to node tables, which lead to its store.
        index: VolumeIndex | None = object_store.indexes.get(cls)
        if index is None:
            index = object_store.indexes[cls] = cls(object_store)
        return index

    def __init__(self, object_store: ObjectStore) -> None:
        # Weak, because the index lives as long as its object store.
        self._object_store = ref(object_store)
        self._objects: dict[type[Object], Sequence[Object]] = {}
        self._seen: dict[type[Object], int] = {}
        self._parts: dict[str, tuple[Sequence[Object], Any]] = {}
        self._migrated: dict[str, Bools] = {}
        self._supplies: dict[Hashable, tuple[tuple[object, ...], Any]] = {}
        self._migrated_for: tuple[NodeTable | None, Mapping[str, Sequence[str]], int] = None, {}, -1

    def all(self, kind: type[T]) -> Sequence[T]:
        """Every object of a kind, in order of arrival; the same list until one has changed."""
        object_store = self._object_store()
        assert object_store is not None, "an index is used by readers of its world"
        revision = object_store.revision_of(kind)
        if self._seen.get(kind) != revision:
            self._seen[kind] = revision
            objects = list(object_store.all(kind))
            # Objects are frozen, so most are compared by identity alone.
            if self._objects.get(kind) != objects:
                self._objects[kind] = objects
        found: Any = self._objects[kind]
        kept: Sequence[T] = found
        return kept

    def part(self, name: str, kind: type[T], make: Callable[[Sequence[T]], M]) -> M:
        """The result of `make` for all objects of a kind; cached until one has changed."""
        objects = self.all(kind)
        part = self._parts.get(name)
        if part is None or part[0] is not objects:
            part = self._parts[name] = objects, make(objects)
        made: M = part[1]
        return made

    def supply(self, key: Hashable, reads: tuple[object, ...], make: Callable[[], M]) -> M:
        """The result of `make`, cached by key until one of the objects that it reads is another."""
        kept = self._supplies.get(key)
        if kept is None or any(a is not b for a, b in zip(kept[0], reads, strict=True)):
            if len(self._supplies) >= SUPPLIES_MAX:
                self._supplies.clear()
            kept = self._supplies[key] = reads, make()
        made: M = kept[1]
        return made

    @property
    def unclaimed(self) -> Mapping[str, Sequence[PersistentVolume]]:
        """Storage class ("" for none) -> its volumes without a claim."""
        return self.part("unclaimed", PersistentVolume, _unclaimed)

    @property
    def claimed(self) -> Mapping[tuple[str, str], Sequence[PersistentVolume]]:
        """(storage class, claim as `NAMESPACE/NAME`) -> the volumes that name the claim."""
        return self.part("claimed", PersistentVolume, _claimed)

    @property
    def capacities(self) -> Mapping[str, Sequence[CSIStorageCapacity]]:
        """Storage class -> remaining capacities of its driver."""
        return self.part("capacities", CSIStorageCapacity, _capacities)

    @property
    def migrating(self) -> Mapping[str, Sequence[str]]:
        """In-tree plugin -> the nodes on which it is migrated."""
        return self.part("migrating", CSINode, _migrating)

    def migrated_column(self, plugin: str, nodes: NodeTable) -> Bools:
        """bool (n_nodes,): rows of nodes on which an in-tree plugin is migrated; read only, since
        it is cached until a node or a CSINode changes."""
        migrating, made_for = self.migrating, self._migrated_for
        if made_for[0] is not nodes or made_for[1] is not migrating or made_for[2] != nodes.shape:
            self._migrated_for = nodes, migrating, nodes.shape
            self._migrated.clear()
        column = self._migrated.get(plugin)
        if column is None:
            rows = [nodes.row(name) for name in migrating.get(plugin, ())]
            column = self._migrated[plugin] = np.zeros(nodes.n_nodes, dtype=np.bool_)
            column[[row for row in rows if row >= 0]] = True
        return column

    @property
    def limits(self) -> Mapping[str, Mapping[str, int]]:
        """Node -> its `volume_limits`; nodes without any are left out."""
        return self.part("limits", CSINode, _limits)

    @property
    def attachments(self) -> Mapping[str, Sequence[VolumeAttachment]]:
        """Node -> volumes that are attached to it, or being attached."""
        return self.part("attachments", VolumeAttachment, _attachments)


def _unclaimed(volumes: Sequence[PersistentVolume]) -> dict[str, list[PersistentVolume]]:
    found: dict[str, list[PersistentVolume]] = {}
    for volume in volumes:
        if volume.spec.claim_ref is None:
            found.setdefault(storage_class_of(volume), []).append(volume)
    return found


def _claimed(volumes: Sequence[PersistentVolume]) -> dict[tuple[str, str], list[PersistentVolume]]:
    found: dict[tuple[str, str], list[PersistentVolume]] = {}
    for volume in volumes:
        claim = volume.spec.claim_ref
        if claim is not None:
            key = storage_class_of(volume), f"{claim.namespace}/{claim.name}"
            found.setdefault(key, []).append(volume)
    return found


def _capacities(capacities: Sequence[CSIStorageCapacity]) -> dict[str, list[CSIStorageCapacity]]:
    found: dict[str, list[CSIStorageCapacity]] = {}
    for capacity in capacities:
        found.setdefault(capacity.storage_class_name, []).append(capacity)
    return found


def _migrating(csi_nodes: Sequence[CSINode]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for csi_node in csi_nodes:
        for plugin in migrated_plugins(csi_node):
            found.setdefault(plugin, []).append(csi_node.name)
    return found


def _limits(csi_nodes: Sequence[CSINode]) -> dict[str, dict[str, int]]:
    limits = {csi_node.name: volume_limits(csi_node) for csi_node in csi_nodes}
    return {name: counts for name, counts in limits.items() if counts}


def _attachments(attachments: Sequence[VolumeAttachment]) -> dict[str, list[VolumeAttachment]]:
    found: dict[str, list[VolumeAttachment]] = {}
    for attachment in attachments:
        found.setdefault(attachment.spec.node_name, []).append(attachment)
    return found
