"""BindRequest: KAI-Scheduler's decision where a pod goes, which its binder carries out.

Until it is carried out the pod has no node, and counts as placed all the same. A card that pods
share is held by a reservation pod of the binder.

Source: KAI-Scheduler, pkg/apis/scheduling/v1alpha2/bindrequest_types.go,
pkg/scheduler/api/bindrequest_info, pkg/scheduler/api/pod_info, pkg/scheduler/cache/cache.go
(createBindRequest), pkg/common/resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec import field
from msgspec.structs import replace

from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.zone_placement import (
    PREDICTED_ANNOTATION,
    KaiZonePlacement,
    zones_text,
)
from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.pod import Pod

KAI_BIND_API_VERSION = "scheduling.run.ai/v1alpha2"
RECEIVED = "received-resource-type"
"""Annotation that says what a pod received: whole cards, or a part of some."""
CARD_LABEL = "runai-gpu-group"
"""Label with the shared card of a pod; with `/ID` after it where it has several."""
FRACTION = "Fraction"
"""Received by a pod with a part of cards."""
RESERVATION_NAME = "kai-resource-reservation"
"""Namespace of reservation pods, and the value of their label `app`."""
SUCCEEDED, FAILED = "Succeeded", "Failed"
"""Phases of a request that the binder has answered."""


class KaiReceivedGpu(Value, frozen=True):
    """What a pod receives. portion: of each card, in decimals."""

    count: int = 0
    portion: str = ""


class KaiBindRequestSpec(Value, frozen=True):
    """`spec` of a bind request, as far as it is read and written."""

    pod_name: str = ""
    selected_node: str = ""
    received_resource_type: str = ""
    selected_gpu_groups: tuple[str, ...] = field(default=(), name="selectedGPUGroups")
    backoff_limit: int | None = None
    received_gpu: KaiReceivedGpu | None = field(default=None, name="receivedGPU")
    predicted_numa_zones: tuple[KaiZonePlacement, ...] = field(
        default=(), name="predictedNUMAZones"
    )

    @property
    def predicted_annotation(self) -> dict[str, str]:
        """The annotation that the binder gives the pod for its NUMA zones, if it has any."""
        zones = self.predicted_numa_zones
        return {PREDICTED_ANNOTATION: zones_text(zones)} if zones else {}


class KaiBindRequestStatus(Value, frozen=True):
    """`status` of a bind request."""

    phase: str = ""
    reason: str = ""
    failed_attempts: int = 0


class KaiBindRequest(NamespacedObject, frozen=True):
    """A BindRequest, scheduling.run.ai/v1alpha2."""

    api_version: str = KAI_BIND_API_VERSION
    spec: KaiBindRequestSpec = KaiBindRequestSpec()
    status: KaiBindRequestStatus = KaiBindRequestStatus()

    @property
    def pod_key(self) -> str:
        """Key of its pod."""
        return f"{self.namespace}/{self.spec.pod_name}"

    @property
    def is_given_up(self) -> bool:
        """The binder has failed, and does not try again."""
        limit = self.spec.backoff_limit
        if self.status.phase != FAILED:
            return False
        return limit is None or self.status.failed_attempts >= limit


def placed_as_requested(pod: Pod, request: KaiBindRequest) -> Pod:
    """A pod as it is once its request, for a node that exists, is carried out."""
    spec, meta = request.spec, pod.metadata
    if request.is_given_up or pod.is_finished:
        return pod
    labels, notes = meta.labels, meta.annotations
    if spec.selected_gpu_groups:
        labels = {key: text for key, text in labels.items() if not _is_of_card(key)}
        labels |= card_labels(spec.selected_gpu_groups)
    if spec.received_resource_type:
        notes = {**notes, RECEIVED: spec.received_resource_type}
    # The request counts before the annotation of an earlier binding, as in KAI.
    notes = {**notes, **spec.predicted_annotation}
    meta = replace(meta, labels=labels, annotations=notes)
    if pod.node_name:
        return replace(pod, metadata=meta)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=spec.selected_node))


def with_bind_requests(
    pods: Iterable[Pod], objects: Iterable[Object], nodes: Collection[str]
) -> tuple[list[Pod], list[Object]]:
    """Pods as they are once the bind requests among objects are carried out, and the other objects.
    Requests for nodes that do not exist have no effect. nodes: names of those that do."""
    others: list[Object] = []
    requests: dict[str, KaiBindRequest] = {}
    for one in objects:
        if not isinstance(one, KaiBindRequest):
            others.append(one)
        elif one.spec.selected_node in nodes:
            requests[one.pod_key] = one
    placed = (
        pod if (request := requests.get(pod.key)) is None else placed_as_requested(pod, request)
        for pod in pods
    )
    return [*placed], others


def _is_of_card(label: str) -> bool:
    return label.partition("/")[0] == CARD_LABEL


def bind_request_tree(spec: KaiBindRequestSpec, namespace: str, uid: str) -> Tree:
    """The BindRequest of a pod of this uid, as KAI's scheduler makes it."""
    body: Tree = {
        "podName": spec.pod_name,
        "selectedNode": spec.selected_node,
        "receivedResourceType": spec.received_resource_type,
    }
    # What is empty is left out, as Go's encoder does.
    if spec.selected_gpu_groups:
        body["selectedGPUGroups"] = [*spec.selected_gpu_groups]
    if spec.received_gpu is not None:
        count, portion = spec.received_gpu.count, spec.received_gpu.portion
        body["receivedGPU"] = ({"count": count} if count else {}) | {"portion": portion}
    if spec.predicted_numa_zones:
        body["predictedNUMAZones"] = [
            {"zone": one.zone, "amount": dict(one.amount)} for one in spec.predicted_numa_zones
        ]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": spec.pod_name, "uid": uid}
    return {
        "apiVersion": KAI_BIND_API_VERSION,
        "kind": "BindRequest",
        "metadata": {
            "name": spec.pod_name,
            "namespace": namespace,
            "labels": {"selected-node": spec.selected_node},
            "ownerReferences": [owner],
        },
        "spec": body,
    }


def reserves_card(labels: Mapping[str, str]) -> bool:
    """Whether labels are those of a pod that holds a card for others."""
    return labels.get("app") == RESERVATION_NAME


def card_labels(cards: Iterable[str]) -> dict[str, str]:
    """Labels of a pod with parts of these cards."""
    names = tuple(cards)
    if len(names) == 1:
        return {CARD_LABEL: names[0]}
    return {f"{CARD_LABEL}/{name}": name for name in names}
