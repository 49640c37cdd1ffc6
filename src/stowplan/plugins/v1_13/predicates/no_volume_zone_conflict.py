"""NoVolumeZoneConflict: a pod runs in the zones of its volumes' labels.

Source: Kubernetes v1.13, predicates.VolumeZoneChecker and volume/util LabelZonesToSet.
"""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.labels import ABSENT
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    ObjectStore,
    Rows,
    Snapshot,
    Status,
    error,
    unresolvable,
)
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.volumes.csi_translation import BETA_REGION, BETA_ZONE, ZONE_SEPARATOR
from stowplan.plugins.volumes.volume_claims import (
    CLAIM_WITHOUT_NAME,
    WAIT_FOR_FIRST_CONSUMER,
    binding_mode_missing_message,
    not_found_message,
    storage_class_of,
)

BETA_TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION)


class VolumeZoneLabel(msgspec.Struct, frozen=True):
    """Topology of a volume: the node's label must have one of the values, "" for a missing
    label."""

    key: str
    values: frozenset[str]

    def holds(self, value: str | None) -> bool:
        """True for a node whose label has this value."""
        return (value or "") in self.values


class NoVolumeZoneConflictState:
    """Result of PreFilter, volume by volume: its topology, or why it is unknown.

    A fault ends the list: nothing after it is evaluated.
    """

    def __init__(self, zones: tuple[VolumeZoneLabel, ...], fault: str) -> None:
        self.zones = zones
        self.fault = fault


class NoVolumeZoneConflict:
    """Filter on the zone and region labels of the volumes of bound claims."""

    name = "NoVolumeZoneConflict"
    declaration = Plugin(name=name, reads=(PersistentVolume, PersistentVolumeClaim, StorageClass))
    REJECTED = unresolvable("node(s) had no available volume zone")

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Read the volumes' labels; Skip where no volume has a zone."""
        zones: list[VolumeZoneLabel] = []
        fault = ""
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None and not fault:
                name = volume.persistent_volume_claim.claim_name
                found = _zones_of_claim(name, pod, snapshot.object_store)
                if isinstance(found, str):
                    fault = found
                else:
                    zones += found
        if not zones and not fault:
            return SKIP
        state.write(self.name, NoVolumeZoneConflictState(tuple(zones), fault))
        return OK

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where the node is in every volume's zone, or has no zone labels at all."""
        known = state.read(self.name, NoVolumeZoneConflictState)
        if not any(key in node.labels for key in BETA_TOPOLOGY_LABELS):
            return OK
        if not all(zone.holds(node.labels.get(zone.key)) for zone in known.zones):
            return self.REJECTED
        return error(known.fault) if known.fault else OK

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds, 1 where it refuses, 2 for an error."""
        known = state.read(self.name, NoVolumeZoneConflictState)
        has_labels = np.zeros(n_rows_of(rows), dtype=np.bool_)
        for key in BETA_TOPOLOGY_LABELS:
            has_labels |= nodes.labels.column(key).codes[rows] != ABSENT
        codes = np.zeros(n_rows_of(rows), dtype=np.int64)
        if known.fault:
            codes[has_labels] = 2
        for zone in known.zones:
            inside = nodes.labels.column(zone.key).where(zone.holds, rows)
            codes[has_labels & ~inside] = 1
        return codes

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, of a code of `filter_column`."""
        return (
            self.REJECTED
            if code == 1
            else error(state.read(self.name, NoVolumeZoneConflictState).fault)
        )


def _zones_of_claim(name: str, pod: Pod, object_store: ObjectStore) -> list[VolumeZoneLabel] | str:
    """The topology of a claim's volume, or why it is unknown; none for a claim that waits for its
    first consumer."""
    if not name:
        return CLAIM_WITHOUT_NAME
    claim = object_store.find(PersistentVolumeClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return not_found_message("persistentvolumeclaim", name)
    if not claim.spec.volume_name:
        named = storage_class_of(claim)
        storage_class = object_store.find(StorageClass, named) if named else None
        if storage_class is not None:
            if storage_class.volume_binding_mode is None:
                return binding_mode_missing_message(named)
            if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
                return []
        return f'PersistentVolumeClaim is not bound: "{name}"'
    volume = object_store.find(PersistentVolume, claim.spec.volume_name)
    if volume is None:
        return not_found_message("persistentvolume", claim.spec.volume_name)
    zones = []
    for key in BETA_TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(part.strip() for part in volume.labels[key].split(ZONE_SEPARATOR))
            if "" not in values:
                zones.append(VolumeZoneLabel(key, values))
    return zones
