"""Where a pod's claims can be served: which volume each would be bound to, or be provisioned.

What does not depend on the node is found out once per attempt; then a node is asked (`on_node`),
or all of them (`column`). Bound claims need their volume within reach. The others, smallest first,
take the smallest free volume within reach, each volume once; what finds none must be provisioned,
for which the class must allow the node and the driver have room there.

Source: kube-scheduler v1.36, plugins/volumebinding/binder.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework import NodeTable, Rows, World
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
from stowplan.plugins.arithmetic import count
from stowplan.plugins.csi_translation import TranslationError, plugin_of, translated
from stowplan.plugins.volume_claims import (
    SELECTED_NODE,
    class_name,
    requested_size,
    size_nanos,
)
from stowplan.plugins.volume_index import VolumeIndex, migrated_plugins
from stowplan.plugins.volume_matching import Candidates, candidates
from stowplan.plugins.volume_reach import (
    NONE,
    NOWHERE,
    Ranking,
    Reach,
    is_reached,
    reach_column,
    reach_of_capacity,
    reach_of_class,
    reach_of_volume,
)

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

NODE_CONFLICT, NO_VOLUME, NO_SPACE, VOLUME_MISSING = 1, 2, 4, 8
"""What can be wrong with a node: bits, since bound and unbound claims are looked at apart."""

FAULT = 16
"""Codes from here on are no refusals but faults: FAULT + the place in `VolumeSearch.faults`."""

NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
UNMATCHED = -1


class VolumeFault(ValueError):
    """What keeps a claim from being looked at; the attempt ends with it. The original's text."""


class BoundVolume(msgspec.Struct, frozen=True):
    """The volume of a bound claim. need: how explanations name both.

    plugin: the in-tree plugin that a CSI driver may have taken over on a node; there
    `migrated_reach` counts, or `fault` ends the attempt.
    """

    need: str
    exists: bool = True
    reach: Reach = None
    plugin: str = ""
    migrated_reach: Reach = None
    fault: str = ""


class Provision(msgspec.Struct, frozen=True):
    """A claim to be provisioned. capacity: what shows that there is room, None if not asked."""

    claim: PersistentVolumeClaim
    capacity: CSIStorageCapacity | None


class Found(msgspec.Struct, frozen=True):
    """The outcome on one node. conflicts: bits; 0 where the node can serve every claim.

    why: a text for each conflict, need before have.
    """

    conflicts: int = 0
    static: tuple[tuple[PersistentVolumeClaim, PersistentVolume], ...] = ()
    dynamic: tuple[Provision, ...] = ()
    why: tuple[str, ...] = ()

    def but(self, conflict: int, why: str) -> Found:
        """The outcome with one conflict more, so that nothing is bound."""
        return Found(self.conflicts | conflict, why=(*self.why, why))


class Supply(msgspec.Struct, frozen=True):
    """How a class provisions for a claim. capacities: those large enough, None if not asked."""

    provisions: bool
    reach: Reach
    capacities: tuple[CSIStorageCapacity, ...] | None
    capacity_reaches: tuple[Reach, ...]

    def capacity_at(self, node: Node) -> CSIStorageCapacity | None:
        """The first of the capacities that is for the node.

        Differs: the original takes any of them, in the order of a Go map. Only scores see which.
        """
        for capacity, reach in zip(self.capacities or (), self.capacity_reaches, strict=True):
            if is_reached(reach, node.labels):
                return capacity
        return None


