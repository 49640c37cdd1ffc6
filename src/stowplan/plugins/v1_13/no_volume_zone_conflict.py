"""NoVolumeZoneConflict: a pod goes where the zone labels of its volumes say that they are.

Source: Kubernetes v1.13, predicates.VolumeZoneChecker and volume/util LabelZonesToSet.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.labels import ABSENT
from stowplan.framework import (
    OK,
    SKIP,
    CycleState,
    NodeInfo,
    NodeTable,
    Rows,
    Snapshot,
    Status,
    World,
    error,
    unresolvable,
)
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.plugins.arithmetic import count
from stowplan.plugins.csi_translation import BETA_REGION, BETA_ZONE, ZONE_SEPARATOR
from stowplan.plugins.v1_13.claims import CLAIM_UNNAMED
from stowplan.plugins.volume_claims import (
    WAIT_FOR_FIRST_CONSUMER,
    class_name,
    mode_missing,
    not_found,
)

LABELS = (BETA_ZONE, BETA_REGION)


class Zone(msgspec.Struct, frozen=True):
    """Where a volume is: the node's label must have one of the values, "" for a missing label."""

    key: str
    values: frozenset[str]

    def holds(self, value: str | None) -> bool:
        """True for a node whose label has this value."""
        return (value or "") in self.values


class PodZones:
    """What one attempt knows, volume by volume: where it is, or why that cannot be said.

    A fault ends the list: nothing behind it is looked at.
    """

    def __init__(self, zones: tuple[Zone, ...], fault: str) -> None:
        self.zones = zones
        self.fault = fault


class NoVolumeZoneConflict:
    """Filter on the zone and region labels of the volumes of bound claims."""

    name = "NoVolumeZoneConflict"
    REJECTED = unresolvable("node(s) had no available volume zone")

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Read the volumes' labels; Skip where none says where it is."""
        zones: list[Zone] = []
        fault = ""
        for volume in pod.spec.volumes:
            if volume.persistent_volume_claim is not None and not fault:
                name = volume.persistent_volume_claim.claim_name
                found = _zones_of_claim(name, pod, snapshot.world)
                if isinstance(found, str):
                    fault = found
                else:
                    zones += found
        if not zones and not fault:
            return SKIP
        state.write(self.name, PodZones(tuple(zones), fault))
        return OK

    def filter(self, node: NodeInfo, state: CycleState) -> Status:
        """Success where the node is in every volume's zone, or has no zone labels at all."""
        known = state.read(self.name, PodZones)
        if not any(key in node.labels for key in LABELS):
            return OK
        if not all(zone.holds(node.labels.get(zone.key)) for zone in known.zones):
            return self.REJECTED
        return error(known.fault) if known.fault else OK

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> NDArray[np.int64]:
        """int64 (n_rows,): 0 where `filter` succeeds, 1 where it refuses, 2 for an error."""
        known = state.read(self.name, PodZones)
        has_labels = np.zeros(count(rows), dtype=np.bool_)
        for key in LABELS:
            has_labels |= nodes.labels.column(key).codes[rows] != ABSENT
        codes = np.zeros(count(rows), dtype=np.int64)
        if known.fault:
            codes[has_labels] = 2
        for zone in known.zones:
            inside = nodes.labels.column(zone.key).where(zone.holds, rows)
            codes[has_labels & ~inside] = 1
        return codes

    def filter_status(self, code: int, state: CycleState) -> Status:
        """The refusal, or the error, behind a code of `filter_column`."""
        return self.REJECTED if code == 1 else error(state.read(self.name, PodZones).fault)


def _zones_of_claim(name: str, pod: Pod, world: World) -> list[Zone] | str:
    """Where the volume of a claim is, or why that cannot be said; nothing for one that waits."""
    if not name:
        return CLAIM_UNNAMED
    claim = world.find(PersistentVolumeClaim, f"{pod.namespace}/{name}")
    if claim is None:
        return not_found("persistentvolumeclaim", name)
    if not claim.spec.volume_name:
        named = class_name(claim)
        storage_class = world.find(StorageClass, named) if named else None
        if storage_class is not None:
            if storage_class.volume_binding_mode is None:
                return mode_missing(named)
            if storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
                return []
        return f'PersistentVolumeClaim is not bound: "{name}"'
    volume = world.find(PersistentVolume, claim.spec.volume_name)
    if volume is None:
        return not_found("persistentvolume", claim.spec.volume_name)
    zones = []
    for key in LABELS:
        if key in volume.labels:
            values = frozenset(part.strip() for part in volume.labels[key].split(ZONE_SEPARATOR))
            if "" not in values:
                zones.append(Zone(key, values))
    return zones
