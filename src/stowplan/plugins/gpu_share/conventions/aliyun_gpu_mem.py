"""Aliyun's gpushare: memory of one card, in the unit in which the node offers it.

Source: AliyunContainerService/gpushare-scheduler-extender, pkg/utils.
"""

from __future__ import annotations

from stowplan.objects.devices.gpu_cards import CARDS_MAX
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions.convention import (
    BindingNotes,
    Convention,
    container_limits,
    offered,
)
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ContainerDevices,
    DeviceReport,
    DeviceRequest,
    DeviceShare,
    GpuDevice,
    PodShares,
)
from stowplan.plugins.gpu_share.conventions.share_texts import is_number

MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
WHOLE = "nvidia.com/gpu"
INDEX, OF_POD, OF_DEVICE = (
    "ALIYUN_COM_GPU_MEM_IDX",
    "ALIYUN_COM_GPU_MEM_POD",
    "ALIYUN_COM_GPU_MEM_DEV",
)
ASSIGNED, ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
WAITING = "false"


def report(node: Node) -> DeviceReport | None:
    """As many cards as the node offers, each with the same part of its memory.

    Differs: a node that offers whole GPUs as well is not usable.
    """
    if MEMORY not in node.status.allocatable:
        return None
    total, count = offered(node, MEMORY), offered(node, COUNT)
    if not 0 < count <= CARDS_MAX or total < count:
        return DeviceReport(problem=f"allocatable {COUNT} is {count}, {MEMORY} is {total}")
    whole = offered(node, WHOLE)
    if whole > 0:
        return DeviceReport(
            problem=f"allocatable has {MEMORY}, and {WHOLE} is {whole}: another device plugin may "
            "give the same GPUs"
        )
    return DeviceReport(tuple(GpuDevice(str(index), total // count) for index in range(count)))


def request(pod: Pod) -> DeviceRequest | None:
    """The memory that the containers request together; it is on one card."""
    found, problem = container_limits(pod, (MEMORY,))
    wanted = [(index, amount) for index, amounts in found if (amount := amounts[MEMORY])]
    memory = sum(amount for _, amount in wanted)
    first = wanted[0][0] if wanted else 0
    if not memory and not problem:
        return None
    if COUNT in pod.labels:
        problem = problem or f"label {COUNT}: memory over several cards is not supported"
    part = ContainerDevices(first, 1, memory)
    return DeviceRequest(CONVENTION.name, (part,), problem=problem)


def shares(pod: Pod) -> PodShares | None:
    """What the pod's annotations say that it has."""
    notes = pod.metadata.annotations
    index, memory = notes.get(INDEX), notes.get(OF_POD)
    if index is None or memory is None or not (is_number(index) and is_number(memory)):
        return None
    return ((DeviceShare(str(int(index)), int(memory)),),)


def notes(pod: Pod, request: DeviceRequest, given: PodShares, node: Node) -> BindingNotes:
    """The annotations by which the device plugin finds the pod and its card."""
    ((share,),) = given
    found = report(node)
    sizes = {device.id: device.memory for device in found.devices} if found is not None else {}
    return BindingNotes(
        {
            INDEX: share.id,
            OF_POD: str(share.memory),
            OF_DEVICE: str(sizes.get(share.id, 0)),
            ASSIGNED: WAITING,
        },
        {ASSUME_TIME: "ns"},
    )


CONVENTION = Convention("aliyun-gpu-mem", "Aliyun gpushare", report, request, shares, notes)
