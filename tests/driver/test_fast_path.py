"""The fast path: which requests take it, and that both paths answer the same."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.driver.http import fast_path
from stowplan.driver.http.fast_path import SimpleRequest, parse_simple_request
from stowplan.driver.http.http_server import ServerLimits
from tests.driver.stub_cluster import JSON, Client, StubCluster, served
from tests.property.wrong import assert_caught
from tests.soak import examples

HEAD = b"POST /api/v1/pods?x=%20a HTTP/1.1\r\nHost: x\r\nAccept:  a, b \r\n"
GOOD = HEAD + b"Content-Length: 2\r\n\r\n{}"


def test_a_plain_request_is_read() -> None:
    request = parse_simple_request(GOOD)
    assert request is not None
    assert (request.method, request.target, request.body) == ("POST", "/api/v1/pods?x=%20a", b"{}")
    assert request.headers == {"host": "x", "accept": "a, b", "content-length": "2"}
    assert parse_simple_request(HEAD + b"\r\n") is not None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD[:-1],
        GOOD + b"x",
        GOOD + GOOD,
        GOOD.replace(b"POST", b"GET"),
        GOOD.replace(b"POST", b"post"),
        GOOD.replace(b"/1.1", b"/1.0"),
        GOOD.replace(b" /api", b"  /api"),
        GOOD.replace(b" /api", b" http://x/api"),
        GOOD.replace(b"pods?", b"pods?watch=1&"),
        GOOD.replace(b"\r\n", b"\n"),
        GOOD.replace(b"Host:", b"Host :"),
        GOOD.replace(b"Host: x", b"Host: x\r\n folded"),
        GOOD.replace(b"Host: x", b"Host: \x01"),
        GOOD.replace(b"Host: x", b"Host: a\nb"),
        GOOD.replace(b"Host: x", b"Content-Length: 2"),
        GOOD.replace(b"Length: 2", b"Length: +2"),
        GOOD.replace(b"Length: 2", b"Length: 2, 2"),
        GOOD.replace(b"Length: 2", "Length: \u00b2".encode()),
        GOOD.replace(b"Host: x", b"Transfer-Encoding: chunked"),
        GOOD.replace(b"Host: x", b"Expect: 100-continue"),
        GOOD.replace(b"Host: x", b"Upgrade: websocket"),
        GOOD.replace(b"Host: x", b"Connection: Upgrade\r\nUpgrade: websocket"),
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\r\n" + GOOD,
        GOOD.replace(b"Host: x", b"Connection: close"),
        GOOD.replace(b"Host: x", b"Host: " + b"x" * 20_000),
        HEAD + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000,
    ],
)
def test_other_requests_take_the_general_path(data: bytes) -> None:
    assert parse_simple_request(data) is None


@pytest.mark.parametrize(
    "data",
    [
        GOOD[:-1],
        GOOD + b"x",
        GOOD + GOOD,
        GOOD.replace(b"POST", b"GET"),
        GOOD.replace(b"/1.1", b"/1.0"),
        GOOD.replace(b" /api", b"  /api"),
        GOOD.replace(b" /api", b" http://x/api"),
        GOOD.replace(b"pods?", b"pods?watch=1&"),
        GOOD.replace(b"pods?", b"pods?\x01"),
        b"\r\n" + GOOD,
        GOOD.replace(b"pods?", b"pods?" + b"x" * 20_000),
    ],
)
def test_known_fields_make_no_other_request_plain(data: bytes) -> None:
    assert parse_simple_request(GOOD) is not None
    assert parse_simple_request(data) is None


def test_known_fields_are_read_as_by_the_parser() -> None:
    first = parse_simple_request(GOOD)
    other = GOOD.replace(b"POST", b"PUT").replace(b"pods?", b"pods/a?")[:-2] + b"[]"
    fast_path._known.clear()
    parsed = parse_simple_request(other)
    assert parse_simple_request(other) == parsed
    assert parse_simple_request(GOOD) == first


def test_a_connection_in_use_is_not_idle() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda _: HttpResponse(201, JSON, b"{}"))
        async with served(cluster, ServerLimits(idle_s=0.5)) as (_, port):
            client = await Client.to(port)
            for _ in range(5):
                client.send(GOOD)
                assert (await client.whole())[0] == 201
                await asyncio.sleep(0.2)
            assert await client.rest() == b""
        assert len(cluster.requests) == 5

    asyncio.run(scene())


def test_requests_that_arrive_while_one_is_pending_are_kept() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda request: HttpResponse(201, JSON, request.body, after=0.1))
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            client.send(HEAD + b"Content-Length: 1\r\n\r\n1")
            await asyncio.sleep(0.05)
            client.send(HEAD + b"Content-Length: 1\r\n\r\n2")
            client.send(HEAD + b"Content-Length: 1\r\n\r\n3")
            bodies = [(await client.whole())[2] for _ in range(3)]
        assert bodies == [b"1", b"2", b"3"]

    asyncio.run(scene())


def test_a_long_answer_is_not_kept_for_a_client_that_does_not_read() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda _: HttpResponse(200, JSON, b"x" * (64 << 20)))
        async with served(cluster, ServerLimits(send_s=-63.5)) as (server, port):
            client = await Client.to(port, limit=1 << 10)
            client.send(GOOD)
            await client.reader.readexactly(100)
            async with asyncio.timeout(240):
                while server.n_connections:
                    await asyncio.sleep(0.05)

    asyncio.run(scene())


# Both ways read the same: what is plain is sent to a server that knows the short way and to one
# that does not.

PIECES = st.sampled_from(
    [
        b"a",
        b"\x00",
        b"\r\n",
        b"\n",
        b" ",
        b":",
        b"\t",
        b"\xff",
        b"%",
        b"?",
        b"X: y\r\n",
        b"\r\nX: 1",
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Nearly simple requests: a byte or a piece changed here and there."""
    data = draw(st.sampled_from([GOOD, HEAD + b"\r\n"]))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 2))
        data = data[:at] + draw(PIECES) + data[at + cut :]
    return data


async def _both(
    data: bytes, read: Callable[[bytes], SimpleRequest | None]
) -> list[list[HttpRequest]]:
    seen = []
    original = fast_path.parse_simple_request
    for reading in (read, lambda _: None):
        fast_path.parse_simple_request = reading
        try:
            cluster = StubCluster(lambda _: HttpResponse(201, JSON, b"{}"))
            async with served(cluster) as (_, port):
                client = await Client.to(port)
                client.send(data)
                await asyncio.wait_for(client.reader.read(20), 240)
                received = [
                    (r.method, r.path, r.query, r.headers, r.body) for r in cluster.requests
                ]
                seen.append(received)
        finally:
            fast_path.parse_simple_request = original
    return seen  # type: ignore[return-value]


def alike(data: bytes, read: Callable[[bytes], SimpleRequest | None]) -> None:
    # Read once by the parser, then with header fields that are known.
    if read(data) is not None and read(data) is not None:
        short, general = asyncio.run(_both(data, read))
        assert short == general


@pytest.mark.slow
def test_both_ways_read_the_same() -> None:
    @settings(max_examples=examples(150))
    @given(requests())
    def look(data: bytes) -> None:
        alike(data, parse_simple_request)

    look()


@pytest.mark.slow
def test_a_reader_that_keeps_blanks_is_caught() -> None:
    def careless(data: bytes) -> SimpleRequest | None:
        """Keeps blanks around values, which are no part of them."""
        found = parse_simple_request(data)
        return found and found._replace(headers={n: f" {v}" for n, v in found.headers.items()})

    assert_caught(lambda data: alike(data, careless), requests())
