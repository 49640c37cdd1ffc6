"""Buffers of TLS connections, a setting that concerns a whole process: for its entry point only."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol

TLS_BUFFER_BYTES = 64 << 10
"""A TLS record has 16 KiB at most, so that a large list is still read in few pieces."""


def limit_tls_buffers() -> None:
    """Connections that are opened from now on read into this much instead of asyncio's 256 KiB
    each: a scheduler that writes much at once has more than a hundred connections, and so has the
    server that it writes to."""
    SSLProtocol.max_size = TLS_BUFFER_BYTES
