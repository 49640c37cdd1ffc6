"""Claims of a class of pods: each pod has claims of its own, and all ask for the same.

Where nodes with equal free devices answer alike, kernels place the pods of such a class: the rows
whose devices serve it change only with the devices, and a chosen row gives what its state gives.
"""

from __future__ import annotations

import msgspec

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import CycleState, NodeTable, ObjectStore, Status
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.claim_binding import (
    PendingAllocations,
    assume_claims,
)
from stowplan.plugins.devices.claim_search import ClaimSearch, SearchSettings
from stowplan.plugins.devices.pod_claims import claim_fault, resource_claims_of
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.states.device_states import AVAILABLE, PER_NODE

ClaimsContent = bytes
"""`spec.devices` of each claim of a pod."""


def content_of(pod: Pod, object_store: ObjectStore, gates: FeatureGates) -> ClaimsContent | None:
    """What the pod's claims ask for; None where something of them counts by name: a claim that
    other pods may use, too, that is missing, allocated, or named twice, a class that does not
    exist."""
    if any(use.resource_claim_name is not None for use in pod.spec.resource_claims):
        return None
    claims = resource_claims_of(pod, object_store)
    if isinstance(claims, Status) or not claims:
        return None
    if len(claims) > 1 and len({claim.key for claim in claims}) < len(claims):
        return None
    devices = ClusterDevices.of(object_store, gates)
    for claim in claims:
        if claim.status.allocation is not None or claim_fault(claim, object_store, devices):
            return None
    return _encoder.encode([claim.spec.devices for claim in claims])


class ClassClaims:
    """The claims of one class of pods. content: see `content_of`."""

    def __init__(
        self,
        content: ClaimsContent,
        pod: Pod,
        object_store: ObjectStore,
        devices: ClusterDevices,
        settings: SearchSettings,
        pending: PendingAllocations,
        reserved_key: str,
    ) -> None:
        """pod: one of the class, whose claims are searched for all. reserved_key: of the cycle
        state, for what is assumed."""
        claims = resource_claims_of(pod, object_store)
        assert not isinstance(claims, Status), "the pod has a class"
        self._object_store = object_store
        self._pending = pending
        self._reserved_key = reserved_key
        self._devices = devices
        self._states = devices.states
        self._search = ClaimSearch(pod, claims, None, {}, devices, settings)
        self._asked = self._search.asked()

    @property
    def has_alternatives(self) -> bool:
        """True for claims with alternatives."""
        return self._search.has_alternatives

    def states(self, nodes: NodeTable) -> Ints:
        """See `DeviceClaims.states`."""
        self._devices.refresh()
        return self._states.of_rows(nodes)

    def admitted(self, nodes: NodeTable, rows: Ints) -> Bools | None:
        """See `DeviceClaims.admitted`."""
        found = self._search.by_state(self._asked, nodes, rows)
        if (found == PER_NODE).any():
            return None
        served: Bools = found == AVAILABLE
        return served

    def points(self, nodes: NodeTable, rows: Ints) -> Ints:
        """See `DeviceClaims.points`."""
        return self._search.points_by_state(self._asked, nodes, rows)

    def reserve(self, pod: Pod, nodes: NodeTable, row: int, state: CycleState) -> None:
        """See `DeviceClaims.reserve`."""
        store = self._object_store
        claims = resource_claims_of(pod, store)
        assert not isinstance(claims, Status), "checked before the pod was placed"
        reserved = assume_claims(
            pod, claims, self._search.found_on(self._asked, nodes, row).results
        )
        reserved.apply(self._pending, store)
        state.write(self._reserved_key, reserved)


_encoder = msgspec.msgpack.Encoder()
