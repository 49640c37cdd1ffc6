"""Why the devices of a node do not serve a claim: how many each check refuses, request by request.

Every device that the node may use is looked at in the order of the checks of the search, as if the
request were the only one: the first check that refuses it is counted. What remains is what the
request has. Where every request has enough, the requests do not fit together: the constraints are
named then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stowplan.objects.devices.device import DeviceClass, DeviceSelector
from stowplan.objects.devices.device_claim import ALL, DeviceConstraint, ResourceClaim, SubRequest
from stowplan.objects.node import Node
from stowplan.plugins.devices.allocation_search import tolerates_device_taint
from stowplan.plugins.devices.device_amounts import (
    amount_of,
    consumed_amount,
    fits_capacity,
    quantity_of,
    requested_of,
)
from stowplan.plugins.devices.device_constraints import find_attribute
from stowplan.plugins.devices.device_selectors import DeviceSelectors, SelectorFault
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import DevicePool, PoolDevice, node_matches

_EXPRESSION_MAX = 120
_VALUES_LISTED = 4


class ClaimExplanation:
    """The devices of one node, for the claims of one pod."""

    def __init__(
        self,
        node: Node,
        pools: Sequence[DevicePool],
        classes: Mapping[str, DeviceClass],
        allocated: AllocatedDevices,
        selectors: DeviceSelectors,
    ) -> None:
        """pools: those of the node."""
        self._node = node
        self._pools = pools
        self._classes = classes
        self._allocated = allocated
        self._selectors = selectors
        self._left: dict[tuple[str, str], dict[tuple[str, str], int]] = {}

    def lines(self, claim: ResourceClaim) -> Iterator[str]:
        """One line per request and alternative, then one per constraint that counts."""
        yield from self._unusable_pools()
        is_short, of_request = False, {}
        for request in claim.spec.devices.requests:
            alternatives = request.first_available
            if not alternatives and request.exactly is not None:
                found = self._having(request.exactly)
                of_request[request.name] = found[0]
                is_short |= not _is_enough(request.exactly, len(found[0]))
                yield self._line(claim, request.name, request.exactly, *found)
            serves = False
            for one in alternatives:
                having, refused = self._having(one)
                of_request[f"{request.name}/{one.name}"] = having
                serves |= _is_enough(one, len(having))
                yield self._line(claim, f"{request.name}/{one.name}", one, having, refused)
            is_short |= bool(alternatives) and not serves
        if not is_short:
            yield from self._together(claim, of_request)

    def _unusable_pools(self) -> Iterator[str]:
        for pool in self._pools:
            if pool.is_invalid:
                yield f"resource pool {pool.name} is invalid, its devices are not used"
            elif pool.is_incomplete:
                yield f"resource pool {pool.name} is incomplete, its devices are not used"

    def _devices(self) -> Iterator[tuple[DevicePool, PoolDevice]]:
        for pool in self._pools:
            if not pool.is_invalid and not pool.is_incomplete:
                for one in pool.devices():
                    yield pool, one

    def _having(self, request: SubRequest) -> tuple[list[PoolDevice], Counter[str]]:
        """The devices that serve a request, and how many each check refuses."""
        having: list[PoolDevice] = []
        refused: Counter[str] = Counter()
        for pool, one in self._devices():
            why = self._refusal(request, pool, one)
            if why:
                refused[why] += 1
            else:
                having.append(one)
        return having, refused

    def _refusal(self, request: SubRequest, pool: DevicePool, one: PoolDevice) -> str:
        """The first check that refuses a device, "" for none."""
        device_class = self._classes.get(request.device_class_name)
        if device_class is None:
            return f"of no class: deviceclass {request.device_class_name} not found"
        if self._allocated.is_dedicated(one.id) and not request.admin_access:
            return "in use"
        of_class = f"class {device_class.name}"
        why = self._not_selected(of_class, device_class.spec.selectors, one)
        why = why or self._not_selected("the request", request.selectors, one)
        if why:
            return why
        device = one.device
        if one.slice.spec.per_device_node_selection and not node_matches(
            self._node, device.node_name, device.all_nodes, device.node_selector
        ):
            return "for other nodes"
        return (
            self._short_capacity(request, one)
            or self._short_counter(pool, one)
            or _untolerated(request, one)
        )

    def _not_selected(
        self, owner: str, selectors: Iterable[DeviceSelector], one: PoolDevice
    ) -> str:
        for selector in selectors:
            text = selector.cel.expression if selector.cel is not None else ""
            short = text if len(text) <= _EXPRESSION_MAX else f"{text[:_EXPRESSION_MAX]}..."
            try:
                if not self._selectors.matches(text, one.shape, one.id[0], one.device):
                    return f"not selected by {owner}: {short}"
            except SelectorFault as fault:
                return f"an error of {owner}: {fault}"
        return ""

    def _short_capacity(self, request: SubRequest, one: PoolDevice) -> str:
        """The capacity that a device has too little of, with what is needed and left."""
        requests, capacity = requested_of(request.capacity), one.device.capacity
        used = self._allocated.capacity_of(one.id)
        if fits_capacity(requests, capacity, used):
            return ""
        for name, asked in requests.items():
            if name not in capacity:
                return f"without capacity {name}"
            amount = consumed_amount(asked, capacity[name])
            left = amount_of(capacity[name].value).nanos - used.get(name, 0)
            if amount.nanos > left:
                return f"capacity {name}: need {amount.text}, have {quantity_of(left)}"
        return "capacity taken by other claims, or amounts that its request policy does not allow"

    def _short_counter(self, pool: DevicePool, one: PoolDevice) -> str:
        """The counter that a device would overdraw, with what is needed and left."""
        if not one.counters or one.id in self._allocated.capacities:
            return ""
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = self._counters_left(pool)
        for counter_set, counter, nanos in one.counters:
            have = left.get((counter_set, counter), 0)
            if nanos > have:
                need = quantity_of(nanos)
                return f"counter {counter_set}/{counter}: need {need}, have {quantity_of(have)}"
        return ""

    def _counters_left(self, pool: DevicePool) -> dict[tuple[str, str], int]:
        left = dict(pool.counters)
        for one in pool.all_devices():
            if self._allocated.is_used(one.id):
                for counter_set, counter, nanos in one.counters:
                    left[counter_set, counter] -= nanos
        return left

    def _line(
        self,
        claim: ResourceClaim,
        name: str,
        request: SubRequest,
        having: list[PoolDevice],
        refused: Counter[str],
    ) -> str:
        total = len(having) + refused.total()
        wanted = "all devices" if request.allocation_mode == ALL else str(request.count)
        text = (
            f"claim {claim.name}, request {name}: need {wanted} of class "
            f"{request.device_class_name}, have {len(having)} of {total}"
        )
        reasons = [f"{n} {why}" for why, n in refused.most_common()]
        if reasons:
            text = f"{text} ({'; '.join(reasons)})"
        helps = self._helps(request, len(having), refused)
        return f"{text}; {helps}" if helps else text

    @staticmethod
    def _helps(request: SubRequest, n_having: int, refused: Counter[str]) -> str:
        """The smallest change of the claim that would do for this request, "" for none."""
        missing = request.count - n_having
        if request.allocation_mode == ALL or missing <= 0:
            return ""
        for why, n in sorted(refused.items(), key=lambda one: (one[1], one[0])):
            if n >= missing and why.startswith("untolerated taint "):
                return f"enough with a toleration of {why.removeprefix('untolerated taint ')}"
            if n >= missing and why.startswith("not selected by the request: "):
                return "enough without this selector of the request"
        if n_having:
            return f"enough with count {n_having}"
        return ""

    # Requests together.

    def _together(
        self, claim: ResourceClaim, of_request: Mapping[str, list[PoolDevice]]
    ) -> Iterator[str]:
        """Why requests that are served alone are not served together."""
        total = sum(one.exactly.count for one in claim.spec.devices.requests if one.exactly)
        usable = {one.id for having in of_request.values() for one in having}
        if total > len(usable):
            text = f"claim {claim.name}: its requests need {total} devices together"
            yield f"{text}, {len(usable)} serve any of them"
        for constraint in claim.spec.devices.constraints:
            yield f"claim {claim.name}, {self._spread(constraint, of_request)}"

    @staticmethod
    def _spread(constraint: DeviceConstraint, of_request: Mapping[str, list[PoolDevice]]) -> str:
        name = constraint.match_attribute or constraint.distinct_attribute or ""
        kind = "matchAttribute" if constraint.match_attribute else "distinctAttribute"
        devices = {
            one.id: one
            for request, having in of_request.items()
            if not constraint.requests
            or request in constraint.requests
            or request.partition("/")[0] in constraint.requests
            for one in having
        }
        values: Counter[str] = Counter()
        for one in devices.values():
            held = find_attribute(one.device, one.id, name)
            values["none" if held is None else str(held[1])] += 1
        listed = ", ".join(f"{n} with {value}" for value, n in values.most_common(_VALUES_LISTED))
        more = len(values) - _VALUES_LISTED
        return f"constraint {kind} {name}: {listed}{f', {more} more values' if more > 0 else ''}"


def _is_enough(request: SubRequest, n_devices: int) -> bool:
    return n_devices >= (1 if request.allocation_mode == ALL else request.count)


def _untolerated(request: SubRequest, one: PoolDevice) -> str:
    for taint in one.device.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            tolerates_device_taint(toleration, taint) for toleration in request.tolerations
        ):
            value = f"={taint.value}" if taint.value else ""
            return f"untolerated taint {taint.key}{value}:{taint.effect}"
    return ""
