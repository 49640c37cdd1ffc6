"""The short path of writes: connections are kept, and no response is taken for that of another
request."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client import connection_pool
from stowplan.driver.client.api_client import LEASE_EXPIRED_TEXT, ApiClient
from stowplan.driver.client.connection_pool import (
    OPENING_MAX,
    SERVER_CLOSED_TEXT,
    ConnectionPool,
    HttpConnection,
    LeaseExpired,
)


class TlsContexts(NamedTuple):
    """TLS settings of a server and its clients, None for plain HTTP."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


class Scheme:
    """How the server of a test is spoken to."""

    tls = TlsContexts()


def serving_context(folder: Path) -> ssl.SSLContext:
    """TLS settings of a server."""
    made = self_signed_certificate(["127.0.0.1"], time.time())
    file = folder / "server.pem"
    file.write_text(made.key + made.certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    return serving


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsContexts:
    serving = serving_context(tmp_path_factory.mktemp("tls"))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return TlsContexts(serving, trusting)


@pytest.fixture(autouse=True, params=["http", "https"])
def scheme(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tls: TlsContexts
) -> str:
    """Every test speaks plain HTTP, and TLS."""
    if request.param == "https":
        monkeypatch.setattr(Scheme, "tls", tls)
    return str(request.param)


def url_of(server: asyncio.Server) -> str:
    scheme = "http" if Scheme.tls.server is None else "https"
    return f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def post(name: str, timeout_s: float | None = 10.0) -> ApiRequest:
    return ApiRequest("POST", f"/{name}", (), name.encode(), JSON, timeout_s)


Act = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Raw:
    """A server that does with each request what `act` does. seen: bodies. n_connections: so far."""

    def __init__(self) -> None:
        self.act: Act = echo
        self.seen: list[bytes] = []
        self.heads: list[bytes] = []
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
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
                body = await reader.readexactly(length)
                self.seen.append(body)
                await self.act(body, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()


def reply(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 201 Created\r\n%bContent-Length: %d\r\n\r\n%b" % (more, len(body), body)


async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(body))


@asynccontextmanager
async def raw(act: Act = echo) -> AsyncIterator[Raw]:
    one = Raw()
    one.act = act
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0, ssl=Scheme.tls.server)
    one.url = url_of(server)
    async with server:
        yield one
        for task in one.tasks:
            task.cancel()
        await asyncio.gather(*one.tasks)


@asynccontextmanager
async def client(server: Raw, **more: Any) -> AsyncIterator[ApiClient]:
    async with ApiClient(ClientConfig(server.url, "t", token="x", is_insecure=True), **more) as api:
        yield api


def test_connections_are_kept_and_a_request_leaves_as_it_should() -> None:
    async def steps() -> None:
        async with raw() as server, client(server) as api:
            for i in range(5):
                assert await api.send(post(f"p{i}")) == ApiResponse(201, f"p{i}".encode())
            assert server.n_connections == 1
            head = server.heads[0].decode()
            assert head.startswith("POST /p0 HTTP/1.1\r\nHost: 127.0.0.1:")
            for connection in ("Authorization: Bearer x", "Content-Type: application/json"):
                assert f"\r\n{connection}\r\n" in head
            assert "\r\nUser-Agent: stowplan/" in head

    run(steps())


def test_many_requests_go_side_by_side_and_each_has_its_own_answer() -> None:
    async def slowly(body: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01 if body.endswith(b"7") else 0.001)
        writer.write(reply(body))

    async def steps() -> None:
        async with raw(slowly) as server:
            lines = ConnectionPool(server.url, Scheme.tls.client, "", "t", most=20)
            names = [f"p{i}" for i in range(300)]
            sends = (lines.send(post(name), [], lambda: True) for name in names)
            answers = await asyncio.gather(*sends)
            assert [answer.body.decode() for answer in answers] == names
            assert 1 < server.n_connections <= 20
            await lines.close()

    run(steps())


def test_after_connection_close_the_next_request_reconnects() -> None:
    async def closing(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(body, b"Connection: close\r\n"))
        writer.close()

    async def hanging_up(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(body))
        writer.close()

    async def steps() -> None:
        for act in (closing, hanging_up):
            async with raw(act) as server, client(server) as api:
                for i in range(3):
                    assert (await api.send(post(f"p{i}"))).status == 201
                    await asyncio.sleep(0.02)
                assert server.n_connections == 3

    run(steps())


def test_what_was_idle_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        monkeypatch.setattr(connection_pool, "IDLE_S", 0.02)
        async with raw() as server, client(server) as api:
            await api.send(post("a"))
            await asyncio.sleep(0.05)
            await api.send(post("b"))
            assert server.n_connections == 2

    run(steps())


class Sluggish(ConnectionPool):
    """Goes on a while after the connection is there. began: when it last connected."""

    began = 0.0

    async def _connect(self, limit_s: float) -> HttpConnection:
        self.began = asyncio.get_running_loop().time()
        connection = await super()._connect(limit_s)
        await asyncio.sleep(0.1)
        return connection


def test_a_connection_closed_by_the_server_fails_at_once() -> None:
    async def steps() -> None:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=Scheme.tls.server
        )
        async with server:
            lines = Sluggish(url_of(server), Scheme.tls.client, "", "t", most=5)
            # By its time limit it would fail with another error.
            with pytest.raises(ConnectionError, match=SERVER_CLOSED_TEXT):
                await lines.send(post("a"), [], lambda: True)
            await lines.close()

    run(steps())


