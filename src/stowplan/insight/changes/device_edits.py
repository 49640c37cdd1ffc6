"""Edits of claims and of the devices of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stowplan.cycle.change import Operation
from stowplan.insight.changes import edits
from stowplan.insight.changes.edits import ObjectEdit, pointer
from stowplan.objects.devices.device import Device, DeviceTaint, ResourceSlice
from stowplan.objects.devices.device_claim import (
    ALL,
    CapacityRequirements,
    DeviceToleration,
    ResourceClaim,
    SubRequest,
)
from stowplan.objects.meta import Object
from stowplan.objects.quantity import Quantity
from stowplan.plugins.devices.device_amounts import amount_of, quantity_of

EXACTLY = "exactly"


class RequestPlace(NamedTuple):
    """A request of a claim, or one of its alternatives. template: name of the
    ResourceClaimTemplate that the claim was made from, "" for none. alternative: -1 for none."""

    claim: ResourceClaim
    template: str
    request: int
    alternative: int = -1

    @property
    def asked(self) -> SubRequest:
        """What is asked for."""
        return request_at(self.claim, self)

    @property
    def path(self) -> tuple[object, ...]:
        """From the claim's spec."""
        last = (EXACTLY,) if self.alternative < 0 else ("firstAvailable", self.alternative)
        return ("devices", "requests", self.request, *last)

    @property
    def text(self) -> str:
        """The request in words."""
        name = self.claim.spec.devices.requests[self.request].name
        if self.alternative >= 0:
            name = f"{name}/{self.asked.name}"
        return f"request {name} of claim {self.claim.name}"


RequestChange = Callable[[SubRequest], SubRequest]


def places_of(claim: ResourceClaim, template: str) -> list[RequestPlace]:
    """All requests and alternatives of a claim."""
    found: list[RequestPlace] = []
    for at, request in enumerate(claim.spec.devices.requests):
        if request.exactly is not None:
            found.append(RequestPlace(claim, template, at))
        found += (
            RequestPlace(claim, template, at, alternative)
            for alternative in range(len(request.first_available))
        )
    return found


def request_at(claim: ResourceClaim, place: RequestPlace) -> SubRequest:
    """The request of a claim at a place."""
    request = claim.spec.devices.requests[place.request]
    if place.alternative >= 0:
        return request.first_available[place.alternative]
    assert request.exactly is not None
    return request.exactly


# Claims.


