"""TLS on the socket itself: nothing is lost or cut, and nothing is left open."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client import tls_transport
from stowplan.driver.client.connection_pool import SERVER_CLOSED_TEXT, ConnectionPool

RECORD_BYTES = 16 << 10
HEAD = b"HTTP/1.1 201 Created\r\n"

Serve = Callable[[ssl.SSLSocket], None]


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    made = self_signed_certificate(["127.0.0.1"], time.time())
    file = Path(tmp_path_factory.mktemp("tls")) / "server.pem"
    file.write_text(made.key + made.certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    return serving


@contextmanager
def serving(context: ssl.SSLContext, serve: Serve) -> Iterator[str]:
    """Address of a server that does this with its one connection, in a thread."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        plain, _ = listening.accept()
        with plain, contextlib.suppress(OSError), context.wrap_socket(plain, True) as made:
            serve(made)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        thread.join(60)
        listening.close()
    assert not thread.is_alive()


def pool(url: str) -> ConnectionPool:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return ConnectionPool(url, trusting, "", "t", most=1)


def post(body: bytes = b"{}") -> ApiRequest:
    return ApiRequest("POST", "/a", (), body, JSON, 60.0)


def read_request(made: ssl.SSLSocket) -> bytes:
    """The body of a request."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        data += made.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r")[0])
    while len(body) < length:
        body += made.recv(1 << 16)
    return bytes(body)


def answer_of(body: bytes) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def test_a_request_that_the_socket_does_not_take_at_once_is_sent_whole(
    context: ssl.SSLContext,
) -> None:
    # More than the buffers of two sockets take.
    sent = bytes(range(256)) * (64 << 10)
    found = []
    released = threading.Event()

    def serve(made: ssl.SSLSocket) -> None:
        released.wait(60)
        found.append(read_request(made))
        made.sendall(answer_of(b"ok"))

    async def steps() -> None:
        with serving(context, serve) as url:
            lines = pool(url)
            sending = asyncio.ensure_future(lines.send(post(sent), [], lambda: True))
            while not lines._busy:
                await asyncio.sleep(0.01)
            # The loop goes on meanwhile.
            for _ in range(5):
                await asyncio.sleep(0)
            assert not sending.done()
            released.set()
            assert (await sending).body == b"ok"
            await lines.close()

    run(steps())
    assert found == [sent]


@pytest.mark.parametrize("read_bytes", [RECORD_BYTES, 1000])
def test_responses_of_many_records_and_of_one_larger_than_a_read_arrive(
    context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    bodies = [b"x" * n for n in (0, 1, 999, 1000, 1001, RECORD_BYTES, 10 * RECORD_BYTES + 7)]

    def serve(made: ssl.SSLSocket) -> None:
        for body in bodies:
            read_request(made)
            made.sendall(answer_of(body))

    async def steps() -> None:
        monkeypatch.setattr(tls_transport, "READ_BYTES", read_bytes)
        with serving(context, serve) as url:
            lines = pool(url)
            for body in bodies:
                assert (await lines.send(post(), [], lambda: True)).body == body
            await lines.close()

    run(steps())


@pytest.mark.parametrize("is_regular", [True, False])
def test_a_response_without_a_length_is_complete_only_after_close_notify(
    context: ssl.SSLContext, is_regular: bool
) -> None:
    def serve(made: ssl.SSLSocket) -> None:
        read_request(made)
        made.sendall(HEAD + b"\r\nhalf or whole")
        if is_regular:
            # Sends close_notify; the client does not answer it.
            made.settimeout(0.1)
            with contextlib.suppress(OSError):
                made.unwrap()

    async def steps() -> None:
        with serving(context, serve) as url:
            lines = pool(url)
            answer = await lines.send(post(), [], lambda: True)
            assert answer.status == 201
            if is_regular:
                assert (answer.body, answer.fault) == (b"half or whole", "")
            else:
                assert answer.fault == f"response truncated: {SERVER_CLOSED_TEXT}"
            await lines.close()

    run(steps())


def test_a_handshake_without_an_answer_times_out(context: ssl.SSLContext) -> None:
    listening = socket.create_server(("127.0.0.1", 0))

    async def steps() -> None:
        lines = pool(f"https://127.0.0.1:{listening.getsockname()[1]}")
        request = ApiRequest("POST", "/a", (), b"{}", JSON, 0.1)
        with pytest.raises(TimeoutError):
            await lines.send(request, [], lambda: True)
        await lines.close()

    with listening:
        run(steps())
        made, _ = listening.accept()
        with made:
            # The client's hello, then the end.
            made.settimeout(60)
            while made.recv(1 << 16):
                pass
