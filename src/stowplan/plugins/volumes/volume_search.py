"""Where a pod's claims can be served: the volume that each is bound to, or provisioning.

What does not depend on the node is computed once per attempt; then nodes are evaluated one by one
(`on_node`) or together (`column`). Bound claims need an accessible volume. The others, smallest
first, take the smallest free accessible volume, each volume once; a claim without one must be
provisioned, for which the class must allow the node and the driver have capacity there.

Source: kube-scheduler v1.36, plugins/volumebinding/binder.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import NodeTable, ObjectStore, Rows
from stowplan.objects.node import Node
from stowplan.objects.quantity import value
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.plugins.arithmetic import n_rows_of
from stowplan.plugins.volumes.csi_translation import (
    TranslationError,
    in_tree_plugin_of,
    translate_in_tree_volume,
)
from stowplan.plugins.volumes.volume_claims import (
    SELECTED_NODE_ANNOTATION,
    requested_size,
    size_nanos,
    storage_class_of,
    volume_limit,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex, migrated_plugins
from stowplan.plugins.volumes.volume_matching import (
    FreeVolumes,
    VolumeCandidates,
    VolumesOfKind,
    find_volume_candidates,
)
from stowplan.plugins.volumes.volume_topology import (
    NO_NODES,
    AccessibleTopology,
    TopologyRanking,
    capacity_topology,
    rows_of_any,
    single_in_requirement,
    storage_class_topology,
    topology_admits,
    topology_column,
    volume_topology,
)

NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, PV_NOT_EXIST = 1, 2, 4, 8
"""Conflicts of a node: bits, since bound and unbound claims are evaluated separately."""

FIRST_FAULT_CODE = 16
"""Codes from here on are no refusals but faults: FAULT + the index in `VolumeSearch.faults`."""

NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
UNMATCHED = -1


class VolumeBindingError(ValueError):
    """A claim that cannot be evaluated; the attempt ends with the original's text."""


class BoundVolume(msgspec.Struct, frozen=True):
    """The volume of a bound claim.

    need: how explanations name both. plugin: the in-tree plugin that may be migrated on a node;
    there `migrated_reach` counts, or `fault` ends the attempt.
    """

    need: str
    exists: bool = True
    reach: AccessibleTopology = None
    plugin: str = ""
    migrated_reach: AccessibleTopology = None
    fault: str = ""


class DynamicProvision(msgspec.Struct, frozen=True):
    """A claim to be provisioned. capacity: the capacity object that suffices, None if not
    checked."""

    claim: PersistentVolumeClaim
    capacity: CSIStorageCapacity | None


class PodVolumeBindings(msgspec.Struct, frozen=True):
    """The outcome on one node.

    conflicts: bits; 0 where the node can serve every claim. why: a text for each conflict, need
    before have.
    """

    conflicts: int = 0
    static: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    dynamic: tuple[DynamicProvision, ...] = ()
    why: tuple[str, ...] = ()

    def but(self, conflict: int, why: str) -> PodVolumeBindings:
        """The outcome with one more conflict, so that nothing is bound."""
        return PodVolumeBindings(self.conflicts | conflict, why=(*self.why, why))


class ProvisioningOptions:
    """How a class provisions for a claim. capacities: those large enough, None if not checked."""

    def __init__(
        self,
        provisions: bool,
        reach: AccessibleTopology,
        capacities: tuple[CSIStorageCapacity, ...] | None = None,
        capacity_reaches: tuple[AccessibleTopology, ...] = (),
    ) -> None:
        self.provisions = provisions
        self.reach = reach
        self.capacities = capacities
        self.capacity_reaches = capacity_reaches
        # The table and the shape for which the columns were made.
        self._made_for: tuple[NodeTable | None, int] = None, -1
        self._columns: tuple[Bools, Bools]

    def columns(self, nodes: NodeTable) -> tuple[Bools, Bools]:
        """Two of bool (n_nodes,), read only: the nodes that the class allows, and those where a
        capacity suffices. Kept until a node is added, removed or labelled."""
        if self._made_for[0] is not nodes or self._made_for[1] != nodes.shape:
            rows = nodes.all_rows
            allowed = topology_column(self.reach, nodes, rows)
            has_room = np.ones(nodes.n_nodes, dtype=np.bool_)
            if self.capacities is not None:
                has_room = rows_of_any(self.capacity_reaches, nodes)
            self._made_for, self._columns = (nodes, nodes.shape), (allowed, has_room)
        return self._columns

    def capacity_at(self, node: Node) -> CSIStorageCapacity | None:
        """The first of the capacities that is for the node.

        Differs: the original takes any of them, in the order of a Go map. Only scores see which.
        """
        capacities, labels = self.capacities or (), node.labels
        by_label, others = self._capacities_by_label
        found = [
            places[labels[key]] for key, places in by_label.items() if labels.get(key) in places
        ]
        for place in others:
            if topology_admits(self.capacity_reaches[place], labels):
                found.append(place)
                break
        return capacities[min(found)] if found else None

    @cached_property
    def _capacities_by_label(self) -> tuple[dict[str, dict[str, int]], list[int]]:
        """The first capacity by label and value; and the others, in order."""
        by_label: dict[str, dict[str, int]] = {}
        others: list[int] = []
        for place, reach in enumerate(self.capacity_reaches):
            pin = single_in_requirement(reach)
            if pin is None:
                others.append(place)
            else:
                places = by_label.setdefault(pin.key, {})
                for one in pin.values:
                    places.setdefault(one, place)
        return by_label, others


