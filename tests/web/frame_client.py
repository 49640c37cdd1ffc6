"""A reader of the page's frames, as docs/page-api.md describes it: the state that a viewer has."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stowplan.web.model.page_frames import (
    ALIGNMENT,
    DTYPES,
    HEADER,
    LAYOUT,
    Array,
    FrameBody,
    FrameHeader,
    FrameKind,
    Topic,
)

Tree = dict[str, Any]


class FrameError(ValueError):
    """Bytes that are no frame."""


def decode_frame(data: bytes) -> tuple[FrameHeader, FrameBody]:
    """What `encode_frame` was given, arrays in their own types. Raises FrameError."""
    if len(data) < HEADER.size:
        raise FrameError(f"frame: {len(data)} bytes: expected at least {HEADER.size}")
    layout, topic, kind, _, epoch, sequence, n_text, time, n_arrays, _ = HEADER.unpack_from(data)
    if layout != LAYOUT:
        raise FrameError(f"frame: layout {layout}: expected {LAYOUT}")
    end = HEADER.size + n_text
    try:
        tree: Tree = msgspec.json.decode(data[HEADER.size : end])
        header = FrameHeader(Topic(topic), FrameKind(kind), epoch, sequence, time)
    except ValueError as problem:
        raise FrameError(f"frame: {problem}") from None
    listed = tree.pop("arrays", [])
    if len(listed) != n_arrays:
        raise FrameError(f"frame: {n_arrays} arrays: expected {len(listed)}")
    arrays: dict[str, Array] = {}
    place = end + -end % ALIGNMENT
    for one in listed:
        dtype = DTYPES[one["type"]]
        size = one["length"] * dtype.itemsize
        if place + size > len(data):
            raise FrameError(f"frame: array {one['name']!r} ends after the frame")
        arrays[one["name"]] = np.frombuffer(data, dtype, one["length"], place)
        place += size + -size % ALIGNMENT
    return header, FrameBody(tree, arrays)


class FrameClient:
    """state: of each topic, as JSON and lists. gaps: topics of which a snapshot must be asked for.
    n_frames: frames received. is_right: for tests that compare it with another one."""

    def __init__(self) -> None:
        self.state: dict[Topic, Tree] = {}
        self.sequence: dict[Topic, tuple[int, int]] = {}
        self.gaps: set[Topic] = set()
        self.n_frames = 0
        self.is_right = True

    def take(self, frame: bytes) -> Topic:
        """Apply a frame; returns its topic."""
        header, body = decode_frame(frame)
        topic = header.topic
        self.n_frames += 1
        if header.kind is FrameKind.SNAPSHOT:
            arrays = {name: values.tolist() for name, values in body.arrays.items()}
            self.state[topic] = {**body.tree, **arrays}
            if topic is Topic.PENDING:
                rows = {row[0]: row for row in body.tree["rows"]}
                self.state[topic]["rows"] = rows
            self.gaps.discard(topic)
        elif self.sequence.get(topic) != (header.epoch, header.sequence - 1):
            self.gaps.add(topic)
        if topic not in self.gaps:
            self.sequence[topic] = header.epoch, header.sequence
            if header.kind is FrameKind.UPDATE:
                self._update(topic, body.tree, body.arrays)
        return topic

    def _update(self, topic: Topic, tree: Tree, arrays: Any) -> None:
        state = self.state[topic]
        if topic is Topic.NODES:
            rows = arrays["rows"].tolist()
            for name, values in arrays.items():
                if name == "cardUsed":
                    state[name] = values.tolist()
                elif name != "rows":
                    for row, value in zip(rows, values.tolist(), strict=True):
                        state[name][row] = value
        elif topic is Topic.PENDING:
            state["reasons"] += tree["newReasons"]
            for number in tree["removed"]:
                del state["rows"][number]
            state["rows"] |= {row[0]: row for row in tree["rows"]}
            state |= {name: tree[name] for name in ("total", "complete", "gpusWaiting", "groups")}
        elif topic is Topic.DECISIONS:
            state["decisions"] += tree["decisions"]
        else:
            self.state[topic] = tree
