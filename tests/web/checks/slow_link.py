"""A link of limited speed between a browser and a server on this machine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 2048
BUFFER = 8192


class SlowLink:
    """Passes bytes on, two threads a connection. rate: bytes per second towards the browser, None
    for no limit. port: where it listens."""

    def __init__(self, to_port: int) -> None:
        self.rate: float | None = None
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket()
                # The kernel would keep megabytes of what the link has not passed on.
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
                far.connect(("127.0.0.1", self._to_port))
                self._sockets += [near, far]
                self._start(self._pass, near, far, False)
                self._start(self._pass, far, near, True)

    def _pass(self, reading: socket.socket, writing: socket.socket, is_slow: bool) -> None:
        with suppress(OSError):
            while data := reading.recv(PIECE if self.rate else 1 << 16):
                writing.sendall(data)
                if is_slow and self.rate:
                    time.sleep(len(data) / self.rate)
        _end(reading, writing)

    def close(self) -> None:
        self.rate = None
        _end(self._listener, *self._sockets)
        for thread in self._threads:
            thread.join(10)
        for one in (self._listener, *self._sockets):
            one.close()


def _end(*sockets: socket.socket) -> None:
    """Wake up whoever reads from or writes to them."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextmanager
def slow_link(to_port: int) -> Iterator[SlowLink]:
    """A link until the end of the block."""
    link = SlowLink(to_port)
    try:
        yield link
    finally:
        link.close()