def test_what_it_takes_to_connect_counts_to_the_time_a_request_has() -> None:
    async def steps() -> None:
        async with raw(nothing) as server:
            lines = Sluggish(server.url, Scheme.tls.client, "", "t", most=5)
            sending = asyncio.ensure_future(lines.send(post("a", timeout_s=99), [], lambda: True))
            while not lines._busy:
                await asyncio.sleep(0.01)
            assert next(iter(lines._busy)).until <= lines.began + 99
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await lines.close()

    run(steps())


async def nothing(body: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0)


async def reset(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def half(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(body * 10)[:-3])
    writer.close()


async def nonsense(body: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-nonsense\r\n\r\n")


@pytest.mark.parametrize(
    ("act", "status", "fault"),
    [
        (nothing, 0, "request timed out"),
        (reset, 0, "server closed the connection"),
        # The head has come, so it is known to be written.
        (half, 201, "response truncated: server closed the connection"),
        (nonsense, 0, "invalid HTTP response"),
    ],
)
def test_errors_are_responses_and_their_connection_is_not_reused(
    act: Act, status: int, fault: str
) -> None:
    async def steps() -> None:
        async with raw(act) as server, client(server) as api:
            answer = await api.send(post("a", timeout_s=0.3 if act is nothing else 99))
            assert answer.status == status
            assert fault in answer.fault or "reset" in answer.fault
            server.act = echo
            assert (await api.send(post("b"))).body == b"b"
            assert server.n_connections == 2

    run(steps())


class Careless(ConnectionPool):
    """Wrong: keeps the connection of an abandoned request."""

    async def send(self, request: ApiRequest, headers: Any, write_check: Any) -> ApiResponse:
        connection = self._take_idle() or await self._connect(10.0)
        try:
            return await connection.ask(self._encode_request(request, headers), math.inf)
        finally:
            connection._waiting = None
            self._release(connection)


@pytest.mark.parametrize("kind", [ConnectionPool, Careless])
def test_a_late_response_belongs_to_no_other_request(
    kind: type[ConnectionPool],
) -> None:
    async def steps() -> None:
        released = asyncio.Event()

        async def late(body: bytes, writer: asyncio.StreamWriter) -> None:
            await released.wait()
            writer.write(reply(body))

        async with raw(late) as server:
            lines = kind(server.url, Scheme.tls.client, "", "t", most=5)
            first = asyncio.ensure_future(lines.send(post("first"), [], lambda: True))
            while not server.seen:
                await asyncio.sleep(0.01)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            second = asyncio.ensure_future(lines.send(post("second"), [], lambda: True))
            # By its own connection it comes at once, by that of the first not yet.
            while kind is ConnectionPool and len(server.seen) < 2:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0)
            released.set()
            assert ((await second).body == b"second") == (kind is ConnectionPool)
            await lines.close()

    run(steps())


# Opening connections.


class Gated(ConnectionPool):
    """Connects when it may. n_connecting, n_most: connections being opened now, and at most so
    far."""

    n_connecting = n_most = 0

    def __init__(self, url: str) -> None:
        super().__init__(url, Scheme.tls.client, "", "t", most=100)
        self.gate = asyncio.Event()

    async def _connect(self, limit_s: float) -> HttpConnection:
        self.n_connecting += 1
        self.n_most = max(self.n_most, self.n_connecting)
        try:
            await self.gate.wait()
            return await super()._connect(limit_s)
        finally:
            self.n_connecting -= 1


class Hasty(Gated):
    """Wrong: every request opens its connection at once."""

    async def _connection(self) -> tuple[HttpConnection, bool]:
        return self._take_idle() or await self._connect(connection_pool.CONNECT_S), False


@pytest.mark.parametrize("kind", [Gated, Hasty])
def test_few_connections_are_opened_at_once_and_no_request_waits_for_more_than_it_needs(
    kind: type[Gated],
) -> None:
    async def steps() -> None:
        async with raw() as server:
            lines = kind(server.url)
            names = [f"p{i}" for i in range(40)]
            sends = [
                asyncio.ensure_future(lines.send(post(name), [], lambda: True)) for name in names
            ]
            for _ in range(5):
                await asyncio.sleep(0)
            lines.gate.set()
            assert [(await sent).body.decode() for sent in sends] == names
            assert (lines.n_most == OPENING_MAX) == (kind is Gated)
            assert (server.n_connections == len(names)) == (kind is Hasty)
            await lines.close()

    run(steps())


def test_a_request_that_waits_for_its_turn_to_connect_times_out_like_one_that_connects() -> None:
    async def steps() -> None:
        async with raw() as server:
            lines = Gated(server.url)
            wanted = [post(f"p{i}", timeout_s=0.05) for i in range(3 * OPENING_MAX)]
            sends = (lines.send(one, [], lambda: True) for one in wanted)
            answers = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(answer) for answer in answers} == {TimeoutError}
            lines.gate.set()
            assert (await lines.send(post("later"), [], lambda: True)).body == b"later"
            await lines.close()

    run(steps())


