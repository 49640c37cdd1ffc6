"""Incremental parser of one HTTP/1.1 response.

Covers what responses to writes need: bodies by Content-Length, chunked, or until the connection
closes. A malformed response is an error, because the start of the next one is unknown.

Source: RFC 9112.
"""

from __future__ import annotations

import re

from stowplan.client.responses import ApiResponse, parse_retry_after

HEAD_BYTES_MAX = 1 << 16
RESPONSE_BYTES_MAX = 1 << 24
"""Far above any response to a write: an object has at most some MiB."""
_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?(?=\r\n|\Z)")
_HEADERS = re.compile(
    rb"\r\n(content-(?:length|type)|transfer-encoding|connection|retry-after):[ \t]*([^\r\n]*)",
    re.IGNORECASE,
)
"""Headers that are read; the regular expression skips all others in one pass."""
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_BODILESS = (204, 304)


class MalformedResponse(ValueError):
    """Bytes that are not a valid HTTP response."""


class ResponseParser:
    """Parser of one response. status: 0 until the head is complete. keep_alive: whether the
    connection can carry another request once the response is complete."""

    def __init__(self) -> None:
        self.status = 0
        self.keep_alive = True
        self._n_bytes = 0
        self._rest = b""
        self._chunks: list[bytes] | None = None
        self._length: int | None = None
        self._retry_after: float | None = None
        self._content_type = ""

    def feed(self, data: bytes) -> ApiResponse | None:
        """Add bytes; returns the response when it is complete. Raises MalformedResponse."""
        self._n_bytes += len(data)
        if self._n_bytes > RESPONSE_BYTES_MAX:
            raise MalformedResponse(f"response is longer than {RESPONSE_BYTES_MAX} bytes")
        if self._rest:
            data, self._rest = self._rest + data, b""
        while not self.status:
            end = data.find(_END)
            if end < 0:
                if len(data) > HEAD_BYTES_MAX:
                    raise MalformedResponse(f"response head is longer than {HEAD_BYTES_MAX} bytes")
                self._rest = data
                return None
            self._read_head(data[:end])
            data = data[end + len(_END) :]
        if self._chunks is not None:
            return self._feed_chunked(data, self._chunks)
        return self._feed_body(data)

    def ended(self) -> ApiResponse | None:
        """Handle the end of the connection; returns the response if that completes it."""
        self.keep_alive = False
        if self.status and self._chunks is None and self._length is None:
            return self._finish(self._rest)
        return None

    def _finish(self, body: bytes) -> ApiResponse:
        return ApiResponse(self.status, body, self._retry_after, self._content_type)

    # The head.

    def _read_head(self, head: bytes) -> None:
        found = _STATUS_LINE.match(head)
        if found is None:
            raise MalformedResponse(f"invalid status line: {head[:80]!r}")
        status = int(found[2])
        if status < 200:
            # An informational (1xx) response; the final one follows.
            return
        self.status = status
        self.keep_alive = found[1] == b"1"
        for name, value in _HEADERS.findall(head, found.end()):
            self._read_header(name.lower(), value.rstrip())
        if status in _BODILESS:
            self._chunks, self._length = None, 0
        elif self._chunks is not None:
            self._length = None

    def _read_header(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            if _LENGTH.fullmatch(value) is None or self._length not in (None, int(value)):
                raise MalformedResponse(f"invalid Content-Length: {value[:80]!r}")
            self._length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise MalformedResponse(f"unsupported Transfer-Encoding: {value[:80]!r}")
            self._chunks = []
        elif name == b"connection":
            options = {option.strip() for option in value.lower().split(b",")}
            self.keep_alive = (
                self.keep_alive or b"keep-alive" in options
            ) and b"close" not in options
        elif name == b"retry-after":
            self._retry_after = parse_retry_after(value.decode("latin-1"))
        elif name == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip()

    # The body.

    def _feed_body(self, data: bytes) -> ApiResponse | None:
        length = self._length
        if length is None or len(data) < length:
            self._rest = data
            return None
        # Bytes after the response belong to no request: do not reuse the connection.
        self.keep_alive &= len(data) == length
        return self._finish(data[:length])

    def _feed_chunked(self, data: bytes, chunks: list[bytes]) -> ApiResponse | None:
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            text = data[at:end].partition(b";")[0].strip()
            if _SIZE.fullmatch(text) is None:
                raise MalformedResponse(f"invalid chunk size: {text[:80]!r}")
            size, start = int(text, 16), end + 2
            if size == 0:
                # Trailers are ignored; they end like a head.
                end = data.find(_END, end)
                if end < 0:
                    break
                self.keep_alive &= len(data) == end + len(_END)
                return self._finish(b"".join(chunks))
            if len(data) < start + size + 2:
                break
            if data[start + size : start + size + 2] != b"\r\n":
                raise MalformedResponse(f"invalid chunk: no line end after {size} bytes")
            chunks.append(data[start : start + size])
            at = start + size + 2
        self._rest = data[at:]
        return None
