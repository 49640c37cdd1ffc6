"""Devices: classes, claims, templates and slices: what is valid and what stays.

CEL expressions are kept and checked only for being there.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go, pkg/registry/resource.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks

Tree = dict[str, Any]

_DEVICES_MAX = 128
_REQUESTS_MAX = 32
_MODES = ("All", "ExactCount")
_EFFECTS = ("NoExecute", "NoSchedule", "None")


def _driver(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield required(path)
        return
    if len(name) > 63:
        yield Cause(path, "FieldValueTooLong", "Too long: may not be more than 63 bytes")
    for text in subdomain_problems(name):
        yield invalid(path, name, text)


def _selectors(given: list[Tree], path: str) -> Iterator[Cause]:
    for at, one in enumerate(given):
        cel = one.get("cel")
        if cel is None:
            yield required(f"{path}[{at}].cel")
        elif not cel["expression"]:
            yield required(f"{path}[{at}].cel.expression")


def device_class(obj: Tree) -> Iterator[Cause]:
    """A class: selectors and configuration."""
    spec = obj["spec"]
    yield from _selectors(spec.get("selectors", []), "spec.selectors")
    for at, one in enumerate(spec.get("config", ())):
        yield from _config(one, f"spec.config[{at}]")


def _config(one: Tree, path: str) -> Iterator[Cause]:
    opaque = one.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from _driver(opaque["driver"], f"{path}.opaque.driver")
    if opaque["parameters"] is None:
        yield required(f"{path}.opaque.parameters")
    elif not isinstance(opaque["parameters"], dict):
        text = "must be a valid JSON object"
        yield invalid(f"{path}.opaque.parameters", "<value omitted>", text)


def resource_claim(obj: Tree) -> Iterator[Cause]:
    """A claim: what is asked for."""
    return resource_claim_spec(obj["spec"], "spec")


def resource_claim_spec(spec: Tree, path: str) -> Iterator[Cause]:
    """Requests, constraints and configuration of a claim."""
    wanted, here = spec["devices"], f"{path}.devices"
    requests = wanted["requests"] or []
    names: set[str] = set()
    if len(requests) > _REQUESTS_MAX:
        yield too_many(f"{here}.requests", len(requests), _REQUESTS_MAX)
    for at, one in enumerate(requests):
        there = f"{here}.requests[{at}]"
        if not one["name"]:
            yield required(f"{there}.name")
        else:
            yield from field_checks.dns_label(one["name"], f"{there}.name")
        if one["name"] in names:
            yield duplicate(there, one["name"])
        names.add(one["name"])
        yield from _request(one, there, names)
    for at, constraint in enumerate(wanted.get("constraints", ())):
        yield from _constraint(constraint, names, f"{here}.constraints[{at}]")
    for at, config in enumerate(wanted.get("config", ())):
        yield from _named(config.get("requests", []), names, f"{here}.config[{at}].requests")
        yield from _config(config, f"{here}.config[{at}]")


def _request(one: Tree, path: str, names: set[str]) -> Iterator[Cause]:
    exact, first = one.get("exactly"), one.get("firstAvailable", [])
    text = "exactly one of `exactly` or `firstAvailable` is required"
    if exact is None and not first:
        yield required(path, text)
    elif exact is not None and first:
        yield invalid(path, None, text)
    elif exact is not None:
        yield from _one_request(exact, f"{path}.exactly")
    for at, sub in enumerate(first):
        here = f"{path}.firstAvailable[{at}]"
        yield from field_checks.dns_label(sub["name"], f"{here}.name")
        names.add(f"{one['name']}/{sub['name']}")
        yield from _one_request(sub, here)


def _one_request(one: Tree, path: str) -> Iterator[Cause]:
    if not one["deviceClassName"]:
        yield required(f"{path}.deviceClassName")
    else:
        yield from field_checks.dns_subdomain(one["deviceClassName"], f"{path}.deviceClassName")
    yield from _selectors(one.get("selectors", []), f"{path}.selectors")
    mode, count = one["allocationMode"], one.get("count", 0)
    if mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            yield invalid(f"{path}.count", count, text)
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, field_checks.POSITIVE)
    else:
        yield not_supported(f"{path}.allocationMode", mode, _MODES)
    yield from _tolerations(one.get("tolerations", []), f"{path}.tolerations")


def _tolerations(given: list[Tree], path: str) -> Iterator[Cause]:
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        if one.get("key"):
            yield from field_checks.label_name(one["key"], f"{here}.key")
        operator = one["operator"]
        if operator == "Exists":
            if one.get("value"):
                text = "must be empty for operator `Exists`"
                yield invalid(f"{here}.value", one["value"], text)
        elif operator != "Equal":
            yield not_supported(f"{here}.operator", operator, ["Equal", "Exists"])
        effect = one.get("effect")
        if effect and effect not in _EFFECTS:
            yield not_supported(f"{here}.effect", effect, _EFFECTS)


def _constraint(one: Tree, names: set[str], path: str) -> Iterator[Cause]:
    yield from _named(one.get("requests", []), names, f"{path}.requests")
    if "matchAttribute" not in one and "distinctAttribute" not in one:
        text = "at least one of matchAttribute or distinctAttribute is required"
        yield required(f"{path}.matchAttribute", text)


def _named(given: list[str], names: set[str], path: str) -> Iterator[Cause]:
    for at, name in enumerate(given):
        yield from _named_request(name, names, f"{path}[{at}]")


def resource_claim_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """What is asked for stays."""
    if new["spec"] != old["spec"]:
        shown = internal_form("resource/v1.ResourceClaimSpec", new["spec"])
        yield invalid("spec", shown, field_checks.IMMUTABLE)


def resource_claim_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """A claim is allocated once, and reserved only while it is."""
    status, before = new["status"], old["status"]
    reserved, allocation = status.get("reservedFor", []), status.get("allocation")
    was = before.get("allocation")
    if len(reserved) > 256:
        yield too_many("status.reservedFor", len(reserved), 256)
    seen: set[str] = set()
    for at, one in enumerate(reserved):
        here = f"status.reservedFor[{at}]"
        for name in ("resource", "name", "uid"):
            if not one[name]:
                yield required(f"{here}.{name}")
        if one["uid"] in seen:
            yield duplicate(f"{here}.uid", one["uid"])
        seen.add(one["uid"])
    if reserved and allocation is None:
        text = "may not be specified when `allocated` is not set"
        yield forbidden_field("status.reservedFor", text)
    if was is not None and allocation is not None and allocation != was:
        shown = internal_form("resource/v1.AllocationResult", allocation)
        yield invalid("status.allocation", shown, field_checks.IMMUTABLE)
    if allocation is not None:
        yield from _allocation(allocation, new["spec"])


def _allocation(allocation: Tree, spec: Tree) -> Iterator[Cause]:
    names: set[str] = set()
    for request in spec["devices"]["requests"] or ():
        names.add(request["name"])
        names |= {f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable", ())}
    path = "status.allocation.devices.results"
    for at, one in enumerate(allocation["devices"].get("results", ())):
        yield from _named_request(one["request"], names, f"{path}[{at}].request")
        yield from _driver(one["driver"], f"{path}[{at}].driver")
        yield from field_checks.dns_label(one["device"], f"{path}[{at}].device")
    selector = allocation.get("nodeSelector")
    if selector is not None:
        yield from pod_scheduling.node_selector(selector, "status.allocation.nodeSelector")


def _named_request(name: str, names: set[str], path: str) -> Iterator[Cause]:
    if name not in names:
        text = (
            "must be the name of a request in the claim or the name of a request and a subrequest"
        )
        yield invalid(path, name, f"{text} separated by '/'")


def resource_claim_template(obj: Tree) -> Iterator[Cause]:
    """A claim to make copies of."""
    return resource_claim_spec(obj["spec"]["spec"], "spec.spec")


def resource_claim_template_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """A template stays."""
    yield from resource_claim_template(new)
    if new["spec"] != old["spec"]:
        shown = internal_form("resource/v1.ResourceClaimTemplateSpec", new["spec"])
        yield invalid("spec", shown, field_checks.IMMUTABLE)


class ResourceClaimStrategy(BuiltinStrategy):
    """Claims and templates: requests that were given empty are kept as if they were not given."""

    def canonicalize(self, obj: Tree) -> None:
        spec = obj["spec"]
        devices = spec["devices"] if "devices" in spec else spec["spec"]["devices"]
        devices["requests"] = devices["requests"] or None


class ResourceSliceStrategy(BuiltinStrategy):
    """Slices: taints of devices get their time."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        _set_taint_times(obj, call.now)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        _set_taint_times(new, call.now)


