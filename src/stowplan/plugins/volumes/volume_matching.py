"""Which existing volumes a claim can be bound to, and the changes of binding to both.

A claim takes the smallest free volume that is accessible from the node. Claims of one class, size
and modes ask for the same volumes; these are sorted once, and a volume that is claimed leaves them.

Source: Kubernetes v1.36, component-helpers storage/volume (pv_helpers.go).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Iterator

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import NodeTable, ObjectStore
from stowplan.objects.node import Node
from stowplan.objects.quantity import QuantityError
from stowplan.objects.selectors import SelectorError, label_selector_matches
from stowplan.objects.storage import ObjectReference, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.volume_claims import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    requested_size,
    size_nanos,
    storage_class_of,
)
from stowplan.plugins.volumes.volume_topology import (
    AccessibleTopology,
    RowsByLabel,
    single_in_requirement,
    topology_admits,
    topology_column,
    volume_topology,
)

FILESYSTEM = "Filesystem"
KINDS_MAX = 64
"""Kinds of claims whose volumes are kept; the least recently used is dropped first."""

Place = tuple[int, int, str]
"""Size, order of arrival, and name of a volume: the first is taken."""


class VolumeCandidates(msgspec.Struct, frozen=True):
    """The volumes that match a claim, whatever the node.

    prebound: those that name the claim; if there is one, only it is considered. others: the
    smallest first, then in order of arrival. fault: why the search fails; "" if it does not.

    Differs: among volumes of the same size the original takes any, in the order of a Go map.
    """

    prebound: tuple[PersistentVolume, ...] = ()
    others: tuple[PersistentVolume, ...] = ()
    fault: str = ""


def find_volume_candidates(
    claim: PersistentVolumeClaim,
    naming: Iterable[PersistentVolume],
    unclaimed: Iterable[PersistentVolume],
) -> VolumeCandidates:
    """The candidates among the volumes of the claim's class; raises QuantityError.

    naming: those whose claim reference has the name of this one. unclaimed: those without a claim.
    """
    wanted = size_nanos(requested_size(claim))
    try:
        if claim.spec.selector is not None:
            label_selector_matches(claim.spec.selector, {})
        prebound = [
            v
            for v in naming
            if is_volume_bound_to_claim(v, claim) and volume_satisfies_claim(v, claim, wanted)
        ]
        others = [
            v
            for v in unclaimed
            if volume_satisfies_claim(v, claim, wanted) and is_volume_available(v, claim)
        ]
    except SelectorError as fault:
        text = f"error creating internal label selector for claim: {claim.key}: {fault}"
        return VolumeCandidates(fault=text)
    others.sort(key=lambda volume: size_nanos(volume.spec.capacity.get("storage")))
    return VolumeCandidates(tuple(prebound), tuple(others))


def volume_satisfies_claim(
    volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: int
) -> bool:
    """True when size, mode and attributes class match and the volume is not being deleted.

    wanted: the claim's size in billionths of a byte.
    """
    return (
        size_nanos(volume.spec.capacity.get("storage")) >= wanted
        and _volume_mode(volume) == _volume_mode(claim)
        and (volume.spec.volume_attributes_class_name or "")
        == (claim.spec.volume_attributes_class_name or "")
        and volume.metadata.deletion_timestamp is None
    )


def _volume_mode(owner: PersistentVolume | PersistentVolumeClaim) -> str:
    return FILESYSTEM if owner.spec.volume_mode is None else owner.spec.volume_mode


def is_volume_available(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True when an unclaimed volume is available and the claim's selector and modes match."""
    selector = claim.spec.selector
    return (
        volume.status.phase == "Available"
        and (selector is None or label_selector_matches(selector, volume.labels))
        and (
            claim.spec.access_modes == volume.spec.access_modes
            or set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        )
    )


