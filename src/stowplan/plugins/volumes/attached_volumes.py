"""CSI volumes that the pods of a node use or that are attached to it: driver and handle.

A claim without a volume counts too, as a volume of its own to be provisioned. In-tree volumes count
for the driver that they were migrated to, on nodes that have a CSINode.

Source: kube-scheduler v1.36, plugins/nodevolumelimits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import is_not

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints, grow
from stowplan.framework import NodeTable, ObjectStore, PodInfo
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.objects.volume import Volume
from stowplan.plugins.volumes.csi_translation import (
    TranslationError,
    in_tree_plugin_by_name,
    in_tree_plugin_of,
    translate_in_tree_volume,
    translate_inline_volume,
)
from stowplan.plugins.volumes.volume_claims import (
    CLAIM_WITHOUT_NAME,
    ClaimUse,
    find_claim,
    not_found_message,
    ownership_error,
    storage_class_of,
    volume_uses_of,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_usage import VolumeUsage

VolumeDrivers = dict[str, str]
"""Volume as `DRIVER/HANDLE` -> driver."""

# Differs: the original draws a random prefix, so that no real handle can be the same.
_UNPROVISIONED = "\0"


FEW_LEFT = 16
"""Volumes that the fullest row can attach, below which all rows are counted each time."""


class AttachmentError(ValueError):
    """A volume that cannot be counted: the attempt ends with the original's text."""


class ClaimNotFound(AttachmentError):
    """The incoming pod names a claim that does not exist: it waits for the claim."""


def csi_volumes_of_pod(
    pod: Pod, object_store: ObjectStore, *, has_csi_node: bool, is_new: bool = False
) -> VolumeDrivers:
    """The CSI volumes that a pod uses on a node.

    has_csi_node: whether the node has a CSINode. is_new: for the incoming pod a missing claim
    raises ClaimNotFound, for others it does not count. Raises AttachmentError for the first volume
    in the order of the spec that cannot be counted.
    """
    found: VolumeDrivers = {}
    for source in volume_uses_of(pod.spec).attachable:
        if isinstance(source, Volume):
            csi = _inline_csi(source) if has_csi_node else None
            driver, handle = ("", "") if csi is None else (csi.driver, csi.volume_handle)
            # Unlike a claim's, an inline volume without a handle counts.
            counts = bool(driver)
        else:
            claim = _claim_of(source, pod, object_store, is_new=is_new)
            if claim is None:
                continue
            driver, handle = csi_of_claim(claim, object_store, has_csi_node=has_csi_node)
            counts = bool(driver and handle)
        if counts:
            found[f"{driver}/{handle}"] = driver
    return found


def _inline_csi(volume: Volume) -> CSIVolume | None:
    """The CSI volume of a migrated in-tree volume, None where it was not migrated."""
    plugin = in_tree_plugin_of(volume)
    if plugin is None or not plugin.is_migrated:
        return None
    try:
        return translate_inline_volume(volume, plugin)
    except TranslationError as fault:
        text = f"converting volume({volume.name}) from inline to csi: {fault}"
        raise AttachmentError(text) from None


def _claim_of(
    use: ClaimUse, pod: Pod, object_store: ObjectStore, *, is_new: bool
) -> PersistentVolumeClaim | None:
    name = use.claim_name(pod)
    if not name:
        raise AttachmentError(CLAIM_WITHOUT_NAME)
    claim = find_claim(object_store, pod, name)
    if claim is None:
        if is_new:
            missing = not_found_message("persistentvolumeclaim", name)
            raise ClaimNotFound(f"looking up PVC {pod.namespace}/{name}: {missing}")
        return None
    foreign = ownership_error(pod, claim) if use.is_ephemeral else ""
    if foreign:
        raise AttachmentError(foreign)
    return claim


