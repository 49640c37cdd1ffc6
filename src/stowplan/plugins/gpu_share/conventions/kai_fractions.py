"""KAI's fractions: a part of the memory of one or several GPUs.

The scheduler does not choose the card: it puts pods into groups, and a reservation pod of KAI's
binder finds out which card the kubelet gives to a group. Here a group is a card of the model, so
this convention is for simulation and for answers about a cluster. A pod that is bound by it on a
live cluster gets no device without KAI's binder.

Source: NVIDIA/KAI-Scheduler, pkg/common/constants and pkg/scheduler/api.
"""

from __future__ import annotations

import re
from decimal import Decimal

from stowplan.objects.devices.gpu_cards import CARDS_MAX
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.conventions import hami
from stowplan.plugins.gpu_share.conventions.convention import (
    BindingNotes,
    Convention,
    container_limits,
    offered,
)
from stowplan.plugins.gpu_share.conventions.counted_gpus import (
    MIG_LABEL,
    PRODUCT_LABEL,
    SHARING_LABEL,
)
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ALL_CORES,
    ContainerDevices,
    DeviceReport,
    DeviceRequest,
    DeviceShare,
    GpuDevice,
    PodShares,
)
from stowplan.plugins.gpu_share.conventions.share_texts import is_number

GPU = "nvidia.com/gpu"
FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
NUM_DEVICES, CONTAINER = "gpu-fraction-num-devices", "gpu-fraction-container-name"
REQUEST_ANNOTATIONS = (FRACTION, MEMORY, NUM_DEVICES, CONTAINER)
RECEIVED = "received-resource-type"
CARDS = "stowplan.dev/gpu-cards"
"""Written by a simulation: the cards of a pod and the memory that it has of each."""

MEMORY_LABEL = "nvidia.com/gpu.memory"
UNKNOWN_MEMORY = 100_000
"""Memory of a card that the node does not tell: fractions are parts of it."""

_FRACTION = re.compile(r"0?\.[0-9]{1,6}")


def report(node: Node) -> DeviceReport | None:
    """A card for each `nvidia.com/gpu` that the node offers, unless they are shared already."""
    count = offered(node, GPU)
    if count <= 0 or hami.REGISTER in node.metadata.annotations:
        return None
    if count > CARDS_MAX:
        return DeviceReport(problem=f"allocatable {GPU} is {count}: more than {CARDS_MAX} cards")
    sharing = node.labels.get(SHARING_LABEL, "none")
    if sharing != "none":
        return DeviceReport(problem=f"label {SHARING_LABEL} is {sharing}: cards are not known")
    if node.labels.get(MIG_LABEL, "none") not in ("none", "mixed"):
        return DeviceReport(problem=f"label {MIG_LABEL} is single: cards are not known")
    text = node.labels.get(MEMORY_LABEL, "")
    memory = int(text) if is_number(text) and int(text) else UNKNOWN_MEMORY
    model = node.labels.get(PRODUCT_LABEL, "")
    return DeviceReport(tuple(GpuDevice(str(i), memory, model) for i in range(count)))


def request(pod: Pod) -> DeviceRequest | None:
    """The fraction or the memory that the annotations request, or whole devices."""
    notes = pod.metadata.annotations
    whole = _whole_devices(pod)
    if FRACTION not in notes and MEMORY not in notes:
        return whole
    problem = _problem(pod, has_whole=whole is not None)
    if problem:
        return DeviceRequest(CONVENTION.name, (ContainerDevices(0, 1),), problem=problem)
    count = int(notes.get(NUM_DEVICES, "1"))
    index = _container_index(pod)
    memory = int(notes.get(MEMORY, "0"))
    millionths = int(Decimal(notes.get(FRACTION, "0")) * 1_000_000)
    part = ContainerDevices(index, count, memory, millionths=millionths)
    return DeviceRequest(CONVENTION.name, (part,))


def _whole_devices(pod: Pod) -> DeviceRequest | None:
    found, problem = container_limits(pod, (GPU,))
    parts = [
        ContainerDevices(index, amount, 0, 100, ALL_CORES)
        for index, amounts in found
        if (amount := amounts[GPU])
    ]
    if not parts and not problem:
        return None
    return DeviceRequest(CONVENTION.name, tuple(parts), is_count_elsewhere=True, problem=problem)


def _problem(pod: Pod, *, has_whole: bool) -> str:
    notes = pod.metadata.annotations
    if FRACTION in notes and MEMORY in notes:
        return f"annotations {FRACTION} and {MEMORY} exclude each other"
    if has_whole:
        return f"annotations {FRACTION} and {MEMORY} exclude {GPU}"
    fraction, memory, count = notes.get(FRACTION), notes.get(MEMORY), notes.get(NUM_DEVICES, "1")
    if fraction is not None and (_FRACTION.fullmatch(fraction) is None or not Decimal(fraction)):
        return f"annotation {FRACTION}: got {fraction[:40]!r}, wanted more than 0 and less than 1"
    if memory is not None and not (is_number(memory) and int(memory)):
        return f"annotation {MEMORY}: got {memory[:40]!r}, wanted MiB, a whole number of at least 1"
    if not (is_number(count) and int(count)):
        return f"annotation {NUM_DEVICES}: got {count[:40]!r}, wanted a whole number of at least 1"
    if _container_index(pod) < 0:
        return f"annotation {CONTAINER}: no container has the name {notes[CONTAINER][:60]!r}"
    return ""


def _container_index(pod: Pod) -> int:
    """Index of the container that gets the part; -1 for an unknown name."""
    name = pod.metadata.annotations.get(CONTAINER)
    if name is None:
        return 0
    names = [container.name for container in pod.spec.containers]
    return names.index(name) if name in names else -1


def shares(pod: Pod) -> PodShares | None:
    """What a simulation has given to the pod; None for a pod of a live cluster, whose label names a
    group and no card."""
    text = pod.metadata.annotations.get(CARDS)
    if text is None:
        return None
    found = []
    for entry in text.split(","):
        card, _, memory = entry.partition(":")
        if not (is_number(card) and is_number(memory)):
            return None
        found.append(DeviceShare(card, int(memory)))
    return (tuple(found),)


def notes(pod: Pod, request: DeviceRequest, given: PodShares, node: Node) -> BindingNotes:
    """What KAI's binder would write, and the cards."""
    cards = ",".join(f"{share.id}:{share.memory}" for container in given for share in container)
    kind = "Regular" if request.is_count_elsewhere else "Fraction"
    return BindingNotes({CARDS: cards, RECEIVED: kind})


CONVENTION = Convention("kai", "KAI", report, request, shares, notes)
