"""Ways in which nodes offer GPU devices to be shared, and in which pods request parts of them."""

from __future__ import annotations

from stowplan.plugins.gpu_share.conventions import (
    aliyun_gpu_mem,
    hami,
    kai_fractions,
    kai_reservations,
    volcano_vgpu,
)

CONVENTIONS = {
    one.name: one
    for one in (
        volcano_vgpu.CONVENTION,
        hami.CONVENTION,
        aliyun_gpu_mem.CONVENTION,
        kai_fractions.CONVENTION,
        kai_reservations.CONVENTION,
    )
}
"""By name."""

KAI_NAMES = (kai_fractions.CONVENTION.name, kai_reservations.CONVENTION.name)
"""Those of KAI: the kubelet chooses the card. A profile has one of them at most."""

REQUEST_ANNOTATIONS = (
    *volcano_vgpu.REQUEST_ANNOTATIONS,
    *hami.REQUEST_ANNOTATIONS,
    *kai_fractions.REQUEST_ANNOTATIONS,
)
"""Annotations of pods that are part of what they request."""
FURTHER_ANNOTATIONS = volcano_vgpu.FURTHER_ANNOTATIONS
"""Annotation -> others that count beside it."""
