"""Which CSI volumes the pods of a node use, and so which are attached to it: driver and handle.

A claim that has no volume yet counts too, as a volume of its own that will be made. In-tree
volumes count for the driver that took them over, on nodes that have a CSINode.

Source: kube-scheduler v1.36, plugins/nodevolumelimits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.growing import grown
from stowplan.framework import NodeTable, PodInfo, World
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.objects.volume import Volume
from stowplan.plugins.csi_translation import (
    TranslationError,
    inline_csi,
    plugin_named,
    plugin_of,
    translated,
)
from stowplan.plugins.volume_claims import (
    ClaimUse,
    class_name,
    find_claim,
    not_found,
    ownership_error,
    uses_of,
)
from stowplan.plugins.volume_index import VolumeIndex, index_of
from stowplan.plugins.volume_use import VolumeUse

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Attached = dict[str, str]
"""Volume as `DRIVER/HANDLE` -> driver."""

CLAIM_UNNAMED = "PersistentVolumeClaim had no name"
# Differs: the original draws a random prefix, so that no real handle can be the same.
_UNMADE = "\0"


class AttachmentFault(ValueError):
    """A volume that cannot be counted: the attempt ends with the original's text."""


class ClaimMissing(AttachmentFault):
    """The pod to be placed names a claim that is not there: it waits for the claim."""


def volumes_of(pod: Pod, world: World, *, has_csi_node: bool, is_new: bool = False) -> Attached:
    """The CSI volumes that a pod uses on a node.

    has_csi_node: whether the node has a CSINode. is_new: for the pod to be placed a missing claim
    raises ClaimMissing, for others it does not count. Raises AttachmentFault, for the first
    volume in the order of the spec that cannot be counted.
    """
    found: Attached = {}
    for source in uses_of(pod.spec).attachable:
        if isinstance(source, Volume):
            csi = _inline_csi(source) if has_csi_node else None
            driver, handle = ("", "") if csi is None else (csi.driver, csi.volume_handle)
            # Unlike a claim's, an inline volume without a handle counts.
            counts = bool(driver)
        else:
            claim = _claim_of(source, pod, world, is_new=is_new)
            if claim is None:
                continue
            driver, handle = csi_of_claim(claim, world, has_csi_node=has_csi_node)
            counts = bool(driver and handle)
        if counts:
            found[f"{driver}/{handle}"] = driver
    return found


def _inline_csi(volume: Volume) -> CSIVolume | None:
    """The CSI volume that an in-tree one stands for, None where no driver took it over."""
    plugin = plugin_of(volume)
    if plugin is None or not plugin.is_migrated:
        return None
    try:
        return inline_csi(volume, plugin)
    except TranslationError as fault:
        text = f"converting volume({volume.name}) from inline to csi: {fault}"
        raise AttachmentFault(text) from None


def _claim_of(
    use: ClaimUse, pod: Pod, world: World, *, is_new: bool
) -> PersistentVolumeClaim | None:
    name = use.claim_name(pod)
    if not name:
        raise AttachmentFault(CLAIM_UNNAMED)
    claim = find_claim(world, pod, name)
    if claim is None:
        if is_new:
            missing = not_found("persistentvolumeclaim", name)
            raise ClaimMissing(f"looking up PVC {pod.namespace}/{name}: {missing}")
        return None
    foreign = ownership_error(pod, claim) if use.is_ephemeral else ""
    if foreign:
        raise AttachmentFault(foreign)
    return claim


def csi_of_claim(
    claim: PersistentVolumeClaim, world: World, *, has_csi_node: bool
) -> tuple[str, str]:
    """(driver, handle) of a claim's volume; ("", "") for what no CSI driver attaches."""
    name = claim.spec.volume_name
    volume = world.find(PersistentVolume, name) if name else None
    if volume is None:
        return _csi_of_class(claim, world, has_csi_node=has_csi_node)
    csi = volume.spec.csi
    if csi is None:
        plugin = plugin_of(volume.spec)
        if plugin is None or not (plugin.is_migrated and has_csi_node):
            return "", ""
        try:
            csi = translated(volume, plugin).spec.csi
        except TranslationError:
            return "", ""
    return ("", "") if csi is None else (csi.driver, csi.volume_handle)


def _csi_of_class(
    claim: PersistentVolumeClaim, world: World, *, has_csi_node: bool
) -> tuple[str, str]:
    """Driver and a made-up handle of a claim whose volume is not there."""
    name = class_name(claim)
    storage_class = world.find(StorageClass, name) if name else None
    if storage_class is None:
        return "", ""
    handle = f"{_UNMADE}-{claim.key}"
    plugin = plugin_named(storage_class.provisioner)
    if plugin is None:
        return storage_class.provisioner, handle
    return (plugin.driver, handle) if plugin.is_migrated and has_csi_node else ("", "")


def attached_by(pods: Iterable[PodInfo], world: World) -> Attached:
    """The CSI volumes that pods on a node with a CSINode use; raises AttachmentFault."""
    found: Attached = {}
    for info in pods:
        found |= volumes_of(info.pod, world, has_csi_node=True)
    return found


