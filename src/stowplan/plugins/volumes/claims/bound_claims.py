"""Claims that are alike: pods whose claims are bound to volumes of the same kind get equal answers.

A bound claim counts by what its volume allows: the nodes that reach it, its zones, and the driver
that attaches it. Two volumes that agree in these are of one kind, whatever their names are. What a
node attaches is compared with its limit by upper bounds, in which every claim of a pod counts.

Source: kube-scheduler v1.36, plugins/volumebinding, volumezone, nodevolumelimits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from stowplan.framework import ObjectStore, Snapshot
from stowplan.framework.deciders.kernel_terms import RunLimit
from stowplan.objects.pod import Pod
from stowplan.objects.storage import CSINode
from stowplan.plugins.volumes.attached_volumes import AttachmentColumns
from stowplan.plugins.volumes.claims.claim_kinds import ClaimKinds, VolumeKind
from stowplan.plugins.volumes.volume_claims import named_claims_of, volume_form_of
from stowplan.plugins.volumes.volume_index import VolumeIndex
from stowplan.plugins.volumes.volume_usage import VolumeUsage

ALIKE_MAX = 65_536
"""Combinations of kinds that are kept, before all are forgotten."""


class BoundClaims(msgspec.Struct, frozen=True, cache_hash=True):
    """The claims of a pod, all bound. drivers: driver -> number of volumes."""

    kinds: tuple[VolumeKind, ...]
    csi_nodes: int
    drivers: tuple[tuple[str, int], ...]


def bound_claims(pod: Pod, object_store: ObjectStore) -> BoundClaims | None:
    """The pod's claims as a hashable value; None for a pod without claims, and where one of them is
    not bound or needs to be looked at by name.

    csi_nodes: revision of the CSINodes where one of the volumes may be migrated.
    """
    spec = pod.spec
    if not volume_form_of(spec).claims_only:
        return None
    namespace, kinds_by_claim, kinds = pod.metadata.namespace, ClaimKinds.of(object_store), []
    for name in named_claims_of(spec):
        kind = kinds_by_claim.find(f"{namespace}/{name}")
        if kind is None:
            return None
        kinds.append(kind)
    return claims_of_kinds(kinds, object_store)


def claims_of_kinds(kinds: Sequence[VolumeKind], object_store: ObjectStore) -> BoundClaims:
    """Bound claims by the kinds of their volumes, which are those of `ClaimKinds`."""
    csi_nodes = 0
    for kind in kinds:
        if kind.plugin:
            csi_nodes = object_store.version_of((CSINode,))
            break
    known = ClaimKinds.of(object_store).alike
    key = csi_nodes, *map(id, kinds)
    alike: BoundClaims | None = known.get(key)
    if alike is None:
        if len(known) >= ALIKE_MAX:
            known.clear()
        drivers = Counter(kind.driver for kind in kinds if kind.driver)
        # It holds the kinds, so no others have their identities.
        alike = known[key] = BoundClaims(tuple(kinds), csi_nodes, tuple(drivers.items()))
    return alike


def volume_run_limit(drivers: Sequence[tuple[str, int]]) -> RunLimit:
    """How many pods with so many volumes per driver a run may have so that no row can exceed a
    limit."""

    def limit(snapshot: Snapshot) -> int:
        return pods_below_limits(drivers, snapshot)

    return RunLimit(limit, has_no_limits)


def has_no_limits(snapshot: Snapshot) -> bool:
    """True where no node has a limit of volumes."""
    return not VolumeIndex.of(snapshot.object_store).limits


def pods_below_limits(drivers: Sequence[tuple[str, int]], snapshot: Snapshot) -> int:
    """The number of pods with so many volumes per driver that every single row can attach, by upper
    bounds; 0 where volumes have to be counted."""
    nodes = snapshot.nodes
    columns = AttachmentColumns.of(nodes, snapshot.object_store)
    use = VolumeUsage.of(nodes)
    if use.delicate and any(columns.is_limited[row] for row in use.delicate):
        return 0
    n_volumes = sum([n_new for _, n_new in drivers])
    found = min([columns.least_left(driver, nodes) // n_volumes for driver, _ in drivers])
    return max(found, 0)
