"""Validation of resource slices.

Source: kubernetes v1.36, pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    invalid,
    not_found_field,
    required,
    too_long,
    too_many,
)
from stowplan.apis.resource.device_validation import (
    validate_attribute_name,
    validate_binding_conditions,
    validate_driver_name,
    validate_list,
    validate_pool_name,
    validate_set,
    validate_taint,
)
from stowplan.apis.resource.request_policy import validate_request_policy
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

DEVICES_MAX, DEVICES_WITH_MORE_MAX = 128, 64
"""Devices of a slice; of one with taints, counters or lists of values."""
_TAINTS_MAX, _COUNTER_SETS_MAX, _COUNTERS_MAX, _CONSUMED_MAX = 16, 8, 32, 2
_ATTRIBUTES_MAX, _VALUES_MAX, _VALUE_BYTES_MAX, _KEY_MAX = 32, 48, 64, 96
_VALUES = {
    "int": "IntValue", "bool": "BoolValue", "string": "StringValue", "version": "VersionValue",
    "ints": "IntValues", "bools": "BoolValues", "strings": "StringValues",
    "versions": "VersionValues",
}  # fmt: skip
"""Values of an attribute, and their names in the original's internal type."""
_LISTS = ("bools", "ints", "strings", "versions")
_NUMBER, _PART = r"(0|[1-9]\d*)", r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PART}(\.{_PART})*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_SLICE_NODES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_NODES = ("nodeName", "nodeSelector", "allNodes")


def validate_resource_slice(obj: Tree) -> Iterator[Cause]:
    """A slice."""
    spec = obj["spec"]
    yield from validate_driver_name(spec["driver"], "spec.driver")
    yield from _pool(spec["pool"], "spec.pool")
    names = ", ".join(f"`{name}`" for name in _SLICE_NODES)
    text = f"exactly one of {names} is required"
    yield from _nodes(spec, _SLICE_NODES, "spec", text, f"{text}, but multiple fields are set")
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if devices is not None and counters is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def check(device: Tree, path: str) -> Iterator[Cause]:
        yield from _device(device, per_device, path)

    count_max = DEVICES_WITH_MORE_MAX if any(map(_has_more, devices or ())) else DEVICES_MAX
    yield from validate_set(devices or [], count_max, check, "spec.devices")
    yield from validate_set(counters or [], _COUNTER_SETS_MAX, _counter_set, "spec.sharedCounters")


def _pool(pool: Tree, path: str) -> Iterator[Cause]:
    yield from validate_pool_name(pool["name"], f"{path}.name")
    count, generation = pool["resourceSliceCount"], pool["generation"]
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, field_checks.POSITIVE)
    if generation < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


def _has_more(device: Tree) -> bool:
    attributes = device.get("attributes", {}).values()
    lists = any(name in one for one in attributes for name in _LISTS)
    return lists or bool(device.get("taints") or device.get("consumesCounters"))


def _nodes(
    tree: Tree, names: tuple[str, ...], path: str, none_text: str, several_text: str
) -> Iterator[Cause]:
    """Exactly one of the fields that say which nodes have access."""
    given = []
    for name in names:
        value, here = tree.get(name), f"{path}.{name}"
        if value is None:
            continue
        if name == "nodeName" and not value:
            of_device = "perDeviceNodeSelection" not in names
            text = "must be either unset or set to a non-empty string"
            yield invalid(here, value, "must not be empty" if of_device else text)
        elif value is False:
            yield invalid(here, value, "must be either unset or set to true")
        else:
            given.append(f"`{name}`")
            if name == "nodeName":
                yield from field_checks.dns_subdomain(value, here)
            elif name == "nodeSelector":
                yield from _node_selector(value, here, "perDeviceNodeSelection" in names)
    if not given:
        yield required(path, none_text)
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", several_text)


def _node_selector(selector: Tree, path: str, one_term: bool) -> Iterator[Cause]:
    yield from pod_scheduling.node_selector(selector, path)
    terms = selector.get("nodeSelectorTerms") or []
    if one_term and len(terms) != 1:
        yield invalid(
            f"{path}.nodeSelectorTerms", terms, "must have exactly one node selector term"
        )


