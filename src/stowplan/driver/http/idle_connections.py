"""Idle connections, and which of them is closed when there are too many.

Opening a connection needs no token. So when no more can be opened, those that have never had an
accepted request are closed first, the oldest before the others.
"""

from __future__ import annotations

import asyncio
import resource
from typing import NamedTuple
from weakref import WeakKeyDictionary

_FILES_KEPT_MIN = 64
_REFUSED = (401, 403)

IdleConnection = asyncio.BaseTransport | asyncio.Task[None]
"""A connection, or the task that waits for its first byte."""


def connections_max(wanted: int) -> int:
    """`wanted`, or fewer if the process may not open so many files; other parts need some too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, files - max(_FILES_KEPT_MIN, files // 4)))


class _IdleSince(NamedTuple):
    """accepted: a request on it was neither 401 nor 403. since: seconds of the loop's clock."""

    accepted: bool
    since: float


class IdleConnections:
    """The idle connections, and since when."""

    def __init__(self) -> None:
        self._resting: WeakKeyDictionary[IdleConnection, _IdleSince] = WeakKeyDictionary()
        self._accepted: WeakKeyDictionary[IdleConnection, bool] = WeakKeyDictionary()

    def mark_idle(self, connection: IdleConnection | None, status: int = 401) -> None:
        """Mark as idle. status: of the last response."""
        if connection is None:
            return
        accepted = connection in self._accepted
        if not accepted and status not in _REFUSED:
            self._accepted[connection] = accepted = True
        since = asyncio.get_running_loop().time()
        self._resting[connection] = _IdleSince(accepted, since)

    def mark_busy(self, connection: IdleConnection | None) -> None:
        """Mark as busy: a complete request has arrived."""
        if connection is not None:
            self._resting.pop(connection, None)

    def close_one(self) -> bool:
        """Close the first one by order; False if none is idle."""
        for connection in sorted(self._resting, key=self._resting.__getitem__):
            del self._resting[connection]
            if isinstance(connection, asyncio.Task):
                if connection.cancel():
                    return True
            elif not connection.is_closing():
                # Not `close`, which waits for the client over TLS.
                if isinstance(connection, asyncio.WriteTransport):
                    connection.abort()
                return True
        return False
