"""Annotations about cards of pods that KAI-Scheduler's webhook refuses.

Without it the scheduler reads them another way: what is no number as if it were not there, and a
pod with parts of 0 cards fits nowhere. Pods with another `schedulerName` are not looked at.

Source: KAI-Scheduler, pkg/binder/plugins/gpusharing/gpu-request, pkg/admission/webhook/v1alpha2.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.annotation_numbers import decimal, unsigned_number

SCHEDULER = "kai-scheduler"
FRACTION, MEMORY, DEVICES = "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"
MPS = "mps"
GPU = "nvidia.com/gpu"


_TEMPLATES = ("spec.template", "spec.jobTemplate.spec.template")


def card_causes(obj: Tree) -> Iterator[Cause]:
    """Causes of a pod, or of the template of a workload."""
    return pod_card_causes(obj) if obj.get("kind") == "Pod" else _template_causes(obj)


def _template_causes(obj: Tree) -> Iterator[Cause]:
    for path in _TEMPLATES:
        template = field_checks.get(obj, *path.split("."))
        if isinstance(template, dict):
            yield from pod_card_causes(template, path)


def pod_card_causes(pod: Tree, path: str = "") -> Iterator[Cause]:
    """Causes of a pod, or of a template at `path`."""
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    notes = meta.get("annotations") or {}
    if spec.get("schedulerName") != SCHEDULER or not notes:
        return
    place = f"{path}.metadata.annotations" if path else "metadata.annotations"
    yield from _together(notes, spec, place)
    memory, fraction, devices = (notes.get(name) for name in (MEMORY, FRACTION, DEVICES))
    if memory is not None and not unsigned_number(memory):
        yield invalid(f"{place}[{MEMORY}]", memory, "must be MiB, a whole number of at least 1")
    if fraction is not None and not 0 < decimal(fraction) < 1:
        yield invalid(f"{place}[{FRACTION}]", fraction, "must be more than 0 and less than 1")
    if devices is not None and not unsigned_number(devices):
        yield invalid(f"{place}[{DEVICES}]", devices, "must be a whole number of at least 1")


def _together(notes: Tree, spec: Tree, place: str) -> Iterator[Cause]:
    """Annotations that exclude or need each other."""
    has_part = FRACTION in notes or MEMORY in notes
    if FRACTION in notes and MEMORY in notes:
        yield forbidden_field(f"{place}[{MEMORY}]", f"may not be set with {FRACTION}")
    elif has_part and _has_cards(spec):
        name = FRACTION if FRACTION in notes else MEMORY
        yield forbidden_field(f"{place}[{name}]", f"may not be set with a limit of {GPU}")
    if not has_part and DEVICES in notes:
        yield forbidden_field(f"{place}[{DEVICES}]", f"needs {FRACTION} or {MEMORY}")
    if not has_part and notes.get(MPS) == "true":
        yield forbidden_field(f"{place}[{MPS}]", f"needs {FRACTION} or {MEMORY}")


def _has_cards(spec: Tree) -> bool:
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return any(GPU in ((one.get("resources") or {}).get("limits") or {}) for one in containers)
