"""Validation of the status of a ResourceClaim: allocation, reservations, status of devices.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go
(validateResourceClaimStatusUpdate and below); apimachinery util/validation/ip.go.
Differs: an address with leading zeros is called no address, not one in another form.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.conditions import validate_conditions
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.resource.device_validation import (
    CONFIG_MAX,
    validate_binding_conditions,
    validate_device_config,
    validate_driver_name,
    validate_json_object,
    validate_list,
    validate_pool_name,
    validate_set,
)
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

REQUESTS_MAX = 32
_RESERVED_FOR_MAX, _RESULTS_MAX, _CONDITIONS_MAX, _IPS_MAX = 256, 32, 8, 16
_DATA_BYTES_MAX, _INTERFACE_BYTES_MAX, _ADDRESS_BYTES_MAX = 10 * 1024, 256, 128
_CONFIG_SOURCES = ("FromClaim", "FromClass")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_UUID_LENGTHS = {36, 36 + 9, 36 + 2, 32}


def validate_claim_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """The allocation is immutable; a claim is reserved only while it is allocated."""
    status, before = new["status"], old["status"]
    reserved, allocation = status.get("reservedFor", []), status.get("allocation")
    was = before.get("allocation")
    yield from _reservations(reserved)
    yield from _device_statuses(status)
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        yield forbidden_field("status.reservedFor", text)
    elif new["metadata"].get("deletionTimestamp") and any(
        one not in before.get("reservedFor", []) for one in reserved
    ):
        text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` "
        yield forbidden_field("status.reservedFor", f"{text}are set")
    if was is not None and allocation is not None:
        if allocation != was:
            printed = internal_form("resource/v1.AllocationResult", allocation)
            yield invalid("status.allocation", printed, field_checks.IMMUTABLE)
    elif allocation is not None:
        yield from _allocation(allocation, new["spec"])


def _reservations(reserved: list[Tree]) -> Iterator[Cause]:
    if len(reserved) > _RESERVED_FOR_MAX:
        yield too_many("status.reservedFor", len(reserved), _RESERVED_FOR_MAX)
    seen: set[str] = set()
    for at, one in enumerate(reserved):
        here = f"status.reservedFor[{at}]"
        for name in ("resource", "name", "uid"):
            if not one[name]:
                yield required(f"{here}.{name}")
        yield from field_checks.unique(one["uid"], seen, f"{here}.uid")


def _allocation(allocation: Tree, spec: Tree) -> Iterator[Cause]:
    names = request_names(spec["devices"]["requests"] or [])
    path = "status.allocation"

    def result(one: Tree, here: str) -> Iterator[Cause]:
        yield from validate_request_name(one["request"], names, f"{here}.request")
        yield from validate_driver_name(one["driver"], f"{here}.driver")
        yield from validate_pool_name(one["pool"], f"{here}.pool")
        yield from field_checks.dns_label(one["device"], f"{here}.device")
        yield from validate_binding_conditions(one, here)
        yield from _uid(one.get("shareID"), f"{here}.shareID")

    def config(one: Tree, here: str) -> Iterator[Cause]:
        source = one["source"]
        if not source:
            yield required(f"{here}.source")
        elif source not in _CONFIG_SOURCES:
            yield not_supported(f"{here}.source", source, _CONFIG_SOURCES)
        yield from validate_request_names(one.get("requests", []), names, f"{here}.requests")
        yield from validate_device_config(one, here)

    devices = allocation["devices"]
    yield from validate_list(
        devices.get("results", []), _RESULTS_MAX, result, f"{path}.devices.results"
    )
    yield from validate_list(
        devices.get("config", []), 2 * CONFIG_MAX, config, f"{path}.devices.config"
    )
    if allocation.get("nodeSelector") is not None:
        yield from pod_scheduling.node_selector(allocation["nodeSelector"], f"{path}.nodeSelector")


def _device_statuses(status: Tree) -> Iterator[Cause]:
    allocation = status.get("allocation") or {"devices": {}}
    allocated = [_shared_device(one) for one in allocation["devices"].get("results", ())]
    seen: list[Tree] = []
    repeated: list[Cause] = []
    for at, one in enumerate(status.get("devices", ())):
        path, shared = f"status.devices[{at}]", _shared_device(one)
        yield from _device_status(one, path)
        if shared not in allocated:
            yield invalid(path, shared, "must be an allocated device in the claim")
        yield from _device_report(one, path)
        if shared in seen:
            repeated.append(duplicate(path, shared))
        seen.append(shared)
    yield from repeated


def _device_status(one: Tree, path: str) -> Iterator[Cause]:
    yield from validate_driver_name(one["driver"], f"{path}.driver")
    yield from validate_pool_name(one["pool"], f"{path}.pool")
    yield from field_checks.dns_label(one["device"], f"{path}.device")
    yield from _uid(one.get("shareID"), f"{path}.shareID")


def _device_report(one: Tree, path: str) -> Iterator[Cause]:
    """What the driver says of the device."""
    conditions, data = one.get("conditions") or [], one.get("data")
    if len(conditions) > _CONDITIONS_MAX:
        yield too_many(f"{path}.conditions", len(conditions), _CONDITIONS_MAX)
    yield from validate_conditions(conditions, f"{path}.conditions")
    if data is not None:
        if len(encode({"": data})) - 5 > _DATA_BYTES_MAX:
            yield too_long(f"{path}.data", _DATA_BYTES_MAX)
        else:
            yield from validate_json_object(data, f"{path}.data")
    network, here = one.get("networkData") or {}, f"{path}.networkData"
    for name, bytes_max in (
        ("interfaceName", _INTERFACE_BYTES_MAX),
        ("hardwareAddress", _ADDRESS_BYTES_MAX),
    ):
        if len(network.get(name, "").encode("utf-8", "surrogatepass")) > bytes_max:
            yield too_long(f"{here}.{name}", bytes_max)
    yield from validate_set(network.get("ips", []), _IPS_MAX, _interface_address, f"{here}.ips")


def _shared_device(one: Tree) -> Tree:
    """A device with its share, as the original prints it."""
    return {
        "Driver": one["driver"],
        "Pool": one["pool"],
        "Device": one["device"],
        "ShareID": one.get("shareID") or "",
    }


def _uid(uid: str | None, path: str) -> Iterator[Cause]:
    if uid is None or _UUID.fullmatch(uid):
        return
    if len(uid) not in _UUID_LENGTHS:
        yield invalid(path, uid, f"error validating uid: invalid UUID length: {len(uid)}")
        return
    plain = uid.removeprefix("urn:uuid:").strip("{}").lower()
    bare = re.fullmatch(r"[0-9a-f]{32}", plain, re.ASCII)
    if not (_UUID.fullmatch(plain) or bare):
        yield invalid(path, uid, "error validating uid: invalid UUID format")
        return
    text = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with "
    yield invalid(path, uid, f"{text}lowercase hexadecimal characters")


def _interface_address(value: str, path: str) -> Iterator[Cause]:
    text = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
    _, slash, bits = value.partition("/")
    try:
        found = ipaddress.ip_interface(value)
    except ValueError:
        yield invalid(path, value, text)
        return
    if not slash or not bits.isdecimal():
        yield invalid(path, value, text)
    elif value != str(found):
        yield invalid(path, value, f'must be in canonical form ("{found}")')


def request_names(requests: list[Tree]) -> set[str]:
    """Names by which requests and their alternatives are referred to."""
    names = {one["name"] for one in requests}
    return names | {
        f"{one['name']}/{sub['name']}" for one in requests for sub in one.get("firstAvailable", ())
    }


def validate_request_names(given: list[str], names: set[str], path: str) -> Iterator[Cause]:
    """References to requests, each once."""

    def check(name: str, here: str) -> Iterator[Cause]:
        yield from validate_request_name(name, names, here)

    return validate_set(given, REQUESTS_MAX, check, path)


def validate_request_name(name: str, names: set[str], path: str) -> Iterator[Cause]:
    """A reference to a request, or to one of its alternatives."""
    parts = name.split("/")
    for part in parts if len(parts) <= 2 else ():
        yield from field_checks.dns_label(part, path)
    if name not in names:
        text = (
            "must be the name of a request in the claim or the name of a request and a subrequest"
        )
        yield invalid(path, name, f"{text} separated by '/'")
