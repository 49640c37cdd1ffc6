"""Devices of simulated nodes, written in short, and the ResourceSlices that describe them.

`gpu.example.com=8xH100,partitions=7; net.example.com=2xNIC,bandwidth=100G,shared` are eight cards,
each also offered in seven parts, and two network cards that pods may share. The text is an
annotation of the node:

| annotation | meaning |
|---|---|
| `stowplan.dev/devices` | devices of the node, `DRIVER=COUNTxMODEL[,OPTION...]`, several with `;` between them |

Options: `NAME=AMOUNT` is a capacity of each device, `partitions=N` offers each also in N equal
parts, `shared` lets several claims have one, `taint=KEY[=VALUE]:EFFECT` is a taint of each.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.apis.resource.device_validation import DRIVER_NAME_MAX, TAINT_EFFECTS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import OutOfRangeError, QuantityError, value

DEVICES = "stowplan.dev/devices"
PUBLISHED = "stowplan.dev/published-devices"
"""Annotation of a slice: the devices of its pool as they are written at its node."""
COUNT_MAX, PARTITIONS_MAX = 256, 64
MEMORY = {
    "A100": "80Gi", "B200": "180Gi", "H100": "80Gi", "H200": "141Gi", "L4": "24Gi", "L40S": "48Gi",
    "T4": "16Gi", "V100": "32Gi",
}  # fmt: skip
"""Memory of models for which none is given."""
DRIVER_VERSION = "1.0.0"
_DEVICES_PER_SLICE, _COUNTER_SETS_PER_SLICE = 64, 8
_GROUP = re.compile(r"(?P<driver>[^=,]+)=(?P<count>\d{1,4})x(?P<model>[^=,]+)")
_CAPACITY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = "must be DRIVER=COUNTxMODEL[,OPTION...], such as gpu.example.com=8xH100"


class NodeDevicesError(ValueError):
    """Devices that are not written as they must be; the text is for the user."""


class DeviceGroup(NamedTuple):
    """Equal devices of a node. capacity: amounts by name. partitions: 0 for devices that are not
    offered in parts. text: as it was written."""

    text: str
    driver: str
    n_devices: int
    model: str
    capacity: Mapping[str, str]
    partitions: int = 0
    is_shared: bool = False
    taints: tuple[Tree, ...] = ()


def parse_devices(text: str) -> tuple[DeviceGroup, ...]:
    """The devices of a node. Raises NodeDevicesError."""
    groups = [_group(part.strip()) for part in text.split(";") if part.strip()]
    drivers = [group.driver for group in groups]
    for driver in drivers:
        if drivers.count(driver) > 1:
            raise NodeDevicesError(f'Duplicate value: "{driver}": must have one entry per driver')
    return tuple(groups)


def device_class(driver: str) -> Tree:
    """The DeviceClass with all devices of a driver, named as the driver, as drivers install it."""
    expression = f"device.driver == '{driver}'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": driver},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _group(text: str) -> DeviceGroup:
    first, *options = text.split(",")
    found = _GROUP.fullmatch(first)
    if found is None:
        raise _invalid(text, _FORM)
    driver, model = found["driver"], found["model"]
    if subdomain_problems(driver) or len(driver) > DRIVER_NAME_MAX:
        raise _invalid(driver, f"must be a DNS subdomain of at most {DRIVER_NAME_MAX} characters")
    count = uint_or_none(found["count"], 32) or 0
    if not 1 <= count <= COUNT_MAX:
        raise _invalid(first, f"must have a count between 1 and {COUNT_MAX}, inclusive")
    if len(model.encode()) > 64:
        raise _invalid(model, "must have a model of at most 64 bytes")
    memory = MEMORY.get(model)
    group = DeviceGroup(text, driver, count, model, {} if memory is None else {"memory": memory})
    for option in options:
        group = _with_option(group, option.strip())
    if group.partitions and group.is_shared:
        raise _invalid(text, "must have only one of `partitions` or `shared`")
    return group


def _with_option(group: DeviceGroup, option: str) -> DeviceGroup:
    name, _, text = option.partition("=")
    if option == "shared":
        return group._replace(is_shared=True)
    if name == "partitions":
        number = uint_or_none(text, 32) or 0
        if not 2 <= number <= PARTITIONS_MAX:
            raise _invalid(option, f"must be a number between 2 and {PARTITIONS_MAX}, inclusive")
        return group._replace(partitions=number)
    if name == "taint":
        key_value, colon, effect = text.rpartition(":")
        key, equal, value = key_value.partition("=")
        if not colon or not key or effect not in TAINT_EFFECTS:
            effects = ", ".join(TAINT_EFFECTS)
            raise _invalid(option, f"must be taint=KEY[=VALUE]:EFFECT, EFFECT one of {effects}")
        taint = {"key": key, "effect": effect} | ({"value": value} if equal else {})
        return group._replace(taints=(*group.taints, taint))
    if not _CAPACITY.fullmatch(name) or _amount(text) is None:
        raise _invalid(
            option,
            "must be NAME=AMOUNT, partitions=N, shared or taint=KEY[=VALUE]:EFFECT",
        )
    return group._replace(capacity={**group.capacity, name: text})


def _invalid(value: str, must: str) -> NodeDevicesError:
    printed = value if len(value) <= 80 else f"{value[:80]}..."
    return NodeDevicesError(f'Invalid value: "{printed}": {must}')


def _amount(text: str) -> int | None:
    """Whole units; None for a text that is no amount."""
    try:
        found = value(text)
    except (QuantityError, OutOfRangeError):
        return None
    return found if found >= 0 else None


def device_problems(notes: Mapping[str, str]) -> Iterator[str]:
    """Texts about an invalid annotation of a node, which is ignored."""
    try:
        parse_devices(notes.get(DEVICES, ""))
    except NodeDevicesError as fault:
        yield f"{DEVICES}: {fault}"


def slices_of(node: str, group: DeviceGroup) -> list[Tree]:
    """`spec` of the slices of a driver on a node; its pool has the name of the node. Generation 1:
    the publisher sets it."""
    devices = [device for at in range(group.n_devices) for device in _devices(node, group, at)]
    contents: list[Tree] = [{"devices": some} for some in _split(devices, _DEVICES_PER_SLICE)]
    if group.partitions:
        sets = [_counter_set(group, at) for at in range(group.n_devices)]
        contents += [{"sharedCounters": some} for some in _split(sets, _COUNTER_SETS_PER_SLICE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(contents)}
    head = {"driver": group.driver, "nodeName": node, "pool": pool}
    return [{**head, "pool": dict(pool), **content} for content in contents]


def _split(items: list[Tree], most: int) -> list[list[Tree]]:
    return [items[at : at + most] for at in range(0, len(items), most)]


def _devices(node: str, group: DeviceGroup, at: int) -> Iterator[Tree]:
    """A card, and the parts in which it is offered."""
    name = _card_name(group, at)
    capacity = {key: {"value": text} for key, text in group.capacity.items()}
    card: Tree = {"name": name, "attributes": _attributes(node, group, at, "card")}
    yield _completed(card, group, capacity, group.partitions)
    parts = {
        key: {"value": _share(text, group.partitions)}
        for key, text in group.capacity.items()
        if group.partitions
    }
    for number in range(group.partitions):
        attributes = _attributes(node, group, at, "partition")
        attributes["profile"] = {"string": f"1of{group.partitions}"}
        part: Tree = {"name": f"{name}-part-{number}", "attributes": attributes}
        yield _completed(part, group, parts, 1)


def _completed(device: Tree, group: DeviceGroup, capacity: Tree, parts: int) -> Tree:
    """The device with what it has and consumes. parts: how many parts of its card it takes."""
    if capacity:
        device["capacity"] = capacity
    if group.is_shared:
        device["allowMultipleAllocations"] = True
    if group.partitions:
        counters = {"parts": {"value": str(parts)}}
        card = device["name"].partition("-part-")[0]
        device["consumesCounters"] = [{"counterSet": card, "counters": counters}]
    if group.taints:
        device["taints"] = [dict(taint) for taint in group.taints]
    return device


def _attributes(node: str, group: DeviceGroup, at: int, type_: str) -> Tree:
    digest = hashlib.sha256(f"{node}/{group.driver}/{at}".encode()).hexdigest()
    return {
        "driverVersion": {"version": DRIVER_VERSION},
        "index": {"int": at},
        "model": {"string": group.model},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{at:02x}"},
        "type": {"string": type_},
        "uuid": {"string": f"{_kind(group)}-{digest[:8]}-{digest[8:12]}-{digest[12:16]}"},
    }


def _counter_set(group: DeviceGroup, at: int) -> Tree:
    return {
        "name": _card_name(group, at),
        "counters": {"parts": {"value": str(group.partitions)}},
    }


def _card_name(group: DeviceGroup, at: int) -> str:
    return f"{_kind(group)}-{at}"


def _kind(group: DeviceGroup) -> str:
    """`gpu` of `gpu.example.com`."""
    return group.driver.partition(".")[0]


def _share(text: str, parts: int) -> str:
    """An equal part of an amount, in whole Mi where it is that large."""
    share = (_amount(text) or 0) // parts
    return f"{share >> 20}Mi" if share >> 20 else str(share)
