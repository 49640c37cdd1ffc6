"""NodeVolumeLimits: a node attaches as many volumes of a CSI driver as its CSINode allows.

Source: kube-scheduler v1.36, plugins/nodevolumelimits (csi.go).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    Handle,
    NodeInfo,
    NodeTable,
    ObjectStore,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import KernelTerm
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stowplan.objects.volume import Volume
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.volumes.attached_volumes import (
    AttachmentColumns,
    AttachmentError,
    ClaimNotFound,
    NodeVolumes,
    VolumeDrivers,
    csi_volumes_of_pod,
    node_volumes,
)
from stowplan.plugins.volumes.claims.bound_claims import bound_claims, volume_run_limit
from stowplan.plugins.volumes.claims.unbound_claims import unbound_claims
from stowplan.plugins.volumes.hints import node_volume_limits_events
from stowplan.plugins.volumes.volume_claims import (
    NO_STATE,
    claims_signature,
    has_storage,
    volume_uses_of,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex, volume_limits


class NewVolumes(msgspec.Struct, frozen=True):
    """The volumes that the pod would attach to a node, or why they cannot be counted."""

    attached: VolumeDrivers = {}
    refusal: Status | None = None


class NodeVolumeLimitsState:
    """Result of PreFilter: the pod's volumes on nodes without and with a CSINode.

    statuses: the answers of the column walk by code; code 0 is success.
    """

    def __init__(self, pod: Pod, object_store: ObjectStore) -> None:
        self.object_store = object_store
        self._new = [_new_volumes(pod, object_store, has_csi_node=has) for has in (False, True)]
        self.statuses = [OK]

    def on(self, *, has_csi_node: bool) -> NewVolumes:
        """The pod's volumes on such a node."""
        return self._new[has_csi_node]

    def code(self, status: Status) -> int:
        """The code of a status."""
        if status not in self.statuses:
            self.statuses.append(status)
        return self.statuses.index(status)


