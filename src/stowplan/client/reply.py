"""Reply: the answer to one HTTP/1.1 request, read from the bytes of a connection as they come.

Enough of HTTP for answers to writes: bodies by length, in chunks, or until the connection ends.
What cannot be understood is refused, as after it nobody knows where the next answer begins.

Source: RFC 9112.
"""

from __future__ import annotations

import re

from stowplan.client.answers import Answer, retry_after_of

HEAD_MAX = 1 << 16
ANSWER_MAX = 1 << 24
"""Far more than any answer to a write: an object may have some MiB."""
_END = b"\r\n\r\n"
_FIRST = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: [^\r\n]*)?(?=\r\n|\Z)")
_READ = re.compile(
    rb"\r\n(content-(?:length|type)|transfer-encoding|connection|retry-after):[ \t]*([^\r\n]*)",
    re.IGNORECASE,
)
"""The headers that are read; the others are passed over in one go."""
_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_BODILESS = (204, 304)


class BadReply(ValueError):
    """Bytes that are no answer: says what was got and what was wanted."""


class Reply:
    """One answer. status: 0 before its head is there. stays: whether another request may follow on
    the connection, once the answer is whole."""

    def __init__(self) -> None:
        self.status = 0
        self.stays = True
        self._n_bytes = 0
        self._rest = b""
        self._chunks: list[bytes] | None = None
        self._length: int | None = None
        self._retry_after: float | None = None
        self._content_type = ""

    def fed(self, data: bytes) -> Answer | None:
        """The next bytes; the answer as soon as it is whole. Raises BadReply."""
        self._n_bytes += len(data)
        if self._n_bytes > ANSWER_MAX:
            raise BadReply(f"got an answer of over {ANSWER_MAX} bytes, wanted a shorter one")
        if self._rest:
            data, self._rest = self._rest + data, b""
        while not self.status:
            end = data.find(_END)
            if end < 0:
                if len(data) > HEAD_MAX:
                    raise BadReply(f"got a head of over {HEAD_MAX} bytes, wanted a shorter one")
                self._rest = data
                return None
            self._read_head(data[:end])
            data = data[end + len(_END) :]
        if self._chunks is not None:
            return self._in_chunks(data, self._chunks)
        return self._by_length(data)

    def ended(self) -> Answer | None:
        """The connection has ended; the answer where that is its end."""
        self.stays = False
        if self.status and self._chunks is None and self._length is None:
            return self._whole(self._rest)
        return None

    def _whole(self, body: bytes) -> Answer:
        return Answer(self.status, body, self._retry_after, self._content_type)

    # The head.

    def _read_head(self, head: bytes) -> None:
        found = _FIRST.match(head)
        if found is None:
            raise BadReply(f"got {head[:80]!r}, wanted HTTP/1.1 and a status")
        status = int(found[2])
        if status < 200:
            # An answer about the answer, which comes behind it.
            return
        self.status = status
        self.stays = found[1] == b"1"
        for name, value in _READ.findall(head, found.end()):
            self._read_header(name.lower(), value.rstrip())
        if status in _BODILESS:
            self._chunks, self._length = None, 0
        elif self._chunks is not None:
            self._length = None

    def _read_header(self, name: bytes, value: bytes) -> None:
        if name == b"content-length":
            if _LENGTH.fullmatch(value) is None or self._length not in (None, int(value)):
                raise BadReply(f"got Content-Length {value[:80]!r}, wanted one number")
            self._length = int(value)
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked":
                raise BadReply(f"got Transfer-Encoding {value[:80]!r}, wanted chunked")
            self._chunks = []
        elif name == b"connection":
            options = {option.strip() for option in value.lower().split(b",")}
            self.stays = (self.stays or b"keep-alive" in options) and b"close" not in options
        elif name == b"retry-after":
            self._retry_after = retry_after_of(value.decode("latin-1"))
        elif name == b"content-type":
            self._content_type = value.decode("latin-1").partition(";")[0].strip()

    # The body.

    def _by_length(self, data: bytes) -> Answer | None:
        length = self._length
        if length is None or len(data) < length:
            self._rest = data
            return None
        # What comes behind the answer has not been asked for.
        self.stays &= len(data) == length
        return self._whole(data[:length])

    def _in_chunks(self, data: bytes, chunks: list[bytes]) -> Answer | None:
        at = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            text = data[at:end].partition(b";")[0].strip()
            if _SIZE.fullmatch(text) is None:
                raise BadReply(f"got the chunk size {text[:80]!r}, wanted a hexadecimal number")
            size, start = int(text, 16), end + 2
            if size == 0:
                # Trailers, which nobody reads, end as a head does.
                end = data.find(_END, end)
                if end < 0:
                    break
                self.stays &= len(data) == end + len(_END)
                return self._whole(b"".join(chunks))
            if len(data) < start + size + 2:
                break
            if data[start + size : start + size + 2] != b"\r\n":
                raise BadReply(f"got a chunk of more than {size} bytes, wanted its end")
            chunks.append(data[start : start + size])
            at = start + size + 2
        self._rest = data[at:]
        return None