def lower_count(place: RequestPlace, count: int) -> ObjectEdit:
    """Fewer devices."""
    asked = place.asked.count
    text = f"lower the count of {place.text} from {asked} to {count}"
    operation = {"op": "add", "path": pointer(*place.path, "count"), "value": count}
    cost = -(-edits.REQUEST_MAX * (asked - count) // asked)
    return _of_request("device-count", cost, text, place, _with(count=count), operation)


def lower_counts(place: RequestPlace) -> list[ObjectEdit]:
    """Fewer devices, from one less down to one; none where all devices are asked for."""
    if place.asked.allocation_mode == ALL:
        return []
    return [lower_count(place, count) for count in range(place.asked.count - 1, 0, -1)]


def drop_selector(place: RequestPlace, index: int) -> ObjectEdit:
    """The request without one of its selectors."""
    cel = place.asked.selectors[index].cel
    expression = "" if cel is None else cel.expression
    text = f"drop the selector {expression} of {place.text}"
    left = place.asked.selectors[:index] + place.asked.selectors[index + 1 :]
    operation = {"op": "remove", "path": pointer(*place.path, "selectors", index)}
    change = _with(selectors=left)
    return _of_request("device-selector", edits.DROP_TERM, text, place, change, operation)


def add_device_toleration(place: RequestPlace, taint: DeviceTaint) -> ObjectEdit:
    """A toleration of exactly this taint of devices."""
    text = f"add a toleration for device taint {device_taint_text(taint)} to {place.text}"
    operator = "Equal" if taint.value else "Exists"
    added = DeviceToleration(taint.key, operator, taint.value, taint.effect)
    before = place.asked.tolerations
    value = msgspec.to_builtins(added)
    path = pointer(*place.path, "tolerations", *(("-",) if before else ()))
    operation = {"op": "add", "path": path, "value": value if before else [value]}
    change = _with(tolerations=(*before, added))
    return _of_request("device-toleration", edits.TOLERATION, text, place, change, operation)


def lower_capacity(place: RequestPlace, name: str, value: Quantity, percent: int) -> ObjectEdit:
    """A smaller amount of a capacity. percent: that is given up."""
    capacity = place.asked.capacity or CapacityRequirements()
    text = f"lower capacity {name} of {place.text} from {capacity.requests[name]} to {value}"
    after = CapacityRequirements({**capacity.requests, name: value})
    path = pointer(*place.path, "capacity", "requests", name)
    operation = {"op": "replace", "path": path, "value": value}
    return _of_request("device-capacity", percent, text, place, _with(capacity=after), operation)


def drop_constraint(claim: ResourceClaim, template: str, index: int) -> ObjectEdit:
    """The claim without one of its constraints."""
    constraint = claim.spec.devices.constraints[index]
    name = constraint.match_attribute or constraint.distinct_attribute or ""
    text = f"drop the constraint on {name} of claim {claim.name}"
    operation = {"op": "remove", "path": pointer("spec", "devices", "constraints", index)}

    def change(value: Any) -> tuple[Object, list[Operation]]:
        devices = value.spec.devices
        left = devices.constraints[:index] + devices.constraints[index + 1 :]
        devices = replace(devices, constraints=left)
        return replace(value, spec=replace(value.spec, devices=devices)), [operation]

    kind, cost = "device-constraint", edits.DROP_TERM
    return ObjectEdit(kind, cost, text, claim, change, position=index, template=template)


def _with(**fields: object) -> RequestChange:
    return lambda request: replace(request, **fields)


def _of_request(
    kind: str,
    cost: int,
    text: str,
    place: RequestPlace,
    change: RequestChange,
    operation: Operation,
) -> ObjectEdit:
    operation = {**operation, "path": f"/spec{operation['path']}"}
    return ObjectEdit(
        kind,
        cost,
        text,
        place.claim,
        partial(_change_request, place, change, operation),
        template=place.template,
    )


def _change_request(
    place: RequestPlace, change: RequestChange, operation: Operation, value: Any
) -> tuple[Object, list[Operation]]:
    devices = value.spec.devices
    requests = list(devices.requests)
    before = requests[place.request]
    after = change(request_at(value, place))
    if place.alternative < 0:
        requests[place.request] = replace(before, exactly=after)
    else:
        alternatives = list(before.first_available)
        alternatives[place.alternative] = after
        requests[place.request] = replace(before, first_available=tuple(alternatives))
    devices = replace(devices, requests=tuple(requests))
    return replace(value, spec=replace(value.spec, devices=devices)), [operation]


# Devices of a node.


def device_taint_text(taint: DeviceTaint) -> str:
    """A taint as kubectl writes it."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def remove_device_taints(
    value: ResourceSlice, node: str, taint: DeviceTaint, places: Sequence[int]
) -> ObjectEdit:
    """The slice without this taint on devices at these places."""
    names = " and ".join(value.spec.devices[at].name for at in places)
    text = f"remove taint {device_taint_text(taint)} from device {names} of node {node}"
    operations: list[Operation] = []
    for at in places:
        index = value.spec.devices[at].taints.index(taint)
        path = pointer("spec", "devices", at, "taints", index)
        operations += [
            {"op": "test", "path": f"{path}/key", "value": taint.key},
            {"op": "remove", "path": path},
        ]

    def untainted(device: Device) -> Device:
        return replace(device, taints=tuple(one for one in device.taints if one != taint))

    devices = tuple(
        untainted(device) if at in places else device
        for at, device in enumerate(value.spec.devices)
    )
    cost = edits.TAINT * len(places)
    return _of_slice("device-taint", cost, text, value, operations, devices=devices)


def raise_counters(
    value: ResourceSlice, node: str, index: int, raised: Mapping[str, int]
) -> ObjectEdit:
    """The slice with more in counters of one set. raised: billionths by counter."""
    held = value.spec.shared_counters[index]
    counters = dict(held.counters)
    changes: list[str] = []
    operations: list[Operation] = []
    cost = 0
    for name, nanos in raised.items():
        before = amount_of(held.counters[name].value).nanos
        amount = quantity_of(before + nanos)
        percent = -(-100 * nanos // before) if before else edits.COUNTER_MAX
        cost += min(percent, edits.COUNTER_MAX)
        counters[name] = replace(held.counters[name], value=amount)
        was = held.counters[name].value
        changes.append(f"counter {held.name}/{name} of node {node} from {was} to {amount}")
        path = pointer("spec", "sharedCounters", index, "counters", name, "value")
        operations.append({"op": "replace", "path": path, "value": amount})
    sets = list(value.spec.shared_counters)
    sets[index] = replace(held, counters=counters)
    text = f"raise {' and '.join(changes)}"
    return _of_slice("counter", cost, text, value, operations, shared_counters=tuple(sets))


def add_devices(value: ResourceSlice, node: str, like: Device, number: int) -> ObjectEdit:
    """The slice with so many more devices like one that the node has."""
    taken = {device.name for device in value.spec.devices}
    added: list[Device] = []
    suffix = 1
    while len(added) < number:
        name = f"{like.name}-new-{suffix}"
        suffix += 1
        if name not in taken:
            added.append(replace(like, name=name))
    operations: list[Operation] = [
        {"op": "add", "path": "/spec/devices/-", "value": msgspec.to_builtins(device)}
        for device in added
    ]
    devices = (*value.spec.devices, *added)
    what = "one device" if number == 1 else f"{number} devices"
    text = f"add {what} like {like.name} to node {node}"
    cost = edits.ADD_DEVICE * number
    return _of_slice("add-device", cost, text, value, operations, devices=devices)


def _of_slice(
    kind: str,
    cost: int,
    text: str,
    value: ResourceSlice,
    operations: list[Operation],
    **fields: object,
) -> ObjectEdit:
    def change(before: Any) -> tuple[Object, list[Operation]]:
        return replace(before, spec=replace(before.spec, **fields)), operations

    return ObjectEdit(kind, cost, text, value, change)