def csi_of_claim(
    claim: PersistentVolumeClaim, object_store: ObjectStore, *, has_csi_node: bool
) -> tuple[str, str]:
    """(driver, handle) of a claim's volume; ("", "") for a volume that no CSI driver attaches."""
    name = claim.spec.volume_name
    volume = object_store.find(PersistentVolume, name) if name else None
    if volume is None:
        return _csi_of_class(claim, object_store, has_csi_node=has_csi_node)
    csi = volume.spec.csi
    if csi is None:
        plugin = in_tree_plugin_of(volume.spec)
        if plugin is None or not (plugin.is_migrated and has_csi_node):
            return "", ""
        try:
            csi = translate_in_tree_volume(volume, plugin).spec.csi
        except TranslationError:
            return "", ""
    return ("", "") if csi is None else (csi.driver, csi.volume_handle)


def _csi_of_class(
    claim: PersistentVolumeClaim, object_store: ObjectStore, *, has_csi_node: bool
) -> tuple[str, str]:
    """Driver and a generated handle of a claim whose volume does not exist."""
    name = storage_class_of(claim)
    storage_class = object_store.find(StorageClass, name) if name else None
    if storage_class is None:
        return "", ""
    handle = f"{_UNPROVISIONED}-{claim.key}"
    plugin = in_tree_plugin_by_name(storage_class.provisioner)
    if plugin is None:
        return storage_class.provisioner, handle
    return (plugin.driver, handle) if plugin.is_migrated and has_csi_node else ("", "")


class NodeVolumes(msgspec.Struct, frozen=True):
    """The volumes of a node with a CSINode: those that its pods use, and all of them by driver."""

    attached: VolumeDrivers
    counts: Counter[str]


def node_volumes(pods: Iterable[PodInfo], node_name: str, object_store: ObjectStore) -> NodeVolumes:
    """The volumes of a node: those of its pods, and those of VolumeAttachments. Raises
    AttachmentError."""
    attached: VolumeDrivers = {}
    for info in pods:
        attached |= csi_volumes_of_pod(info.pod, object_store, has_csi_node=True)
    beside = attachments_of(node_name, object_store)
    counts = Counter(attached.values())
    counts.update(driver for volume, driver in beside.items() if volume not in attached)
    return NodeVolumes(attached, counts)


