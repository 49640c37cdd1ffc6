"""Claims that wait for their first consumer, as classes of pods have them.

Two pods whose claims ask for the same are alike: the same nodes can serve them. Kernels place the
pods of such a class; which volume each takes is decided afterwards, pod by pod in their order, and
assumed as Reserve would.

Source: kube-scheduler v1.36, plugins/volumebinding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import CycleState, NodeTable, ObjectStore
from stowplan.framework.deciders.kernel_terms import DeviceClaims, OwnClaims
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import QuantityError
from stowplan.objects.storage import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from stowplan.plugins.volumes.attached_volumes import csi_of_claim
from stowplan.plugins.volumes.claims.bound_claims import BoundClaims, claims_of_kinds
from stowplan.plugins.volumes.claims.claim_kinds import (
    READ_WRITE_ONCE_POD,
    ClaimKinds,
    VolumeKind,
)
from stowplan.plugins.volumes.volume_claims import (
    SELECTED_NODE_ANNOTATION,
    find_claim,
    is_fully_bound,
    requested_size,
    size_nanos,
    volume_uses_of,
    waits_for_first_consumer,
)
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_matching import FreeVolumes, claim_kind
from stowplan.plugins.volumes.volume_reservation import assume_pod_volumes
from stowplan.plugins.volumes.volume_search import (
    FIRST_FAULT_CODE,
    DynamicProvision,
    PodVolumeBindings,
    VolumeSearch,
    supply_of,
)

SUPPLY = (StorageClass, CSIDriver, CSIStorageCapacity)
"""What says for which nodes volumes are provisioned."""

KEPT_PODS_MAX, DISTINCT_MAX = 16_384, 4096
"""Pods, and kinds of their claims, that are kept before all are forgotten."""

UNLIMITED = 1 << 40
"""Pods of a row for which volumes are provisioned: as many as there are."""


class UnboundClaims(OwnClaims, frozen=True, cache_hash=True):
    """The claims of a pod of which one or more wait for their first consumer.

    kinds: of these, in the order of the pod's volumes. bound: the others. drivers: driver -> number
    of volumes of all.
    """

    kinds: tuple[Hashable, ...]
    bound: BoundClaims | None
    drivers: tuple[tuple[str, int], ...]


class KeptClaims:
    """What `unbound_claims` answers, kept while no object changes: it is asked for a pod's class,
    and again before the pod is placed. Equal answers are one object."""

    def __init__(self) -> None:
        self._version = -1
        self._by_uid: dict[str, tuple[Pod, UnboundClaims | None]] = {}
        self._distinct: dict[UnboundClaims, UnboundClaims] = {}

    @classmethod
    def of(cls, object_store: ObjectStore) -> KeptClaims:
        """Those of an object store, without what may have changed."""
        kept: KeptClaims | None = object_store.indexes.get(cls)
        if kept is None:
            kept = object_store.indexes[cls] = cls()
        if kept._version != object_store.version:
            kept._version = object_store.version
            kept._by_uid = {}
        return kept

    def find(self, pod: Pod, object_store: ObjectStore) -> UnboundClaims | None:
        """See `unbound_claims`."""
        known = self._by_uid.get(pod.metadata.uid)
        if known is not None and known[0] is pod:
            return known[1]
        found = _unbound_claims(pod, object_store)
        if found is not None:
            if len(self._distinct) >= DISTINCT_MAX:
                self._distinct = {}
            found = self._distinct.setdefault(found, found)
        if len(self._by_uid) >= KEPT_PODS_MAX:
            self._by_uid = {}
        self._by_uid[pod.metadata.uid] = pod, found
        return found


def unbound_claims(pod: Pod, object_store: ObjectStore) -> UnboundClaims | None:
    """The pod's claims as a hashable value; None where all are bound, and where one of them has to
    be looked at by name: it is missing, promised to a node, named by a volume or selects some."""
    return KeptClaims.of(object_store).find(pod, object_store)


def _unbound_claims(pod: Pod, object_store: ObjectStore) -> UnboundClaims | None:
    uses = volume_uses_of(pod.spec)
    if not uses.claims or uses.disks or len(uses.claims) != len(uses.attachable):
        return None
    names = uses.named_claims
    if len(names) < len(uses.claims) or (len(names) > 1 and len(set(names)) < len(names)):
        return None
    kinds: list[Hashable] = []
    bound: list[VolumeKind] = []
    drivers: Counter[str] = Counter()
    for name in names:
        claim = find_claim(object_store, pod, name)
        if claim is None:
            return None
        if is_fully_bound(claim):
            of_volume = ClaimKinds.of(object_store).find(claim.key)
            if of_volume is None:
                return None
            bound.append(of_volume)
            drivers[of_volume.driver] += 1
            continue
        kind = _kind_of_unbound(claim, object_store)
        if kind is None:
            return None
        kinds.append(kind)
        driver, handle = csi_of_claim(claim, object_store, has_csi_node=True)
        drivers[driver if handle else ""] += 1
    if not kinds:
        return None
    del drivers[""]
    others = claims_of_kinds(bound, object_store) if bound else None
    return UnboundClaims(tuple(kinds), others, tuple(drivers.items()))


def _kind_of_unbound(claim: PersistentVolumeClaim, object_store: ObjectStore) -> Hashable | None:
    """What the claim asks for; None where it has to be looked at by name."""
    spec = claim.spec
    if (
        spec.volume_name
        or spec.selector is not None
        or claim.status.phase == "Lost"
        or claim.metadata.deletion_timestamp is not None
        or READ_WRITE_ONCE_POD in spec.access_modes
        or SELECTED_NODE_ANNOTATION in claim.metadata.annotations
        or not waits_for_first_consumer(object_store, claim)
        or _is_named(claim, object_store)
    ):
        return None
    try:
        # Without a size no capacity is needed.
        return claim_kind(claim), requested_size(claim) is None
    except QuantityError:
        return None


def _is_named(claim: PersistentVolumeClaim, object_store: ObjectStore) -> bool:
    """True where a volume names the claim, which then takes it or none."""
    return FreeVolumes.of(object_store).is_named(claim)


def claims_to_bind(pod: Pod, object_store: ObjectStore) -> list[PersistentVolumeClaim]:
    """The claims of a pod that are not bound, the smallest first. Raises QuantityError."""
    found = [
        claim
        for name in volume_uses_of(pod.spec).named_claims
        if (claim := find_claim(object_store, pod, name)) is not None and not is_fully_bound(claim)
    ]
    if len(found) > 1:
        found.sort(key=lambda claim: size_nanos(requested_size(claim)))
    return found


class VolumesForClass:
    """Where the claims of a class can be served, and which volumes its pods take."""

    def __init__(
        self, claims: UnboundClaims, pod: Pod, object_store: ObjectStore, reserved_key: str
    ) -> None:
        """pod: one of the class, whose claims are looked at for all. reserved_key: of the cycle
        state, for what is assumed."""
        self._claims = claims
        self._object_store = object_store
        self._reserved_key = reserved_key
        self._to_bind = claims_to_bind(pod, object_store)
        self._bound: VolumeSearch | None = None
        if claims.bound is not None:
            found = (
                find_claim(object_store, pod, n) for n in volume_uses_of(pod.spec).named_claims
            )
            bound = [claim for claim in found if claim is not None and is_fully_bound(claim)]
            self._bound = VolumeSearch(object_store, VolumeIndex.of(object_store), bound, ())
        # Whether volumes are provisioned for all rows, when they were last counted.
        self._is_unlimited = False

    def states(self, nodes: NodeTable) -> Ints:
        """See `DeviceClaims.states`."""
        store = self._object_store
        return FreeVolumes.of(store).states(nodes, store.version_of(SUPPLY))

    def admitted(self, nodes: NodeTable, rows: Ints) -> Bools | None:
        """See `DeviceClaims.admitted`."""
        served = np.ones(rows.shape[0], dtype=np.bool_)
        if self._bound is not None:
            codes = self._bound.column(nodes, rows)
            if (codes >= FIRST_FAULT_CODE).any():
                return None
            served = codes == 0
        free = FreeVolumes.of(self._object_store)
        for claim in self._to_bind:
            volumes = free.of_kind(claim)
            if volumes is None or (len(self._to_bind) > 1 and len(volumes)):
                # Several claims choose in turn.
                return None
            served &= self._provisioned(claim, nodes, rows) | (volumes.n_reached(nodes)[rows] > 0)
        return served

    def _provisioned(self, claim: PersistentVolumeClaim, nodes: NodeTable, rows: Ints) -> Bools:
        """bool (n_rows,): rows for which the claim gets a new volume."""
        store = self._object_store
        supply = supply_of(claim, store, VolumeIndex.of(store))
        if not supply.provisions:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        allowed, has_room = supply.columns(nodes)
        return allowed[rows] & has_room[rows]

    def points(self, nodes: NodeTable, rows: Ints) -> Ints:
        """See `DeviceClaims.points`: none."""
        return np.zeros(rows.shape[0], dtype=np.int64)

    def n_fitting(self, nodes: NodeTable, rows: Ints) -> Ints | None:
        """See `DeviceClaims.n_fitting`."""
        fitting = np.full(rows.shape[0], UNLIMITED, dtype=np.int64)
        if len(self._to_bind) > 1:
            self._is_unlimited = True
            return fitting
        claim = self._to_bind[0]
        volumes = FreeVolumes.of(self._object_store).of_kind(claim)
        if volumes is None:
            return None
        provisioned = self._provisioned(claim, nodes, rows)
        if rows.shape[0] == nodes.n_nodes:
            self._is_unlimited = bool(provisioned.all())
        if self._is_unlimited:
            return fitting
        if volumes.has_shared(nodes):
            return None
        n_reached = volumes.n_reached(nodes)[rows]
        fitting[~provisioned] = n_reached[~provisioned]
        return fitting

    def is_alike(self, other: DeviceClaims) -> bool:
        """See `DeviceClaims.is_alike`."""
        if not isinstance(other, VolumesForClass):
            return False
        if self._is_unlimited and other._is_unlimited:
            return True
        return self._claims.kinds == other._claims.kinds

    def are_own(self, pod: Pod, taken: set[Hashable]) -> bool:
        """See `DeviceClaims.are_own`."""
        keys = {(pod.namespace, name) for name in volume_uses_of(pod.spec).named_claims}
        if not taken.isdisjoint(keys) or unbound_claims(pod, self._object_store) != self._claims:
            return False
        taken |= keys
        return True

    def reserve(self, pod: Pod, node: Node, free: int, state: CycleState) -> int:
        """See `DeviceClaims.reserve`."""
        store = self._object_store
        volumes = FreeVolumes.of(store)
        static: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
        dynamic: list[DynamicProvision] = []
        for claim in claims_to_bind(pod, store):
            of_kind = volumes.of_kind(claim)
            assert of_kind is not None, "checked before the pod was placed"
            name = of_kind.smallest(node)
            volume = store.find(PersistentVolume, name) if name else None
            if volume is not None:
                static.append((claim, volume))
            else:
                supply = supply_of(claim, store, VolumeIndex.of(store))
                dynamic.append(DynamicProvision(claim, supply.capacity_at(node)))
        found = PodVolumeBindings(static=tuple(static), dynamic=tuple(dynamic))
        reserved = assume_pod_volumes(found, node.name)
        reserved.apply(store)
        state.write(self._reserved_key, reserved)
        return free + 1
