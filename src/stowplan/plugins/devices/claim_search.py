"""Claims of one pod in one attempt: what is allocated already, and the answer of each node.

Source: kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go (Filter, Score),
claims.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import OK, NodeTable, Status, error, unresolvable
from stowplan.objects.devices.device_claim import (
    SUBREQUESTS_MAX,
    AllocationResult,
    ResourceClaim,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import node_selector_matches
from stowplan.plugins.devices.allocation_search import (
    InvalidPools,
    SearchBudgetSpent,
    SearchInput,
    search_devices,
)
from stowplan.plugins.devices.binding_conditions import (
    DeviceBindingFailed,
    is_overdue,
    is_ready_for_binding,
)
from stowplan.plugins.devices.claim_allocation import allocation_results
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.explanation.claim_explanation import ClaimExplanation
from stowplan.plugins.devices.extended_resources import (
    IN_MEMORY_CLAIM,
    ExtendedResourceRequests,
    RequestMapping,
    is_device_resource,
)
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.pools.device_pools import AllocationError
from stowplan.plugins.devices.states.device_states import AVAILABLE, PER_NODE, REFUSED, UNKNOWN

# Unresolvable: evicting pods releases no claim at once.
CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
INVALID_POOLS = unresolvable("invalid resource pools were encountered")
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
LEFT_OVER_CLAIM = unresolvable("cannot schedule extended resource claim")
CANNOT_FIT_RESOURCE = unresolvable("cannot fit resource")

STEPS_PER_SECOND = 20_000
"""Steps of the search that stand for a second of the original's timeout."""


class NodeAllocation(msgspec.Struct, frozen=True):
    """The answer of a node: success, and then what Reserve uses.

    results: per claim to be allocated, in the pod's order. extended: the claim made up for the
    pod's extended resources, and `mappings` what its requests are for. unavailable: positions of
    allocated claims that the node cannot use.
    """

    status: Status
    results: tuple[AllocationResult, ...] = ()
    extended: ResourceClaim | None = None
    mappings: tuple[RequestMapping, ...] = ()
    unavailable: tuple[int, ...] = ()


class SearchSettings(msgspec.Struct, frozen=True):
    """Settings and kept answers of the plugin. now: None where no time is known."""

    selectors: DeviceSelectors
    steps_max: int
    binding_timeout: datetime.timedelta
    now: datetime.datetime | None = None