class VolumeSearch:
    """The claims of one pod on one version of the objects."""

    def __init__(
        self,
        object_store: ObjectStore,
        index: VolumeIndex,
        bound: Sequence[PersistentVolumeClaim],
        delayed: Sequence[PersistentVolumeClaim],
    ) -> None:
        """bound, delayed: claims in the order of the pod's volumes. Raises QuantityError."""
        self._object_store = object_store
        self._index = index
        self.delayed = tuple(delayed)
        self.bound = tuple(self._bound_volume(claim) for claim in bound)
        self._selected = tuple(
            c for c in delayed if SELECTED_NODE_ANNOTATION in c.metadata.annotations
        )
        to_match = (c for c in delayed if SELECTED_NODE_ANNOTATION not in c.metadata.annotations)
        # Unproved: with more than twelve claims the original's sort may swap those of equal size.
        self._to_match = tuple(sorted(to_match, key=lambda c: size_nanos(requested_size(c))))
        self._kept: VolumesOfKind | None = None
        if len(self._to_match) == 1:
            self._kept = FreeVolumes.of(object_store).for_claim(self._to_match[0])
        # Volumes for one claim are kept; several claims choose in turn.
        self._candidates = tuple(
            self._candidates_of(claim) for claim in self._to_match if self._kept is None
        )
        self._supplies = {claim.key: self._supply(claim) for claim in self.delayed}
        self.faults: list[str] = []

    def _bound_volume(self, claim: PersistentVolumeClaim) -> BoundVolume:
        """What the search reads of a bound claim's volume."""
        need = f"claim {claim.name}: needs volume {claim.spec.volume_name}"
        volume = self._object_store.find(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return BoundVolume(need, exists=False)
        reach = volume_topology(volume)
        plugin = in_tree_plugin_of(volume.spec)
        if plugin is None or not plugin.is_migrated:
            return BoundVolume(need, reach=reach)
        try:
            there = volume_topology(translate_in_tree_volume(volume, plugin))
        except TranslationError as error:
            fault = f"could not translate pv: {error}"
            return BoundVolume(need, reach=reach, plugin=plugin.name, fault=fault)
        return BoundVolume(need, reach=reach, plugin=plugin.name, migrated_reach=there)

    def _candidates_of(self, claim: PersistentVolumeClaim) -> VolumeCandidates:
        name = storage_class_of(claim)
        naming = self._index.claimed.get((name, claim.key), ())
        return find_volume_candidates(claim, naming, self._index.unclaimed.get(name, ()))

    def _supply(self, claim: PersistentVolumeClaim) -> ProvisioningOptions:
        return supply_of(claim, self._object_store, self._index)

    # One node.

    def on_node(self, node: Node) -> PodVolumeBindings:
        """Evaluate one node; raises VolumeBindingError."""
        found = self._bound_on(node)
        for claim in self._selected:
            selected = claim.metadata.annotations[SELECTED_NODE_ANNOTATION]
            if selected != node.name:
                why = f"claim {claim.name}: needs node {selected}, which it was promised to"
                return found.but(BIND_CONFLICT, why)
        matches = list(zip(self._to_match, self._matches(node), strict=True))
        static = tuple((claim, volume) for claim, volume in matches if volume is not None)
        dynamic: list[DynamicProvision] = []
        unmatched = (claim for claim, volume in matches if volume is None)
        for claim in (*self._selected, *unmatched):
            supply = self._supplies[claim.key]
            if not supply.provisions:
                return found.but(
                    BIND_CONFLICT, f"{_unbound_claim_text(claim)}; its class makes none"
                )
            if not topology_admits(supply.reach, node.labels):
                return found.but(
                    BIND_CONFLICT, f"{_unbound_claim_text(claim)}; its class makes none here"
                )
            capacity = supply.capacity_at(node)
            if capacity is None and supply.capacities is not None:
                return found.but(
                    NOT_ENOUGH_SPACE, f"{_unbound_claim_text(claim)}; its driver has no room here"
                )
            dynamic.append(DynamicProvision(claim, capacity))
        return PodVolumeBindings(found.conflicts, static, tuple(dynamic), found.why)

    def _bound_on(self, node: Node) -> PodVolumeBindings:
        """The conflict of the first bound claim that the node cannot serve."""
        for volume in self.bound:
            if not volume.exists:
                return PodVolumeBindings().but(PV_NOT_EXIST, f"{volume.need}, which does not exist")
            reach = volume.reach
            if volume.plugin and self._is_migrated(volume.plugin, node.name):
                if volume.fault:
                    raise VolumeBindingError(volume.fault)
                reach = volume.migrated_reach
            if not topology_admits(reach, node.labels):
                return PodVolumeBindings().but(
                    NODE_CONFLICT, f"{volume.need}, which this node cannot reach"
                )
        return PodVolumeBindings()

    def _is_migrated(self, plugin: str, node_name: str) -> bool:
        return plugin in migrated_plugins(self._object_store.find(CSINode, node_name))

    def _matches(self, node: Node) -> list[PersistentVolume | None]:
        """The existing volume for each claim to match, None where there is none."""
        if self._kept is not None:
            name = self._kept.smallest(node)
            return [self._object_store.find(PersistentVolume, name) if name else None]
        matches: list[PersistentVolume | None] = []
        taken: set[str] = set()
        for found in self._candidates:
            if found.fault:
                raise VolumeBindingError(found.fault)
            volume = smallest_matching_volume(found, node, taken)
            if volume is not None:
                taken.add(volume.name)
            matches.append(volume)
        return matches

    # Every node.

    def column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): the conflicts of each row, or FAULT and above."""
        codes = self._bound_column(nodes, rows)
        if not self.delayed:
            return codes
        live = codes < FIRST_FAULT_CODE
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        for claim in self._selected:
            is_selected = numbers == nodes.row(claim.metadata.annotations[SELECTED_NODE_ANNOTATION])
            codes[live & ~is_selected] |= BIND_CONFLICT
            live &= is_selected
        faults = (found.fault for found in self._candidates if found.fault)
        fault = next(faults, "")
        if fault:
            codes[live] = self._fault_code(fault)
            return codes
        if self._kept is not None:
            unmatched = [~self._kept.reached(nodes)[rows]]
        else:
            unmatched = [choice == UNMATCHED for choice in self._choices(nodes, rows)]
        needs = [(claim, live) for claim in self._selected]
        needs += zip(self._to_match, (live & u for u in unmatched), strict=True)
        for claim, needed in needs:
            # The first claim that cannot be provisioned decides the conflict.
            needed = needed & live
            if needed.any():
                live = live & ~self._refuse(claim, needed, codes, nodes, rows)
        return codes

    def _refuse(
        self, claim: PersistentVolumeClaim, needed: Bools, codes: Ints, nodes: NodeTable, rows: Rows
    ) -> Bools:
        """bool (n_rows,): `needed` rows where the claim cannot be provisioned; writes their
        `codes`."""
        supply = self._supplies[claim.key]
        if not supply.provisions:
            codes[needed] |= BIND_CONFLICT
            return needed
        allowed, has_room = supply.columns(nodes)
        outside = needed & ~allowed[rows]
        codes[outside] |= BIND_CONFLICT
        full = needed & ~outside & ~has_room[rows]
        codes[full] |= NOT_ENOUGH_SPACE
        return outside | full

    def _bound_column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): the conflicts of bound claims, as `_bound_on` returns them."""
        codes = np.zeros(n_rows_of(rows), dtype=np.int64)
        for volume in self.bound:
            if not volume.exists:
                codes[codes == 0] = PV_NOT_EXIST
                break
            reached = topology_column(volume.reach, nodes, rows)
            is_migrated = self._index.migrated_column(volume.plugin, nodes)[rows]
            if is_migrated.any():
                if volume.fault:
                    codes[is_migrated & (codes == 0)] = self._fault_code(volume.fault)
                there = topology_column(volume.migrated_reach, nodes, rows)
                reached = np.where(is_migrated, there, reached)
            codes[~reached & (codes == 0)] = NODE_CONFLICT
        return codes

    def _fault_code(self, fault: str) -> int:
        if fault not in self.faults:
            self.faults.append(fault)
        return FIRST_FAULT_CODE + self.faults.index(fault)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Every candidate volume -> a small number."""
        names = (
            volume.name for found in self._candidates for volume in (*found.prebound, *found.others)
        )
        return {name: number for number, name in enumerate(dict.fromkeys(names))}

    def _choices(self, nodes: NodeTable, rows: Rows) -> Iterator[Ints]:
        """Per claim to match, int64 (n_rows,): the number of its volume, UNMATCHED for none."""
        chosen: list[Ints] = []
        for found in self._candidates:
            choice = self._choice(found, chosen, nodes, rows)
            chosen.append(choice)
            yield choice

    def _choice(
        self, found: VolumeCandidates, chosen: Sequence[Ints], nodes: NodeTable, rows: Rows
    ) -> Ints:
        """int64 (n_rows,): a claim's volume, none of those that earlier claims chose."""
        n_rows = n_rows_of(rows)
        choice = np.full(n_rows, UNMATCHED, dtype=np.int64)
        undecided = np.ones(n_rows, dtype=np.bool_)
        for volume in found.prebound:
            number = self._numbers[volume.name]
            decided = undecided & ~_is_chosen_before(
                np.full(n_rows, number, dtype=np.int64), chosen
            )
            choice[decided & topology_column(volume_topology(volume), nodes, rows)] = number
            undecided &= ~decided
        numbers = np.array([self._numbers[v.name] for v in found.others] + [UNMATCHED])
        ranking = TopologyRanking([volume_topology(volume) for volume in found.others])
        # Earlier claims chose one volume each, so no more than that many are skipped.
        ranks = ranking.first(nodes, rows, len(chosen) + 1)
        for place in range(len(chosen) + 1):
            offered = numbers[np.minimum(ranks[:, place], len(found.others))]
            takes = undecided & ~_is_chosen_before(offered, chosen)
            choice[takes] = offered[takes]
            undecided &= ~takes
        return choice