def is_volume_bound_to_claim(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """True when the volume names the claim; a name without uid is enough (bound by hand)."""
    ref = volume.spec.claim_ref
    return (
        ref is not None
        and (ref.namespace, ref.name) == (claim.namespace, claim.name)
        and ref.uid in ("", claim.metadata.uid)
    )


def volume_bound_to_claim(
    volume: PersistentVolume, claim: PersistentVolumeClaim
) -> PersistentVolume:
    """The volume after it names the claim; the volume itself if it already does."""
    meta, uid = claim.metadata, claim.metadata.uid
    ref, annotations = volume.spec.claim_ref, volume.metadata.annotations
    if not is_volume_bound_to_claim(volume, claim):
        annotations = {BOUND_BY_CONTROLLER_ANNOTATION: "yes"} | annotations
    if ref is None or (ref.namespace, ref.name, ref.uid) != (claim.namespace, claim.name, uid):
        ref = ObjectReference(
            api_version="v1",
            kind="PersistentVolumeClaim",
            namespace=claim.namespace,
            name=claim.name,
            uid=uid,
            resource_version=meta.resource_version,
        )
    if ref is volume.spec.claim_ref and annotations is volume.metadata.annotations:
        return volume
    return replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=ref),
    )


def claim_with_selected_node(claim: PersistentVolumeClaim, node_name: str) -> PersistentVolumeClaim:
    """The claim after a node is selected, for which its driver then provisions."""
    annotations = claim.metadata.annotations | {SELECTED_NODE_ANNOTATION: node_name}
    return replace(claim, metadata=replace(claim.metadata, annotations=annotations))


def claim_kind(claim: PersistentVolumeClaim) -> Hashable:
    """Equal for claims that ask for the same volumes, unless they select them or are named by them.
    Raises QuantityError."""
    spec, size = claim.spec, requested_size(claim)
    return (
        storage_class_of(claim),
        size_nanos(size),
        spec.volume_mode,
        spec.volume_attributes_class_name,
        spec.access_modes,
    )


