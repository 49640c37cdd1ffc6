"""Reservation pods: each has a whole GPU of a node from the kubelet, so that other pods share it.

A scheduler cannot ask the kubelet for a certain card, nor learn from it which one a pod got. So a
pod is created on the node that requests one, and the program in it writes the id of the card that
it sees on its own pod. Pods that share the card own the reservation pod: the garbage collector
deletes it with the last of them.

Source: NVIDIA/KAI-Scheduler, pkg/binder/binding/resourcereservation (its annotation; its pods are
in a namespace of their own and are deleted by its binder).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from stowplan.objects.pod import Pod

GPU = "nvidia.com/gpu"
RESERVATION_LABEL = "stowplan.dev/gpu-reservation"
"""Label of reservation pods: the index that the scheduler has given to the card, from 0."""
DEVICE_ID_KEY = "run.ai/reserve_for_gpu_index"
"""Annotation that the program in a reservation pod writes: the id of its GPU."""
_NODE_NAME_MAX = 200
_INDEX = re.compile(r"[0-9]{1,4}")
_DEVICE_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:/]{0,127}")


class CardReservations(msgspec.Struct, frozen=True):
    """The cards of a node that have to be reserved before a pod is bound.

    cards: their indexes. image: of the program that writes the id. service_account: as which it
    does so. devices_key: annotation of the bound pod that gets the ids, joined by commas.
    """

    cards: tuple[str, ...]
    image: str
    service_account: str
    devices_key: str


def reservation_name(node: str, card: str) -> str:
    """Name of the reservation pod of a card."""
    if len(node) > _NODE_NAME_MAX:
        node = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"gpu-reservation-{node}-{card}"


def reserved_card(pod: Pod) -> str | None:
    """Index of the card that a reservation pod has; None for other pods."""
    card = pod.labels.get(RESERVATION_LABEL)
    if card is None or _INDEX.fullmatch(card) is None:
        return None
    node = pod.node_name
    return card if node and pod.name == reservation_name(node, card) else None


def device_id(pod: Pod) -> str | None:
    """Id of the GPU that a reservation pod has found; None while it has not, or writes none."""
    text = pod.metadata.annotations.get(DEVICE_ID_KEY, "")
    return text if _DEVICE_ID.fullmatch(text) else None


def reservation_pod(
    asked: CardReservations, node: str, card: str, owner: dict[str, str]
) -> dict[str, Any]:
    """The manifest. owner: an entry of ownerReferences."""
    names = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    variables = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in names.items()
    ]
    container = {
        "name": "gpu-reservation",
        "image": asked.image,
        "env": variables,
        "resources": {"limits": {GPU: "1"}, "requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": reservation_name(node, card),
            "labels": {RESERVATION_LABEL: card},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "serviceAccountName": asked.service_account,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        },
    }
