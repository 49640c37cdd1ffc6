"""Search for devices: the first solution of the original's depth-first search, for one node.

Claims, requests and devices are tried in order, with backtracking. Within a request devices are
chosen in ascending position; each request begins at the first device again. The order of the checks
of a device is part of the result: counters are booked before taints and constraints are looked at,
and stay booked where one of these rejects the device.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating/allocator_incubating.go.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from stowplan.objects.devices.device import DeviceClass, DeviceTaint
from stowplan.objects.devices.device_claim import (
    ALL,
    ALLOCATION_RESULTS_MAX,
    EXACT_COUNT,
    DeviceClaimRequest,
    DeviceToleration,
    ResourceClaim,
    SubRequest,
)
from stowplan.objects.node import Node
from stowplan.objects.quantity import Quantity
from stowplan.plugins.devices.device_amounts import (
    consumed_amount,
    fits_capacity,
    requested_of,
)
from stowplan.plugins.devices.device_constraints import ActiveConstraint
from stowplan.plugins.devices.device_selectors import DeviceSelectors, SelectorFault
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import (
    AllocationError,
    DeviceId,
    DevicePool,
    FirstPlaces,
    PoolDevice,
    PoolList,
    node_matches,
)

_NO_USE: Mapping[str, int] = {}
# Deeper recursion than this is refused, since Python ends it at a thousand calls.
_DEPTH_MAX = 800
_CONTENTS_MAX = 1 << 10


class InvalidPools(Exception):
    """Nothing was found and a pool is invalid: the node is refused, others may do."""


class SearchBudgetSpent(Exception):
    """The search took more steps than it may."""


class _ResultsExceeded(Exception):
    """A claim would have more devices than it may: another choice may need fewer."""


@dataclass(slots=True)
class RequestPlan:
    """The devices to find for a request, or for one of its alternatives.

    parent: the request with alternatives around it. all_devices: what "All" stands for, found
    before the search.
    """

    request: SubRequest
    name: str
    parent: DeviceClaimRequest | None
    device_class: DeviceClass
    n_devices: int = 0
    all_devices: list[tuple[DevicePool, PoolDevice]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        """`REQUEST` or `REQUEST/SUBREQUEST`."""
        return f"{self.parent.name}/{self.name}" if self.parent else self.name

    @property
    def is_all(self) -> bool:
        """True for every matching device."""
        return self.request.allocation_mode == ALL

    @property
    def has_admin_access(self) -> bool:
        """True where devices in use may be taken."""
        return bool(self.request.admin_access) and self.parent is None

    @property
    def capacity_requests(self) -> Mapping[str, Quantity]:
        """Requested amounts by name of the capacity."""
        return requested_of(self.request.capacity)


@dataclass(slots=True)
class ChosenDevice:
    """A device of the solution. consumed: canonical quantities, for a shared device."""

    plan: RequestPlan
    device: PoolDevice
    consumed: dict[str, str]
    consumed_nanos: dict[str, int]


@dataclass
class SearchInput:
    """The part of a search's input that is the same on every node.

    classes: by name. steps_max: steps of one search, 0 for no limit. content: all that a search
    reads of the claims; None where nothing is kept for the next one.
    """

    claims: Sequence[ResourceClaim]
    classes: Mapping[str, DeviceClass]
    allocated: AllocatedDevices
    selectors: DeviceSelectors
    steps_max: int = 0
    content: Hashable | None = None


@dataclass
class FoundDevices:
    """A solution: chosen devices per claim, and the plans that they are for."""

    devices: list[list[ChosenDevice]]
    plans: list[list[RequestPlan]]


def search_devices(given: SearchInput, node: Node, pools: PoolList) -> FoundDevices | None:
    """The first solution on a node, None where there is none.

    Raises AllocationError, InvalidPools and SearchBudgetSpent.
    """
    search = _Search(given, node, pools)
    try:
        found = search.step(0, 0, 0, 0, False, 0)
    except _ResultsExceeded:
        raise AllocationError("allocation max size exceeded") from None
    if found:
        return FoundDevices(search.result, search.chosen_plans())
    if any(pool.is_invalid for pool in pools):
        raise InvalidPools
    return None


def tolerates_device_taint(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """True where the toleration covers the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _first_places(
    given: SearchInput, pools: PoolList
) -> dict[tuple[int, int, int], tuple[int, int]] | None:
    """Where searches for these claims begin in a long list of devices, None in a short one."""
    if given.content is None or not pools.is_long:
        return None
    known = pools.first_places.get(given.content)
    n_releases = given.allocated.n_releases
    if known is None or known.basis[0] != n_releases or known.basis[1] is not given.classes:
        if len(pools.first_places) >= _CONTENTS_MAX:
            pools.first_places.clear()
        known = pools.first_places[given.content] = FirstPlaces((n_releases, given.classes))
    return known.places


