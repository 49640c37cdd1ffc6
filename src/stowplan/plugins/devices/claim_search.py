"""Claims of one pod in one attempt: what is allocated already, and the answer of each node.

Source: kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go (Filter, Score),
claims.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Bools, Ints
from stowplan.columns.column_cache import ColumnCache
from stowplan.framework import OK, NodeTable, Rows, Status, error, unresolvable
from stowplan.objects.devices.device import ResourceSlice
from stowplan.objects.devices.device_claim import (
    SUBREQUESTS_MAX,
    AllocationResult,
    ResourceClaim,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import NODE_NAME_FIELD, NodeSelector, node_selector_matches
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
from stowplan.plugins.devices.states.device_states import (
    AVAILABLE,
    PER_NODE,
    REFUSED,
    UNKNOWN,
    StateAnswers,
)

# Unresolvable: evicting pods releases no claim at once.
CANNOT_ALLOCATE = unresolvable("cannot allocate all claims")
INVALID_POOLS = unresolvable("invalid resource pools were encountered")
NOT_AVAILABLE = unresolvable("resourceclaim not available on the node")
LEFT_OVER_CLAIM = unresolvable("cannot schedule extended resource claim")
CANNOT_FIT_RESOURCE = unresolvable("cannot fit resource")

UNAVAILABLE = 3
"""Answer of a row: a claim that is allocated cannot be used there."""

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


class AskedClaims(msgspec.Struct, frozen=True):
    """What rows are asked for devices for, the same for all of them. claims: to be allocated.
    extended, mappings: as for `NodeAllocation`. content: all that a search reads of them."""

    claims: tuple[ResourceClaim, ...]
    content: Hashable
    extended: ResourceClaim | None = None
    mappings: tuple[RequestMapping, ...] = ()


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
        # Of each row of the table: its answer, and what it was asked for.
        self._codes: Ints = np.zeros(0, dtype=np.int64)
        self._asked_of: Ints = np.zeros(0, dtype=np.int64)
        self._asked: list[AskedClaims] = []
        # By claim that is allocated: where it can be used, bool (n_nodes,).
        self._usable: dict[int, Bools] = {}
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
        """int64 (n_rows,): AVAILABLE, REFUSED or UNAVAILABLE for nodes that answer as others do,
        PER_NODE for those that `on_node` has to be asked about. See `device_states`."""
        self._table, n_nodes = nodes, nodes.n_nodes
        self._asked_of = np.zeros(n_nodes, dtype=np.int64)
        self._asked.clear()
        found = np.full(rows.shape[0], PER_NODE, dtype=np.int64)
        for asked, places in self._asked_on(nodes, rows):
            self._asked_of[rows[places]] = len(self._asked)
            self._asked.append(asked)
            found[places] = self.by_state(asked, nodes, rows[places])
        for index, claim in enumerate(self.claims):
            if claim.status.allocation is not None:
                usable = self._usable[index] = self._usable_rows(claim, nodes)
                found[(found == AVAILABLE) & ~usable[rows]] = UNAVAILABLE
        self._codes = np.full(n_nodes, PER_NODE, dtype=np.int64)
        self._codes[rows] = found
        return found

    def _asked_on(self, nodes: NodeTable, rows: Ints) -> Iterator[tuple[AskedClaims, Ints]]:
        """What devices of rows are asked for, and places of these in `rows`; without those where it
        is not known beforehand."""
        if self.extended is None:
            yield self.asked(), np.arange(rows.shape[0])
            return
        if self.extended.spec.devices.requests:
            return
        kinds = np.zeros(rows.shape[0], dtype=np.int64)
        is_known = np.ones(rows.shape[0], dtype=np.bool_)
        for bit, name in enumerate(self._amounts):
            is_absent = nodes.allocatable(name)[rows] == 0
            if name in self._devices.by_resource:
                kinds |= is_absent.astype(np.int64) << bit
            else:
                is_known &= ~is_absent
        for kind in np.unique(kinds[is_known]).tolist():
            places = np.flatnonzero(is_known & (kinds == kind))
            allocatable = nodes.info(int(rows[places[0]])).allocatable
            _, extended, mappings = self._extended_on(allocatable)
            if extended is None and not self._has_user_claims:
                yield AskedClaims((), b""), places
            else:
                yield self.asked(extended, mappings), places

    def asked(
        self, extended: ResourceClaim | None = None, mappings: tuple[RequestMapping, ...] = ()
    ) -> AskedClaims:
        """What devices are asked for, with a claim for extended resources."""
        claims = tuple(
            extended if claim is self.extended and extended is not None else claim
            for claim in self.to_allocate
        )
        content = msgspec.msgpack.encode([claim.spec.devices for claim in claims])
        return AskedClaims(claims, (self._settings.steps_max, content), extended, mappings)

    def by_state(self, asked: AskedClaims, nodes: NodeTable, rows: Ints) -> Ints:
        """int64 (n_rows,): the answers of the rows' states, AVAILABLE, REFUSED or PER_NODE."""
        if not asked.claims:
            return np.full(rows.shape[0], AVAILABLE, dtype=np.int64)
        answers, states = self._answers_of(asked, nodes, rows)
        return answers.codes[states]

    def points_by_state(self, asked: AskedClaims, nodes: NodeTable, rows: Ints) -> Ints:
        """int64 (n_rows,): preference of the alternatives that available rows give."""
        answers, states = self._answers_of(asked, nodes, rows)
        return answers.points[states]

    def _answers_of(
        self, asked: AskedClaims, nodes: NodeTable, rows: Ints
    ) -> tuple[StateAnswers, Ints]:
        """Answers of the rows' states, all of them known, and the states."""
        states = self._devices.states.of_rows(nodes)[rows]
        answers = self._devices.states.answers(asked.content)
        unknown = np.flatnonzero(answers.codes[states] == UNKNOWN)
        while unknown.shape[0]:
            first = int(unknown[0])
            state, node = int(states[first]), nodes.nodes[rows[first]]
            self.ask_state(asked, answers, state, node)
            unknown = np.flatnonzero(answers.codes[states] == UNKNOWN)
        return answers, states

    def _usable_rows(self, claim: ResourceClaim, nodes: NodeTable) -> Bools:
        """bool (n_nodes,): where a claim that is allocated can be used."""
        allocation = claim.status.allocation
        usable = np.full(nodes.n_nodes, self._is_prepared(claim), dtype=np.bool_)
        selector = None if allocation is None else allocation.node_selector
        if selector is None or not usable.any():
            return usable
        only = single_node_of(selector)
        if only is not None:
            usable[:] = False
            row = nodes.row(only)
            if row >= 0:
                usable[row] = True
            return usable

        def matches(rows: Rows) -> Bools:
            those = np.arange(nodes.n_nodes)[rows].tolist()
            found = (
                node_selector_matches(selector, nodes.nodes[row].labels, nodes.names[row])
                for row in those
            )
            return np.fromiter(found, dtype=np.bool_, count=len(those))

        return ColumnCache.of(nodes).column(("claim selector", selector), nodes, matches)

    def ask_state(self, asked: AskedClaims, answers: StateAnswers, state: int, node: Node) -> int:
        """Search the devices of a node that is in a state, and keep what they answer; returns the
        code."""
        results = self._allocate(node, asked)
        if isinstance(results, Status):
            # Any other status names the node, its pool or the claim.
            code = REFUSED if results == CANNOT_ALLOCATE else PER_NODE
        else:
            self._devices.states.keep(asked.content, state, node, results)
            answers.points[state] = self._points(asked.claims, results)
            code = AVAILABLE
        answers.codes[state] = code
        return code

    def found_on(self, asked: AskedClaims, nodes: NodeTable, row: int) -> NodeAllocation:
        """What the search finds on a row now, where its state says that it finds something."""
        node = nodes.nodes[row]
        if not asked.claims:
            return NodeAllocation(OK, (), asked.extended, asked.mappings)
        state = int(self._devices.states.of_rows(nodes)[row])
        return NodeAllocation(OK, self.found_in(asked, state, node), asked.extended, asked.mappings)

    def found_in(self, asked: AskedClaims, state: int, node: Node) -> tuple[AllocationResult, ...]:
        """What the search finds on a node that is in this state, and finds something."""
        results = self._devices.states.results_on(asked.content, state, node)
        if results is None:
            self._devices.refresh()
            found = self._allocate(node, asked)
            assert not isinstance(found, Status), f"{node.name}: {found}"
            results = found
        return results

    def repeated_on(self, node_name: str, search: ClaimSearch) -> NodeAllocation | None:
        """The answer that a later search gives for a node that was asked before."""
        held = self._answers.get(node_name)
        if held is not None:
            return search.on_node(*held[:2])
        row = self._answered_row(node_name)
        if row < 0 or self._table is None:
            return None
        return search.on_node(self._table.nodes[row], self._table.info(row).allocatable)

    def known(self, node_name: str) -> NodeAllocation | None:
        """The answer of a node that was asked before."""
        held = self._answers.get(node_name)
        if held is not None:
            return self.on_node(*held[:2])
        row = self._answered_row(node_name)
        if row < 0 or self._table is None:
            return None
        if self._codes[row] == AVAILABLE:
            return self.found_on(self._asked[self._asked_of[row]], self._table, row)
        return self.on_node(self._table.nodes[row], self._table.info(row).allocatable)

    def unavailable_on(self, node_name: str) -> tuple[int, ...]:
        """See `NodeAllocation.unavailable`; () where no claim is allocated."""
        held = self._answers.get(node_name)
        if held is not None:
            return held[2].unavailable
        row = self._answered_row(node_name)
        if row < 0 or self._codes[row] != UNAVAILABLE:
            return ()
        return tuple(index for index, usable in self._usable.items() if not usable[row])

    def _answered_row(self, node_name: str) -> int:
        """The row of a node that has the answer of its state, else -1."""
        row = -1 if self._table is None else self._table.row(node_name)
        is_known = 0 <= row < self._codes.shape[0] and self._codes[row] != PER_NODE
        return row if is_known else -1

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
        asked = self.asked(extended)
        if asked.claims:
            found = self._allocate(node, asked)
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
        return self._is_prepared(claim)

    def _is_prepared(self, claim: ResourceClaim) -> bool:
        """False for a claim whose devices have failed, or have been waited for too long."""
        try:
            ready = is_ready_for_binding(claim)
        except DeviceBindingFailed:
            return False
        now = self._settings.now
        overdue = now is not None and is_overdue(claim, now, self._settings.binding_timeout)
        return ready or not overdue

    def _allocate(self, node: Node, asked: AskedClaims) -> tuple[AllocationResult, ...] | Status:
        """One result per claim, or why the node cannot serve them."""
        devices, settings = self._devices, self._settings
        given = SearchInput(
            asked.claims,
            devices.classes,
            devices.allocated,
            settings.selectors,
            settings.steps_max,
            asked.content,
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

    def would_serve(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        slices: Iterable[ResourceSlice] | None = None,
    ) -> bool:
        """True where the node would serve these claims in place of those to be allocated. slices:
        in place of all that the node sees of their pools."""
        devices, settings = self._devices, self._settings
        given = SearchInput(
            claims, devices.classes, devices.allocated, settings.selectors, settings.steps_max
        )
        try:
            pools = devices.slices.pools(node) if slices is None else devices.pools(node, slices)
            return search_devices(given, node, pools) is not None
        except (InvalidPools, SearchBudgetSpent, AllocationError):
            return False

    @property
    def devices(self) -> ClusterDevices:
        """The devices that are searched."""
        return self._devices

    @property
    def selectors(self) -> DeviceSelectors:
        """Evaluates selectors of devices."""
        return self._settings.selectors

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
        if answer is None or not answer.status.is_success:
            return 0
        claims = self.asked(answer.extended).claims
        return self._points(claims, answer.results) + self._points_before()

    def scores_of(self, nodes: NodeTable, rows: Ints) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        scores = np.zeros(rows.shape[0], dtype=np.int64)
        if not self.has_alternatives or not self.to_allocate:
            return scores
        is_known = np.zeros(rows.shape[0], dtype=np.bool_)
        if self._table is nodes:
            is_known = self._codes[rows] == AVAILABLE
            for number, asked in enumerate(self._asked):
                those = is_known & (self._asked_of[rows] == number)
                scores[those] = self.points_by_state(asked, nodes, rows[those])
            scores[is_known] += self._points_before()
        for place in np.flatnonzero(~is_known).tolist():
            scores[place] = self.score(nodes.names[rows[place]])
        return scores

    def _points(self, claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]) -> int:
        """Preference of the alternatives that results have of these claims."""
        if not self.has_alternatives:
            return 0
        return sum(
            _preference_of(claim, result) for claim, result in zip(claims, results, strict=True)
        )

    def _points_before(self) -> int:
        """Preference of the alternatives that claims have been allocated earlier."""
        return sum(
            _preference_of(claim, claim.status.allocation)
            for claim in self.claims
            if claim.status.allocation is not None
        )

    @property
    def has_left_over_claim(self) -> bool:
        """True where the claim for extended resources exists since an earlier attempt."""
        return self.extended is not None and self.extended.name != IN_MEMORY_CLAIM


def single_node_of(selector: NodeSelector) -> str | None:
    """The only node that a selector names; None for any other selector."""
    if len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return None
    only = term.match_fields[0]
    is_name = only.key == NODE_NAME_FIELD and only.operator == "In" and len(only.values) == 1
    return only.values[0] if is_name else None


def _preference_of(claim: ResourceClaim, allocation: AllocationResult) -> int:
    """Preference of the alternatives that a claim has."""
    used = {result.request for result in allocation.devices.results}
    return sum(
        SUBREQUESTS_MAX - index
        for request in claim.spec.devices.requests
        if request.exactly is None
        for index, one in enumerate(request.first_available)
        if f"{request.name}/{one.name}" in used
    )
