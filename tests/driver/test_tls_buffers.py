"""Connections over TLS have small buffers in the processes of the scheduler and the cluster."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol

import pytest

from stowplan.driver import local_cluster, process
from stowplan.driver.client.tls_buffers import TLS_BUFFER_BYTES, limit_tls_buffers

ASYNCIOS_BYTES = 256 << 10


async def buffer_bytes() -> list[int]:
    """Bytes of the buffer of a new connection: usual, and when more is offered."""
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context()
    made = SSLProtocol(loop, asyncio.Protocol(), context, None, False, "server")
    made._get_app_transport().close()
    return [len(made.get_buffer(offered)) for offered in (-1, 1 << 20)]


def test_connections_have_small_buffers_once_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", ASYNCIOS_BYTES)
    assert asyncio.run(buffer_bytes()) == [ASYNCIOS_BYTES] * 2
    limit_tls_buffers()
    assert asyncio.run(buffer_bytes()) == [TLS_BUFFER_BYTES] * 2


def test_the_scheduler_process_limits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", ASYNCIOS_BYTES)

    async def looked(*_: object) -> int:
        return SSLProtocol.max_size

    monkeypatch.setattr(process, "_run", looked)
    monkeypatch.setattr(process.signal, "signal", lambda *_: None)
    assert process.run(*[None] * 3) == TLS_BUFFER_BYTES  # type: ignore[arg-type]


def test_the_cluster_process_limits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", ASYNCIOS_BYTES)
    sizes: list[int] = []

    async def looked(*_: object) -> None:
        sizes.append(SSLProtocol.max_size)

    monkeypatch.setattr(local_cluster, "_run_until_stopped", looked)
    local_cluster.run(local_cluster.LocalClusterSettings())
    assert sizes == [TLS_BUFFER_BYTES]
