"""Packed bodies: stored bytes of objects that were not written lately, compressed.

Objects of a kind are alike, so each is compressed with a dictionary made of others of its kind: a
pod of 2.4 KB takes some 100 bytes. Reading one back costs a microsecond, compressing it seven.
"""

from __future__ import annotations

import zlib

import msgspec

WINDOW_BITS = 13
"""The window of compression, 8 KiB: a dictionary is no longer."""
LEVEL, MEMORY_LEVEL = 3, 5
DICTIONARY_BYTES_MAX = (1 << WINDOW_BITS) - 512
BODY_BYTES_MIN = 512
BODY_BYTES_MAX = 32 << 10
"""Longer bodies are kept as they are: a write would wait for their compression."""
TRIAL_COUNT = 256
"""So many bodies are packed before their dictionary is checked."""
SHARE_MAX = 0.2
"""A new dictionary is made if packed bodies take a larger share of their length."""


class PackedBody(msgspec.Struct, frozen=True, gc=False):
    """Compressed bytes and the dictionary that they need."""

    data: bytes
    dictionary: bytes

    def unpacked(self) -> bytes:
        """The bytes that were packed."""
        return zlib.decompressobj(-WINDOW_BITS, self.dictionary).decompress(self.data)


StoredBody = bytes | PackedBody


def unpacked(body: StoredBody) -> bytes:
    """The bytes of a stored body."""
    return body if type(body) is bytes else body.unpacked()  # type: ignore[union-attr]


class BodyPacker:
    """Packs bodies of one kind, with dictionaries made of bodies that it was given."""

    __slots__ = ("_compressor", "_count", "_dictionary", "_packed_bytes", "_plain_bytes", "_recent")

    def __init__(self) -> None:
        self._recent: list[bytes] = []
        self._count = 0
        self._plain_bytes = 0
        self._packed_bytes = 0
        self._dictionary = b""
        self._compressor: zlib._Compress | None = None

    def pack(self, body: bytes) -> StoredBody:
        """The body packed, or itself if that saves less than half of it."""
        if not BODY_BYTES_MIN <= len(body) <= BODY_BYTES_MAX:
            return body
        if self._compressor is None or self._count >= TRIAL_COUNT:
            self._check_dictionary(body)
        if self._count >= TRIAL_COUNT - 3:
            self._recent.append(body)
        assert self._compressor is not None
        compressor = self._compressor.copy()
        data = compressor.compress(body) + compressor.flush()
        self._count += 1
        self._plain_bytes += len(body)
        self._packed_bytes += len(data)
        return PackedBody(data, self._dictionary) if 2 * len(data) < len(body) else body

    def _check_dictionary(self, body: bytes) -> None:
        """Make a new dictionary if there is none, or if it packed the last bodies badly."""
        if self._compressor is None or self._packed_bytes > SHARE_MAX * self._plain_bytes:
            # What is at the end is found with the shortest references.
            self._dictionary = b"".join([*self._recent, body])[-DICTIONARY_BYTES_MAX:]
            self._compressor = zlib.compressobj(
                LEVEL, zlib.DEFLATED, -WINDOW_BITS, MEMORY_LEVEL, zlib.Z_FIXED, self._dictionary
            )
        self._recent.clear()
        self._count = self._plain_bytes = self._packed_bytes = 0
