"""Requests of any kind over a real socket: each gets an answer, none a failure of the server."""

import asyncio
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import msgspec
import pytest
from hypothesis import given, settings

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.driver.http.server_loop import ServerLoop
from tests.contract.test_watchers import serving
from tests.property.test_requests_property import RECORDED_500, REQUESTS
from tests.property.wrong import assert_caught
from tests.soak import examples

TOKEN = "admin-token"


class Loop:
    """A server on a loop of its own, asked from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.done = asyncio.Event()
        self.port = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.ready.wait(240)

    def _run(self) -> None:
        self.loop.run_until_complete(self._serve())
        self.loop.close()

    async def _serve(self) -> None:
        async with serving() as (_, self.port, _loop):
            self.ready.set()
            await self.done.wait()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.done.set)
        self.thread.join(240)

    def ask(self, text: bytes) -> bytes:
        """What comes back, up to the end of the headers or the end of the connection."""
        return asyncio.run_coroutine_threadsafe(self._ask(text), self.loop).result(240)

    async def _ask(self, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text)
            return await asyncio.wait_for(reader.read(1 << 16), 120)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


def written(request: HttpRequest) -> bytes:
    """The request as bytes; what cannot stand in a line of HTTP is encoded or left out."""
    query = urlencode(request.query)
    target = quote(request.path, safe="/%*!'();:@&=+$,[]~") + (f"?{query}" if query else "")
    lines = [f"{request.method} {target or '/'} HTTP/1.1", "Host: x", "Connection: close"]
    for name, value in request.headers.items():
        if name == "authorization":
            value = value.replace("Bearer admin", f"Bearer {TOKEN}")
        kept = re.sub(r"[\r\n\x00]", "", value)
        lines.append(f"{name}: {kept}")
    lines.append(f"Content-Length: {len(request.body)}")
    return "\r\n".join((*lines, "", "")).encode("utf-8", "replace") + request.body


def answered(server: Loop, request: HttpRequest) -> None:
    answer = server.ask(written(request))
    status = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    assert status, answer[:100]
    if status[1].startswith(b"5") and status[1] != b"504":
        assert any(text.encode() in answer for text in RECORDED_500), answer[:500]


@pytest.mark.slow
def test_every_request_is_answered_over_http(server: Loop) -> None:
    @settings(max_examples=examples(150))
    @given(REQUESTS)
    def look(request: HttpRequest) -> None:
        answered(server, request)

    look()
    assert server.ask(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 403 ")


@pytest.mark.slow
def test_a_face_that_breaks_is_caught(monkeypatch: pytest.MonkeyPatch, server: Loop) -> None:
    async def broken(server_loop: ServerLoop, request: msgspec.Struct) -> HttpResponse:
        raise KeyError("metadata")

    monkeypatch.setattr(ServerLoop, "ask", broken)
    assert_caught(lambda request: answered(server, request), REQUESTS)