class Deaf(ConnectionPool):
    """Patient, never connects. n_tried: connections that it has begun to open."""

    n_tried = 0

    async def _connect(self, limit_s: float) -> HttpConnection:
        self.n_tried += 1
        await asyncio.wait_for(asyncio.Event().wait(), limit_s)
        raise AssertionError


def test_the_time_to_connect_begins_when_it_is_a_requests_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_pool, "CONNECT_S", 0.02)

    async def steps() -> None:
        lines = Deaf("http://127.0.0.1:1", None, "", "t", most=100)
        wanted = [post(f"p{i}", timeout_s=60) for i in range(2 * OPENING_MAX + 3)]
        sends = (lines.send(one, [], lambda: True) for one in wanted)
        answers = await asyncio.gather(*sends, return_exceptions=True)
        assert {type(answer) for answer in answers} == {TimeoutError}
        assert lines.n_tried == len(wanted)
        await lines.close()

    run(steps())


def test_a_request_that_waits_for_its_turn_takes_a_connection_that_becomes_idle() -> None:
    async def steps() -> None:
        async with raw() as server:
            lines = Gated(server.url)
            lines.gate.set()
            first = await lines._open()
            lines.gate.clear()
            others = [
                asyncio.ensure_future(lines.send(post(f"p{i}"), [], lambda: True))
                for i in range(OPENING_MAX)
            ]
            waiting = asyncio.ensure_future(lines.send(post("last"), [], lambda: True))
            given_up = asyncio.ensure_future(lines.send(post("gone"), [], lambda: True))
            for _ in range(5):
                await asyncio.sleep(0)
            given_up.cancel()
            lines._release(first)
            assert (await waiting).body == b"last"
            assert not any(one.done() for one in others)
            lines.gate.set()
            bodies = [(await one).body.decode() for one in others]
            assert bodies == [f"p{i}" for i in range(OPENING_MAX)]
            await lines.close()

    run(steps())


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.96.0.1"])
def test_an_address_is_found_without_a_resolver(host: str) -> None:
    found = connection_pool._literal_address(host, 6443)
    flags = socket.AI_NUMERICHOST
    assert found == socket.getaddrinfo(host, 6443, type=socket.SOCK_STREAM, flags=flags)


@pytest.mark.parametrize("host", ["localhost", "fe80::1%lo", "10.96.1", "", "api.example"])
def test_names_and_scoped_addresses_need_a_resolver(host: str) -> None:
    assert connection_pool._literal_address(host, 6443) == []