class VolumesOfKind:
    """The free volumes for claims of one kind."""

    def __init__(self, claim: PersistentVolumeClaim, rows: RowsByLabel) -> None:
        """claim: one of the kind, without a selector. Raises QuantityError."""
        self._claim, self._rows = claim, rows
        self._wanted = size_nanos(requested_size(claim))
        self._places: dict[str, tuple[Place, AccessibleTopology]] = {}
        # By label and its value, for volumes that need one of some values of one label.
        self._pinned: dict[str, dict[str, list[Place]]] = {}
        self._others: list[Place] = []
        self._malformed: set[str] = set()
        # Per row the number of volumes that it can reach, and how many volumes several rows reach,
        # for a table and its shape.
        self._counts: Ints = np.zeros(0, dtype=np.int64)
        self._n_shared = 0
        self._counted: tuple[NodeTable | None, int] = None, -1

    def update(self, name: str, order: int, volume: PersistentVolume | None) -> None:
        """A volume is another, or gone (None)."""
        self._drop(name)
        self._malformed.discard(name)
        if volume is None or volume.spec.claim_ref is not None:
            return
        claim = self._claim
        if storage_class_of(volume) != storage_class_of(claim):
            return
        try:
            is_offered = volume_satisfies_claim(volume, claim, self._wanted) and (
                is_volume_available(volume, claim)
            )
        except QuantityError:
            self._malformed.add(name)
            return
        if is_offered:
            place = size_nanos(volume.spec.capacity.get("storage")), order, name
            reach = volume_topology(volume)
            self._places[name] = place, reach
            for places in self._lists(reach):
                insort(places, place)
            self._count(reach, 1)

    @property
    def is_well_formed(self) -> bool:
        """False where a volume of the class has a size that cannot be read."""
        return not self._malformed

    def _drop(self, name: str) -> None:
        place, reach = self._places.pop(name, (None, None))
        if place is not None:
            for places in self._lists(reach):
                del places[bisect_left(places, place)]
            self._count(reach, -1)

    def _lists(self, reach: AccessibleTopology) -> Iterator[list[Place]]:
        """Where volumes of this topology stand."""
        pin = single_in_requirement(reach)
        if pin is None:
            yield self._others
            return
        by_value = self._pinned.setdefault(pin.key, {})
        for value in dict.fromkeys(pin.values):
            yield by_value.setdefault(value, [])

    def smallest(self, node: Node) -> str:
        """The name of the volume that a claim takes on a node, "" for none."""
        labels, found = node.labels, []
        for key, by_value in self._pinned.items():
            places = by_value.get(labels[key]) if key in labels else None
            if places:
                found.append(places[0])
        for place in self._others:
            if topology_admits(self._places[place[2]][1], labels):
                found.append(place)
                break
        return min(found)[2] if found else ""

    def __len__(self) -> int:
        """Number of volumes."""
        return len(self._places)

    def reached(self, nodes: NodeTable) -> Bools:
        """bool (n_nodes,): the rows that can reach a volume."""
        reached: Bools = self.n_reached(nodes) > 0
        return reached

    def n_reached(self, nodes: NodeTable) -> Ints:
        """int64 (n_nodes,): how many volumes each row can reach; read only."""
        if self._counted[0] is not nodes or self._counted[1] != nodes.shape:
            self._counted = nodes, nodes.shape
            self._counts = np.zeros(nodes.n_nodes, dtype=np.int64)
            self._n_shared = 0
            for key, by_value in self._pinned.items():
                self._count_pinned(key, by_value, nodes)
            for reach, n in Counter(self._places[name][1] for _, _, name in self._others).items():
                rows = topology_column(reach, nodes, nodes.all_rows)
                self._counts += n * rows
                self._n_shared += n * (int(np.count_nonzero(rows)) > 1)
        return self._counts

    def _count_pinned(self, key: str, by_value: dict[str, list[Place]], nodes: NodeTable) -> None:
        column = nodes.labels.column(key)
        codes = column.codes[: nodes.n_nodes]
        table = np.zeros(len(column.vocabulary) + 1, dtype=np.int64)
        for value, places in by_value.items():
            item = column.vocabulary.find(value)
            if item >= 0:
                table[item] = len(places)
        self._counts += table[codes]
        n_rows = np.bincount(codes[codes >= 0], minlength=table.shape[0])
        shared = {
            name
            for value, places in by_value.items()
            if n_rows[column.vocabulary.find(value)] > 1
            for _, _, name in places
        }
        several = Counter(
            name
            for value, places in by_value.items()
            if n_rows[column.vocabulary.find(value)] == 1
            for _, _, name in places
        )
        shared |= {name for name, n in several.items() if n > 1}
        self._n_shared += len(shared)

    def has_shared(self, nodes: NodeTable) -> bool:
        """True where several rows reach one of the volumes."""
        self.n_reached(nodes)
        return self._n_shared > 0

    def _count(self, reach: AccessibleTopology, sign: int) -> None:
        nodes, shape = self._counted
        if nodes is not None and shape == nodes.shape:
            rows = self._rows.within(reach, nodes)
            self._counts[rows] += sign
            self._n_shared += sign * (rows.shape[0] > 1)


