"""Frames of a recording: length, checksum and payload, appended one after the other.

A frame is a head of 13 bytes and a payload. The head has the kind (1 byte), the length and the
CRC-32 of the payload, and the CRC-32 of these nine bytes, all little-endian. The head's own
checksum distinguishes a damaged length from a frame whose end was not written.

A process that is killed leaves a frame whose end is missing; a computer that loses power may leave
zeros in its place. Both are a torn tail, which a reader cuts. Every other deviation is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

_NAME = b"stowplan-recording"
VERSION = 3
MAGIC = _NAME + bytes((VERSION,)) + b"\n"
"""First bytes of a file; the number is the version of the format."""

_COMPRESSION_LEVEL, _WINDOW_BITS, _MEMORY_LEVEL = 1, 15, 6
"""Of zlib: higher levels cost up to four times the time and save a tenth of the size, and more
memory than a frame needs costs a tenth of the time."""

HEADER, SNAPSHOT, CALLS, END = b"H", b"S", b"D", b"E"
"""Kinds of frames."""
_CALLS_2 = b"C"
"""What format 2 has in place of `CALLS`; read as such."""
_OTHERS = HEADER + SNAPSHOT + END
_KINDS = {_NAME + b"\x02\n": _OTHERS + _CALLS_2, MAGIC: _OTHERS + CALLS}
"""First bytes of a file -> the kinds that it may have."""

_HEAD = struct.Struct("<cII")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _HEAD.size + _CHECK.size


class RecordingError(ValueError):
    """A recording cannot be read or used; the text says which file, where, and why."""


class Frame(NamedTuple):
    """kind: one of the kinds above. at: position in the file."""

    kind: bytes
    payload: bytes
    at: int


class TornTail(NamedTuple):
    """The incomplete end of a file. at: end of the last whole frame. n_bytes: bytes after it."""

    at: int
    n_bytes: int


def compress(payload: bytes) -> bytes:
    """The payload as `zlib.decompress` reads it."""
    work = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
    return work.compress(payload) + work.flush()


def encode_frame(kind: bytes, payload: bytes) -> bytes:
    """A frame as it is appended."""
    head = _HEAD.pack(kind, len(payload), zlib.crc32(payload))
    return head + _CHECK.pack(zlib.crc32(head)) + payload


def read_frames(data: bytes, source: str) -> Iterator[Frame | TornTail]:
    """The whole frames of a file, and a TornTail at the end if there is one. Raises
    RecordingError."""
    kinds = _kinds_of(data, source)
    if not kinds:
        yield TornTail(0, len(data))
        return
    at = len(MAGIC)
    while at < len(data):
        head = data[at : at + _HEAD.size]
        check = data[at + _HEAD.size : at + HEAD_BYTES]
        if len(check) < _CHECK.size or not data[at:].strip(b"\0"):
            yield TornTail(at, len(data) - at)
            return
        if _CHECK.unpack(check)[0] != zlib.crc32(head):
            raise damaged(source, at, "wrong checksum of a frame's head")
        kind, length, crc = _HEAD.unpack(head)
        payload = data[at + HEAD_BYTES : at + HEAD_BYTES + length]
        if len(payload) < length:
            yield TornTail(at, len(data) - at)
            return
        if zlib.crc32(payload) != crc:
            if at + HEAD_BYTES + length == len(data) and payload.endswith(b"\0" * min(length, 512)):
                yield TornTail(at, len(data) - at)
                return
            raise damaged(source, at, "wrong checksum of a frame")
        if kind not in kinds:
            raise damaged(source, at, f"unknown kind of frame {kind!r}")
        yield Frame(CALLS if kind == _CALLS_2 else kind, payload, at)
        at += HEAD_BYTES + length


def _kinds_of(data: bytes, source: str) -> bytes:
    """The kinds of frames that a file may have, by its first bytes; none if they are incomplete.
    Raises RecordingError."""
    kinds = _KINDS.get(data[: len(MAGIC)])
    if kinds is not None:
        return kinds
    if any(magic.startswith(data) for magic in _KINDS) or not data.strip(b"\0"):
        return b""
    if data.startswith(_NAME):
        found = data[len(_NAME)]
        raise RecordingError(f"{source}: format {found} of recordings: expected 2 or {VERSION}")
    raise RecordingError(f"{source}: not a recording of `stowplan ... --record`")


def damaged(source: str, at: int, what: str) -> RecordingError:
    """The error for damage at a position."""
    return RecordingError(f"{source}: damaged at byte {at:,}: {what}; restore it from a copy")