def _set_taint_times(obj: Tree, now: float) -> None:
    for device in obj["spec"].get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", timestamps.format_time(now))


def _slice(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from _driver(spec["driver"], "spec.driver")
    pool = spec["pool"]
    if not pool["name"]:
        yield required("spec.pool.name")
    if pool["resourceSliceCount"] <= 0:
        yield invalid(
            "spec.pool.resourceSliceCount", pool["resourceSliceCount"], field_checks.POSITIVE
        )
    yield from field_checks.not_negative(pool["generation"], "spec.pool.generation")
    where = [
        name
        for name in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(name)
    ]
    names = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    text = f"exactly one of {names} is required"
    if not where:
        yield required("spec", text)
    elif len(where) > 1:
        given = f"{{{', '.join(f'`{name}`' for name in where)}}}"
        yield invalid("spec", given, f"{text}, but multiple fields are set")
    if "nodeName" in spec:
        yield from field_checks.dns_subdomain(spec["nodeName"], "spec.nodeName")
    if "nodeSelector" in spec:
        yield from pod_scheduling.node_selector(spec["nodeSelector"], "spec.nodeSelector")
    yield from _slice_devices(spec.get("devices", []))


def _slice_devices(given: list[Tree]) -> Iterator[Cause]:
    if len(given) > _DEVICES_MAX:
        yield too_many("spec.devices", len(given), _DEVICES_MAX)
    names: set[str] = set()
    for at, one in enumerate(given):
        here = f"spec.devices[{at}]"
        yield from field_checks.dns_label(one["name"], f"{here}.name")
        if one["name"] in names:
            yield duplicate(here, one["name"])
        names.add(one["name"])
        for key, value in sorted(one.get("attributes", {}).items()):
            if len(value) != 1:
                text = "exactly one value must be specified"
                yield (required if not value else _several)(f"{here}.attributes[{key}]", text)


def _several(path: str, text: str) -> Cause:
    return invalid(path, None, text)


def _slice_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _slice(new)
    spec, before = new["spec"], old["spec"]
    for name in ("driver", "nodeName"):
        yield from field_checks.immutable(spec.get(name), before.get(name), f"spec.{name}")
    yield from field_checks.immutable(
        spec["pool"]["name"], before["pool"]["name"], "spec.pool.name"
    )


RESOURCE_SLICE = ResourceSliceStrategy(
    _slice, _slice_update, counted=("spec",), returns_deleted=True
)
