"""Messages between the embedded API server and the driver that owns its sockets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class User(msgspec.Struct, frozen=True):
    """An authenticated user. groups: as RBAC subjects of kind Group name them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class HttpRequest(msgspec.Struct, frozen=True):
    """One HTTP request with its whole body.

    path: as sent, still percent-encoded, without the query. query: name and value pairs in the
    order sent, decoded. headers: names in lower case. peer: the connection's other end, for flow
    limits; "" if unknown.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    body: bytes = b""
    peer: str = ""


class HttpResponse(msgspec.Struct, frozen=True):
    """One HTTP response.

    headers: name and value pairs, a name may repeat (Warning). commit: the number of the
    `PersistBatch` that must be saved before this is sent; 0 if nothing was written. after: seconds
    by which it is delayed, as the original delays the error of a future resourceVersion.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    commit: int = 0
    after: float = 0.0


class WatchResponse(msgspec.Struct, frozen=True):
    """The response of a watch. number: the stream, for `ApiServer.read`."""

    status: int
    headers: tuple[tuple[str, str], ...]
    number: int


class StreamChunk(msgspec.Struct, frozen=True):
    """The next bytes of a stream; may be empty. end: the stream is closed."""

    body: bytes
    end: bool = False


class PersistBatch(msgspec.Struct, frozen=True):
    """Writes to persist, in order. number: to be passed to `ApiServer.saved`.

    records: key, version and value (None: deleted) of every change since the last batch.
    """

    number: int
    records: tuple[tuple[str, int, bytes | None], ...]