def _is_chosen_before(offered: Ints, chosen: Sequence[Ints]) -> Bools:
    """bool (n_rows,): rows where an earlier claim chose the volume that is offered."""
    taken = np.zeros(offered.shape[0], dtype=np.bool_)
    for choice in chosen:
        taken |= (offered == choice) & (offered != UNMATCHED)
    return taken


def _unbound_claim_text(claim: PersistentVolumeClaim) -> str:
    """The need of a claim without a volume, for explanations."""
    size, name = requested_size(claim), storage_class_of(claim) or "none"
    return f"claim {claim.name}: needs {size or 'any size'} of class {name}, no free volume fits"


def smallest_matching_volume(
    found: VolumeCandidates,
    node: Node,
    taken: set[str],
    topology_of: Callable[[PersistentVolume], AccessibleTopology] = volume_topology,
) -> PersistentVolume | None:
    """The volume for a claim on one node.

    A volume that names the claim counts even if it is not accessible: then there is none.
    """
    for volume in found.prebound:
        if volume.name not in taken:
            return volume if topology_admits(topology_of(volume), node.labels) else None
    for volume in found.others:
        if volume.name not in taken and topology_admits(topology_of(volume), node.labels):
            return volume
    return None


def supply_of(
    claim: PersistentVolumeClaim, object_store: ObjectStore, index: VolumeIndex
) -> ProvisioningOptions:
    """How a volume for a delayed claim would be provisioned."""
    # A claim whose class does not exist binds immediately, so it is never delayed.
    storage_class = object_store.find(StorageClass, storage_class_of(claim))
    if storage_class is None or storage_class.provisioner in NO_PROVISIONER:
        return ProvisioningOptions(False, NO_NODES)
    size = requested_size(claim)
    driver = object_store.find(CSIDriver, storage_class.provisioner)
    wanted: int | None = None
    capacities: Sequence[CSIStorageCapacity] = ()
    if size is not None and driver is not None and driver.spec.storage_capacity:
        wanted = value(size)
        capacities = index.capacities.get(storage_class.name, ())
    return index.supply(
        (storage_class.name, wanted),
        (storage_class, capacities),
        lambda: _options(storage_class, wanted, capacities),
    )


def _options(
    storage_class: StorageClass, wanted: int | None, found: Sequence[CSIStorageCapacity]
) -> ProvisioningOptions:
    """How a class provisions for claims of a size. wanted: None where the driver does not report
    capacities. found: the capacities of the class."""
    reach = storage_class_topology(storage_class)
    if wanted is None:
        return ProvisioningOptions(True, reach)
    capacities = tuple(one for one in found if _has_sufficient_capacity(one, wanted))
    return ProvisioningOptions(True, reach, capacities, tuple(map(capacity_topology, capacities)))


def _has_sufficient_capacity(capacity: CSIStorageCapacity, wanted: int) -> bool:
    """True when a volume of this size can be provisioned; an unknown size does not suffice."""
    limit = volume_limit(capacity)
    return limit is not None and value(limit) >= wanted
