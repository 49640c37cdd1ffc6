"""What a viewer of the page has, from its frames: the state of each topic.

docs/page-api.md describes frames and topics. This reader is for programs; the browser has its
own.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import numpy as np

from stowplan.objects.encoding.tree import Tree
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

DECISIONS_MAX = 500


class InvalidFrame(ValueError):
    """Bytes that are no frame of this layout."""


def read_frame(data: bytes) -> tuple[FrameHeader, FrameBody]:
    """Header and content of a frame. Raises InvalidFrame."""
    if len(data) < HEADER.size:
        raise InvalidFrame(f"frame of {len(data)} bytes: expected at least {HEADER.size}")
    layout, topic, kind, _, epoch, sequence, n_text, time, _, _ = HEADER.unpack_from(data)
    if layout != LAYOUT:
        raise InvalidFrame(f"frame of layout {layout}: expected {LAYOUT}")
    end = HEADER.size + n_text
    try:
        tree: Tree = msgspec.json.decode(data[HEADER.size : end])
        header = FrameHeader(Topic(topic), FrameKind(kind), epoch, sequence, time)
        return header, FrameBody(tree, _arrays(tree.pop("arrays", []), data, end))
    except (ValueError, KeyError) as problem:
        raise InvalidFrame(f"frame: {problem}") from None


def _arrays(listed: list[Tree], data: bytes, end: int) -> dict[str, Array]:
    found: dict[str, Array] = {}
    place = end + -end % ALIGNMENT
    for one in listed:
        dtype = DTYPES[one["type"]]
        found[one["name"]] = np.frombuffer(data, dtype, one["length"], place)
        size = one["length"] * dtype.itemsize
        place += size + -size % ALIGNMENT
    return found


class PageState:
    """The state of all topics, empty before their first snapshot.

    nodes: the columns by the name of their array, float64 (n_nodes,). pending: rows by id. time:
    of the latest frame, milliseconds since 1970, 0.0 for none.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self.status: Tree = {}
        self.queues: Tree = {}
        self.decisions: deque[Tree] = deque(maxlen=DECISIONS_MAX)
        self.names: list[str] = []
        self.resources: list[str] = []
        self.groups: dict[str, list[str]] = {}
        self.nodes: dict[str, Array] = {}
        self.pending: dict[int, list[Any]] = {}
        self.pending_tree: Tree = {"total": 0, "complete": True, "gpusWaiting": 0, "groups": []}
        self.columns: dict[str, int] = {}
        self.reasons: list[list[str]] = []
        self._sequence: dict[Topic, tuple[int, int]] = {}

    def take(self, data: bytes) -> Topic | None:
        """Apply a frame; the topic of which a snapshot is needed, None for none. Raises
        InvalidFrame."""
        header, body = read_frame(data)
        topic = header.topic
        is_update = header.kind is FrameKind.UPDATE
        if is_update and self._sequence.get(topic) != (header.epoch, header.sequence - 1):
            self._sequence.pop(topic, None)
            return topic
        self._sequence[topic] = header.epoch, header.sequence
        self.time = header.time
        self._apply(topic, body, is_update=is_update)
        return None

    def _apply(self, topic: Topic, body: FrameBody, *, is_update: bool) -> None:
        match topic:
            case Topic.STATUS:
                self.status = body.tree
            case Topic.QUEUES:
                self.queues = body.tree
            case Topic.NODES if is_update:
                self._change_nodes(body)
            case Topic.NODES:
                self._replace_nodes(body)
            case Topic.PENDING:
                self._pending(body.tree, is_update=is_update)
            case Topic.DECISIONS:
                if not is_update:
                    self.decisions.clear()
                self.decisions.extend(body.tree.get("decisions", ()))

    def _replace_nodes(self, body: FrameBody) -> None:
        self.names = body.tree["names"]
        self.resources = [one["name"] for one in body.tree["resources"]]
        self.groups = body.tree.get("groups", {})
        self.nodes = {name: values.astype(np.float64) for name, values in body.arrays.items()}

    def _change_nodes(self, body: FrameBody) -> None:
        rows = body.arrays.get("rows")
        for name, values in body.arrays.items():
            column = self.nodes.get(name)
            if column is None:
                continue
            if name == "cardUsed":
                column[:] = values
            elif rows is not None:
                column[rows] = values

    def _pending(self, tree: Tree, *, is_update: bool) -> None:
        if not is_update:
            self.pending = {}
            self.reasons = tree["reasons"]
            self.columns = {name: place for place, name in enumerate(tree["columns"])}
        self.reasons = [*self.reasons, *tree.get("newReasons", ())]
        for number in tree.get("removed", ()):
            self.pending.pop(number, None)
        self.pending_tree = {name: tree[name] for name in self.pending_tree if name in tree}
        if not self.pending_tree.get("complete", True):
            self.pending = {}
        self.pending |= {row[self.columns["id"]]: row for row in tree.get("rows", ())}

    # Readings.

    def share(self, resource: str) -> Array:
        """float64 (n_nodes,): requested by allocatable, NaN where there is none of it."""
        empty = np.zeros(len(self.names))
        offered = self.nodes.get(f"allocatable:{resource}", empty)
        used = self.nodes.get(f"requested:{resource}", empty)
        found = np.full(len(self.names), np.nan)
        np.divide(used, offered, out=found, where=offered > 0)
        return found

    def reason(self, number: int) -> str:
        """Rule and reason by number, "" for an unknown one."""
        if not 0 <= number < len(self.reasons):
            return ""
        return ": ".join(part for part in self.reasons[number] if part)
