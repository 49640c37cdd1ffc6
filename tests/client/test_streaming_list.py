"""After a refused streaming list, in any wording, lists are paged for good."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stowplan.client.informer import Informer
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import NODES, PODS, RESOURCES, ApiResource
from stowplan.client.responses import ApiResponse
from stowplan.objects.encoding.duration import SECOND

NOW = 1_000 * SECOND
GROUPS = next(one for one in RESOURCES if one.plural == "podgroups")
NO_PROGRESS = (
    "a watch stream was requested by the client but the required storage feature "
    "RequestWatchProgress is disabled"
)


def informer_of(resource: ApiResource = PODS) -> Informer:
    return Informer(resource, np.random.default_rng(1))


def asked(informer: Informer, now: int) -> tuple[str, int]:
    """What is asked for next ("stream", "list", "watch") and when."""
    request = informer.next(now)
    while isinstance(request, int):
        now = request
        request = informer.next(now)
    query = dict(request.query)
    if "sendInitialEvents" in query:
        return "stream", now
    return ("watch" if request.is_watch else "list"), now


def listing(version: str = "7") -> ApiResponse:
    return ApiResponse(200, json.dumps({"metadata": {"resourceVersion": version}}).encode())


def status(code: int, reason: str, message: str) -> bytes:
    tree = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return json.dumps(tree).encode()


def error_event(code: int, reason: str, message: str) -> bytes:
    tree = json.loads(status(code, reason, message))
    return json.dumps({"type": "ERROR", "object": tree}).encode() + b"\n"


def relisted(informer: Informer) -> str:
    """What is asked for when the version of a watch has expired."""
    assert asked(informer, NOW)[0] == "watch"
    informer.answered(ApiResponse(410, status(410, "Expired", "too old resource version")), NOW)
    return asked(informer, NOW)[0]


REFUSALS = [
    ApiResponse(400, status(400, "BadRequest", "unknown parameter")),
    ApiResponse(403, status(403, "Forbidden", "sendInitialEvents is forbidden for watch")),
    ApiResponse(404, b"404 page not found\n"),
    ApiResponse(405, status(405, "MethodNotAllowed", "the server does not allow this method")),
    ApiResponse(406, b"only application/xml"),
    ApiResponse(415, b"unsupported media type"),
    ApiResponse(422, status(422, "Invalid", 'ListOptions.meta.k8s.io "" is invalid')),
    ApiResponse(422, b""),
    ApiResponse(500, status(500, "InternalError", NO_PROGRESS)),
    ApiResponse(501, b"not implemented"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda answer: str(answer.status))
@pytest.mark.parametrize("resource", [PODS, GROUPS], ids=lambda resource: resource.plural)
def test_any_definite_refusal_leads_to_a_paged_list_at_once_and_is_remembered(
    refusal: ApiResponse, resource: ApiResource
) -> None:
    informer = informer_of(resource)
    assert asked(informer, NOW) == ("stream", NOW)
    assert informer.answered(refusal, NOW) == []
    assert asked(informer, NOW) == ("list", NOW)
    assert informer.stream_refusal
    informer.answered(listing(), NOW)
    assert (informer.is_synced, informer.is_served, informer.fault) == (True, True, "")
    assert relisted(informer) == "list"


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (500, "InternalError", NO_PROGRESS),
        (400, "BadRequest", "sendInitialEvents"),
        (403, "Forbidden", "no streaming lists"),
        (0, "", ""),
    ],
)
def test_an_error_event_in_the_stream_is_a_refusal_too(
    code: int, reason: str, message: str
) -> None:
    informer = informer_of()
    assert asked(informer, NOW) == ("stream", NOW)
    informer.opened(NOW)
    informer.feed(error_event(code, reason, message), NOW)
    assert informer.is_closed
    assert message in informer.stream_refusal
    assert asked(informer, NOW) == ("list", NOW)
    informer.answered(listing(), NOW)
    assert informer.is_synced
    assert relisted(informer) == "list"


def test_each_resource_tries_its_own_streaming_list() -> None:
    refused, other = informer_of(), informer_of(NODES)
    refused.answered(REFUSALS[0], NOW)
    assert asked(other, NOW)[0] == "stream"


@pytest.mark.parametrize(
    "answer",
    [
        ApiResponse(0, fault="connection refused"),
        ApiResponse(401, b"Unauthorized"),
        ApiResponse(408),
        ApiResponse(429, b"", 3.0),
        ApiResponse(502),
        ApiResponse(503, b"", 2.0),
        ApiResponse(504),
    ],
    ids=lambda answer: str(answer.status),
)
def test_other_errors_retry_the_streaming_list(answer: ApiResponse) -> None:
    informer = informer_of()
    informer.answered(answer, NOW)
    what, when = asked(informer, NOW)
    assert (what, informer.stream_refusal) == ("stream", "")
    assert when > NOW
    assert informer.fault


def test_a_throttled_stream_waits() -> None:
    informer = informer_of()
    informer.opened(NOW)
    informer.feed(error_event(429, "TooManyRequests", "storage is initializing"), NOW)
    what, when = asked(informer, NOW)
    assert what == "stream"
    assert when >= NOW + SECOND


def test_a_forbidden_list_is_reported_by_the_list() -> None:
    informer = informer_of()
    informer.answered(ApiResponse(403, status(403, "Forbidden", 'cannot watch "pods"')), NOW)
    assert informer.fault == ""
    text = 'pods is forbidden: User "u" cannot list resource "pods"'
    informer.answered(ApiResponse(403, status(403, "Forbidden", text)), NOW)
    assert (informer.fault, informer.is_synced) == (text, False)
    # One request a time while the right is missing; when it is given, streams are tried again.
    what, when = asked(informer, NOW)
    assert what == "list"
    assert when > NOW
    informer.answered(listing(), when)
    assert informer.fault == ""
    assert relisted(informer) == "stream"


def test_an_absent_resource_is_retried_by_lists() -> None:
    informer = informer_of(GROUPS)
    absent = ApiResponse(404, b"404 page not found\n")
    informer.answered(absent, NOW)
    informer.answered(absent, NOW)
    assert (informer.is_synced, informer.is_served) == (True, False)
    assert informer.stream_refusal == ""
    what, when = asked(informer, NOW)
    assert what == "list"
    assert when > NOW


def test_an_expired_page_keeps_the_refusal() -> None:
    informer = informer_of()
    informer.answered(REFUSALS[0], NOW)
    informer.answered(ApiResponse(410, status(410, "Expired", "continue token expired")), NOW)
    what, when = asked(informer, NOW)
    request = informer.next(when)
    assert isinstance(request, ApiRequest)
    assert what == "list"
    assert "limit" not in dict(request.query)