class FreeVolumes:
    """The free volumes of an object store, by kind of claim."""

    @classmethod
    def of(cls, object_store: ObjectStore) -> FreeVolumes:
        """Those of an object store, as they are now."""
        # No table with weak keys: the counts refer to node tables, which lead to its store.
        found: FreeVolumes | None = object_store.indexes.get(cls)
        if found is None:
            found = object_store.indexes[cls] = cls()
        found._follow(object_store)
        return found

    def __init__(self) -> None:
        # By name: the order of arrival, and the volume when it last changed for plugins.
        self._volumes: dict[str, tuple[int, PersistentVolume]] = {}
        self._n_arrived = 0
        self._naming: dict[tuple[str, str], int] = {}
        self._rows = RowsByLabel()
        self._kinds: OrderedDict[Hashable, VolumesOfKind] = OrderedDict()
        # A number of each row, for a table and its shape and versions of what else is read.
        self._states: Ints = np.zeros(0, dtype=np.int64)
        self._states_of: tuple[NodeTable | None, int, int] = None, -1, -1

    def is_named(self, claim: PersistentVolumeClaim) -> bool:
        """True where a volume of its class names the claim."""
        return (storage_class_of(claim), claim.key) in self._naming

    def states(self, nodes: NodeTable, version: int) -> Ints:
        """int64 (n_nodes,): a number for the free volumes that each row reaches, another one after
        every change of them; the same array for the same table and version."""
        table, shape, read = self._states_of
        if table is not nodes or shape != nodes.shape:
            self._states = np.zeros(nodes.n_nodes, dtype=np.int64)
        elif read != version:
            self._states = self._states.copy()
        self._states_of = nodes, nodes.shape, version
        return self._states

    def _free_changed(self, volume: PersistentVolume) -> None:
        """A volume without a claim comes or goes."""
        nodes, shape, _ = self._states_of
        if nodes is not None and shape == nodes.shape and volume.spec.claim_ref is None:
            self._states[self._rows.within(volume_topology(volume), nodes)] += 1

    def for_claim(self, claim: PersistentVolumeClaim) -> VolumesOfKind | None:
        """The volumes for a claim; None where a volume names it, where it selects volumes by
        their labels, or where one of them has no readable size. Raises QuantityError."""
        if claim.spec.selector is not None or self.is_named(claim):
            return None
        return self.of_kind(claim)

    def of_kind(self, claim: PersistentVolumeClaim) -> VolumesOfKind | None:
        """The volumes for claims like this one, which selects none and is named by none; None where
        one of them has no readable size. Raises QuantityError."""
        key = claim_kind(claim)
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = VolumesOfKind(claim, self._rows)
            for volume_name, (order, volume) in self._volumes.items():
                found.update(volume_name, order, volume)
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        return found if found.is_well_formed else None

    def _follow(self, object_store: ObjectStore) -> None:
        for name in object_store.take_changed(PersistentVolume):
            before = self._volumes.get(name)
            volume = object_store.find(PersistentVolume, name)
            if before is not None and volume is not None and _is_taken_alike(before[1], volume):
                self._volumes[name] = before[0], volume
                continue
            if before is not None:
                self._name(before[1], -1)
                self._free_changed(before[1])
            if volume is None:
                self._volumes.pop(name, None)
                order = 0
            else:
                is_known = before is not None and before[1].metadata.uid == volume.metadata.uid
                self._n_arrived += not is_known
                order = before[0] if before is not None and is_known else self._n_arrived
                self._volumes[name] = order, volume
                self._name(volume, 1)
                self._free_changed(volume)
            for kind in self._kinds.values():
                kind.update(name, order, volume)

    def _name(self, volume: PersistentVolume, sign: int) -> None:
        claim = volume.spec.claim_ref
        if claim is not None:
            key = storage_class_of(volume), f"{claim.namespace}/{claim.name}"
            n_naming = self._naming.get(key, 0) + sign
            if n_naming:
                self._naming[key] = n_naming
            else:
                del self._naming[key]


def _is_taken_alike(before: PersistentVolume, after: PersistentVolume) -> bool:
    """True where a volume named the same claim before, so that no free volume comes or goes: a
    volume that was assumed for a claim is written, and shown by the watch."""
    old, new = before.spec.claim_ref, after.spec.claim_ref
    return (
        old is not None
        and new is not None
        and (old.namespace, old.name) == (new.namespace, new.name)
        and before.metadata.uid == after.metadata.uid
        and storage_class_of(before) == storage_class_of(after)
    )
