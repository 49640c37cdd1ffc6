"""VolumeZone: a pod runs in the zones of its volumes' labels.

Source: kube-scheduler v1.36, plugins/volumezone; cloud-provider volume/helpers (LabelZonesToSet).
"""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
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
    unresolvable,
)
from stowplan.framework.clusterevents import RegisteredEvents
from stowplan.framework.deciders.kernel_terms import KernelTerm, NodeRules
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.volumes.csi_translation import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONE_SEPARATOR,
)
from stowplan.plugins.volumes.hints import volume_zone_events
from stowplan.plugins.volumes.volume_claims import (
    CLAIM_WITHOUT_NAME,
    NO_STATE,
    WAIT_FOR_FIRST_CONSUMER,
    binding_mode_missing_message,
    find_claim,
    has_storage,
    not_found_message,
    storage_class_of,
    volume_uses_of,
)

TOPOLOGY_LABELS = (BETA_ZONE, BETA_REGION, ZONE, REGION)
GA_LABEL_OF = {BETA_ZONE: ZONE, BETA_REGION: REGION}
"""The label that replaced a beta label."""


class VolumeTopologyLabel(msgspec.Struct, frozen=True):
    """Topology of a volume: a node must have one of the values under the label, or under its
    successor where it lacks the label."""

    volume_name: str
    key: str
    values: frozenset[str]

    @property
    def successor(self) -> str:
        """The label to read where a node lacks `key`."""
        return GA_LABEL_OF.get(self.key, self.key)


class VolumeZone:
    """Filter on the zone and region labels of the volumes of bound claims."""

    name = "VolumeZone"
    declaration = Plugin(
        name=name,
        reads=(PersistentVolume, PersistentVolumeClaim, StorageClass),
        by_outline=True,
        repeatable=True,
    )
    # Unresolvable: evicting pods moves no volume.
    REJECTED = unresolvable("node(s) had no available volume zone")
    CLAIM_UNNAMED = unresolvable(CLAIM_WITHOUT_NAME)
    CLASS_UNNAMED = unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    VOLUME_UNNAMED = unresolvable("PersistentVolume had no name")

    def applies_to(self, pod: Pod) -> bool:
        """False for a pod without claims and disks."""
        return has_storage(pod)

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status:
        """Read the volumes' labels. Refuses a claim without a volume, unless it waits for the first
        consumer; Skip where no volume has a zone."""
        if not pod.spec.volumes:
            return SKIP
        found: list[VolumeTopologyLabel] = []
        for name in volume_uses_of(pod.spec).named_claims:
            topologies = self._topologies_of_claim(pod, name, snapshot.object_store)
            if isinstance(topologies, Status):
                return topologies
            found += topologies
        if not found:
            return SKIP
        state.write(self.name, tuple(found))
        state.row_signatures[self.name] = tuple((one.key, one.values) for one in found)
        return OK

    def _topologies_of_claim(
        self, pod: Pod, name: str, object_store: ObjectStore
    ) -> Status | list[VolumeTopologyLabel]:
        """The topology of a claim's volume; none for a claim that waits for the first consumer."""
        if not name:
            return self.CLAIM_UNNAMED
        claim = find_claim(object_store, pod, name)
        if claim is None:
            return unresolvable(not_found_message("persistentvolumeclaim", name))
        if claim.spec.volume_name:
            volume = object_store.find(PersistentVolume, claim.spec.volume_name)
            if volume is None:
                return unresolvable(not_found_message("persistentvolume", claim.spec.volume_name))
            return topology_labels_of(volume)
        named = storage_class_of(claim)
        if not named:
            return self.CLASS_UNNAMED
        storage_class = object_store.find(StorageClass, named)
        if storage_class is None:
            return unresolvable(not_found_message("storageclass.storage.k8s.io", named))
        if storage_class.volume_binding_mode is None:
            return unresolvable(binding_mode_missing_message(named))
        waits = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
        return [] if waits else self.VOLUME_UNNAMED

    # One node.

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success where the node is in every volume's zone, or has no zone labels at all.

        Differs: in a profile that leaves out this plugin's PreFilter the original looks the volumes
        up again here; this one returns an error.
        """
        topologies: tuple[VolumeTopologyLabel, ...] | None = state.find(self.name)
        if topologies is None:
            return NO_STATE
        labels = node.labels
        if not any(key in labels for key in TOPOLOGY_LABELS):
            return OK
        for topology in topologies:
            key = topology.key if topology.key in labels else topology.successor
            if labels.get(key) not in topology.values:
                return self.REJECTED
        return OK

    # Every node.

    def filter_column(self, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """int64 (n_rows,): 0 where `filter` succeeds."""
        topologies: tuple[VolumeTopologyLabel, ...] | None = state.find(self.name)
        if topologies is None:
            return np.ones(n_rows_of(rows), dtype=np.int64)
        has_labels = np.zeros(n_rows_of(rows), dtype=np.bool_)
        for key in TOPOLOGY_LABELS:
            has_labels |= nodes.labels.column(key).codes[rows] != ABSENT
        refused = np.zeros(n_rows_of(rows), dtype=np.int64)
        for topology in topologies:
            refused[has_labels & ~_topology_label_column(topology, nodes, rows)] = 1
        return refused

    def filter_status(self, state: CycleState) -> Status:
        """The refusal of a code of `filter_column`."""
        return NO_STATE if state.find(self.name) is None else self.REJECTED

    def explain(self, node: NodeInfo, state: CycleState) -> list[str]:
        """The labels that the volumes need, and the node's values."""
        texts = []
        for topology in state.find(self.name) or ():
            key = topology.key if topology.key in node.labels else topology.successor
            have = node.labels.get(key)
            if have not in topology.values:
                needs = " or ".join(sorted(topology.values))
                text = "no such label" if have is None else have
                texts.append(f"volume {topology.volume_name}: needs {key} {needs}, node has {text}")
        return texts

    def events_to_register(self) -> RegisteredEvents:
        """Claims, volumes, classes that wait for the first consumer, or nodes are added or
        changed."""
        return volume_zone_events(topology_labels_of)

    def kernel_terms(self, pod: Pod) -> tuple[KernelTerm, ...]:
        """A rule about nodes, for claims that are bound."""
        return (NodeRules(),)

    def signature(self, pod: Pod) -> object:
        """The claims that the pod names."""
        names = volume_uses_of(pod.spec).named_claims
        return (pod.namespace, names) if names else ()


def topology_labels_of(volume: PersistentVolume) -> list[VolumeTopologyLabel]:
    """The topology of a volume's labels; a label with a blank among its values is ignored."""
    found = []
    for key in TOPOLOGY_LABELS:
        if key in volume.labels:
            values = frozenset(v.strip() for v in volume.labels[key].split(ZONE_SEPARATOR))
            if "" not in values:
                found.append(VolumeTopologyLabel(volume.name, key, values))
    return found


def _topology_label_column(topology: VolumeTopologyLabel, nodes: NodeTable, rows: Rows) -> Bools:
    """bool (n_rows,): rows with one of the values, under the label or else its successor."""
    values = tuple(topology.values)
    column = nodes.labels.column(topology.key)
    inside = column.where_in(values, rows)
    if topology.successor != topology.key:
        successor = nodes.labels.column(topology.successor)
        inside |= (column.codes[rows] == ABSENT) & successor.where_in(values, rows)
    return inside
