"""Reserving the cards of a node before a binding: reservation pods are created, or shared, and the
ids of their GPUs are waited for.

The steps are generators of requests, as those of `api_calls`. The bound pod becomes an owner of
each reservation pod, so that these end with the last pod that shares them; a binding that is
refused gives them back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from stowplan.client import requests
from stowplan.client.binding.node_locking import CONFLICT, NOT_FOUND, Send
from stowplan.client.responses import ApiResponse, decode_body, error_message
from stowplan.messages.effects import Bind
from stowplan.objects.devices.card_reservation import (
    CardReservations,
    device_id,
    reservation_name,
    reservation_pod,
    reserved_card,
)
from stowplan.objects.pod import Pod

POLLS_MAX = 60
"""How often a reservation pod is looked at until it has its GPU; the pause between is `pause`."""
CHANGES_MAX = 5
"""How often owners are written while others write them."""


class ReservedDevices(msgspec.Struct, frozen=True):
    """ids: of the reserved GPUs. problem: why not all were to be had, "" if they were."""

    ids: tuple[str, ...] = ()
    problem: str = ""


def reserve_cards(
    send: Send, effect: Bind, asked: CardReservations, pause: Callable[[], Any]
) -> Generator[Any, ApiResponse | None, ReservedDevices]:
    """Have the pod own a reservation pod for each card. send: the steps of one request. pause: a
    step that waits until the next look."""
    found: list[str] = []
    for card in asked.cards:
        name = reservation_name(effect.node, card)
        answer = yield from _one_card(send, effect, asked, card, pause)
        if not isinstance(answer, Pod):
            return ReservedDevices((), f"GPU reservation pod {effect.namespace}/{name}: {answer}")
        found.append(device_id(answer) or "")
    return ReservedDevices(tuple(found))


def release_cards(
    send: Send, effect: Bind, asked: CardReservations
) -> Generator[Any, ApiResponse | None, None]:
    """Give back what was reserved for a pod that is not bound. What cannot be given back ends with
    the pod."""
    for card in asked.cards:
        name = reservation_name(effect.node, card)
        for _ in range(CHANGES_MAX):
            answer = yield from send(requests.read_pod_of(effect.namespace, name))
            pod = decode_body(answer.body, Pod) if answer.is_done else None
            if pod is None or reserved_card(pod) is None or not _is_owner(effect, pod):
                break
            request = requests.delete_reservation(pod)
            if len(pod.metadata.owner_references) > 1:
                others = [one for one in _owners(pod) if one["uid"] != effect.uid]
                request = requests.patch_owners(pod, others)
            answer = yield from send(request)
            if answer.status != CONFLICT:
                break


def _one_card(
    send: Send, effect: Bind, asked: CardReservations, card: str, pause: Callable[[], Any]
) -> Generator[Any, ApiResponse | None, Pod | str]:
    """The reservation pod, once it has its GPU and the pod is an owner; else why not."""
    name = reservation_name(effect.node, card)
    for _ in range(POLLS_MAX):
        answer = yield from send(requests.read_pod_of(effect.namespace, name))
        if answer.status == NOT_FOUND:
            manifest = reservation_pod(asked, effect.node, card, _owner(effect))
            answer = yield from send(requests.create_pod(effect.namespace, manifest))
            if not answer.is_done and answer.status != CONFLICT:
                return f"creating it: {error_message(answer)}"
            continue
        pod: Pod | None = decode_body(answer.body, Pod) if answer.is_done else None
        if pod is None:
            return f"reading it: {error_message(answer)}"
        problem = _problem(pod)
        if problem:
            return problem
        if pod.metadata.deletion_timestamp is None and not _is_owner(effect, pod):
            answer = yield from send(requests.patch_owners(pod, [*_owners(pod), _owner(effect)]))
            if not answer.is_done and answer.status not in (CONFLICT, NOT_FOUND):
                return f"becoming an owner: {error_message(answer)}"
            continue
        if pod.metadata.deletion_timestamp is None and device_id(pod) is not None:
            return pod
        yield pause()
    return "it has not reported its GPU"


def _problem(pod: Pod) -> str:
    if reserved_card(pod) is None:
        return "a pod of this name reserves no GPU"
    if pod.status.phase in ("Succeeded", "Failed"):
        return f"it has ended ({pod.status.phase})"
    return ""


def _owner(effect: Bind) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "name": effect.name, "uid": effect.uid}


def _owners(pod: Pod) -> list[dict[str, str]]:
    return [
        {"apiVersion": one.api_version, "kind": one.kind, "name": one.name, "uid": one.uid}
        for one in pod.metadata.owner_references
    ]


def _is_owner(effect: Bind, pod: Pod) -> bool:
    return any(one.uid == effect.uid for one in pod.metadata.owner_references)