def attachments_of(node_name: str, world: World, index: VolumeIndex) -> Attached:
    """The CSI volumes that VolumeAttachments say are attached to a node."""
    found: Attached = {}
    for attachment in index.attachments_of_node.get(node_name, ()):
        driver, name = attachment.spec.attacher, attachment.spec.source.persistent_volume_name
        volume = world.find(PersistentVolume, name) if driver and name is not None else None
        if volume is not None and volume.spec.csi is not None:
            found[f"{driver}/{volume.spec.csi.volume_handle}"] = driver
    return found


def counts_of(attached: Attached, node_name: str, world: World, index: VolumeIndex) -> Counter[str]:
    """Driver -> volumes attached to a node: those that its pods use, and what is attached beside
    them."""
    beside = attachments_of(node_name, world, index)
    counts = Counter(attached.values())
    counts.update(driver for volume, driver in beside.items() if volume not in attached)
    return counts


class AttachmentColumns:
    """Per row what is attached, for rows whose CSINode limits some driver: re-read when touched.

    limits, counts: driver -> int64 (n_rows_max,): how many at most (UNLIMITED where the node does
    not say), how many there are. is_limited: bool (n_rows_max,): rows with any limit. holders:
    volume -> the rows whose pods use it. faults: row -> why its volumes cannot be counted.
    """

    UNLIMITED = 2**62

    @classmethod
    def of(cls, nodes: NodeTable, world: World) -> AttachmentColumns:
        """What is kept for a table, brought up to date."""
        kept = nodes.extras.get(cls.__name__)
        if not isinstance(kept, cls):
            kept = nodes.extras[cls.__name__] = cls()
        kept.refresh(nodes, world)
        return kept

    def __init__(self) -> None:
        self.limits: dict[str, Ints] = {}
        self.counts: dict[str, Ints] = {}
        self.is_limited: Bools = np.zeros(0, dtype=np.bool_)
        self.holders: dict[str, set[int]] = {}
        self.faults: dict[int, str] = {}
        self._volumes: dict[int, Attached] = {}
        self._index: VolumeIndex | None = None
        self._generation = 0
        self._n_nodes = 0

    def refresh(self, nodes: NodeTable, world: World) -> None:
        """Bring every row up to date. Any change of the world re-reads all of them."""
        index = index_of(world)
        touched = nodes.journal.since(self._generation)
        if touched is None or index is not self._index:
            self._clear()
            touched = list(range(nodes.n_nodes))
        self._index = index
        self._generation = nodes.journal.generation
        self.is_limited = grown(self.is_limited, (nodes.n_nodes,))
        for columns, fill in ((self.limits, self.UNLIMITED), (self.counts, 0)):
            for driver, column in columns.items():
                columns[driver] = grown(column, (nodes.n_nodes,), fill)
        use = VolumeUse.of(nodes)
        for row in {*touched, *range(nodes.n_nodes, self._n_nodes)}:
            self._forget(row)
            if row < nodes.n_nodes and nodes.names[row] in index.limits:
                self._read(row, nodes, world, index, use)
        self._n_nodes = nodes.n_nodes

    def _clear(self) -> None:
        self.limits, self.counts = {}, {}
        self.is_limited = np.zeros(0, dtype=np.bool_)
        self.holders, self.faults, self._volumes = {}, {}, {}

    def _forget(self, row: int) -> None:
        for volume in self._volumes.pop(row, ()):
            self.holders[volume].discard(row)
        self.faults.pop(row, None)
        if row < self.is_limited.shape[0]:
            self.is_limited[row] = False
            for column in self.limits.values():
                column[row] = self.UNLIMITED
            for column in self.counts.values():
                column[row] = 0

    def _read(
        self, row: int, nodes: NodeTable, world: World, index: VolumeIndex, use: VolumeUse
    ) -> None:
        name = nodes.names[row]
        self.is_limited[row] = True
        for driver, limit in index.limits[name].items():
            self._column(self.limits, driver, self.UNLIMITED)[row] = limit
        try:
            attached = attached_by(use.pods.get(row, ()), world)
        except AttachmentFault:
            # Which of several faults is named depends on the order of the pods on the node.
            self.faults[row] = _first_fault(nodes.pods[row], world)
            return
        self._volumes[row] = attached
        for volume in attached:
            self.holders.setdefault(volume, set()).add(row)
        for driver, number in counts_of(attached, name, world, index).items():
            self._column(self.counts, driver, 0)[row] = number

    def _column(self, columns: dict[str, Ints], driver: str, fill: int) -> Ints:
        column = columns.get(driver)
        if column is None:
            column = np.full(self.is_limited.shape[0], fill, dtype=np.int64)
            columns[driver] = column
        return column


def _first_fault(pods: Iterable[PodInfo], world: World) -> str:
    try:
        attached_by(pods, world)
    except AttachmentFault as fault:
        return str(fault)
    return ""
