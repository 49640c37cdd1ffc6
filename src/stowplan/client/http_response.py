"""Incremental reader of one HTTP/1.1 response.

The library finds its parts; what is added here are bounds on its size, and whether the connection
may be used again. A malformed response is an error, because the start of the next one is unknown.

Source: RFC 9112.
"""

from __future__ import annotations

import math
import zlib

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from stowplan.client.responses import ApiResponse, parse_retry_after

HEAD_BYTES_MAX = 1 << 16
RESPONSE_BYTES_MAX = 1 << 24
"""Far above any response to a write: an object has at most some MiB."""
ENCODING = "gzip"
"""The Content-Encoding that is understood."""
STREAMED_STATUS = 200
_VERSIONS = ("1.0", "1.1")
_GZIP_WINDOW = 31


class MalformedResponse(ValueError):
    """Bytes that are not a valid HTTP response."""


class ResponseParser:
    """Parser of one response. status: 0 until the head is complete. keep_alive: whether the
    connection can carry another request once the response is complete."""

    def __init__(self, bytes_max: float = RESPONSE_BYTES_MAX) -> None:
        """bytes_max: of the response as it is sent."""
        self.status = 0
        self.keep_alive = True
        self._bytes_max = bytes_max
        self._n_bytes = 0
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._body: list[bytes] = []
        self._is_framed = False
        self._is_complete = False
        self._fault = ""
        self._retry_after: float | None = None
        self._content_type = ""
        self._is_head = True
        self._unpacking: zlib._Decompress | None = None
        self._has_body = False
        self._n_unpacked = 0

    def feed(self, data: bytes) -> ApiResponse | None:
        """Add bytes; returns the response when it is complete. Raises MalformedResponse."""
        assert self._parser is not None
        self._n_bytes += len(data)
        if self._n_bytes > self._bytes_max:
            raise MalformedResponse(f"response is longer than {self._bytes_max} bytes")
        try:
            self._parser.feed_data(data)
        except HttpParserError as problem:
            # Bytes after the response belong to no request: do not reuse the connection.
            self.keep_alive = False
            if not self._is_complete:
                raise MalformedResponse(f"invalid HTTP response: {problem}") from None
        except HttpParserUpgrade:
            raise MalformedResponse("invalid HTTP response: upgrade to another protocol") from None
        if self._fault:
            raise MalformedResponse(self._fault)
        if self._is_complete:
            return self._finish()
        if not self.status and self._n_bytes > HEAD_BYTES_MAX:
            raise MalformedResponse(f"response head is longer than {HEAD_BYTES_MAX} bytes")
        return None

    def ended(self) -> ApiResponse | None:
        """Handle the end of the connection; returns the response if that completes it."""
        self.keep_alive = False
        return self._finish() if self.status and not self._is_framed and not self._is_cut else None

    @property
    def _is_cut(self) -> bool:
        """A gzip body has begun and not ended."""
        return self._unpacking is not None and self._has_body and not self._unpacking.eof

    def _finish(self) -> ApiResponse:
        # The parser refers to this object: without it, no cycle is left to be collected.
        self._parser = None
        body = b"".join(self._body)
        return ApiResponse(self.status, body, self._retry_after, self._content_type)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """A response begins: an informational one (1xx), the final one, or one too many."""
        if self._is_complete:
            self.keep_alive = False
        else:
            # What an informational response says is not said of the one that follows.
            self._is_head, self._is_framed, self._unpacking = True, False, None
            self._retry_after, self._content_type = None, ""

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or one of a trailer, which says nothing that is read here."""
        if not self._is_head:
            return
        lower = name.lower()
        if lower == b"content-length":
            self._is_framed = True
        elif lower == b"transfer-encoding":
            self._is_framed = True
            if value.strip().lower() != b"chunked":
                self._fault = f"unsupported Transfer-Encoding: {value[:80]!r}"
        elif lower == b"content-encoding":
            self._take_encoding(value.strip().lower())
        elif lower == b"retry-after":
            self._retry_after = parse_retry_after(value.decode("latin-1"))
        elif lower == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip()

    def _take_encoding(self, value: bytes) -> None:
        if value == ENCODING.encode():
            self._unpacking = zlib.decompressobj(_GZIP_WINDOW)
        elif value not in (b"", b"identity"):
            self._fault = f"unsupported Content-Encoding: {value[:80]!r}"

    def on_headers_complete(self) -> None:
        """The head has ended."""
        assert self._parser is not None
        self._is_head = False
        if self._parser.get_http_version() not in _VERSIONS:
            self._fault = f"invalid HTTP version: {self._parser.get_http_version()}"
        status = self._parser.get_status_code()
        if status >= 200 and not self._is_complete:
            self.status = status

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        if self._is_complete:
            return
        self._has_body = True
        self._body.append(part if self._unpacking is None else self._unpacked(part))

    def _unpacked(self, part: bytes) -> bytes:
        """A part of a gzip body, of one member or several, as it was before."""
        found: list[bytes] = []
        try:
            while part:
                if self._unpacking is None or self._unpacking.eof:
                    self._unpacking = zlib.decompressobj(_GZIP_WINDOW)
                n_more = (
                    0 if self._bytes_max == math.inf else self._bytes_max - self._n_unpacked + 1
                )
                found.append(self._unpacking.decompress(part, int(n_more)))
                self._n_unpacked += len(found[-1])
                if self._unpacking.unconsumed_tail or self._n_unpacked > self._bytes_max:
                    self._fault = f"response is longer than {self._bytes_max} bytes"
                    break
                part = self._unpacking.unused_data
        except zlib.error as problem:
            self._fault = f"invalid gzip body: {problem}"
        return b"".join(found)

    def on_message_complete(self) -> None:
        """A response ends."""
        assert self._parser is not None
        if self.status and not self._is_complete:
            self._is_complete = True
            if self._is_cut and not self._fault:
                self._fault = "the gzip body is incomplete"
            self.keep_alive = self._parser.should_keep_alive()


class StreamParser(ResponseParser):
    """Parser of a response whose body is taken as it arrives. is_streamed: its status is 200; any
    other is read like a `ResponseParser` reads it."""

    def __init__(self) -> None:
        super().__init__(math.inf)

    @property
    def is_streamed(self) -> bool:
        """True when the head has arrived, with status 200."""
        return self.status == STREAMED_STATUS

    def take(self) -> bytes:
        """The bytes of the body that have arrived since the last call."""
        data = b"".join(self._body)
        self._body.clear()
        return data
