"""HTTP over sockets: limits, slow clients, compression, streams, TLS."""

import asyncio
import gzip
import json
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from stowplan.apis.machinery.http_messages import HttpResponse, PersistBatch
from stowplan.driver.http import http_server
from stowplan.driver.http.http_server import ServerLimits, ServerTls
from stowplan.driver.storage.credentials_files import serving_certificate
from stowplan.driver.storage.sqlite_store import SqliteStore
from tests.driver.logged import lines_of
from tests.driver.stub_cluster import JSON, Client, StubCluster, served


def run(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 300))


def test_a_request_as_the_cluster_reads_it() -> None:
    async def scene() -> None:
        cluster = StubCluster(
            lambda _: HttpResponse(201, (*JSON, ("Warning", "a"), ("Warning", "b")), b"{}")
        )
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            client.get(
                "/api/v1/a%2Fb/../c?limit=5&x=a%20b+c&x=&y",
                "Accept: application/json",
                "Impersonate-Group: a",
                "impersonate-group: b,c",
                "X-Thing: 1",
                "x-thing: 2",
                method="POST",
                body=b'{"kind": 1}',
            )
            status, _, body = await client.whole()
            assert (status, body) == (201, b"{}")
            client.get("http://x/absolute?a=b")
            await client.whole()
        first, second = cluster.requests
        assert (first.method, first.path) == ("POST", "/api/v1/a%2Fb/../c")
        assert first.query == (("limit", "5"), ("x", "a b c"), ("x", ""), ("y", ""))
        assert first.headers["accept"] == "application/json"
        assert first.headers["impersonate-group"] == "a\nb,c"
        assert first.headers["x-thing"] == "1, 2"
        assert first.body == b'{"kind": 1}'
        assert first.peer.startswith("127.0.0.1:")
        assert (second.path, second.query) == ("/absolute", (("a", "b"),))

    run(scene())


def test_head_sends_no_body_and_keeps_the_connection() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda _: HttpResponse(200, JSON, b'{"long": "body"}'))
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            for _ in range(3):
                client.get("/x", method="HEAD")
                status, headers = await client.head()
                assert (status, headers["content-length"]) == (200, "16")
            client.get("/x")
            assert (await client.whole())[2] == b'{"long": "body"}'
        assert [request.method for request in cluster.requests] == ["HEAD"] * 3 + ["GET"]

    run(scene())


# Bodies.


def test_a_body_over_the_limit_is_not_read() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster, ServerLimits(body_bytes_max=1000)) as (server, port):
            client = await Client.to(port)
            # Nothing of the body is sent: the length alone is enough.
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
            status, headers, body = await client.whole()
            assert status == 413
            assert json.loads(body)["message"] == "Request entity too large: limit is 1000"
            assert headers["connection"] == "close"
            client = await Client.to(port)
            client.get("/x", method="POST", body=b"x" * 1000)
            assert (await client.whole())[0] == 200
            assert server._bodies_bytes == 0
        assert [len(request.body) for request in cluster.requests] == [1000]

    run(scene())


def test_a_chunked_body_over_the_limit_is_cut_off() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster, ServerLimits(body_bytes_max=1000, body_s=5)) as (server, port):
            client = await Client.to(port)
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(3):
                client.send(b"190\r\n" + b"x" * 400 + b"\r\n")
            status, _, _ = await client.whole()
            assert status == 413
            assert server._bodies_bytes == 0
        assert cluster.requests == []

    run(scene())


def test_all_bodies_together_are_bounded() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        bounds = ServerLimits(body_bytes_max=1000, bodies_bytes_max=1500)
        async with served(cluster, bounds) as (server, port):
            slow = await Client.to(port)
            slow.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 999)
            while server._bodies_bytes < 999:
                await asyncio.sleep(0.01)
            other = await Client.to(port)
            other.get("/x", method="POST", body=b"x" * 900)
            status, headers, _ = await other.whole()
            assert (status, headers["retry-after"]) == (429, "1")
            slow.send(b"x")
            assert (await slow.whole())[0] == 200
            again = await Client.to(port)
            again.get("/x", method="POST", body=b"x" * 900)
            assert (await again.whole())[0] == 200

    run(scene())


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster, ServerLimits(body_s=0.2)) as (_, port):
            client = await Client.to(port)
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc")
            text = await client.rest()
            assert text.startswith(b"HTTP/1.1 408 ")
        assert cluster.requests == []

    run(scene())