class VolumeSearch:
    """The claims of one pod, sorted out, on one version of the world."""

    def __init__(
        self,
        world: World,
        index: VolumeIndex,
        bound: Sequence[PersistentVolumeClaim],
        delayed: Sequence[PersistentVolumeClaim],
    ) -> None:
        """bound, delayed: claims in the order of the pod's volumes. Raises QuantityError."""
        self._world = world
        self._index = index
        self.delayed = tuple(delayed)
        self.bound = tuple(self._bound_volume(claim) for claim in bound)
        self._selected = tuple(c for c in delayed if SELECTED_NODE in c.metadata.annotations)
        to_match = (c for c in delayed if SELECTED_NODE not in c.metadata.annotations)
        # Unproved: with more than twelve claims the original's sort may swap those of equal size.
        self._to_match = tuple(sorted(to_match, key=lambda c: size_nanos(requested_size(c))))
        self._candidates = tuple(self._candidates_of(claim) for claim in self._to_match)
        self._supplies = {claim.key: self._supply(claim) for claim in self.delayed}
        self.faults: list[str] = []

    def _bound_volume(self, claim: PersistentVolumeClaim) -> BoundVolume:
        """What counts of a bound claim's volume."""
        need = f"claim {claim.name}: needs volume {claim.spec.volume_name}"
        volume = self._world.find(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return BoundVolume(need, exists=False)
        reach = reach_of_volume(volume)
        plugin = plugin_of(volume.spec)
        if plugin is None or not plugin.is_migrated:
            return BoundVolume(need, reach=reach)
        try:
            there = reach_of_volume(translated(volume, plugin))
        except TranslationError as error:
            fault = f"could not translate pv: {error}"
            return BoundVolume(need, reach=reach, plugin=plugin.name, fault=fault)
        return BoundVolume(need, reach=reach, plugin=plugin.name, migrated_reach=there)

    def _candidates_of(self, claim: PersistentVolumeClaim) -> Candidates:
        name = class_name(claim)
        naming = self._index.claimed.get((name, claim.key), ())
        return candidates(claim, naming, self._index.unclaimed.get(name, ()))

    def _supply(self, claim: PersistentVolumeClaim) -> Supply:
        # A claim whose class is not there is bound immediately, so it never comes here.
        storage_class = self._world.find(StorageClass, class_name(claim))
        if storage_class is None or storage_class.provisioner in NO_PROVISIONER:
            return Supply(False, NOWHERE, None, ())
        reach = reach_of_class(storage_class)
        size = requested_size(claim)
        driver = self._world.find(CSIDriver, storage_class.provisioner)
        if size is None or driver is None or not driver.spec.storage_capacity:
            return Supply(True, reach, None, ())
        wanted = value(size)
        capacities = tuple(
            capacity
            for capacity in self._index.capacities.get(storage_class.name, ())
            if _has_room(capacity, wanted)
        )
        return Supply(True, reach, capacities, tuple(map(reach_of_capacity, capacities)))

    # One node.

    def on_node(self, node: Node) -> Found:
        """Look at one node; raises VolumeFault."""
        found = self._bound_on(node)
        for claim in self._selected:
            selected = claim.metadata.annotations[SELECTED_NODE]
            if selected != node.name:
                why = f"claim {claim.name}: needs node {selected}, which it was promised to"
                return found.but(NO_VOLUME, why)
        matches = list(zip(self._to_match, self._matches(node), strict=True))
        static = tuple((claim, volume) for claim, volume in matches if volume is not None)
        dynamic: list[Provision] = []
        unmatched = (claim for claim, volume in matches if volume is None)
        for claim in (*self._selected, *unmatched):
            supply = self._supplies[claim.key]
            if not supply.provisions:
                return found.but(NO_VOLUME, f"{_need(claim)}; its class makes none")
            if not is_reached(supply.reach, node.labels):
                return found.but(NO_VOLUME, f"{_need(claim)}; its class makes none here")
            capacity = supply.capacity_at(node)
            if capacity is None and supply.capacities is not None:
                return found.but(NO_SPACE, f"{_need(claim)}; its driver has no room here")
            dynamic.append(Provision(claim, capacity))
        return Found(found.conflicts, static, tuple(dynamic), found.why)

    def _bound_on(self, node: Node) -> Found:
        """What the first bound claim that the node cannot serve makes wrong."""
        for volume in self.bound:
            if not volume.exists:
                return Found().but(VOLUME_MISSING, f"{volume.need}, which does not exist")
            reach = volume.reach
            if volume.plugin and self._is_migrated(volume.plugin, node.name):
                if volume.fault:
                    raise VolumeFault(volume.fault)
                reach = volume.migrated_reach
            if not is_reached(reach, node.labels):
                return Found().but(NODE_CONFLICT, f"{volume.need}, which this node cannot reach")
        return Found()

    def _is_migrated(self, plugin: str, node_name: str) -> bool:
        return plugin in migrated_plugins(self._world.find(CSINode, node_name))

    def _matches(self, node: Node) -> list[PersistentVolume | None]:
        """The existing volume for each claim to match, None where there is none."""
        matches: list[PersistentVolume | None] = []
        taken: set[str] = set()
        for found in self._candidates:
            if found.fault:
                raise VolumeFault(found.fault)
            volume = _best(found, node, taken)
            if volume is not None:
                taken.add(volume.name)
            matches.append(volume)
        return matches

    # Every node.

    def column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): the conflicts of each row, or FAULT and more."""
        codes = self._bound_column(nodes, rows)
        if not self.delayed:
            return codes
        live = codes < FAULT
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        for claim in self._selected:
            is_selected = numbers == nodes.row(claim.metadata.annotations[SELECTED_NODE])
            codes[live & ~is_selected] |= NO_VOLUME
            live &= is_selected
        faults = (found.fault for found in self._candidates if found.fault)
        fault = next(faults, "")
        if fault:
            codes[live] = self._fault_code(fault)
            return codes
        unmatched = [choice == UNMATCHED for choice in self._choices(nodes, rows)]
        needs = [(claim, live) for claim in self._selected]
        needs += zip(self._to_match, (live & u for u in unmatched), strict=True)
        for claim, needed in needs:
            # The first claim that cannot be provisioned says what is wrong.
            needed = needed & live
            if needed.any():
                live = live & ~self._refuse(claim, needed, codes, nodes, rows)
        return codes

    def _refuse(
        self,
        claim: PersistentVolumeClaim,
        needed: Bools,
        codes: Ints,
        nodes: NodeTable,
        rows: Rows,
    ) -> Bools:
        """bool (n_rows,): `needed` rows where it cannot be provisioned; writes their `codes`."""
        supply = self._supplies[claim.key]
        if not supply.provisions:
            codes[needed] |= NO_VOLUME
            return needed
        outside = needed & ~reach_column(supply.reach, nodes, rows)
        codes[outside] |= NO_VOLUME
        if supply.capacities is None:
            return outside
        has_room: Bools = Ranking(supply.capacity_reaches).first(nodes, rows, 1)[:, 0] != NONE
        full = needed & ~outside & ~has_room
        codes[full] |= NO_SPACE
        return outside | full

    def _bound_column(self, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): what bound claims make wrong, as `_bound_on` says."""
        codes = np.zeros(count(rows), dtype=np.int64)
        for volume in self.bound:
            if not volume.exists:
                codes[codes == 0] = VOLUME_MISSING
                break
            reached = reach_column(volume.reach, nodes, rows)
            is_migrated = self._index.migrated_column(volume.plugin, nodes)[rows]
            if is_migrated.any():
                if volume.fault:
                    codes[is_migrated & (codes == 0)] = self._fault_code(volume.fault)
                there = reach_column(volume.migrated_reach, nodes, rows)
                reached = np.where(is_migrated, there, reached)
            codes[~reached & (codes == 0)] = NODE_CONFLICT
        return codes

    def _fault_code(self, fault: str) -> int:
        if fault not in self.faults:
            self.faults.append(fault)
        return FAULT + self.faults.index(fault)

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
        self, found: Candidates, chosen: Sequence[Ints], nodes: NodeTable, rows: Rows
    ) -> Ints:
        """int64 (n_rows,): a claim's volume, none of those that earlier claims have chosen."""
        n_rows = count(rows)
        choice = np.full(n_rows, UNMATCHED, dtype=np.int64)
        undecided = np.ones(n_rows, dtype=np.bool_)
        for volume in found.prebound:
            number = self._numbers[volume.name]
            decided = undecided & ~_is_taken(np.full(n_rows, number, dtype=np.int64), chosen)
            choice[decided & reach_column(reach_of_volume(volume), nodes, rows)] = number
            undecided &= ~decided
        numbers = np.array([self._numbers[v.name] for v in found.others] + [UNMATCHED])
        ranking = Ranking([reach_of_volume(volume) for volume in found.others])
        # Earlier claims have taken one volume each, so no more than that need be passed over.
        ranks = ranking.first(nodes, rows, len(chosen) + 1)
        for place in range(len(chosen) + 1):
            offered = numbers[np.minimum(ranks[:, place], len(found.others))]
            takes = undecided & ~_is_taken(offered, chosen)
            choice[takes] = offered[takes]
            undecided &= ~takes
        return choice


