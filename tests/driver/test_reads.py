"""Reads and watches over kept connections: responses of any length, streams that end, break or are
refused, and connections that the server has closed meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.http_response import RESPONSE_BYTES_MAX
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.connection_pool import (
    CLIENT_CLOSED_TEXT,
    SERVER_CLOSED_TEXT,
    UNREAD_BYTES_MAX,
    ConnectionPool,
    ResponseStream,
)
from tests.driver.test_connection_pool import serving_context

GET = ApiRequest("GET", "/api/v1/pods", timeout_s=60.0)
POST = ApiRequest("POST", "/api/v1/pods", (), b"{}", JSON, 60.0)
WATCH = ApiRequest("GET", "/api/v1/pods", (("watch", "true"),), timeout_s=None)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"

N_PARTS = 400

Act = Callable[[asyncio.StreamWriter], Awaitable[None]]


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def whole(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, more, len(body), body)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class Scripted:
    """A server that does something else with each request. heads: requests. n_connections: so
    far."""

    def __init__(self, *acts: Act) -> None:
        self.acts = list(acts)
        self.heads: list[str] = []
        self.n_connections = 0
        self.url = ""
        self.tasks: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = head.lower().partition("content-length: ")[2].split("\r")[0]
                await reader.readexactly(int(length or 0))
                await self.acts.pop(0)(writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()


def sends(*parts: bytes, closes: bool = False) -> Act:
    """Send these pieces, each in a turn of its own; then close or reset the connection."""

    async def act(writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        if closes:
            writer.transport.abort()

    return act


async def resets(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@asynccontextmanager
async def scripted(*acts: Act) -> AsyncIterator[tuple[Scripted, ApiClient]]:
    one = Scripted(*acts)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, ApiClient(ClientConfig(one.url, "t", token="x")) as api:
        yield one, api
        for task in one.tasks:
            task.cancel()
        await asyncio.gather(*one.tasks)


def test_a_list_may_be_longer_than_any_response_to_a_write() -> None:
    async def steps() -> None:
        body = b"x" * (RESPONSE_BYTES_MAX + 1)
        async with scripted(sends(whole(body)), sends(whole(body))) as (_, api):
            assert (await api.send(GET)).body == body
            answer = await api.send(POST)
            assert "response is longer than" in answer.fault

    run(steps())


def test_what_a_read_asks_for() -> None:
    async def steps() -> None:
        async with scripted(sends(whole(b"{}"))) as (server, api):
            assert (await api.send(GET)).is_done
            head = server.heads[0]
            assert head.startswith("GET /api/v1/pods HTTP/1.1\r\n")
            for line in ("Accept: application/json", "Authorization: Bearer x"):
                assert f"\r\n{line}\r\n" in head
            # It takes time to compress, and nothing is won on one machine.
            assert "Accept-Encoding" not in head
            far = ConnectionPool("http://api.example", None, "", "t", most=1)
            assert b"\r\nAccept-Encoding: gzip\r\n" in far._encode_request(GET, [])
            assert b"Accept-Encoding" not in far._encode_request(POST, [])

    run(steps())


def test_compressed_bodies_are_unpacked() -> None:
    packed = gzip.compress(b"list" * 1000)
    more = b"Content-Encoding: gzip\r\n"
    head = OK + more + b"Transfer-Encoding: chunked\r\n\r\n"

    async def steps() -> None:
        async with scripted(
            sends(whole(packed, more=more)),
            sends(head, chunk(packed[:20]), chunk(packed[20:]), LAST_CHUNK),
            sends(whole(packed[:-9], more=more)),
            sends(whole(b"nonsense", more=more)),
            sends(whole(b"{}", more=b"Content-Encoding: br\r\n")),
        ) as (_, api):
            assert (await api.send(GET)).body == b"list" * 1000
            async with api.stream(WATCH) as stream:
                assert await all_of(stream) == b"list" * 1000
            assert "gzip body is incomplete" in (await api.send(GET)).fault
            assert "invalid gzip body" in (await api.send(GET)).fault
            assert "unsupported Content-Encoding" in (await api.send(GET)).fault

    run(steps())


def test_compressed_bodies_are_whole_and_bounded() -> None:
    more = b"Content-Encoding: gzip\r\n"
    members = gzip.compress(b"one, ") + gzip.compress(b"two")
    bomb = gzip.compress(b"0" * (RESPONSE_BYTES_MAX + 1))

    async def steps() -> None:
        async with scripted(
            sends(whole(members, more=more)),
            sends(whole(bomb, more=more)),
            sends(whole(bomb, more=more)),
            sends(OK + more + b"\r\n", members[:-4], closes=True),
        ) as (_, api):
            assert (await api.send(GET)).body == b"one, two"
            assert "response is longer than" in (await api.send(POST)).fault
            assert len((await api.send(GET)).body) == RESPONSE_BYTES_MAX + 1
            assert "server closed the connection" in (await api.send(GET)).fault

    run(steps())


def test_informational_responses_and_trailers_do_not_count() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\nRetry-After: 9\r\n\r\n"
    trailer = b"0\r\nContent-Encoding: br\r\nTransfer-Encoding: x\r\n\r\n"

    async def steps() -> None:
        async with scripted(sends(early + whole(b"a")), sends(CHUNKED, chunk(b"b"), trailer)) as (
            _,
            api,
        ):
            first = await api.send(GET)
            assert (first.body, first.retry_after, first.fault) == (b"a", None, "")
            assert (await api.send(GET)).body == b"b"

    run(steps())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_watch_that_is_not_read_takes_no_more_from_the_socket(
    scheme: str, tmp_path: Path
) -> None:
    serving = serving_context(tmp_path) if scheme == "https" else None
    trusting = None if serving is None else ssl.create_default_context()
    if trusting is not None:
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    n_sent, part = 0, chunk(b"x" * (1 << 16))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal n_sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        try:
            while n_sent < N_PARTS:
                writer.write(part)
                await writer.drain()
                n_sent += 1
            writer.write(LAST_CHUNK)
            await writer.drain()
        finally:
            writer.close()

    async def steps() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        pool = ConnectionPool(f"{scheme}://127.0.0.1:{port}", trusting, "", "t", 4)
        async with server, pool.stream(WATCH, []) as stream:
            assert isinstance(stream, ResponseStream)
            stopped = -1
            while stopped != n_sent or not n_sent:
                stopped = n_sent
                await asyncio.sleep(0.2)
            assert n_sent < N_PARTS
            assert stream._n_unread < UNREAD_BYTES_MAX + (1 << 20)
            assert len(await all_of(stream)) == N_PARTS << 16
        await pool.close()

    run(steps())


def test_a_read_is_sent_again_if_the_kept_connection_was_closed_and_a_write_is_not() -> None:
    async def steps() -> None:
        async with scripted(
            sends(whole(b"a")), resets, sends(whole(b"b")), resets, sends(whole(b"c"))
        ) as (server, api):
            assert (await api.send(GET)).body == b"a"
            assert (await api.send(GET)).body == b"b"
            answer = await api.send(POST)
            assert answer.status == 0
            assert answer.fault
            assert (await api.send(GET)).body == b"c"
            assert len(server.heads) == 5

    run(steps())


def test_a_read_on_a_new_connection_is_not_sent_again() -> None:
    async def steps() -> None:
        async with scripted(resets) as (server, api):
            assert (await api.send(GET)).status == 0
            assert len(server.heads) == 1

    run(steps())


def test_data_that_is_cut_off_is_no_answer() -> None:
    async def steps() -> None:
        async with scripted(sends(whole(b"items")[:-2], closes=True)) as (_, api):
            answer = await api.send(GET)
            assert answer.status == 0
            assert answer.fault.startswith("response truncated: ")

    run(steps())


def test_who_cannot_be_reached_is_named() -> None:
    async def steps() -> None:
        async with ApiClient(ClientConfig("http://127.0.0.1:1", "t")) as api:
            text = "Cannot connect to host 127.0.0.1:1 ssl:default [Connect call failed"
            assert (await api.send(GET)).fault.startswith(text)
            assert (await api.send(POST)).fault.startswith("[Errno")
            with pytest.raises(ConnectionError, match="Cannot connect to host"):
                async with api.stream(WATCH):
                    pass

    run(steps())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_what_arrives_while_a_watch_is_left_is_read_at_once(scheme: str, tmp_path: Path) -> None:
    serving = serving_context(tmp_path) if scheme == "https" else None
    trusting = None if serving is None else ssl.create_default_context()
    if trusting is not None:
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    is_left, is_sent = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + chunk(b"first"))
        await is_left.wait()
        # Each is a record of TLS.
        for number in range(20):
            writer.write(chunk(b"%02d" % number))
            await writer.drain()
        is_sent.set()
        await reader.read()
        writer.close()

    async def steps() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=serving)
        port = server.sockets[0].getsockname()[1]
        pool = ConnectionPool(f"{scheme}://127.0.0.1:{port}", trusting, "", "t", 4)
        async with server, pool.stream(WATCH, []) as stream:
            assert isinstance(stream, ResponseStream)
            assert await stream.readany() == b"first"
            leaving = asyncio.create_task(stream.leave_unread(0.3))
            await asyncio.sleep(0)
            is_left.set()
            await is_sent.wait()
            assert stream._n_unread == 0
            await leaving
            assert await stream.readany() == b"".join(b"%02d" % one for one in range(20))
            # A closed client does not wait for the rest of the time.
            leaving = asyncio.create_task(stream.leave_unread(0.01))
            await asyncio.sleep(0)
            await pool.close()
            await leaving
            with pytest.raises(ConnectionError):
                await stream.readany()

    run(steps())


async def all_of(stream: Any) -> bytes:
    found = b""
    while data := await stream.readany():
        found += data
    return found


def test_a_stream_is_read_as_it_arrives_and_its_connection_is_used_again() -> None:
    async def steps() -> None:
        more = asyncio.Event()

        async def in_two(writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED + chunk(b"first\n"))
            await more.wait()
            writer.write(chunk(b"second\n") + LAST_CHUNK)

        async with scripted(in_two, sends(CHUNKED + LAST_CHUNK), sends(whole(b"{}"))) as (
            server,
            api,
        ):
            async with api.stream(WATCH) as stream:
                assert not isinstance(stream, ApiResponse)
                assert await stream.readany() == b"first\n"
                more.set()
                assert await stream.readany() == b"second\n"
                assert await stream.readany() == b""
                assert await stream.readany() == b""
            async with api.stream(WATCH) as stream:
                assert await all_of(stream) == b""
            assert (await api.send(GET)).body == b"{}"
            assert server.n_connections == 1

    run(steps())


def test_a_refused_stream_is_a_response_and_its_connection_is_used_again() -> None:
    async def steps() -> None:
        refusal = whole(b"no", b"403 Forbidden", b"Content-Type: text/plain\r\n")
        async with scripted(sends(refusal[:-1], refusal[-1:]), sends(whole(b"{}"))) as (
            server,
            api,
        ):
            async with api.stream(WATCH) as answer:
                assert answer == ApiResponse(403, b"no", None, "text/plain")
            assert (await api.send(GET)).is_done
            assert server.n_connections == 1
            assert api.n_sent == {("GET", 403): 1, ("GET", 200): 1}

    run(steps())


def test_a_stream_that_is_left_early_costs_its_connection() -> None:
    async def steps() -> None:
        late = sends(CHUNKED, chunk(b"first\n"), chunk(b"second\n"), LAST_CHUNK)
        async with scripted(late, sends(whole(b"{}"))) as (server, api):
            async with api.stream(WATCH) as stream:
                assert not isinstance(stream, ApiResponse)
                await stream.readany()
            assert (await api.send(GET)).body == b"{}"
            assert server.n_connections == 2

    run(steps())


HALF = chunk(b"first\n") + b"9\r\nhal"
WRONG = b"nonsense\r\n"


@pytest.mark.parametrize(
    ("parts", "arrives", "text"),
    [
        ((CHUNKED, HALF), b"first\nhal", SERVER_CLOSED_TEXT),
        ((CHUNKED + HALF,), b"first\nhal", SERVER_CLOSED_TEXT),
        ((CHUNKED + chunk(b"first\n"), WRONG), b"first\n", "invalid HTTP response"),
        ((CHUNKED + WRONG,), b"", "invalid HTTP response"),
        ((b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\nno",), b"", SERVER_CLOSED_TEXT),
    ],
)
def test_a_stream_that_breaks_raises_after_what_has_arrived(
    parts: tuple[bytes, ...], arrives: bytes, text: str
) -> None:
    found: list[bytes] = []

    async def follow(api: ApiClient) -> None:
        async with api.stream(WATCH) as stream:
            assert not isinstance(stream, ApiResponse)
            while data := await stream.readany():
                found.append(data)

    async def steps() -> None:
        async with scripted(sends(*parts, closes=True)) as (_, api):
            with pytest.raises(ConnectionError, match=f"{text}|reset by peer"):
                await follow(api)
            assert b"".join(found) == arrives

    run(steps())


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def steps() -> None:
        async def closing(writer: asyncio.StreamWriter) -> None:
            writer.write(OK + b"\r\nall there is")
            writer.close()

        async with scripted(closing) as (_, api), api.stream(WATCH) as stream:
            assert await all_of(stream) == b"all there is"

    run(steps())


@pytest.mark.parametrize("has_head", [True, False])
def test_a_closed_client_ends_its_streams(has_head: bool) -> None:
    async def steps() -> None:
        never = asyncio.Event()

        async def hanging(writer: asyncio.StreamWriter) -> None:
            writer.write(CHUNKED if has_head else b"")
            await never.wait()

        async def follow(api: ApiClient) -> None:
            async with api.stream(WATCH) as stream:
                await all_of(stream)

        async with scripted(hanging) as (server, api):
            following = asyncio.ensure_future(follow(api))
            while not server.heads:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
            await api.close()
            with pytest.raises(ConnectionError, match=CLIENT_CLOSED_TEXT):
                await following

    run(steps())