def test_expect_is_answered_before_the_body_is_sent() -> None:
    async def scene() -> None:
        async with served(StubCluster(), ServerLimits(body_bytes_max=100)) as (_, port):
            for length, first in ((50, 100), (500, 413)):
                client = await Client.to(port)
                client.send(
                    b"POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                    b"Content-Length: %d\r\n\r\n" % length
                )
                status, _ = await client.head()
                assert status == first
                if first == 100:
                    client.send(b"x" * length)
                    assert (await client.whole())[0] == 200

    run(scene())


# Clients that are slow, rude or gone.


@pytest.mark.parametrize("sent", [b"", b"GET /x HT", b"GET /x HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_request_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    async def scene() -> None:
        async with served(StubCluster(), ServerLimits(idle_s=0.2)) as (_, port):
            client = await Client.to(port)
            client.send(sent)
            assert await client.rest() == b""
            # The same after a request that was answered.
            client = await Client.to(port)
            client.get("/x")
            await client.whole()
            client.send(sent)
            assert await client.rest() == b""

    run(scene())


async def dripped(client: Client, sent: bytes) -> float:
    """Send a byte at a time until the server closes the connection; returns the duration."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    reading = asyncio.ensure_future(client.rest())
    for byte in sent * 1000:
        client.send(bytes((byte,)))
        await asyncio.wait([reading], timeout=0.02)
        if reading.done():
            break
    assert reading.result() in (b"", None)
    return loop.time() - start


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize("before", ["", "GET", "POST"])
def test_slow_headers_are_cut_off(before: str, secret: bool) -> None:
    """Neither at first, nor after an answer that went the general way, or the short one."""

    async def scene() -> None:
        keys = serving_certificate(None, "127.0.0.1", time.time())
        tls = ServerTls(keys.context, plain=True)
        options = {"ssl": trusting(keys.certificate)} if secret else {}
        async with served(StubCluster(), ServerLimits(idle_s=0.4), tls=tls) as (_, port):
            client = await Client.to(port, **options)
            if before:
                client.get("/x", method=before)
                assert (await client.whole())[0] == 200
            client.send(b"GET /x HTTP/1.1\r\n")
            assert await dripped(client, b"A: aaaaaaaaaaaa\r\n") < 1.5

    run(scene())


def test_a_slow_body_is_cut_off() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster, ServerLimits(body_s=0.3)) as (_, port):
            client = await Client.to(port)
            client.send(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 90000\r\n\r\n")
            start = asyncio.get_running_loop().time()
            reading = asyncio.ensure_future(client.rest())
            while not reading.done() and asyncio.get_running_loop().time() < start + 3:
                client.send(b"x")
                await asyncio.sleep(0.02)
            assert asyncio.get_running_loop().time() - start < 1.5
            # Who goes on sending may find the connection broken before the answer is read.
            assert reading.result() == b"" or reading.result().startswith(b"HTTP/1.1 408 ")
        assert cluster.requests == []

    run(scene())


def test_an_internal_error_is_logged_and_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> None:
        raise KeyError("spec")

    async def scene() -> None:
        async with served(StubCluster()) as (_, port):
            client = await Client.to(port)
            with monkeypatch.context() as patched:
                patched.setattr(http_server, "_wire_request_of", breaks)
                client.get("/x?a=b")
                status, _, body = await client.whole()
            assert status == 500
            assert body.startswith(b"KeyError('spec') in test_http_server.py:")
            again = await Client.to(port)
            again.get("/x")
            assert (await again.whole())[0] == 200

    monkeypatch.setattr(logging.getLogger("stowplan"), "propagate", True)
    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        run(scene())
    (line,) = set(lines_of(caplog))
    assert line.startswith("Internal error during=GET /x err=KeyError('spec') in test_http_server")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /x HTTP/9.9\r\n\r\n",
        b"GET /x HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: x\r\n" + b"A: a\r\n" * 5_000 + b"\r\n",
    ],
)
def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            client.send(sent)
            assert (await client.rest()).startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        assert cluster.requests == []

    run(scene())


def test_a_response_that_is_not_read_is_dropped() -> None:
    async def scene() -> None:
        big = b"x" * (64 << 20)
        cluster = StubCluster(lambda _: HttpResponse(200, JSON, big))
        async with served(cluster, ServerLimits(send_s=-63.5)) as (server, port):
            client = await Client.to(port, limit=1 << 10)
            client.get("/x")
            await client.reader.readexactly(100)
            # 64 s are due for 64 MiB at the least rate; all but half a second was taken off.
            async with asyncio.timeout(240):
                while server.n_connections:
                    await asyncio.sleep(0.05)

    run(scene())


# Compression.


@pytest.mark.parametrize(
    ("length", "accepted", "packed"),
    [
        ((128 << 10) - 1, "gzip", False),
        (128 << 10, "gzip", True),
        (3 << 20, "deflate, gzip;q=0.5", True),
        (3 << 20, "gzip;q=0", False),
        (3 << 20, "deflate", False),
        (3 << 20, "", False),
    ],
)
def test_long_responses_are_compressed_if_accepted(
    length: int, accepted: str, packed: bool
) -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda _: HttpResponse(200, JSON, b"y" * length))
        async with served(cluster) as (_, port):
            client = await Client.to(port, limit=1 << 24)
            client.get("/x", *([f"Accept-Encoding: {accepted}"] if accepted else []))
            _, headers, body = await client.whole()
            assert (headers.get("content-encoding") == "gzip") is packed
            assert (headers.get("vary") == "Accept-Encoding") is packed
            assert (gzip.decompress(body) if packed else body) == b"y" * length

    run(scene())


# Streams.


async def event(client: Client) -> bytes:
    size = int((await client.reader.readline()).strip(), 16)
    data = await client.reader.readexactly(size)
    await client.reader.readexactly(2)
    return data


def test_a_stream_continues_until_it_ends() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster) as (server, port):
            client = await Client.to(port)
            client.get("/watch")
            status, headers = await client.head()
            assert (status, headers["transfer-encoding"]) == (200, "chunked")
            for data in (b'{"a":1}\n', b'{"b":2}\n'):
                cluster.feed(1, data)
                server.server_loop._schedule_soon()
                assert await event(client) == data
            cluster.ended.add(1)
            cluster.feed(1, b"")
            server.server_loop._schedule_soon()
            assert await event(client) == b""
            # The connection is good for another request.
            client.get("/x")
            assert (await client.whole())[0] == 200
            assert cluster.closed == [1]

    run(scene())


def test_a_watcher_that_leaves_is_noticed() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            client.get("/watch")
            await client.head()
            client.close()
            while not cluster.closed:
                await asyncio.sleep(0.01)
        assert cluster.closed == [1]

    run(scene())


def test_a_watcher_that_does_not_read_is_cut_and_nothing_piles_up() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster, ServerLimits(send_s=0.3)) as (server, port):
            client = await Client.to(port, limit=1 << 10)
            client.get("/watch")
            await client.head()
            cluster.feed(1, b"x" * (64 << 20))
            server.server_loop._schedule_soon()
            while not cluster.closed:
                await asyncio.sleep(0.01)
            # The rest is still there: the cluster decides when to drop it.
            assert len(cluster.waiting[1]) > 32 << 20

    run(scene())


def test_stopping_ends_streams_properly() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            client.get("/watch")
            await client.head()
            reading = asyncio.ensure_future(client.rest())
            await asyncio.sleep(0.05)
        assert (await reading).endswith(b"0\r\n\r\n")
        assert cluster.closed == [1]

    run(scene())


def test_a_request_during_shutdown_changes_nothing() -> None:
    async def scene() -> None:
        cluster = StubCluster()
        async with served(cluster) as (server, port):
            client = await Client.to(port)
            await server.server_loop.stop()
            client.get("/x", method="POST", body=b"{}")
            assert (await client.rest()).startswith(b"HTTP/1.1 503 ")
        assert cluster.requests == []

    run(scene())


# Commits.


def written(cluster: StubCluster, number: int, key: str) -> HttpResponse:
    cluster.batches.append(PersistBatch(number, ((key, number, b"{}"),)))
    return HttpResponse(201, JSON, b"{}", commit=number)


def test_an_answer_waits_for_its_commit(tmp_path: Path) -> None:
    async def scene() -> None:
        store = SqliteStore(tmp_path)
        cluster = StubCluster()
        numbers = iter(range(1, 100))
        cluster._answer = lambda request: written(cluster, next(numbers), request.path)
        order: list[str] = []
        save = store.save

        def saving(records: Any) -> None:
            order.append("commit")
            save(records)

        store.save = saving  # type: ignore[method-assign]
        async with served(cluster, store=store) as (_, port):
            clients = [await Client.to(port) for _ in range(8)]
            for client in clients:
                client.get("/a", method="POST", body=b"{}")
            for client in clients:
                status, _, _ = await client.whole()
                order.append("answer")
                assert status == 201
        assert order[0] == "commit"
        assert cluster.durable == store.version == 8
        store.close()

    run(scene())


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_sent_before_the_commit_is_answered_after_it(tmp_path: Path, leaves: bool) -> None:
    async def scene() -> None:
        store = SqliteStore(tmp_path)
        cluster = StubCluster()
        numbers = iter(range(1, 100))
        cluster._answer = lambda request: written(cluster, next(numbers), request.path)
        may_save = threading.Event()
        save = store.save

        def saving(records: Any) -> None:
            may_save.wait()
            save(records)

        store.save = saving  # type: ignore[method-assign]
        async with served(cluster, store=store) as (server, port):
            gone = await Client.to(port)
            gone.get("/gone", method="POST", body=b"{}")
            client = await Client.to(port)
            client.get("/a", method="POST", body=b"{}")
            while len(cluster.requests) < 2:
                await asyncio.sleep(0.01)
            if leaves:
                # It resets the connection.
                reset = struct.pack("ii", 1, 0)
                raw = gone.writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
                gone.writer.transport.abort()
                client.writer.write_eof()
            else:
                client.get("/b", method="POST", body=b"{}")
            while server.n_connections > 2 - leaves:
                await asyncio.sleep(0.01)
            assert len(cluster.requests) == 2
            may_save.set()
            for _ in range(2 - leaves):
                assert (await client.whole())[0] == 201
            if leaves:
                assert await client.rest() == b""
        assert len(cluster.requests) == 3 - leaves
        assert store.version == 3 - leaves
        store.close()

    run(scene())


def test_no_success_is_reported_after_a_disk_failure(tmp_path: Path) -> None:
    async def scene() -> None:
        store = SqliteStore(tmp_path)
        store.save([("a", 1, b"{}")])
        assert store._file is not None
        store._file.execute("PRAGMA query_only=1")
        cluster = StubCluster()
        cluster._answer = lambda request: written(cluster, 7, request.path)
        messages: list[str] = []
        async with served(cluster, store=store, failed=messages.append) as (_, port):
            for _ in range(2):
                client = await Client.to(port)
                client.get("/a", method="POST", body=b"{}")
                assert (await client.whole())[0] == 500
        assert cluster.durable == 0
        assert len(messages) == 1
        assert "could not save" in messages[0]
        store._file.execute("PRAGMA query_only=0")
        store.close()

    run(scene())


def test_a_response_may_be_delayed() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda _: HttpResponse(504, JSON, b"{}", after=0.2))
        async with served(cluster) as (_, port):
            loop = asyncio.get_running_loop()
            start = loop.time()
            client = await Client.to(port)
            client.get("/x")
            assert (await client.whole())[0] == 504
            assert loop.time() - start >= 0.2

    run(scene())


# Encryption.


def trusting(certificate: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate)


def test_one_port_serves_tls_and_plain() -> None:
    async def scene() -> None:
        keys = serving_certificate(None, "127.0.0.1", time.time())
        async with served(StubCluster(), tls=ServerTls(keys.context, plain=True)) as (_, port):
            plain = await Client.to(port)
            secret = await Client.to(port, ssl=trusting(keys.certificate))
            for client in (plain, secret, plain, secret):
                client.get("/x")
                assert (await client.whole())[0] == 200
            secret.close()
            with pytest.raises(ssl.SSLCertVerificationError):
                await Client.to(port, ssl=ssl.create_default_context())

    run(scene())


def test_without_plain_only_tls_is_spoken() -> None:
    async def scene() -> None:
        keys = serving_certificate(None, "127.0.0.1", time.time())
        cluster = StubCluster()
        async with served(cluster, tls=ServerTls(keys.context, plain=False)) as (_, port):
            plain = await Client.to(port)
            plain.get("/x", "Authorization: Bearer secret")
            assert await plain.rest() == b""
            assert cluster.requests == []
            secret = await Client.to(port, ssl=trusting(keys.certificate))
            secret.get("/x")
            assert (await secret.whole())[0] == 200

    run(scene())