def _is_taken(offered: Ints, chosen: Sequence[Ints]) -> Bools:
    """bool (n_rows,): rows where an earlier claim has chosen the volume that is offered."""
    taken = np.zeros(offered.shape[0], dtype=np.bool_)
    for choice in chosen:
        taken |= (offered == choice) & (offered != UNMATCHED)
    return taken


def _need(claim: PersistentVolumeClaim) -> str:
    """What a claim without a volume needs, for explanations."""
    size, name = requested_size(claim), class_name(claim) or "none"
    return f"claim {claim.name}: needs {size or 'any size'} of class {name}, no free volume fits"


def _best(found: Candidates, node: Node, taken: set[str]) -> PersistentVolume | None:
    """The volume for a claim on one node. A volume that names the claim counts even out of reach:
    then there is none."""
    for volume in found.prebound:
        if volume.name not in taken:
            return volume if is_reached(reach_of_volume(volume), node.labels) else None
    for volume in found.others:
        if volume.name not in taken and is_reached(reach_of_volume(volume), node.labels):
            return volume
    return None


def _has_room(capacity: CSIStorageCapacity, wanted: int) -> bool:
    """True when a volume of this many bytes can be provisioned; an unknown size is no room."""
    limit = (
        capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    )
    return limit is not None and value(limit) >= wanted