class NodeVolumeLimits:
    """Filter on the number of CSI volumes attached to the node."""

    name = "NodeVolumeLimits"
    declaration = Plugin(
        name=name,
        by_outline=True,
        reads=(
            PersistentVolume,
            PersistentVolumeClaim,
            StorageClass,
            CSIDriver,
            CSINode,
            VolumeAttachment,
        ),
        repeatable=True,
    )
    EXCEEDED = unschedulable("node(s) exceed max volume count")

    def __init__(self, handle: Handle) -> None:
        self._asks_for_driver = handle.gates.volume_limit_scaling

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims and disks."""
        return has_storage(pod)

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Skip for a pod without volumes that a CSI driver may have to attach."""
        if not volume_uses_of(pod.spec).attachable:
            return SKIP
        state.write(self.name, NodeVolumeLimitsState(pod, snapshot.object_store))
        has_limits = self._asks_for_driver or VolumeIndex.of(snapshot.object_store).limits
        if not has_limits and bound_claims(pod, snapshot.object_store) is not None:
            # Success everywhere.
            state.row_signatures[self.name] = ()
        return OK

    # The rule, over the volumes of one node.

    def exceeded_limits(
        self, new: VolumeDrivers, there: NodeVolumes, limits: Mapping[str, int]
    ) -> Iterator[str]:
        """Drivers that would exceed their limit, each with need and have."""
        coming = Counter(driver for v, driver in new.items() if v not in there.attached)
        for driver, n_new in coming.items():
            n_there, limit = there.counts[driver], limits.get(driver)
            if limit is not None and n_there + n_new > limit:
                yield f"{driver}: needs {n_new} more, {n_there} of {limit} attached"

    # One node.

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where every driver can attach what the pod brings.

        Differs: in a profile that leaves out this plugin's PreFilter this is an error; the
        original has nothing to remember from there.
        """
        volumes: NodeVolumeLimitsState | None = state.find(self.name)
        if volumes is None:
            return NO_STATE
        object_store = volumes.object_store
        csi_node = object_store.find(CSINode, node.name)
        new = volumes.on(has_csi_node=csi_node is not None)
        if new.refusal is not None or not new.attached:
            return new.refusal or OK
        missing = self._missing_driver(new, csi_node, object_store)
        if missing:
            return _driver_not_installed(missing)
        limits = volume_limits(csi_node)
        if not limits:
            return OK
        try:
            there = node_volumes(node.pods, node.name, object_store)
        except AttachmentError as fault:
            return error(str(fault))
        return self.EXCEEDED if any(self.exceeded_limits(new.attached, there, limits)) else OK

    def _missing_driver(
        self, new: NewVolumes, csi_node: CSINode | None, object_store: ObjectStore
    ) -> str:
        """A driver that the node must have and lacks; "" when there is none, or the feature gate is
        off.

        Differs: of several the original names any, in the order of a Go map.

        Unproved: no recorded answer has the feature gate on.
        """
        if not self._asks_for_driver:
            return ""
        installed = {d.name for d in csi_node.spec.drivers} if csi_node is not None else set()
        for name in dict.fromkeys(new.attached.values()):
            driver = object_store.find(CSIDriver, name)
            is_needed = driver is not None and driver.spec.prevent_pod_scheduling_if_missing
            if is_needed and name not in installed:
                return name
        return ""

    # Every node.

    def filter_column(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, else a code for `filter_status`."""
        volumes: NodeVolumeLimitsState | None = state.find(self.name)
        if volumes is None:
            return np.ones(n_rows_of(rows), dtype=np.int64)
        codes = np.zeros(nodes.n_nodes, dtype=np.int64)
        without = volumes.on(has_csi_node=False)
        new = volumes.on(has_csi_node=True)
        if self._asks_for_driver or without.refusal is not None or new.refusal is not None:
            self._write_static_refusals(volumes, codes, nodes)
        if new.refusal is None and new.attached:
            self._write_limit_refusals(volumes, codes, nodes)
        chosen: Ints = codes[rows]
        return chosen

    def _write_static_refusals(
        self, volumes: NodeVolumeLimitsState, codes: Ints, nodes: NodeTable
    ) -> None:
        """Write the refusals that need no counting: unusable claims, missing drivers."""
        for row, name in enumerate(nodes.names):
            csi_node = volumes.object_store.find(CSINode, name)
            new = volumes.on(has_csi_node=csi_node is not None)
            if new.refusal is not None:
                codes[row] = volumes.code(new.refusal)
                continue
            missing = self._missing_driver(new, csi_node, volumes.object_store)
            if missing:
                codes[row] = volumes.code(_driver_not_installed(missing))

    def _write_limit_refusals(
        self, volumes: NodeVolumeLimitsState, codes: Ints, nodes: NodeTable
    ) -> None:
        """Write the refusals of nodes that cannot attach the new volumes."""
        new, object_store = volumes.on(has_csi_node=True).attached, volumes.object_store
        limits = VolumeIndex.of(object_store).limits
        if not limits:
            return
        columns = AttachmentColumns.of(nodes, object_store)
        for row in columns.rows_to_count(new, nodes).tolist():
            if codes[row] != 0:
                continue
            there = columns.counted(row, nodes, object_store)
            if isinstance(there, AttachmentError):
                codes[row] = volumes.code(error(str(there)))
            elif any(self.exceeded_limits(new, there, limits[nodes.names[row]])):
                codes[row] = volumes.code(self.EXCEEDED)

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        volumes: NodeVolumeLimitsState | None = state.find(self.name)
        return NO_STATE if volumes is None else volumes.statuses[code]

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """Per driver, the volumes of the pod and those attached."""
        volumes: NodeVolumeLimitsState | None = state.find(self.name)
        if volumes is None:
            return []
        limits = volume_limits(volumes.object_store.find(CSINode, node.name))
        new = volumes.on(has_csi_node=bool(limits))
        try:
            there = node_volumes(node.pods, node.name, volumes.object_store)
        except AttachmentError:
            return []
        return list(self.exceeded_limits(new.attached, there, limits))

    def events_to_register(self) -> RegisteredEvents:
        """Volumes are or may be detached, limits grow, or a claim of the pod is added."""
        return node_volume_limits_events()

    def kernel_terms(self, pod: Pod, snapshot: Snapshot) -> tuple[KernelTerm, ...] | None:
        """A limit of the length of runs, for claims of a class; no rule without CSI volumes."""
        store = snapshot.object_store
        claims = bound_claims(pod, store) or unbound_claims(pod, store)
        if claims is None or self._asks_for_driver:
            return None
        return (volume_run_limit(claims.drivers),) if claims.drivers else ()

    def signature(self, pod: Pod) -> object:
        """The claims, and the migrated in-tree volumes."""
        inline = tuple(v for v in volume_uses_of(pod.spec).attachable if isinstance(v, Volume))
        return claims_signature(pod), inline


def _new_volumes(pod: Pod, object_store: ObjectStore, *, has_csi_node: bool) -> NewVolumes:
    try:
        found = csi_volumes_of_pod(pod, object_store, has_csi_node=has_csi_node, is_new=True)
    except ClaimNotFound as missing:
        # Unresolvable: no eviction creates a claim.
        return NewVolumes(refusal=unresolvable(str(missing)))
    except AttachmentError as fault:
        return NewVolumes(refusal=error(str(fault)))
    return NewVolumes(found)


def _driver_not_installed(driver: str) -> Status:
    return unschedulable(f"{driver} CSI driver is not installed on the node")
