"""Which rows use which claims and disks: updated by delta beside a node table.

A pod whose claim or disk may be in use then compares with the pods that use it, not with all of
them.

Source: kube-scheduler v1.36, framework/types PVCRefCounts and backend/cache IsPVCUsedByPods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import TypeVar

import numpy as np

from stowplan.columns.array_types import Ints, grow
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import PodInfo
from stowplan.objects.volume import Volume
from stowplan.plugins.volumes.volume_claims import (
    named_claims_of,
    volume_form_of,
    volume_uses_of,
)

K = TypeVar("K", bound=Hashable)

DiskKey = tuple[str, ...]


def disk_keys(volume: Volume) -> Iterator[DiskKey]:
    """What two volumes must have in common to be the same in-tree disk (RBD: at least that)."""
    if volume.gce_persistent_disk is not None:
        yield "gce", volume.gce_persistent_disk.pd_name
    if volume.aws_elastic_block_store is not None:
        yield "aws", volume.aws_elastic_block_store.volume_id
    if volume.iscsi is not None:
        yield "iscsi", volume.iscsi.iqn
    if volume.rbd is not None:
        yield "rbd", volume.rbd.pool, volume.rbd.image


class VolumeUsage(TableWatcher):
    """Volumes that the pods on nodes use.

    pods: row -> its pods with in-tree disks, in no particular order. disks: in-tree disk -> rows ->
    number of volumes that may be this disk. attachable: int64 (n_rows_max,): number of volumes of a
    row's pods that a CSI driver may have to attach. delicate: rows -> pods there with volumes that
    may not be countable.
    """

    counts_alike = True

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self.pods: dict[int, list[PodInfo]] = {}
        self.disks: dict[DiskKey, Counter[int]] = {}
        self.attachable: Ints = np.zeros(0, dtype=np.int64)
        self.delicate: Counter[int] = Counter()
        # None until it is asked for.
        self._claims: Counter[str] | None = None

    @property
    def claims(self) -> Counter[str]:
        """`NAMESPACE/NAME` -> number of volumes of pods on all rows that name the claim.

        Counted when it is asked for first, since only claims of ReadWriteOncePod need it.
        """
        if self._claims is None:
            counts = self._claims = Counter()
            table = self._table
            for row in range(table.n_nodes):
                for info in table.pods[row]:
                    counts.update(_claims_of(info))
        return self._claims

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod came to a row."""
        spec = info.pod.spec
        if not spec.volumes:
            return
        form = volume_form_of(spec)
        if form.n_attachable:
            self.attachable[row] += form.n_attachable
            if form.is_delicate:
                self.delicate[row] += 1
            if self._claims is not None:
                self._claims.update(_claims_of(info))
        if form.has_disks:
            self.pods.setdefault(row, []).append(info)
            for disk in _keys(info):
                self.disks.setdefault(disk, Counter())[row] += 1

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod left a row."""
        spec = info.pod.spec
        if not spec.volumes:
            return
        form = volume_form_of(spec)
        if form.n_attachable:
            self.attachable[row] -= form.n_attachable
            if form.is_delicate:
                _decrement(self.delicate, row)
            if self._claims is not None:
                for claim in _claims_of(info):
                    _decrement(self._claims, claim)
        if form.has_disks:
            pods = self.pods[row]
            del pods[next(i for i, other in enumerate(pods) if other.uid == info.uid)]
            if not pods:
                del self.pods[row]
            for key in _keys(info):
                _decrement(self.disks[key], row)
                if not self.disks[key]:
                    del self.disks[key]

    def row_added(self, row: int) -> None:
        """A node arrived; its pods are announced next."""
        if row >= self.attachable.shape[0]:
            self.attachable = grow(self.attachable, (row + 1,))
        self.attachable[row] = 0

    def row_moved(self, source: int, target: int) -> None:
        """The node of row `source` now stands on `target`, which is empty."""
        self.attachable[target] = self.attachable[source]
        if source in self.delicate:
            self.delicate[target] = self.delicate.pop(source)
        moved = self.pods.pop(source, None)
        if moved is None:
            return
        self.pods[target] = moved
        for key in {key for info in moved for key in _keys(info)}:
            self.disks[key][target] = self.disks[key].pop(source)


def _claims_of(info: PodInfo) -> list[str]:
    """The claims that the volumes of a pod name, as `NAMESPACE/NAME`."""
    pod = info.pod
    if not pod.spec.volumes:
        return []
    return [f"{pod.namespace}/{name}" for name in named_claims_of(pod.spec)]


def _keys(info: PodInfo) -> Iterator[DiskKey]:
    disks = volume_uses_of(info.pod.spec).disks
    return (key for volume in disks for key in disk_keys(volume))


def _decrement(counts: Counter[K], key: K) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
