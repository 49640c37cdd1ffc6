"""A response is the same however its bytes are split."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from httptools import HttpResponseParser
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.client.http_response import (
    HEAD_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    MalformedResponse,
    ResponseParser,
)
from stowplan.client.responses import ApiResponse, parse_retry_after
from tests.contract.client.recorded import as_bytes, exchanges
from tests.soak import examples


def by_length(head: str, body: bytes) -> bytes:
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def in_chunks(head: str, body: bytes) -> bytes:
    sizes = [7, 1, 4096]
    parts, at = [], 0
    while at < len(body):
        part = body[at : at + sizes[len(parts) % 3]]
        at += len(part)
        parts.append(f"{len(part):x};x=1\r\n".encode() + part + b"\r\n")
    end = b"0\r\nTrailer: x\r\n\r\n"
    return f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"".join(parts) + end


def informed(head: str, body: bytes) -> bytes:
    return b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + by_length(head, body)


def recorded() -> list[tuple[Any, bytes]]:
    """(response, body) of what was recorded of writes."""
    found = [one for _, one in exchanges() if "body" in one["response"] and "events" not in one]
    return [(one["response"], as_bytes(one["response"]["body"])) for one in found][::25]


def head_of(response: Any) -> str:
    lines = [f"{name}: {value}" for name, value in response.get("headers", {}).items()]
    kept = [line for line in lines if not line.lower().startswith(("content-l", "transfer", "con"))]
    kept.append(f"Content-Type: {response['headers'].get('Content-Type', '')}")
    return f"HTTP/1.1 {response['status']} Some Reason\r\n" + "".join(f"{k}\r\n" for k in kept)


def read(
    data: bytes, places: list[int], kind: type[ResponseParser] = ResponseParser
) -> tuple[ApiResponse | None, bool]:
    """The answer that pieces come to, and whether the connection may be used again."""
    reply = kind()
    start = 0
    for place in [*sorted({p for p in places if 0 < p < len(data)}), len(data)]:
        answer = reply.feed(data[start:place])
        assert answer is None or place == len(data)
        start = place
    return answer, reply.keep_alive


class Hasty(ResponseParser):
    """Wrong: begins anew with each piece."""

    def feed(self, data: bytes) -> ApiResponse | None:
        self._parser = HttpResponseParser(self)
        return super().feed(data)


Framing = Callable[[str, bytes], bytes]
RECORDED = recorded()
recorded_responses = st.sampled_from(RECORDED)
framings = st.sampled_from([by_length, in_chunks, informed])
cuts = st.lists(st.integers(1, 3000), max_size=6)


def check(
    one: tuple[Any, bytes],
    framed: Framing,
    places: list[int],
    kind: type[ResponseParser] = ResponseParser,
) -> None:
    response, body = one
    headers = response.get("headers", {})
    media = headers.get("Content-Type", "").partition(";")[0].strip()
    if response["status"] in (204, 304):
        return
    wanted = ApiResponse(
        response["status"], body, parse_retry_after(headers.get("Retry-After")), media
    )
    assert read(framed(head_of(response), body), places, kind) == (wanted, True)


@settings(max_examples=examples(80), deadline=None)
@given(recorded_responses, framings, cuts)
def test_recorded_answers_are_read_in_any_pieces(
    one: tuple[Any, bytes], framed: Framing, places: list[int]
) -> None:
    check(one, framed, places)


def test_a_reader_that_forgets_a_piece_is_caught() -> None:
    with pytest.raises((AssertionError, MalformedResponse)):
        check(RECORDED[0], by_length, [60], Hasty)


def test_there_is_something_to_read() -> None:
    assert len(RECORDED) >= 30
    assert len({response["status"] for response, _ in RECORDED}) >= 5


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    reply = ResponseParser()
    assert reply.feed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome ") is None
    assert reply.feed(b"text") is None
    assert reply.ended() == ApiResponse(200, b"some text")
    cut = ResponseParser()
    assert cut.feed(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nshort") is None
    assert cut.ended() is None
    assert cut.status == 201


@pytest.mark.parametrize(
    ("text", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        # What has not been asked for.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 408", False),
    ],
)
def test_whether_another_request_may_follow(text: bytes, keep_alive: bool) -> None:
    reply = ResponseParser()
    assert reply.feed(text) is not None
    assert reply.keep_alive == keep_alive


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES_MAX,
    ],
)
def test_malformed_responses_are_refused(text: bytes) -> None:
    with pytest.raises(MalformedResponse, match=r"invalid|unsupported|longer"):
        ResponseParser().feed(text)


@pytest.mark.parametrize("framing", [b"", b"Content-Length: 999999999\r\n"])
def test_an_endless_response_is_refused(framing: bytes) -> None:
    reply = ResponseParser()
    assert reply.feed(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n") is None
    for _ in range(RESPONSE_BYTES_MAX // (1 << 20) - 1):
        assert reply.feed(b"x" * (1 << 20)) is None
    with pytest.raises(MalformedResponse, match="response is longer than"):
        reply.feed(b"x" * (1 << 20))
    assert reply.status == 200


def test_a_read_response_needs_no_garbage_collector() -> None:
    """Tens of thousands are read in a second."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        reply = ResponseParser()
        assert reply.feed(b"HTTP/1.1 204 No Content\r\n\r\n") is not None
        left = weakref.ref(reply)
        del reply
        assert left() is None
    finally:
        if was_on:
            gc.enable()
