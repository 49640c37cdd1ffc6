"""A TLS connection on the socket itself, for the many small requests of `connection_pool`.

asyncio keeps the encrypted bytes of a TLS connection in buffers in memory and passes them on in
Python. Here OpenSSL reads from the socket and writes to it, which takes less processor time and
keeps no buffers (docs/decisions/0057-tls-of-writes.md has figures).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

READ_BYTES = 16 << 10
"""A TLS record has no more, so that after a read nothing waits in OpenSSL that the event loop does
not know of."""
CLOSED_TEXT = "server closed the connection"
_LATER = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsTransport(asyncio.Transport):
    """A connection after its handshake; see `connect_tls`. It calls `data_received` and
    `connection_lost` of its protocol, the latter not after `abort`."""

    def __init__(self, tls: ssl.SSLSocket, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._tls = tls
        self._protocol = protocol
        self._is_closed = False
        self._session: ssl.SSLSession | None = None
        # What OpenSSL has begun to write: it must be passed on again unchanged.
        self._unsent = b""
        self._later = b""
        self._is_waiting_to_write = False
        self._is_paused = False
        self._loop.add_reader(tls.fileno(), self._read)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket, for `socket`. For `ssl_session` the session that it has begun; None if it has
        resumed one."""
        if name == "ssl_session":
            return self._session if self._is_closed else self._begun_session()
        return self._tls if name == "socket" else default

    def _begun_session(self) -> ssl.SSLSession | None:
        # OpenSSL makes a copy, which takes as long as a small request.
        return None if self._tls.session_reused else self._tls.session

    def is_closing(self) -> bool:
        """True when the connection is closed."""
        return self._is_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, or keep them until the socket takes more."""
        if self._is_closed:
            return
        if self._unsent:
            self._later += data
            return
        self._unsent = bytes(data)
        self._send()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        if not self._is_closed and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._tls.fileno())

    def resume_reading(self) -> None:
        """Read again, first all that has arrived meanwhile."""
        if not self._is_closed and self._is_paused:
            self._is_paused = False
            self._loop.add_reader(self._tls.fileno(), self._read)
            self._loop.call_soon(self._read_all)

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._tls.fileno())
        if self._is_waiting_to_write:
            self._loop.remove_writer(self._tls.fileno())
        # A closed socket does not know it any more.
        self._session = self._begun_session()
        self._tls.close()

    close = abort

    def _send(self) -> None:
        while self._unsent:
            try:
                # All or nothing: Python's contexts do not write in part.
                self._tls.send(self._unsent)
            except ssl.SSLWantReadError:
                # Goes on with the next bytes that arrive.
                break
            except ssl.SSLWantWriteError:
                if not self._is_waiting_to_write:
                    self._is_waiting_to_write = True
                    self._loop.add_writer(self._tls.fileno(), self._send)
                return
            except OSError as problem:
                # Not at once: the caller of `write` is not done with the request.
                self._loop.call_soon(self._lose, problem)
                break
            self._unsent, self._later = self._later, b""
        if self._is_waiting_to_write:
            self._is_waiting_to_write = False
            self._loop.remove_writer(self._tls.fileno())

    def _read_all(self) -> None:
        self._read(to_the_end=True)

    def _read(self, *, to_the_end: bool = False) -> None:
        """Pass on the next record, or all that have arrived: one more look at the socket, which
        does not pay where a request has one response."""
        if self._unsent:
            self._send()
        while not self._is_closed and not self._is_paused:
            try:
                data = self._tls.recv(READ_BYTES)
            except _LATER:
                return
            except ssl.SSLEOFError:
                # Without TLS's own end the response may be truncated.
                self._lose(ConnectionResetError(CLOSED_TEXT))
                return
            except OSError as problem:
                self._lose(problem)
                return
            if not data:
                self._lose(None)
                return
            self._protocol.data_received(data)
            # None where the protocol has closed it.
            if not to_the_end and not self._tls.pending():
                return

    def _lose(self, problem: Exception | None) -> None:
        if not self._is_closed:
            self.abort()
            self._protocol.connection_lost(problem)


async def connect_tls(
    made: socket.socket,
    context: ssl.SSLContext,
    server_name: str,
    protocol: asyncio.Protocol,
    session: ssl.SSLSession | None = None,
) -> None:
    """Make a TLS connection of a connected socket, which is closed if that fails. server_name:
    expected in the certificate. session: to resume, of the same context and server, None for none.
    Raises OSError."""
    try:
        tls = context.wrap_socket(
            made,
            server_hostname=server_name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
            session=session,
        )
    except BaseException:
        made.close()
        raise
    try:
        await _handshake(tls)
        transport = TlsTransport(tls, protocol)
    except BaseException:
        tls.close()
        raise
    protocol.connection_made(transport)


async def _handshake(tls: ssl.SSLSocket) -> None:
    loop, fd = asyncio.get_running_loop(), tls.fileno()
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            await _ready(loop.add_reader, loop.remove_reader, fd)
        except ssl.SSLWantWriteError:
            await _ready(loop.add_writer, loop.remove_writer, fd)
        else:
            return


async def _ready(add: Any, remove: Any, fd: int) -> None:
    """Wait until a socket can be read from, or written to."""
    event = asyncio.Event()
    add(fd, event.set)
    try:
        await event.wait()
    finally:
        remove(fd)
