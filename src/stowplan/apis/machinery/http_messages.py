"""What passes between the embedded API server and whoever owns its sockets, as values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class User(msgspec.Struct, frozen=True):
    """Who asks. groups: those that RBAC subjects of kind Group name."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class HttpRequest(msgspec.Struct, frozen=True):
    """One HTTP request whose body has been read whole.

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
    """One HTTP answer.

    headers: name and value pairs, a name may repeat (Warning). commit: the number of the
    `PersistBatch` batch that must be saved before this is sent; 0 if nothing was written. after:
    seconds to wait before it is sent, as the original waits before it refuses a version of the
    future.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    commit: int = 0
    after: float = 0.0


class WatchResponse(msgspec.Struct, frozen=True):
    """An answer that goes on: a watch. number: what `ApiServer.read` is asked with."""

    status: int
    headers: tuple[tuple[str, str], ...]
    number: int


class StreamChunk(msgspec.Struct, frozen=True):
    """The next bytes of a stream. end: nothing follows, the stream is closed. body may be empty."""

    body: bytes
    end: bool = False


class PersistBatch(msgspec.Struct, frozen=True):
    """Writes that must last, in order. number: what `ApiServer.saved` is told when they do.

    records: key, version and value (None: deleted) of every change since the last batch.
    """

    number: int
    records: tuple[tuple[str, int, bytes | None], ...]
