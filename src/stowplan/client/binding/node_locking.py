"""Taking the lock of a node before a binding, and giving it back when the binding was refused.

The lock is written on condition that the node is unchanged, so that of two schedulers, or of two
pods, one gets it. The steps are generators of requests, as those of `api_calls`.

Differs: an expired lock is replaced in one write, which the originals do in two; a pod's own lock,
left by an attempt whose outcome was lost, is taken over at once where it names the pod.

Source: Project-HAMi/HAMi, pkg/util/nodelock; volcano-sh/volcano, pkg/scheduler/api/devices.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any

from stowplan.client import requests
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse, decode_body, error_message
from stowplan.messages.effects import Bind
from stowplan.objects.devices.node_lock import EXPIRES_S, NodeLock, lock_owner
from stowplan.objects.node import Node

TRIES = 5
"""How often a lock is written while the node changes in between."""
CONFLICT, NOT_FOUND = 409, 404

Steps = Generator[Any, ApiResponse | None, ApiResponse]
Send = Callable[[ApiRequest], Steps]


def take_lock(
    send: Send, effect: Bind, lock: NodeLock, moment: str, now_s: float
) -> Generator[Any, ApiResponse | None, str]:
    """Write the lock of the pod's node; returns why it was not to be had, "" if it was.

    send: the steps of one request. moment: of the lock, RFC 3339. now_s: seconds since 1970.
    """
    text = lock.text(moment, effect.namespace, effect.name)
    for _ in range(TRIES):
        answer = yield from send(requests.read_node(effect.node))
        node = decode_body(answer.body, Node) if answer.is_done else None
        if node is None:
            return f"reading node {effect.node}: {error_message(answer)}"
        held = node.metadata.annotations.get(lock.annotation)
        if held is not None:
            reason = yield from _held(send, effect, lock, held, now_s)
            if reason:
                return reason
        version = node.metadata.resource_version
        request = requests.patch_node_annotation(effect.node, lock.annotation, text, version)
        answer = yield from send(request)
        if answer.is_done:
            return ""
        if answer.status != CONFLICT:
            return f"writing {lock.annotation} of node {effect.node}: {error_message(answer)}"
    return f"writing {lock.annotation} of node {effect.node}: the node changed {TRIES} times"


def release_lock(
    send: Send, effect: Bind, lock: NodeLock, moment: str
) -> Generator[Any, ApiResponse | None, None]:
    """Remove the lock that was written for the pod at `moment`, unless another has taken it over.
    Where that fails the lock expires."""
    text = lock.text(moment, effect.namespace, effect.name)
    for _ in range(TRIES):
        answer = yield from send(requests.read_node(effect.node))
        node = decode_body(answer.body, Node) if answer.is_done else None
        if node is None or node.metadata.annotations.get(lock.annotation) != text:
            return
        version = node.metadata.resource_version
        request = requests.patch_node_annotation(effect.node, lock.annotation, None, version)
        answer = yield from send(request)
        if answer.status != CONFLICT:
            return


def _held(
    send: Send, effect: Bind, lock: NodeLock, text: str, now_s: float
) -> Generator[Any, ApiResponse | None, str]:
    """Why a lock that a node has counts, "" if it does not."""
    taken_s = lock_time_s(text)
    if taken_s is None:
        return (
            f"annotation {lock.annotation} of node {effect.node}: got {text[:60]!r}, wanted a time"
        )
    owner = lock_owner(text)
    if now_s - taken_s > EXPIRES_S or owner == (effect.namespace, effect.name):
        return ""
    if owner is not None:
        answer = yield from send(requests.read_pod_of(*owner))
        if answer.status == NOT_FOUND:
            return ""
    return f"node {effect.node} is locked: {lock.annotation} is {text}"


def lock_time_s(text: str) -> float | None:
    """When a lock was taken, in seconds since 1970; None where that cannot be read."""
    try:
        moment = datetime.fromisoformat(text.split(",")[0])
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
