"""HAMi: slices of NVIDIA GPUs by memory and cores, chosen by the scheduler.

Source: Project-HAMi/HAMi, pkg/device/devices.go and pkg/device/nvidia/device.go.
"""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from stowplan.objects.devices.node_lock import HAMI_LOCK
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions.convention import (
    BindingNotes,
    Convention,
    container_limits,
    limit_of,
)
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ALL_CORES,
    ContainerDevices,
    DeviceFilter,
    DeviceReport,
    DeviceRequest,
    GpuDevice,
    PodShares,
    listed,
)
from stowplan.plugins.gpu_share.conventions.gpu_links import LINK_MAX, LinkRows, link_rows
from stowplan.plugins.gpu_share.conventions.share_texts import (
    format_container,
    is_number,
    parse_shares,
)
from stowplan.plugins.gpu_share.conventions.volcano_vgpu import checked_report

REGISTER = "hami.io/node-nvidia-register"
LINKS = "hami.io/node-nvidia-score"
CORDONED = "hami.io/device-cordon"
NUMBER, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
PERCENTAGE, CORES = "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
RESOURCES = (NUMBER, MEMORY, PERCENTAGE, CORES)

USE_TYPE, NOUSE_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_ID, NOUSE_ID = "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid"
MODE, NUMA = "nvidia.com/vgpu-mode", "nvidia.com/numa-bind"
MIG = "mig"
REQUEST_ANNOTATIONS = (USE_ID, NOUSE_ID, MODE, NUMA)
"""Beside those of Volcano."""

NODE, TIME = "hami.io/vgpu-node", "hami.io/vgpu-time"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
ALLOCATED = "hami.io/vgpu-devices-allocated"
PHASE, BIND_TIME = "hami.io/bind-phase", "hami.io/bind-time"
ALLOCATING = "allocating"

_FIELDS = {7: "hami-core", 9: ""}
"""Numbers of fields of an entry, and the mode of those that do not name it."""


def report(node: Node) -> DeviceReport | None:
    """The devices that a node has registered, in JSON or as `ID,SLICES,MIB,CORES,TYPE,NUMA,HEALTHY`
    with or without `,INDEX,MODE`, each ended by `:`. Cordoned devices count as unhealthy.

    Differs: a node with MIG devices is not usable.
    """
    text = node.metadata.annotations.get(REGISTER)
    if text is None:
        return None
    found = _from_json(text) if text.lstrip().startswith("[") else _from_entries(text)
    if isinstance(found, str):
        return DeviceReport(problem=f"annotation {REGISTER} {found}")
    if any(device.mode == MIG for device in found):
        return DeviceReport(problem=f"annotation {REGISTER} has MIG devices")
    cordoned = listed(node.metadata.annotations, CORDONED)
    checked = checked_report(node, [_cordoned(one, cordoned) for one in found], REGISTER, NUMBER)
    text = node.metadata.annotations.get(LINKS, "[]")
    return replace(checked, links=_links(text, [one.id for one in checked.devices]))


def _links(text: str, ids: list[str]) -> LinkRows:
    """How close devices are, of `[{"uuid": ID, "score": {ID: NUMBER}}]`; entries that are not
    understood are left out, since no device is lost by it."""
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    found: dict[frozenset[str], int] = {}
    for entry in entries if isinstance(entries, list) else ():
        one = entry.get("uuid") if isinstance(entry, dict) else None
        scores = entry.get("score") if isinstance(entry, dict) else None
        if not isinstance(one, str) or not isinstance(scores, dict):
            continue
        for other, score in scores.items():
            if type(score) is int and 0 <= score <= LINK_MAX:
                found[frozenset((one, other))] = score
    if not found:
        return ()
    return link_rows(len(ids), lambda i, j: found.get(frozenset((ids[i], ids[j])), 0))


def _cordoned(device: GpuDevice, cordoned: tuple[str, ...]) -> GpuDevice:
    if device.id not in cordoned:
        return device
    return replace(device, is_healthy=False)