class Forgetful(ConnectionPool):
    """Wrong: resumes nothing."""

    def _resumable_session(self) -> ssl.SSLSession | None:
        return None


@pytest.mark.parametrize("kind", [ConnectionPool, Forgetful])
def test_a_connection_after_the_first_resumes_its_session(kind: type[ConnectionPool]) -> None:
    resumed: list[bool] = []

    async def closing(body: bytes, writer: asyncio.StreamWriter) -> None:
        made = writer.get_extra_info("ssl_object")
        resumed.append(made is not None and made.session_reused)
        writer.write(reply(body, b"Connection: close\r\n"))
        writer.close()

    async def steps() -> None:
        async with raw(closing) as server:
            lines = kind(server.url, Scheme.tls.client, "", "t", most=5)
            for i in range(4):
                assert (await lines.send(post(f"p{i}"), [], lambda: True)).status == 201
            await lines.close()

    run(steps())
    may = kind is ConnectionPool and Scheme.tls.client is not None
    assert resumed == [False, may, may, may]


def test_a_session_that_the_server_does_not_know_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[bool] = []

    async def closing(body: bytes, writer: asyncio.StreamWriter) -> None:
        resumed.append(bool(writer.get_extra_info("ssl_object").session_reused))
        writer.write(reply(body, b"Connection: close\r\n"))
        writer.close()

    async def steps() -> None:
        async with raw(closing) as server:
            monkeypatch.setattr(
                Scheme, "tls", TlsContexts(serving_context(tmp_path), Scheme.tls.client)
            )
            async with raw(closing) as other:
                lines = ConnectionPool(server.url, Scheme.tls.client, "", "t", most=5)
                for url in (server.url, server.url, other.url, other.url):
                    # Another server behind the same address, or the same one after a restart.
                    lines._port = urlsplit(url).port or 0
                    assert (await lines.send(post("a"), [], lambda: True)).status == 201
                await lines.close()

    if Scheme.tls.client is not None:
        run(steps())
        assert resumed == [False, True, False, True]


# Writes that are held back.


def test_the_check_runs_when_a_connection_is_ready_and_no_earlier() -> None:
    """Whoever waits long for its turn asks after that."""

    async def steps() -> None:
        released = asyncio.Event()

        async def slowly(body: bytes, writer: asyncio.StreamWriter) -> None:
            await released.wait()
            writer.write(reply(body))

        async with raw(slowly) as server:
            lines = ConnectionPool(server.url, Scheme.tls.client, "", "t", most=1)
            may = True
            first = asyncio.ensure_future(lines.send(post("first"), [], lambda: may))
            second = asyncio.ensure_future(lines.send(post("second"), [], lambda: may))
            while not server.seen:
                await asyncio.sleep(0.01)
            may = False
            released.set()
            assert (await first).status == 201
            with pytest.raises(LeaseExpired, match=LEASE_EXPIRED_TEXT):
                await second
            assert server.seen == [b"first"]
            # The connection is as good as before.
            may = True
            assert (await lines.send(post("third"), [], lambda: may)).status == 201
            assert server.n_connections == 1
            await lines.close()

    run(steps())


def test_nothing_runs_between_the_check_and_the_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[str] = []
    ask = HttpConnection.ask

    def asked(connection: HttpConnection, data: bytes, until: float) -> Any:
        happened.append("asked")
        return ask(connection, data, until)

    def write_check() -> bool:
        # Whatever else the loop has to do would come now.
        asyncio.get_running_loop().call_soon(lambda: happened.append("something else"))
        happened.append("looked")
        return True

    async def steps() -> None:
        monkeypatch.setattr(HttpConnection, "ask", asked)
        async with raw() as server, client(server, write_check=write_check) as api:
            assert (await api.send(post("a"))).status == 201
        assert happened[:2] == ["looked", "asked"]

    run(steps())


def test_a_header_of_two_lines_is_not_sent() -> None:
    async def steps() -> None:
        async with raw() as server:
            how = ClientConfig(server.url, "t", token="x\r\nX-Other: y", is_insecure=True)
            async with ApiClient(how) as api:
                answer = await api.send(post("a"))
            assert answer.status == 0
            assert "line break" in answer.fault
            assert server.seen == []

    run(steps())
