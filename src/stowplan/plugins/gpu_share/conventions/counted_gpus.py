"""Time slicing, MPS and MIG: GPUs that are counts of a node's parts, not cards.

The kubelet's device manager chooses the card, after the pod was bound. A scheduler can neither
choose nor know it, so such pods are placed by amount alone, and messages say so.

Source: NVIDIA k8s-device-plugin and gpu-feature-discovery, their labels and resource names.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.plugins.gpu_share.conventions.convention import offered

COUNTED = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
MIG_PREFIX = "nvidia.com/mig-"
SHARING_LABEL = "nvidia.com/gpu.sharing-strategy"
REPLICAS_LABEL = "nvidia.com/gpu.replicas"
PRODUCT_LABEL = "nvidia.com/gpu.product"
MIG_LABEL = "nvidia.com/mig.strategy"
NOT_KNOWN = "which card a pod gets is chosen by the kubelet, not by a scheduler"


class CountedAs(StrEnum):
    """What one of a counted resource is."""

    TIME_SLICES = "time slices of cards, of which two may be on one card"
    MPS_PARTS = "equal parts of cards (MPS), of which two may be on one card"
    MIG_PARTITIONS = "MIG partitions of cards"


def counted_as(node: Node, resource: str) -> CountedAs | None:
    """What a resource of a node counts; None for whole cards, and for what is no GPU."""
    if resource.startswith(MIG_PREFIX):
        return CountedAs.MIG_PARTITIONS
    if resource not in COUNTED:
        return None
    labels = node.labels
    product, sharing = labels.get(PRODUCT_LABEL, ""), labels.get(SHARING_LABEL, "")
    if sharing == "mps":
        return CountedAs.MPS_PARTS
    replicas = labels.get(REPLICAS_LABEL, "")
    is_shared = product.endswith("-SHARED") or (replicas.isdigit() and int(replicas) > 1)
    if sharing == "time-slicing" or is_shared or resource == COUNTED[1]:
        return CountedAs.TIME_SLICES
    if labels.get(MIG_LABEL) == "single" and "-MIG-" in product:
        return CountedAs.MIG_PARTITIONS
    return None


def counted_gpu_notes(pods: Iterable[Pod], nodes: Iterable[Node]) -> list[str]:
    """What cannot be said of the GPUs of these pods, a line for each resource and what it counts;
    nothing of pods that no node offers such a resource to."""
    found = _counted_resources(nodes)
    if not found:
        return []
    asked: set[str] = set()
    # Pods of one template share its spec.
    for pod in {id(pod.spec): pod for pod in pods}.values():
        asked.update(name for name, amount in requested(pod).items() if amount > 0)
    return [
        f"{resource} counts {kind.value}: {NOT_KNOWN}"
        for resource, kind in sorted(found)
        if resource in asked
    ]


def _counted_resources(nodes: Iterable[Node]) -> set[tuple[str, CountedAs]]:
    found: set[tuple[str, CountedAs]] = set()
    for node in nodes:
        for resource in node.status.allocatable:
            kind = counted_as(node, resource) if resource.startswith("nvidia.com/") else None
            if kind is not None and offered(node, resource) > 0:
                found.add((resource, kind))
    return found