def attachments_of(node_name: str, object_store: ObjectStore) -> VolumeDrivers:
    """The CSI volumes that VolumeAttachments list for a node."""
    found: VolumeDrivers = {}
    for attachment in VolumeIndex.of(object_store).attachments.get(node_name, ()):
        driver, name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
        volume = object_store.find(PersistentVolume, name) if driver and name is not None else None
        if volume is not None and volume.spec.csi is not None:
            found[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
    return found


class AttachmentColumns:
    """Upper bounds of attached volumes by row, which show the rows that need counting.

    Exact counts depend on claims, volumes and classes, which change all the time. But no node has
    more volumes than its pods name and VolumeAttachments list: where even that bound is below the
    limit, nothing is counted. The other rows are counted once, until they or the objects change.

    limits: driver -> int64 (n_rows_max,), UNLIMITED where the node's CSINode has none. is_limited:
    bool (n_rows_max,), rows with any limit. listed: int64 (n_rows_max,), number of
    VolumeAttachments of the node.
    """

    UNLIMITED = 2**62

    @classmethod
    def of(cls, nodes: NodeTable, object_store: ObjectStore) -> AttachmentColumns:
        """The columns of a table, updated."""
        kept = nodes.extras.get(cls.__name__)
        if not isinstance(kept, cls):
            kept = nodes.extras[cls.__name__] = cls()
        kept.refresh(nodes, object_store)
        return kept

    def __init__(self) -> None:
        self.limits: dict[str, Ints] = {}
        self.is_limited: Bools = np.zeros(0, dtype=np.bool_)
        self.listed: Ints = np.zeros(0, dtype=np.int64)
        self._counted: dict[int, NodeVolumes | AttachmentError] = {}
        # By driver what the fullest row can attach, and the generation of the table of then.
        self._least: dict[str, tuple[int, int]] = {}
        self._generation = 0
        self._sources: tuple[object, ...] = ()
        self._version = -1
        self._shape = -1

    def refresh(self, nodes: NodeTable, object_store: ObjectStore) -> None:
        """Apply the changes of the table and the objects."""
        index = VolumeIndex.of(object_store)
        sources = (index, index.limits, index.attachments)
        touched = nodes.journal.since(self._generation)
        self._generation = nodes.journal.generation
        is_new = len(self._sources) != len(sources) or any(map(is_not, sources, self._sources))
        # Where only pods came and went, no node has another limit than before.
        are_nodes_new = touched is None or is_new or nodes.shape != self._shape
        self._shape = nodes.shape
        if touched is None or is_new:
            touched = None
            self.limits = {}
        if is_new or self._version != object_store.version:
            self._counted.clear()
        self._sources, self._version = sources, object_store.version
        if not are_nodes_new:
            for row in touched if self._counted and touched else ():
                self._counted.pop(row, None)
            return
        self._least.clear()
        self.is_limited = grow(self.is_limited, (nodes.n_nodes,))
        self.listed = grow(self.listed, (nodes.n_nodes,))
        for driver, column in self.limits.items():
            self.limits[driver] = grow(column, (nodes.n_nodes,), self.UNLIMITED)
        if touched is None:
            # Most nodes of a cluster without CSI drivers have neither.
            self.is_limited[:] = False
            self.listed[:] = 0
            self._counted.clear()
            there = map(nodes.row, dict.fromkeys((*sources[1], *sources[2])))
            touched = [row for row in there if row >= 0]
        for row in touched:
            self._counted.pop(row, None)
            if row < nodes.n_nodes:
                name = nodes.names[row]
                self._write(row, sources[1].get(name, {}), len(sources[2].get(name, ())))

    def _write(self, row: int, limits: Mapping[str, int], n_listed: int) -> None:
        self.is_limited[row] = bool(limits)
        self.listed[row] = n_listed
        for driver in limits:
            if driver not in self.limits:
                shape = self.is_limited.shape
                self.limits[driver] = np.full(shape, self.UNLIMITED, dtype=np.int64)
        for driver, column in self.limits.items():
            column[row] = limits.get(driver, self.UNLIMITED)

    def least_left(self, driver: str, nodes: NodeTable) -> int:
        """What the fullest row can attach of a driver by upper bounds, or less where rows have been
        freed since it was counted; UNLIMITED for a driver without limits."""
        if driver not in self.limits:
            return self.UNLIMITED
        generation = nodes.journal.generation
        least, known = self._least.get(driver, (0, -1))
        rows = nodes.journal.all_since(known) if known >= 0 else None
        if rows is None or least < FEW_LEFT:
            # What was freed counts again before few are left.
            least = int(self._left(driver, nodes, slice(nodes.n_nodes)).min(initial=self.UNLIMITED))
        elif rows:
            left = self._left(driver, nodes, np.array(rows, dtype=np.int64))
            least = min(least, int(left.min()))
        self._least[driver] = least, generation
        return least

    def _left(self, driver: str, nodes: NodeTable, rows: slice | Ints) -> Ints:
        used = VolumeUsage.of(nodes).attachable[rows]
        left: Ints = self.limits[driver][rows] - used - self.listed[rows]
        return left

    def rows_to_count(self, new: VolumeDrivers, nodes: NodeTable) -> Ints:
        """int64: rows where only counting shows whether they can attach `new` as well."""
        n_nodes = nodes.n_nodes
        use = VolumeUsage.of(nodes)
        most = use.attachable[:n_nodes] + self.listed[:n_nodes]
        asked = np.zeros(n_nodes, dtype=np.bool_)
        for driver, n_new in Counter(new.values()).items():
            if driver in self.limits:
                asked |= most + n_new > self.limits[driver][:n_nodes]
        delicate = np.fromiter(use.delicate, dtype=np.int64, count=len(use.delicate))
        asked[delicate] |= self.is_limited[delicate]
        return np.flatnonzero(asked)

    def counted(
        self, row: int, nodes: NodeTable, object_store: ObjectStore
    ) -> NodeVolumes | AttachmentError:
        """The attached volumes of the node of a row, or why they cannot be counted."""
        found = self._counted.get(row)
        if found is None:
            try:
                found = node_volumes(nodes.pods[row], nodes.names[row], object_store)
            except AttachmentError as fault:
                found = fault
            self._counted[row] = found
        return found
