"""Binding by KAI-Scheduler's binder: a BindRequest is created, and its answer waited for.

The steps are generators of requests, as those of `api_calls`. A request that is not answered in
time is deleted, so that it is not carried out later; what has become of the pod is then read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import msgspec

from stowplan.client import requests
from stowplan.client.binding.node_locking import CONFLICT, NOT_FOUND, Send
from stowplan.client.responses import ApiResponse, decode_body, error_message
from stowplan.messages.effects import Bind
from stowplan.objects.kai.bind_request import SUCCEEDED, KaiBindRequest, KaiBindRequestSpec

POLLS_MAX = 120
"""How often a request is looked at until it is answered; the pause between is `pause`."""
TIMEOUT = 408
"""Status of a request that may have been carried out."""
TRIES = 3
"""How often a request is created while another one has its name."""
NO_BINDER = (
    "BindRequests are not served: pods get parts of GPUs from KAI's binder only; with "
    "`gpuSharing: false` they wait"
)


class BindAnswer(msgspec.Struct, frozen=True):
    """reason: why the pod is not bound, "" if it is. is_known: False where it may be all the
    same."""

    reason: str = ""
    is_known: bool = True


def bind_by_request(
    send: Send, effect: Bind, spec: KaiBindRequestSpec, pause: Callable[[], Any]
) -> Generator[Any, ApiResponse | None, BindAnswer]:
    """Have KAI's binder bind a pod. send: the steps of one request. pause: a step that waits until
    the next look."""
    refused = yield from _create(send, effect, spec)
    if refused:
        return BindAnswer(refused)
    for _ in range(POLLS_MAX):
        answer = yield from send(requests.read_bind_request(effect.namespace, effect.name))
        if answer.status == NOT_FOUND:
            return BindAnswer("its BindRequest is not there", is_known=False)
        found = decode_body(answer.body, KaiBindRequest) if answer.is_done else None
        if found is not None and found.status.phase == SUCCEEDED:
            return BindAnswer()
        if found is not None and found.is_given_up:
            yield from send(requests.delete_bind_request(found))
            return BindAnswer(found.status.reason or "KAI's binder has given up")
        yield pause()
    answer = yield from send(requests.read_bind_request(effect.namespace, effect.name))
    found = decode_body(answer.body, KaiBindRequest) if answer.is_done else None
    if found is not None:
        yield from send(requests.delete_bind_request(found))
    return BindAnswer("KAI's binder has not answered its BindRequest", is_known=False)


def _create(
    send: Send, effect: Bind, spec: KaiBindRequestSpec
) -> Generator[Any, ApiResponse | None, str]:
    """Create the request; why it cannot be, "" if it is. One of the same name that asks for
    something else is of an earlier attempt, or of a pod that is gone."""
    for _ in range(TRIES):
        request = requests.create_bind_request(spec, effect.namespace, effect.uid)
        answer = yield from send(request)
        if answer.is_done:
            return ""
        if answer.status == NOT_FOUND:
            return NO_BINDER
        if not 400 <= answer.status < 500 or answer.status == TIMEOUT:
            # It may have been created all the same, and is carried out then.
            return ""
        if answer.status != CONFLICT:
            return f"creating its BindRequest: {error_message(answer)}"
        answer = yield from send(requests.read_bind_request(effect.namespace, effect.name))
        found = decode_body(answer.body, KaiBindRequest) if answer.is_done else None
        if found is None:
            continue
        owners = {one.uid for one in found.metadata.owner_references}
        if effect.uid in owners and found.spec == spec and not found.is_given_up:
            return ""
        yield from send(requests.delete_bind_request(found))
    return "another BindRequest has its name"
