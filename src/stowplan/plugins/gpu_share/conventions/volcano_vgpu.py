"""Volcano's vGPU: slices of GPUs by memory and cores, chosen by the scheduler.

Source: volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/vgpu and api/devices/util.go.
"""

from __future__ import annotations

from stowplan.objects.devices.node_lock import VOLCANO_LOCK
from stowplan.objects.node import Node
from stowplan.objects.pod import Container, Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS
from stowplan.plugins.gpu_share.conventions.convention import (
    BindingNotes,
    Convention,
    container_limits,
    offered,
)
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ContainerDevices,
    DeviceFilter,
    DeviceReport,
    DeviceRequest,
    GpuDevice,
    PodShares,
    listed,
)
from stowplan.plugins.gpu_share.conventions.share_texts import (
    format_container,
    is_number,
    parse_shares,
)

REGISTER = "volcano.sh/node-vgpu-register"
NUMBER, MEMORY = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory"
PERCENTAGE, CORES = "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"
RESOURCES = (NUMBER, MEMORY, PERCENTAGE, CORES)
WHOLE = "nvidia.com/gpu"

MODE = "volcano.sh/vgpu-mode"
USE_TYPE, NOUSE_TYPE = "nvidia.com/use-gputype", "nvidia.com/nouse-gputype"
USE_ID, NOUSE_ID = "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid"
GROUP_POLICY, SPREAD = "volcano.sh/vgpu-podgroup-policy", "spread"
HAMI_CORE, MIG = "hami-core", "mig"
REQUEST_ANNOTATIONS = (MODE, USE_TYPE, NOUSE_TYPE, USE_ID, NOUSE_ID, GROUP_POLICY)
FURTHER_ANNOTATIONS = ((GROUP_POLICY, GROUP_ANNOTATIONS),)
"""The group of a pod matters only where its pods shall spread."""

NODE, TIME = "volcano.sh/vgpu-node", "volcano.sh/vgpu-time"
IDS, TO_ALLOCATE = "volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate"
PHASE, BIND_TIME = "volcano.sh/bind-phase", "volcano.sh/bind-time"
ALLOCATING = "allocating"


def report(node: Node) -> DeviceReport | None:
    """The devices that a node has registered: `ID,SLICES,MIB,TYPE,HEALTHY,MODE:` each.

    Differs: an entry that is not understood makes the node unusable; Volcano reads such numbers as
    0. A node with MIG devices is not usable either: which profile a slice gets is the driver's. Nor
    is one that offers whole GPUs as well, which NVIDIA's device plugin gives without asking.
    """
    text = node.metadata.annotations.get(REGISTER)
    if text is None:
        return None
    devices = []
    for entry in text.split(":"):
        if not entry.strip():
            continue
        fields = entry.split(",")
        if len(fields) < 6 or not (is_number(fields[1]) and is_number(fields[2])):
            return DeviceReport(
                problem=f"annotation {REGISTER} has an invalid entry {entry[:60]!r}"
            )
        name, slots, memory, model, healthy, mode = fields[:6]
        if mode == MIG:
            return DeviceReport(problem=f"annotation {REGISTER} has MIG devices")
        is_healthy = healthy.lower() in ("true", "t", "1")
        devices.append(
            GpuDevice(
                name, int(memory), model, slots=int(slots), is_healthy=is_healthy, mode=HAMI_CORE
            )
        )
    whole = offered(node, WHOLE)
    if whole > 0:
        return DeviceReport(
            problem=f"annotation {REGISTER} has GPUs, allocatable {WHOLE} is {whole}: another "
            "device plugin may give the same ones"
        )
    return checked_report(node, devices, REGISTER, NUMBER)


def checked_report(
    node: Node, devices: list[GpuDevice], annotation: str, resource: str
) -> DeviceReport:
    """The report of registered devices, unless ids repeat or allocatable contradicts them."""
    if len({device.id for device in devices}) < len(devices):
        return DeviceReport(problem=f"annotation {annotation} has a device twice")
    slots, count = sum(device.slots for device in devices), offered(node, resource)
    if count > slots:
        return DeviceReport(
            problem=f"annotation {annotation} has {slots} slices, allocatable {resource} is {count}"
        )
    if count <= 0:
        return DeviceReport(problem=f"allocatable {resource} is 0")
    return DeviceReport(tuple(devices))


def request(pod: Pod) -> DeviceRequest | None:
    """The slices that the containers of a pod request; None for a pod without."""
    found, problem = container_limits(pod, RESOURCES)
    containers = pod.spec.containers
    made = (_container(index, containers[index], amounts) for index, amounts in found)
    parts = [part for part in made if part is not None]
    if not parts and not problem:
        return None
    notes = pod.metadata.annotations
    accepted = DeviceFilter(
        listed(notes, USE_TYPE),
        listed(notes, NOUSE_TYPE),
        listed(notes, USE_ID),
        listed(notes, NOUSE_ID),
        notes.get(MODE, ""),
    )
    group = _group(pod) if notes.get(GROUP_POLICY) == SPREAD else ""
    return DeviceRequest(CONVENTION.name, tuple(parts), accepted, group=group, problem=problem)


def _container(
    index: int, container: Container, amounts: dict[str, int | None]
) -> ContainerDevices | None:
    """Memory alone requests one slice; without memory the whole memory of a card counts."""
    number, memory = amounts[NUMBER], amounts[MEMORY]
    if MEMORY not in container.resources.limits and NUMBER not in container.resources.limits:
        return None
    count = 1 if number is None else number
    if count == 0:
        return None
    percentage = amounts[PERCENTAGE] or 0
    if not memory and not percentage:
        percentage = 100
    return ContainerDevices(index, count, memory or 0, percentage, amounts[CORES] or 0)


def _group(pod: Pod) -> str:
    names = (pod.metadata.annotations.get(key, "") for key in GROUP_ANNOTATIONS)
    name = next((name for name in names if name), "")
    return f"{pod.namespace}/{name}" if name else ""


def shares(pod: Pod) -> PodShares | None:
    """What the pod's annotation says that it has."""
    text = pod.metadata.annotations.get(IDS)
    return None if text is None else parse_shares(text)


def notes(pod: Pod, request: DeviceRequest, given: PodShares, node: Node) -> BindingNotes:
    """The six annotations that Volcano's device plugin matches the kubelet's call with."""
    text = ";".join(format_container(container) for container in given)
    return BindingNotes(
        {NODE: node.name, IDS: text, TO_ALLOCATE: text, PHASE: ALLOCATING},
        {TIME: "s", BIND_TIME: "s"},
        VOLCANO_LOCK,
    )


CONVENTION = Convention("volcano", "Volcano vGPU", report, request, shares, notes)
