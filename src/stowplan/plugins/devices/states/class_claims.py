"""Claims of a class of pods: each pod has claims of its own, and all ask for the same.

Where nodes with equal free devices answer alike, kernels place the pods of such a class: the rows
whose devices serve it change only with the devices, and a chosen row gives what its state gives.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import CycleState, NodeTable, ObjectStore, Status
from stowplan.framework.deciders.kernel_terms import DeviceClaims
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.devices.device_claim import AllocationResult
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.claim_binding import (
    PendingAllocations,
    assume_claims,
)
from stowplan.plugins.devices.claim_search import ClaimSearch, SearchSettings
from stowplan.plugins.devices.pod_claims import claim_fault, resource_claims_of
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.states.device_states import (
    AVAILABLE,
    NO_STATE,
    PER_NODE,
    REFUSED,
    UNKNOWN,
    StateAnswers,
)

FITTING_MAX = 128
"""Pods that are counted at most for a row."""
COUNTED_MAX = 1 << 10
"""Searches at most to count the pods of a class."""

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
        self._n_counted = 0
        # Answers that were counted for every row; they may be forgotten.
        self._whole: StateAnswers | None = None

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

    def n_fitting(self, nodes: NodeTable, rows: Ints) -> Ints | None:
        """See `DeviceClaims.n_fitting`."""
        if self.has_alternatives:
            return None
        states = self.states(nodes)[rows]
        answers = self.answers
        is_unknown = answers.fitting[states] == UNKNOWN
        for state, place in zip(*np.unique(states[is_unknown], return_index=True), strict=True):
            node = nodes.nodes[rows[is_unknown][place]]
            if state == NO_STATE or not self._count(int(state), node):
                return None
        if rows.shape[0] == nodes.n_nodes:
            self._whole = self.answers
        return self.answers.fitting[states]

    @property
    def answers(self) -> StateAnswers:
        """What states answer to the claims."""
        return self._states.answers(self._asked.content)

    def _count(self, state: int, node: Node) -> bool:
        """Find out how many pods a state serves, by serving one after the other on a node that is
        in it; False where that is not worth it."""
        states, allocated = self._states, self._devices.allocated
        if states.of_own_devices(node) != state:
            return False
        served: list[int] = []
        supposed: list[AllocationResult] = []
        try:
            while (n_fitting := int(self.answers.fitting[state])) == UNKNOWN:
                code, results = self._answer(state, node)
                if code == REFUSED:
                    n_fitting = self.answers.fitting[state] = 0
                    break
                self._n_counted += 1
                if results is None or len(served) == FITTING_MAX or self._n_counted > COUNTED_MAX:
                    return False
                supposed += results
                for result in results:
                    allocated.suppose(result)
                after = states.of_own_devices(node)
                if after == state:
                    # Nothing is taken.
                    return False
                self.answers.after[state] = after
                served.append(state)
                state = after
        finally:
            for result in supposed:
                allocated.withdraw(result)
        for one in reversed(served):
            n_fitting += 1
            self.answers.fitting[one] = n_fitting
        return True

    def _answer(self, state: int, node: Node) -> tuple[int, tuple[AllocationResult, ...] | None]:
        """The code of a state that a node is in, and where it serves the claims what it gives."""
        code = int(self.answers.codes[state])
        found = self._states.results_on(self._asked.content, state, node)
        if code == UNKNOWN or (code == AVAILABLE and found is None):
            code = self._search.ask_state(self._asked, self.answers, state, node)
            found = self._states.results_on(self._asked.content, state, node)
        return code, found if code == AVAILABLE else None

    def is_alike(self, other: DeviceClaims) -> bool:
        """See `DeviceClaims.is_alike`."""
        if not isinstance(other, ClassClaims):
            return False
        one, two = self.answers, other.answers
        if one is not self._whole or two is not other._whole:
            return False
        known = min(one.fitting.shape[0], two.fitting.shape[0])
        both = (one.fitting[:known] != UNKNOWN) & (two.fitting[:known] != UNKNOWN)
        return all(
            np.array_equal(mine[:known][both], others[:known][both])
            for mine, others in ((one.fitting, two.fitting), (one.after, two.after))
        )

    def are_own(self, pod: Pod, taken: set[Hashable]) -> bool:
        """See `DeviceClaims.are_own`: they were made for the pod."""
        return True

    def reserve(self, pod: Pod, node: Node, free: int, state: CycleState) -> int:
        """See `DeviceClaims.reserve`."""
        store = self._object_store
        claims = resource_claims_of(pod, store)
        assert not isinstance(claims, Status), "checked before the pod was placed"
        reserved = assume_claims(pod, claims, self._search.found_in(self._asked, free, node))
        reserved.apply(self._pending, store)
        state.write(self._reserved_key, reserved)
        return int(self.answers.after[free])


_encoder = msgspec.msgpack.Encoder()
