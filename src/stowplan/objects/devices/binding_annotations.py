"""Annotations that a binding adds to a pod with shared GPUs: which of them it has been given.

A pod that is created again in its place does not have them: its template has none.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.objects.devices.gpu_cards import ASSUME_TIME_KEY, INDEX_KEY
from stowplan.objects.pod import Pod

BINDING_ANNOTATIONS = frozenset(
    (
        INDEX_KEY,
        ASSUME_TIME_KEY,
        "volcano.sh/vgpu-node",
        "volcano.sh/vgpu-time",
        "volcano.sh/vgpu-ids-new",
        "volcano.sh/devices-to-allocate",
        "volcano.sh/bind-phase",
        "volcano.sh/bind-time",
        "hami.io/vgpu-node",
        "hami.io/vgpu-time",
        "hami.io/vgpu-devices-to-allocate",
        "hami.io/vgpu-devices-allocated",
        "hami.io/bind-phase",
        "hami.io/bind-time",
        "ALIYUN_COM_GPU_MEM_IDX",
        "ALIYUN_COM_GPU_MEM_POD",
        "ALIYUN_COM_GPU_MEM_DEV",
        "ALIYUN_COM_GPU_MEM_ASSIGNED",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME",
        "stowplan.dev/gpu-cards",
        "received-resource-type",
        "stowplan.dev/scv-cards",
        "stowplan.dev/gpu-devices",
    )
)
"""Of all conventions."""


def without_binding_annotations(pod: Pod) -> Pod:
    """The pod as its template has it. An index of cards that the template prescribes is lost: it
    cannot be distinguished from one that a binding has added."""
    notes = pod.metadata.annotations
    if not BINDING_ANNOTATIONS & notes.keys():
        return pod
    kept = {key: text for key, text in notes.items() if key not in BINDING_ANNOTATIONS}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))
