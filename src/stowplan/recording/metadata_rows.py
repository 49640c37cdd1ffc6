"""Metadata of pods as rows: the first one, and of the others only the bytes that differ.

The encoded metadata of pods of one workload have the same length and differ in a few bytes, those
of a name's end and of a uid. These are written by place, so that what is compressed is a tenth, and
the digits that pods in a row have at a place stand side by side.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec
import numpy as np

from stowplan.objects.meta import ObjectMeta
from stowplan.recording.frames import RecordingError

BLOCK = 1024
"""Pods of a block: what a processor's cache holds, and the numbers in names mostly have as many
digits."""
ROWS_MIN = 32
"""Least number of rows of a block that is written as rows."""
FEW = 128
"""Pods that are written as they are where lengths change from pod to pod."""


class MetadataRows(msgspec.Struct, frozen=True, array_like=True):
    """Metadata of a block of pods.

    first: encoded, of the first pod; b"" if their encoded lengths do not agree. places: where rows
    differ. values: (places, rows) bytes there; without `first` the encoded list.
    """

    n_rows: int
    first: bytes
    places: list[int]
    values: bytes

    def metadata(self) -> list[ObjectMeta]:
        """Of each pod; raises RecordingError and msgspec.DecodeError."""
        if not self.first:
            return _METADATA.decode(self.values)
        width, n_rows, n_places = len(self.first), self.n_rows, len(self.places)
        is_sound = 0 <= n_rows <= BLOCK and len(self.values) == n_rows * n_places
        if not is_sound or not all(0 <= place < width for place in self.places):
            raise RecordingError("metadata rows of another size than they have")
        rows = np.empty((n_rows, width), np.uint8)
        rows[:] = np.frombuffer(self.first, np.uint8)
        rows[:, self.places] = np.frombuffer(self.values, np.uint8).reshape(n_places, n_rows).T
        return _METADATA.decode(_list_head(n_rows) + rows.tobytes())


def rows_of(metadata: Sequence[ObjectMeta]) -> list[MetadataRows]:
    """The rows of pods in order, by blocks."""
    blocks: list[MetadataRows] = []
    # Of the usual size, which saves enlarging it.
    content = bytearray(128 * min(BLOCK, len(metadata)))
    first = 0
    while first < len(metadata):
        block = metadata[first : first + BLOCK]
        block = block[: _end_of_length(block)]
        _ENCODER.encode_into(block, content)
        blocks.append(_rows(len(block), content))
        first += len(block)
    return blocks


def _end_of_length(block: Sequence[ObjectMeta]) -> int:
    """How many pods of a block to write together: the whole block, unless a name has another digit
    somewhere within it."""
    n_rows, width = len(block), len(_ENCODER.encode(block[0]))
    if n_rows <= ROWS_MIN or len(_ENCODER.encode(block[-1])) == width:
        return n_rows
    end = bisect_left(range(n_rows), True, key=lambda at: len(_ENCODER.encode(block[at])) != width)
    # The first digits of numbers from zero, or pods of several templates in turn.
    return end if end >= ROWS_MIN else min(FEW, n_rows)


def _rows(n_rows: int, content: bytearray) -> MetadataRows:
    """A block. content: its metadata, encoded."""
    head = len(_list_head(n_rows))
    width, rest = divmod(len(content) - head, n_rows)
    # An array costs more than it saves where there are few rows.
    if rest or n_rows < ROWS_MIN:
        return MetadataRows(n_rows, b"", [], bytes(content))
    flat = np.frombuffer(content, np.uint8, offset=head)
    places = np.flatnonzero(_any_of(flat[width:] ^ flat[:-width], width))
    values = flat.reshape(n_rows, width)[:, places].T.tobytes()
    return MetadataRows(n_rows, flat[:width].tobytes(), places.tolist(), values)


def _any_of(changes: np.ndarray, width: int) -> np.ndarray:
    """uint8 (width,): the bits that any row has. changes: (rows * width).

    Arrays of many short rows are slow, so as many rows as possible are one first.
    """
    n_folds = ROWS_MIN // 2
    whole = len(changes) - len(changes) % (n_folds * width)
    folded = np.bitwise_or.reduce(changes[:whole].reshape(n_folds, -1))
    parts = np.concatenate((folded, changes[whole:])).reshape(-1, width)
    found: np.ndarray = np.bitwise_or.reduce(parts)
    return found


def _list_head(length: int) -> bytes:
    """How MessagePack begins a list."""
    if length < 1 << 4:
        return bytes((0x90 | length,))
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2)
    return b"\xdd" + length.to_bytes(4)


_ENCODER = msgspec.msgpack.Encoder()
_METADATA = msgspec.msgpack.Decoder(list[ObjectMeta])
