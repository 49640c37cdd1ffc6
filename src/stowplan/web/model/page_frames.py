"""Frames of the page: one binary form for snapshots and updates of every topic.

A header of 32 bytes, a JSON object, and typed arrays that the object lists; little endian, each
part padded to a multiple of 8 bytes. docs/page-api.md has the layout byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np

from stowplan.objects.encoding.tree import Tree

LAYOUT = 1
HEADER = struct.Struct("<BBBBIIIdII")
ALIGNMENT = 8
Array = np.ndarray[Any, np.dtype[Any]]
_TYPES: tuple[tuple[str, type[np.generic]], ...] = (
    ("u8", np.uint8),
    ("u16", np.uint16),
    ("u32", np.uint32),
    ("i32", np.int32),
    ("f64", np.float64),
)
DTYPES = {name: np.dtype(kind).newbyteorder("<") for name, kind in _TYPES}


class Topic(IntEnum):
    """Topic of a frame."""

    STATUS = 1
    NODES = 2
    PENDING = 3
    QUEUES = 4
    DECISIONS = 5
    REPLAY = 6

    @property
    def label(self) -> str:
        """The name in requests."""
        return self.name.lower()


LIVE_TOPICS = (Topic.STATUS, Topic.NODES, Topic.PENDING, Topic.QUEUES, Topic.DECISIONS)
TOPICS = {topic.label: topic for topic in LIVE_TOPICS}


class FrameKind(IntEnum):
    """Kind of a frame: it replaces the state of its topic, or changes it."""

    SNAPSHOT = 0
    UPDATE = 1


class FrameBody(msgspec.Struct, frozen=True):
    """Content of a frame. arrays: by name, one-dimensional, of any integer or float type."""

    tree: Tree
    arrays: Mapping[str, Array] = {}


class FrameHeader(msgspec.Struct, frozen=True):
    """topic, kind: what it is. epoch: of the server. sequence: of the topic, without gaps within an
    epoch. time: milliseconds since 1970."""

    topic: Topic
    kind: FrameKind
    epoch: int
    sequence: int
    time: float


def encode_frame(header: FrameHeader, body: FrameBody) -> bytes:
    """The bytes of a frame. Each array gets the smallest type that has all its values."""
    tree, arrays = body.tree, {name: smallest(one) for name, one in body.arrays.items()}
    if arrays:
        listed = [
            {"name": name, "type": type_name, "length": len(values)}
            for name, (type_name, values) in arrays.items()
        ]
        tree = {**tree, "arrays": listed}
    text = msgspec.json.encode(tree)
    head = HEADER.pack(
        LAYOUT,
        header.topic,
        header.kind,
        0,
        header.epoch,
        header.sequence,
        len(text),
        header.time,
        len(arrays),
        0,
    )
    parts = [head, _padded(text)]
    parts += [_padded(values.tobytes()) for _, values in arrays.values()]
    return b"".join(parts)


def smallest(values: Array) -> tuple[str, Array]:
    """Name of the smallest type that has all values, and the values in it. Whole numbers beyond 32
    bits become f64, which has them up to 2**53."""
    if values.dtype.kind not in "fiub":
        raise TypeError(f"frame: array of type {values.dtype}: expected numbers")
    if values.size == 0:
        return "u8", values.astype(DTYPES["u8"])
    if values.dtype.kind == "f" and not (values == np.floor(values)).all():
        return "f64", values.astype(DTYPES["f64"])
    low, high = values.min(), values.max()
    for name, kind in _TYPES[:-1]:
        bounds = np.iinfo(kind)  # type: ignore[type-var]
        if bounds.min <= low and high <= bounds.max:
            return name, values.astype(DTYPES[name])
    return "f64", values.astype(DTYPES["f64"])


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGNMENT)