class ClaimSearch:
    """The claims of a pod, and the answers of nodes, each computed once.

    claims: those of the pod in its order, then the one for its extended resources. amounts: what
    the pod requests of extended resources. version: of the devices that it has read.
    """

    def __init__(
        self,
        pod: Pod,
        claims: Sequence[ResourceClaim],
        extended: ResourceClaim | None,
        amounts: Mapping[str, int],
        devices: ClusterDevices,
        settings: SearchSettings,
    ) -> None:
        """claims: without `extended`."""
        self.pod = pod
        self.extended = extended
        self.claims = list(claims) if extended is None else [*claims, extended]
        self._has_user_claims = bool(claims)
        self._amounts = amounts
        self._devices = devices
        self._settings = settings
        self.version = devices.version
        self._answers: dict[str, tuple[Node, Mapping[str, int], NodeAllocation]] = {}
        self._table: NodeTable | None = None
        # Rows that were answered by their state.
        self._by_state: Bools = np.zeros(0, dtype=np.bool_)
        self.has_alternatives = any(
            request.first_available
            for claim in self.claims
            for request in claim.spec.devices.requests
        )

    @property
    def to_allocate(self) -> list[ResourceClaim]:
        """Claims without an allocation."""
        return [claim for claim in self.claims if claim.status.allocation is None]

    def on_node(self, node: Node, allocatable: Mapping[str, int]) -> NodeAllocation:
        """The answer of a node. allocatable: its amounts by resource."""
        held = self._answers.get(node.name)
        if held is not None and held[0] is node:
            return held[2]
        answer = self._answer(node, allocatable)
        self._answers[node.name] = (node, allocatable, answer)
        return answer

    def on_rows(self, nodes: NodeTable, rows: Ints) -> Ints:
        """int64 (n_rows,): AVAILABLE or REFUSED for nodes that answer as others do, PER_NODE for
        those that `on_node` has to be asked about. See `device_states`.

        Preferences among alternatives, claims that are allocated already and extended resources
        need the answer of each node.
        """
        found = None
        is_new = self.extended is None and len(self.to_allocate) == len(self.claims)
        if is_new and not self.has_alternatives:
            found = self.by_state(nodes, rows)
        if found is None:
            return np.full(rows.shape[0], PER_NODE, dtype=np.int64)
        self._table, self._by_state = nodes, np.zeros(nodes.n_nodes, dtype=np.bool_)
        self._by_state[rows[found != PER_NODE]] = True
        return found

    def by_state(self, nodes: NodeTable, rows: Ints) -> Ints | None:
        """int64 (n_rows,): the answers of the rows' states, see `on_rows`; None where nodes have no
        states. For claims of which none is allocated, without alternatives."""
        states = self._devices.states.of_rows(nodes)
        if states is None:
            return None
        asked = states[rows]
        answers = self._devices.states.answers(self._content)
        found = answers[asked]
        unknown = np.flatnonzero(found == UNKNOWN)
        while unknown.shape[0]:
            first = int(unknown[0])
            answers[asked[first]] = self._answer_of_state(nodes.nodes[rows[first]])
            found = answers[asked]
            unknown = np.flatnonzero(found == UNKNOWN)
        return found

    @cached_property
    def _content(self) -> Hashable:
        """What a search reads of the claims."""
        asked = [(c.spec.devices.requests, c.spec.devices.constraints) for c in self.claims]
        return self._settings.steps_max, msgspec.msgpack.encode(asked)

    def _answer_of_state(self, node: Node) -> int:
        status = self._answer(node, {}).status
        if status.is_success:
            return AVAILABLE
        # Any other status names the node, its pool or the claim.
        return REFUSED if status == CANNOT_ALLOCATE else PER_NODE

    def found_on(self, node: Node) -> tuple[AllocationResult, ...]:
        """What the search finds on a node now, where its state says that it finds something."""
        found = self._allocate(node, None)
        assert not isinstance(found, Status), f"{node.name}: {found}"
        return found

    def repeated_on(self, node_name: str, search: ClaimSearch) -> NodeAllocation | None:
        """The answer that a later search gives for a node that was asked before."""
        held = self._asked(node_name)
        return None if held is None else search.on_node(*held)

    def known(self, node_name: str) -> NodeAllocation | None:
        """The answer of a node that was asked before."""
        held = self._asked(node_name)
        return None if held is None else self.on_node(*held)

    def unavailable_on(self, node_name: str) -> tuple[int, ...]:
        """See `NodeAllocation.unavailable`; () where no claim is allocated."""
        held = self._answers.get(node_name)
        return () if held is None else held[2].unavailable

    def _asked(self, node_name: str) -> tuple[Node, Mapping[str, int]] | None:
        """A node that was asked before, with the amounts that count."""
        held = self._answers.get(node_name)
        if held is not None:
            return held[:2]
        row = -1 if self._table is None else self._table.row(node_name)
        if self._table is None or not 0 <= row < self._by_state.shape[0] or not self._by_state[row]:
            return None
        return self._table.nodes[row], {}

    def _answer(self, node: Node, allocatable: Mapping[str, int]) -> NodeAllocation:
        refusal, extended, mappings = self._extended_on(allocatable)
        if refusal is not None:
            return NodeAllocation(refusal)
        if extended is None and not self._has_user_claims:
            return NodeAllocation(OK)
        unavailable = tuple(
            index for index, claim in enumerate(self.claims) if not self._is_available(claim, node)
        )
        results: tuple[AllocationResult, ...] = ()
        if self.to_allocate:
            found = self._allocate(node, extended)
            if isinstance(found, Status):
                return NodeAllocation(found)
            results = found
        if unavailable:
            return NodeAllocation(NOT_AVAILABLE, unavailable=unavailable)
        return NodeAllocation(OK, results, extended, mappings)

    def _extended_on(
        self, allocatable: Mapping[str, int]
    ) -> tuple[Status | None, ResourceClaim | None, tuple[RequestMapping, ...]]:
        """(refusal, claim, mappings) of the pod's extended resources on a node with these amounts;
        the claim is None where the node's device plugins provide all."""
        if self.extended is None:
            return None, None, ()
        if self.extended.spec.devices.requests:
            return LEFT_OVER_CLAIM, None, ()
        resources = []
        for name, amount in self._amounts.items():
            if amount == 0 or not is_device_resource(name):
                continue
            if name in self._devices.by_resource and allocatable.get(name, 0) == 0:
                resources.append(name)
            elif name not in allocatable:
                return CANNOT_FIT_RESOURCE, None, ()
        if not self._has_user_claims and not resources:
            return None, None, ()
        if self.extended.status.allocation is not None:
            return None, None, ()
        made = ExtendedResourceRequests(self.pod, resources, self._devices.by_resource)
        return None, made.claim_of(self.extended), tuple(made.mappings)

    def _is_available(self, claim: ResourceClaim, node: Node) -> bool:
        """True for a claim that the node can use, or that is not allocated yet."""
        allocation = claim.status.allocation
        if allocation is None:
            return True
        selector = allocation.node_selector
        if selector is not None and not node_selector_matches(selector, node.labels, node.name):
            return False
        try:
            ready = is_ready_for_binding(claim)
        except DeviceBindingFailed:
            return False
        now = self._settings.now
        overdue = now is not None and is_overdue(claim, now, self._settings.binding_timeout)
        return ready or not overdue

    def _allocate(
        self, node: Node, extended: ResourceClaim | None
    ) -> tuple[AllocationResult, ...] | Status:
        """One result per claim to be allocated, or why the node cannot serve them."""
        claims = [
            extended if claim is self.extended and extended is not None else claim
            for claim in self.to_allocate
        ]
        devices, settings = self._devices, self._settings
        given = SearchInput(
            claims, devices.classes, devices.allocated, settings.selectors, settings.steps_max
        )
        try:
            found = search_devices(given, node, devices.slices.pools(node))
            return CANNOT_ALLOCATE if found is None else allocation_results(given, node, found)
        except InvalidPools:
            return INVALID_POOLS
        except SearchBudgetSpent:
            return error(f"node {node.name}: timed out trying to allocate devices")
        except AllocationError as fault:
            return error(str(fault))

    def details(self, node: Node, allocatable: Mapping[str, int]) -> list[str]:
        """Why a node does not serve the claims, see `claim_explanation`."""
        answer = self.on_node(node, allocatable)
        lines = [
            f"claim {self.claims[index].name}: its devices cannot be used on this node"
            for index in answer.unavailable
        ]
        refusal, extended, _ = self._extended_on(allocatable)
        if refusal is not None:
            return lines
        devices = self._devices
        explanation = ClaimExplanation(
            node,
            devices.slices.pools(node),
            devices.classes,
            devices.allocated,
            self._settings.selectors,
        )
        for claim in self.to_allocate:
            made = extended if claim is self.extended else claim
            lines += [] if made is None else explanation.lines(made)
        return lines

    def score(self, node_name: str) -> int:
        """Preference of alternatives that were chosen: 8 for the first of a request, one less for
        each further one; 0 where nothing is allocated in this attempt."""
        if not self.has_alternatives or not self.to_allocate:
            return 0
        answer = self.known(node_name)
        if answer is None:
            return 0
        results = iter(answer.results)
        total = 0
        for claim in self.claims:
            allocation = claim.status.allocation or next(results, None)
            if allocation is None:
                continue
            used = {result.request for result in allocation.devices.results}
            for request in claim.spec.devices.requests:
                if request.exactly is not None:
                    continue
                for index, one in enumerate(request.first_available):
                    if f"{request.name}/{one.name}" in used:
                        total += SUBREQUESTS_MAX - index
        return total

    @property
    def has_left_over_claim(self) -> bool:
        """True where the claim for extended resources exists since an earlier attempt."""
        return self.extended is not None and self.extended.name != IN_MEMORY_CLAIM