def _device(device: Tree, per_device: bool, path: str) -> Iterator[Cause]:
    yield from field_checks.dns_label(device["name"], f"{path}.name")
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    if len(attributes) + len(capacity) > _ATTRIBUTES_MAX:
        text = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES_MAX}"
        yield invalid(path, len(attributes) + len(capacity), text)
    count = sum(
        sum(len(one.get(name) or ()) for name in _LISTS) or 1 for one in attributes.values()
    )
    if count > _VALUES_MAX:
        text = f"the total number of attribute values must not exceed {_VALUES_MAX}"
        yield invalid(path, count, text)
    for name, value in sorted(attributes.items()):
        yield from validate_attribute_name(name, f"{path}.attributes")
        yield from _attribute(value, f"{path}.attributes[{_shortened(name)}]")
    for name, value in sorted(capacity.items()):
        yield from validate_attribute_name(name, f"{path}.capacity")
        here = f"{path}.capacity[{_shortened(name)}].requestPolicy"
        policy = value.get("requestPolicy")
        if policy is not None and not device.get("allowMultipleAllocations"):
            yield forbidden_field(here, "allowMultipleAllocations must be true")
        elif policy is not None:
            yield from validate_request_policy(value["value"], policy, here)
    yield from validate_list(
        device.get("taints") or [], _TAINTS_MAX, validate_taint, f"{path}.taints"
    )
    consumed = device.get("consumesCounters") or []
    here = f"{path}.consumesCounters"
    yield from validate_set(consumed, _CONSUMED_MAX, _consumption, here, "counterSet")
    yield from _device_nodes(device, per_device, path)
    yield from validate_binding_conditions(device, path)
    yield from _mappings(device, path)


def _device_nodes(device: Tree, per_device: bool, path: str) -> Iterator[Cause]:
    of_slice = "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    if per_device:
        text = (
            f"exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when {of_slice}"
        )
        yield from _nodes(device, _DEVICE_NODES, path, text, text)
    elif any(name in device for name in _DEVICE_NODES):
        text = f"`nodeName`, `nodeSelector` and `allNodes` can only be set if {of_slice}"
        yield invalid(path, None, text)


def _shortened(key: str) -> str:
    if len(key) <= _KEY_MAX:
        return key
    rest = _KEY_MAX - 3
    return f"{key[: (rest + 1) // 2]}...{key[len(key) - rest // 2 :]}"


def _attribute(value: Tree, path: str) -> Iterator[Cause]:
    if "string" in value:
        yield from _text(value["string"], f"{path}.string")
    if "version" in value:
        yield from _version(value["version"], f"{path}.version")
    for name in _LISTS:
        if name not in value:
            continue
        here = f"{path}.{name}"
        if not value[name]:
            yield invalid(here, value[name], "must not be empty if specified")
        check = {"strings": _text, "versions": _version}.get(name)
        for at, one in enumerate(value[name] if check is not None else ()):
            if check is not None:
                yield from check(one, f"{here}[{at}]")
    if len(value) != 1:
        printed = {inside: value.get(name) for name, inside in _VALUES.items()} if value else ""
        yield invalid(path, printed, "exactly one value must be specified")


def _text(text: str, path: str) -> Iterator[Cause]:
    if len(text.encode("utf-8", "surrogatepass")) > _VALUE_BYTES_MAX:
        yield too_long(path, _VALUE_BYTES_MAX)


def _version(text: str, path: str) -> Iterator[Cause]:
    if not _VERSION.fullmatch(text):
        yield invalid(path, text, "must be a string compatible with semver.org spec 2.0.0")
    yield from _text(text, path)


def _counter_set(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.needed(one["name"], field_checks.dns_label, f"{path}.name")
    yield from _counters(one, f"{path}.counters")


def _consumption(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.needed(one["counterSet"], field_checks.dns_label, f"{path}.counterSet")
    yield from _counters(one, f"{path}.counters")


def _counters(one: Tree, path: str) -> Iterator[Cause]:
    counters = one.get("counters") or {}
    if not counters:
        yield required(path)
    elif len(counters) > _COUNTERS_MAX:
        yield too_many(path, len(counters), _COUNTERS_MAX)
    else:
        for name in sorted(counters):
            yield from field_checks.dns_label(name, path)


def _mappings(device: Tree, path: str) -> Iterator[Cause]:
    """Which resources of the node the device's capacities are."""
    mappings = device.get("nodeAllocatableResourceMappings") or {}
    for name, mapping in sorted(mappings.items()):
        here = f"{path}.nodeAllocatableResourceMappings[{name}]"
        if not resource_requirements.is_native_resource(name):
            yield invalid(here, name, "must be a node allocatable resource name")
        factor, key = mapping.get("allocationMultiplier"), mapping.get("capacityKey")
        if factor is None and key is None:
            text = "at least one of allocationMultiplier or capacityKey must be set"
            yield invalid(here, "", text)
        if factor is not None and canonical_quantity.compare(factor, "0") <= 0:
            yield invalid(f"{here}.allocationMultiplier", factor, "must be positive")
        if key == "":
            yield invalid(f"{here}.capacityKey", "", "capacityKey must not be an empty string")
        elif key is not None and key not in device.get("capacity", {}):
            yield not_found_field(f"{here}.capacityKey", key)
