"""A closed client leaves no connection open, whatever the server does meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, ApiRequest, watch_request
from stowplan.client.resources import PODS
from stowplan.client.responses import ApiResponse
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.client.api_client import ApiClient

GET = ApiRequest("GET", "/api/v1/pods")
POST = ApiRequest("POST", "/api/v1/pods", (), b"{}", JSON)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
FIRST = b'8\r\n{"type":\r\n'


def contexts(folder: Path) -> ssl.SSLContext:
    made = self_signed_certificate(["127.0.0.1"], time.time())
    file = folder / "server.pem"
    file.write_text(made.key + made.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@contextmanager
def deaf(context: ssl.SSLContext | None) -> Iterator[str]:
    """Address of a server that begins a response, never ends it, and reads nothing more: it sees
    neither a FIN nor the close_notify of TLS."""
    accepted: list[socket.socket] = []
    listening = socket.create_server(("127.0.0.1", 0), backlog=200)

    def answer(plain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            made = plain if context is None else context.wrap_socket(plain, server_side=True)
            accepted.append(made)
            if made.recv(65536):
                made.sendall(HEAD + FIRST)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = listening.accept()
                accepted.append(plain)
                threading.Thread(target=answer, args=(plain,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)
        for made in accepted:
            made.close()


def left_open(steps: Callable[[str], Coroutine[Any, Any, None]], url: str) -> list[str]:
    """What is still open when the event loop has ended."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(asyncio.wait_for(steps(url), 240))
        gc.collect()
    return [str(one.message) for one in caught if one.category is ResourceWarning]


async def streamed(api: ApiClient, opened: asyncio.Event) -> None:
    async with api.stream(watch_request(PODS, "1", 300)) as stream:
        assert not isinstance(stream, ApiResponse)
        while await stream.readany():
            opened.set()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_stream_that_is_dropped_is_closed_at_once(scheme: str, tmp_path: Path) -> None:
    async def steps(url: str) -> None:
        async with ApiClient(ClientConfig(url, "t", is_insecure=True)) as api:
            opened = [asyncio.Event() for _ in range(5)]
            tasks = [asyncio.create_task(streamed(api, event)) for event in opened]
            for event in opened:
                await event.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    with deaf(contexts(tmp_path) if scheme == "https" else None) as url:
        assert left_open(steps, url) == []


@pytest.mark.parametrize("request_", [GET, POST], ids=["read", "write"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_request_cancelled_at_any_moment_leaves_nothing_open(
    scheme: str, request_: ApiRequest, tmp_path: Path
) -> None:
    async def steps(url: str) -> None:
        for n_rounds in range(20):
            async with ApiClient(ClientConfig(url, "t", is_insecure=True)) as api:
                sending = asyncio.create_task(api.send(request_))
                for _ in range(n_rounds):
                    await asyncio.sleep(0)
                sending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sending

    with deaf(contexts(tmp_path) if scheme == "https" else None) as url:
        assert left_open(steps, url) == []