class _Search:
    def __init__(self, given: SearchInput, node: Node, pools: PoolList) -> None:
        self._given = given
        self._allocated = given.allocated
        self._node = node
        self._pools = pools
        self._usable = pools.usable
        self._first_places = _first_places(given, pools)
        self._n_steps = self._depth = 0
        self._matches: dict[tuple[int, int, int, DeviceId], bool] = {}
        # Claims of this search that have a device, by device.
        self._taken: dict[DeviceId, set[int]] = {}
        self._shared: dict[DeviceId, dict[str, int]] = {}
        self._available: dict[str, dict[tuple[str, str], int]] = {}
        self._consumed: dict[str, dict[tuple[str, str], int]] = {}
        self._plans: list[list[list[RequestPlan]]] = []
        self._selected: dict[tuple[int, int], int] = {}
        self._constraints: list[list[ActiveConstraint]] = []
        self.result: list[list[ChosenDevice]] = [[] for _ in given.claims]
        for index, claim in enumerate(given.claims):
            self._prepare(index, claim)

    def chosen_plans(self) -> list[list[RequestPlan]]:
        """Per claim and request the plan, of alternatives the chosen one."""
        return [
            [plans[self._selected.get((c, r), 0)] for r, plans in enumerate(of_claim)]
            for c, of_claim in enumerate(self._plans)
        ]

    # Before the search.

    def _prepare(self, index: int, claim: ResourceClaim) -> None:
        """Plan the requests of a claim; raises AllocationError."""
        of_claim: list[list[RequestPlan]] = []
        self._plans.append(of_claim)
        n_least = 0
        for number, request in enumerate(claim.spec.devices.requests):
            plans: list[RequestPlan] = []
            of_claim.append(plans)
            for sub, one in enumerate(request.first_available):
                plans.append(self._plan(index, number, sub, one, one.name, request))
            if not plans and request.exactly is not None:
                plans.append(self._plan(index, number, 0, request.exactly, request.name, None))
            n_least += min(plan.n_devices for plan in plans)
        if n_least > ALLOCATION_RESULTS_MAX:
            raise AllocationError(
                f"claim {claim.key}: number of requested devices {n_least} exceeds the claim limit "
                f"of {ALLOCATION_RESULTS_MAX}"
            )
        active: list[ActiveConstraint] = []
        for number, constraint in enumerate(claim.spec.devices.constraints):
            if constraint.match_attribute is None and constraint.distinct_attribute is None:
                raise AllocationError(
                    f"claim {claim.key}, constraint #{number}: empty constraint "
                    "(unsupported constraint type?)"
                )
            active.append(ActiveConstraint(constraint, with_lists=self._given.selectors.with_lists))
        self._constraints.append(active)

    def _plan(
        self,
        index: int,
        number: int,
        sub: int,
        request: SubRequest,
        name: str,
        parent: DeviceClaimRequest | None,
    ) -> RequestPlan:
        claim = self._given.claims[index]
        place = f"claim {claim.key}, request {name}"
        for at, selector in enumerate(request.selectors):
            if selector.cel is None:
                text = "CEL expression empty (unsupported selector type?)"
                raise AllocationError(f"{place}, selector #{at}: {text}")
        if not request.device_class_name:
            text = "missing device class name (unsupported request type?)"
            raise AllocationError(f"{place}: {text}")
        device_class = self._given.classes.get(request.device_class_name)
        if device_class is None:
            wanted = request.device_class_name
            missing = f'deviceclass.resource.k8s.io "{wanted}" not found'
            raise AllocationError(f"{place}: could not retrieve device class {wanted}: {missing}")
        plan = RequestPlan(request, name, parent, device_class)
        if request.allocation_mode == EXACT_COUNT:
            plan.n_devices = request.count
        elif plan.is_all:
            self._find_all(plan, place, (index, number, sub))
        else:
            text = f"unsupported count mode {request.allocation_mode}"
            raise AllocationError(f"{place}: {text}")
        return plan

    def _find_all(self, plan: RequestPlan, place: str, key: tuple[int, int, int]) -> None:
        for pool in self._pools:
            if pool.is_incomplete or pool.is_invalid:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"{place}: asks for all devices, but resource pool {pool.name} is currently "
                    f"{state}"
                )
            for one in pool.devices():
                if self._is_selectable(key, plan, one) and self._has_capacity(plan, one):
                    plan.all_devices.append((pool, one))
        plan.n_devices = len(plan.all_devices)

    # The search.

    def step(
        self, claim: int, request: int, sub: int, n_found: int, within_sub: bool, start: int
    ) -> bool:
        """Find the next device of a request, and all that comes after it.

        within_sub: `sub` is chosen. start: position of the first device to try.
        """
        self._n_steps += 1
        if self._given.steps_max and self._n_steps > self._given.steps_max:
            raise SearchBudgetSpent
        if claim >= len(self._given.claims):
            return True
        if request >= len(self._plans[claim]):
            try:
                return self._deeper(claim + 1, 0, 0, 0, False, 0)
            except _ResultsExceeded:
                # The next claim may need fewer devices with another choice in this one.
                return False
        plans = self._plans[claim][request]
        if not within_sub and plans[0].parent is not None:
            return self._first_available(claim, request, len(plans))
        plan = plans[sub]
        if plan.is_all and not plan.all_devices:
            return False
        if n_found >= plan.n_devices:
            return self._deeper(claim, request + 1, 0, 0, False, 0)
        if len(self.result[claim]) + plan.n_devices - n_found > ALLOCATION_RESULTS_MAX:
            raise _ResultsExceeded
        if plan.is_all:
            place = plan.all_devices[n_found]
            return self._try(claim, request, sub, n_found, within_sub, place, 0, must=True)
        return self._try_each(claim, request, sub, n_found, within_sub, start)

    def _deeper(
        self, claim: int, request: int, sub: int, n_found: int, within_sub: bool, start: int
    ) -> bool:
        """`step`, counting its depth; raises AllocationError where it is too deep.

        Differs: the original has no limit; no claim that the API accepts comes near it.
        """
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise AllocationError("too many devices are requested for one pod")
        try:
            return self.step(claim, request, sub, n_found, within_sub, start)
        finally:
            self._depth -= 1

    def _first_available(self, claim: int, request: int, n_plans: int) -> bool:
        all_exceeded = True
        for sub in range(n_plans):
            try:
                found = self._deeper(claim, request, sub, 0, True, 0)
            except _ResultsExceeded:
                continue
            all_exceeded = False
            if found:
                self._selected[claim, request] = sub
                return True
        if all_exceeded:
            raise _ResultsExceeded
        return False

    def _try_each(
        self, claim: int, request: int, sub: int, n_found: int, within_sub: bool, start: int
    ) -> bool:
        plan = self._plans[claim][request][sub]
        key = (claim, request, sub)
        if start == 0 and self._first_places is not None and not plan.has_admin_access:
            start = self._skip(self._first_places, key, plan)
        for position in range(start, len(self._usable)):
            place = self._usable[position]
            one = place[1]
            if plan.has_admin_access:
                if claim in self._taken.get(one.id, ()):
                    continue
            elif self._is_in_use(one.id):
                continue
            self._n_steps += 1
            if not self._is_selectable(key, plan, one) or not self._has_capacity(plan, one):
                continue
            if self._try(claim, request, sub, n_found, within_sub, place, position + 1, must=False):
                return True
        return False

    def _skip(
        self,
        first_places: dict[tuple[int, int, int], tuple[int, int]],
        key: tuple[int, int, int],
        plan: RequestPlan,
    ) -> int:
        """Position of the first device that may serve a request, whatever else this search takes;
        counts the steps before it."""
        position, n_steps = first_places.get(key, (0, 0))
        while position < len(self._usable):
            one = self._usable[position][1]
            if not self._allocated.is_dedicated(one.id):
                if self._taken.get(one.id) or self._shared.get(one.id):
                    break
                if self._is_selectable(key, plan, one) and self._has_capacity(plan, one):
                    break
                n_steps += 1
            position += 1
        first_places[key] = position, n_steps
        self._n_steps += n_steps
        return position

    def _try(
        self,
        claim: int,
        request: int,
        sub: int,
        n_found: int,
        within_sub: bool,
        place: tuple[DevicePool, PoolDevice],
        start: int,
        *,
        must: bool,
    ) -> bool:
        """Take a device and go on; give it back where that leads nowhere."""
        plan = self._plans[claim][request][sub]
        if not self._take(claim, plan, place, must):
            return False
        try:
            done = self._deeper(claim, request, sub, n_found + 1, within_sub, start)
        except (_ResultsExceeded, AllocationError):
            self._give_back(claim, plan, place[1])
            raise
        if not done:
            self._give_back(claim, plan, place[1])
        return done

    # One device.

    def _is_in_use(self, place: DeviceId) -> bool:
        return self._allocated.is_dedicated(place) or bool(self._taken.get(place))

    def _is_selectable(self, key: tuple[int, int, int], plan: RequestPlan, one: PoolDevice) -> bool:
        """True where selectors and node selection admit the device; raises AllocationError."""
        place = (*key, one.id)
        known = self._matches.get(place)
        if known is None:
            known = self._select(key, plan, one)
            self._matches[place] = known
        return known

    def _select(self, key: tuple[int, int, int], plan: RequestPlan, one: PoolDevice) -> bool:
        claim = self._given.claims[key[0]]
        device_class = plan.device_class
        for owner, selectors in (
            (f"class {device_class.name}", device_class.spec.selectors),
            (f"claim {claim.key}", plan.request.selectors),
        ):
            for number, selector in enumerate(selectors):
                expression = selector.cel.expression if selector.cel is not None else ""
                try:
                    if not self._given.selectors.matches(
                        expression, one.shape, one.id[0], one.device
                    ):
                        return False
                except SelectorFault as fault:
                    raise AllocationError(f"{owner}: selector #{number}: {fault}") from None
        if not one.slice.spec.per_device_node_selection:
            return True
        device = one.device
        return node_matches(self._node, device.node_name, device.all_nodes, device.node_selector)

    def _has_capacity(self, plan: RequestPlan, one: PoolDevice) -> bool:
        if not one.device.capacity:
            return not plan.capacity_requests
        return fits_capacity(
            plan.capacity_requests,
            one.device.capacity,
            self._allocated.capacity_of(one.id),
            self._shared.get(one.id, _NO_USE),
        )

    def _take(
        self, claim: int, plan: RequestPlan, place: tuple[DevicePool, PoolDevice], must: bool
    ) -> bool:
        """Take a device if it is free and fits; raises AllocationError.

        must: a constraint that it breaks is an error.
        """
        pool, one = place
        is_shared = one.device.allow_multiple_allocations
        if plan.has_admin_access:
            if not is_shared and claim in self._taken.get(one.id, ()):
                return False
        elif self._is_in_use(one.id):
            return False
        is_booked = is_shared and (one.id in self._allocated.capacities or one.id in self._shared)
        if not is_booked and one.counters and not self._book_counters(pool, one):
            return False
        if self._repels(plan, one):
            return False
        if not self._add_to_constraints(claim, plan, one, must):
            return False
        taken = self._taken.setdefault(one.id, set())
        if not is_shared:
            taken.add(claim)
        if not self._has_capacity(plan, one):
            return False
        chosen = ChosenDevice(plan, one, {}, {})
        if is_shared:
            self._consume(plan, one, chosen)
        self.result[claim].append(chosen)
        return True

    def _consume(self, plan: RequestPlan, one: PoolDevice, chosen: ChosenDevice) -> None:
        held = self._shared.setdefault(one.id, {})
        for name, capacity in one.device.capacity.items():
            amount = consumed_amount(plan.capacity_requests.get(name), capacity)
            chosen.consumed[name] = amount.text
            chosen.consumed_nanos[name] = amount.nanos
            held[name] = held.get(name, 0) + amount.nanos

    def _repels(self, plan: RequestPlan, one: PoolDevice) -> bool:
        """True where a taint of the device is not tolerated."""
        return any(
            taint.effect in ("NoSchedule", "NoExecute")
            and not any(tolerates_device_taint(t, taint) for t in plan.request.tolerations)
            for taint in one.device.taints
        )

    def _add_to_constraints(
        self, claim: int, plan: RequestPlan, one: PoolDevice, must: bool
    ) -> bool:
        names = _constraint_names(plan)
        constraints = self._constraints[claim]
        for number, constraint in enumerate(constraints):
            if constraint.add(*names, one.device, one.id):
                continue
            if must:
                key, place = self._given.claims[claim].key, "/".join(one.id)
                raise AllocationError(
                    f"claim {key}, request {plan.name}: cannot add device {place} because a claim "
                    "constraint would not be satisfied"
                )
            for before in constraints[:number]:
                before.remove(*names)
            return False
        return True

    def _give_back(self, claim: int, plan: RequestPlan, one: PoolDevice) -> None:
        names = _constraint_names(plan)
        for constraint in self._constraints[claim]:
            constraint.remove(*names)
        self._taken[one.id].discard(claim)
        chosen = self.result[claim].pop()
        if not one.device.allow_multiple_allocations:
            if one.counters:
                self._unbook_counters(one)
            return
        held = self._shared.get(one.id)
        if chosen.consumed_nanos and held is not None:
            for name, nanos in chosen.consumed_nanos.items():
                held[name] -= nanos
            if not any(held.values()):
                del self._shared[one.id]

    # Counters.

    def _book_counters(self, pool: DevicePool, one: PoolDevice) -> bool:
        """Book what the device consumes; False, and nothing is booked, where a counter of the pool
        would be overdrawn."""
        name = pool.id[1]
        available = self._available.get(name)
        if available is None:
            available = self._available[name] = self._left_of(pool)
        consumed = self._consumed.setdefault(name, {})
        for counter_set, counter, nanos in one.counters:
            place = (counter_set, counter)
            consumed[place] = consumed.get(place, 0) + nanos
        if all(consumed.get(place, 0) <= left for place, left in available.items()):
            return True
        self._unbook_counters(one)
        return False

    def _left_of(self, pool: DevicePool) -> dict[tuple[str, str], int]:
        """What allocated devices leave of the counters of a pool."""
        left = dict(pool.counters)
        for one in pool.all_devices():
            if one.counters and self._allocated.is_used(one.id):
                for counter_set, counter, nanos in one.counters:
                    left[counter_set, counter] -= nanos
        return left

    def _unbook_counters(self, one: PoolDevice) -> None:
        consumed = self._consumed[one.id[1]]
        for counter_set, counter, nanos in one.counters:
            consumed[counter_set, counter] -= nanos


def _constraint_names(plan: RequestPlan) -> tuple[str, str]:
    """Request and alternative, as constraints name them."""
    return (plan.parent.name, plan.name) if plan.parent else (plan.name, "")