def _from_entries(text: str) -> list[GpuDevice] | str:
    devices = []
    for entry in text.split(":"):
        if not entry.strip():
            continue
        fields = entry.split(",")
        numbers = fields[1:4]
        if len(fields) not in _FIELDS or not all(is_number(one) for one in numbers):
            return f"has an invalid entry {entry[:60]!r}"
        slots, memory, cores = map(int, numbers)
        numa = int(fields[5]) if is_number(fields[5]) else -1
        mode = _FIELDS[len(fields)] or fields[8]
        is_healthy = fields[6].lower() in ("true", "t", "1")
        devices.append(
            GpuDevice(fields[0], memory, fields[4], cores, slots, is_healthy, numa, mode)
        )
    return devices


def _from_json(text: str) -> list[GpuDevice] | str:
    try:
        entries: Any = json.loads(text)
    except (ValueError, RecursionError):
        return "is not valid JSON"
    devices = []
    for entry in entries:
        device = _of_entry(entry)
        if device is None:
            return f"has an invalid entry {str(entry)[:60]!r}"
        devices.append(device)
    return devices


def _of_entry(entry: Any) -> GpuDevice | None:
    if not isinstance(entry, dict):
        return None
    numbers = [entry.get(key, 0) for key in ("devmem", "devcore", "count", "numa")]
    texts = [entry.get(key, "") for key in ("id", "type", "mode")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        return None
    if not all(isinstance(text, str) for text in texts) or not texts[0]:
        return None
    memory, cores, slots, numa = numbers
    return GpuDevice(
        texts[0], memory, texts[1], cores, slots, entry.get("health") is True, numa, texts[2]
    )


def request(pod: Pod) -> DeviceRequest | None:
    """The slices that the containers of a pod request; None for a pod without.

    A pod that requests nothing but `nvidia.com/gpu` requests whole devices on other nodes.
    """
    found, problem = container_limits(pod, RESOURCES)
    parts = [part for one in found if (part := _container(*one)) is not None]
    is_part = bool(problem) or any(
        amounts[name] is not None for _, amounts in found for name in RESOURCES[1:]
    )
    if not parts and not problem:
        return None
    for first in pod.spec.init_containers:
        if any(limit_of(first, name) for name in RESOURCES):
            problem = problem or f"init container {first.name} requests a part of a GPU"
    return DeviceRequest(
        CONVENTION.name,
        tuple(parts),
        _accepted(pod),
        is_count_elsewhere=not is_part,
        problem=problem if is_part else "",
    )


def _accepted(pod: Pod) -> DeviceFilter:
    notes = pod.metadata.annotations
    return DeviceFilter(
        listed(notes, USE_TYPE),
        listed(notes, NOUSE_TYPE),
        listed(notes, USE_ID),
        listed(notes, NOUSE_ID),
        notes.get(MODE, ""),
        notes.get(NUMA, "").lower() in ("true", "t", "1"),
    )


def _container(index: int, amounts: dict[str, int | None]) -> ContainerDevices | None:
    """Parts without a number are of one device; without memory all of it counts."""
    if all(amount is None for amount in amounts.values()):
        return None
    number = amounts[NUMBER]
    count = 1 if number is None else number
    if not count:
        return None
    memory = amounts[MEMORY] or 0
    percentage = 0 if memory else min(amounts[PERCENTAGE] or 100, 100)
    return ContainerDevices(index, count, memory, percentage, min(amounts[CORES] or 0, ALL_CORES))


def shares(pod: Pod) -> PodShares | None:
    """What the pod's annotation says that it has."""
    text = pod.metadata.annotations.get(ALLOCATED)
    return None if text is None else parse_shares(text.removesuffix(";"))


def notes(pod: Pod, request: DeviceRequest, given: PodShares, node: Node) -> BindingNotes:
    """The six annotations that HAMi's device plugin matches the kubelet's call with.

    Every container has its place, init containers first.
    """
    by_index = {part.index: given[number] for number, part in enumerate(request.containers)}
    lists = [()] * len(pod.spec.init_containers) + [
        by_index.get(index, ()) for index in range(len(pod.spec.containers))
    ]
    text = "".join(format_container(one) + ";" for one in lists)
    return BindingNotes(
        {NODE: node.name, TO_ALLOCATE: text, ALLOCATED: text, PHASE: ALLOCATING},
        {TIME: "s", BIND_TIME: "s"},
        HAMI_LOCK,
    )


CONVENTION = Convention("hami", "HAMi", report, request, shares, notes)
