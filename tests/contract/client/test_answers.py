"""What recorded answers mean to the client."""

from __future__ import annotations

from collections import Counter

import pytest

from stowplan.client.responses import (
    ApiResponse,
    ResponseOutcome,
    error_message,
    is_expired,
    is_unserved_resource,
    parse_retry_after,
    retry_delay_s,
)
from tests.contract.client.recorded import Tree, as_bytes, exchanges


def answer_of(exchange: Tree) -> ApiResponse:
    response = exchange["response"]
    headers = response.get("headers", {})
    return ApiResponse(
        response["status"],
        as_bytes(response.get("body")),
        parse_retry_after(headers.get("Retry-After")),
        headers.get("Content-Type", ""),
    )


def refused() -> list[tuple[str, Tree, ApiResponse]]:
    found = ((where, one, answer_of(one)) for where, one in exchanges())
    return [(where, one, answer) for where, one, answer in found if answer.status >= 300]


def test_every_refusal_is_reported_in_the_words_of_the_server() -> None:
    for where, exchange, answer in refused():
        body = exchange["response"].get("body")
        if isinstance(body, dict) and body.get("message"):
            assert error_message(answer) == as_bytes({"$text": body["message"]}).decode(), where
        else:
            assert error_message(answer), where


def test_every_refusal_of_a_binding_but_500_leaves_the_pod_alone() -> None:
    verdicts: Counter[tuple[int, ResponseOutcome]] = Counter()
    for _, exchange, answer in refused():
        if exchange["request"]["path"].endswith("/binding"):
            verdicts[answer.status, answer.verdict] += 1
    assert {code for code, verdict in verdicts if verdict is ResponseOutcome.REFUSED} == {
        400,
        403,
        404,
        405,
        409,
    }
    assert {code for code, verdict in verdicts if verdict is ResponseOutcome.OPEN} == {500}


def test_what_has_expired_is_seen_in_every_form() -> None:
    seen = Counter(
        exchange["response"]["body"].get("reason", "")
        for _, exchange, answer in refused()
        if is_expired(answer)
    )
    assert seen["Expired"] >= 3
    others = [where for where, _, a in refused() if is_expired(a) and a.status != 410]
    assert others == []


def test_an_unserved_resource_is_distinguished_from_a_missing_object() -> None:
    plain = [answer for _, _, answer in refused() if answer.content_type.startswith("text/plain")]
    absent = [answer for answer in plain if answer.status == 404]
    assert len(absent) >= 5
    assert all(is_unserved_resource(answer) for answer in absent)
    for where, exchange, answer in refused():
        body = exchange["response"].get("body")
        details = body.get("details") if isinstance(body, dict) else None
        if answer.status == 404 and details and details.get("name"):
            assert not is_unserved_resource(answer), where


def test_429_with_and_without_retry_after() -> None:
    waits = {retry_delay_s(a) for _, _, a in refused() if a.verdict is ResponseOutcome.THROTTLED}
    assert waits == {10.0, 1.0}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (ApiResponse(0, fault="reset"), ResponseOutcome.OPEN),
        (ApiResponse(408), ResponseOutcome.OPEN),
        (ApiResponse(500), ResponseOutcome.OPEN),
        (ApiResponse(503), ResponseOutcome.OPEN),
        (ApiResponse(504), ResponseOutcome.OPEN),
        (ApiResponse(307), ResponseOutcome.REFUSED),
        (ApiResponse(401), ResponseOutcome.REFUSED),
        (ApiResponse(422), ResponseOutcome.REFUSED),
        (ApiResponse(429), ResponseOutcome.THROTTLED),
        (ApiResponse(201), ResponseOutcome.DONE),
    ],
)
def test_verdicts(answer: ApiResponse, verdict: ResponseOutcome) -> None:
    assert answer.verdict is verdict


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("0", 0.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert parse_retry_after(text) == seconds
