"""Watch lines and list pages to typed objects.

Nearly every line is an object of the expected kind and is decoded in one go. Whatever does not fit
(bookmarks with nulls, Statuses) is read with more patience. An object that makes no sense is passed
over and told: one that somebody has spoilt must not keep the others from being seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stowplan.client.answers import ListMeta, Status
from stowplan.objects.codec import DecodeError, convert, decode, without_nulls
from stowplan.objects.extender import spelt
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.pod import Pod
from stowplan.objects.templates import Templates

INITIAL_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the beginning of a streaming list."""

_SHOWN = 200


class Line(msgspec.Struct, frozen=True, gc=False):
    """A line of a watch. type: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: Any


class Bookmark(msgspec.Struct, frozen=True):
    """How far the watch has come. is_initial_end: all there was at the beginning has been told."""

    version: str
    is_initial_end: bool


class Unreadable(msgspec.Struct, frozen=True):
    """An object or a line that makes no sense. what: where, what was got, what was wanted.

    is_line: the line itself is broken, so nothing behind it can be trusted.
    """

    what: str
    is_line: bool = False


class Changed(msgspec.Struct, frozen=True, gc=False):
    """An object as a line shows it. type: ADDED, MODIFIED or DELETED."""

    type: str
    value: Object


Told = Changed | Bookmark | Status | Unreadable


class Page(msgspec.Struct, frozen=True):
    """A page of a list."""

    meta: ListMeta
    items: list[Object]
    faults: list[Unreadable]


class _Meta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Mark(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _RawLine(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _RawPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_mark = msgspec.json.Decoder(_Mark)
_raw_line = msgspec.json.Decoder(_RawLine)
_raw_page = msgspec.json.Decoder(_RawPage)
_failure = msgspec.json.Decoder(Status)
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Whole:
    """Objects as the API server spells them, for whoever has to show them to others: with all the
    fields that scheduling does not read."""

    def __init__(self) -> None:
        # By kind and key, not by uid: who takes another's place takes it here too.
        self._kept: dict[tuple[type, str], tuple[str, str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, value: Object, spelling: bytes) -> None:
        """The newest version of an object."""
        meta = value.metadata
        self._kept[_where(value)] = meta.uid, meta.resource_version, spelling

    def drop(self, value: Object) -> None:
        """An object is gone."""
        self._kept.pop(_where(value), None)

    def spelt(self, value: Object) -> dict[str, Any]:
        """An object with all its fields; where that version is not at hand, with those we know."""
        kept, meta = self._kept.get(_where(value)), value.metadata
        if kept is None or kept[:2] != (meta.uid, meta.resource_version):
            return spelt(value)
        tree: dict[str, Any] = msgspec.json.decode(kept[2])
        return tree


def _where(value: Object) -> tuple[type, str]:
    return type(value), value.key if isinstance(value, NamespacedObject) else value.name


class Decoder:
    """Reads lists and watches of one kind."""

    def __init__(
        self,
        kind: type[Object],
        templates: Templates | None = None,
        whole: Whole | None = None,
    ) -> None:
        """templates: pods of one template share what they have in common. whole: keeps objects as
        they are spelt."""
        self._kind = kind
        self._whole = whole
        items: Any = list[kind]  # type: ignore[valid-type]
        line = msgspec.defstruct("TypedLine", [("type", str), ("object", kind)], gc=False)
        page = msgspec.defstruct(
            "TypedPage", [("metadata", ListMeta, ListMeta()), ("items", items, [])]
        )
        self._line = msgspec.json.Decoder(line)
        self._page = msgspec.json.Decoder(page)
        self._finished: Callable[[Any], Object] = _as_it_is
        self._templates: Templates | None = None
        if kind is Pod:
            self._templates = Templates() if templates is None else templates
            self._finished = self._templates.intern

    def line(self, data: bytes) -> Told:
        """What a line says."""
        try:
            found: Any = self._line.decode(data)
        except _BROKEN:
            return self._patiently(data)
        if found.type == "BOOKMARK":
            return _bookmark(data)
        if found.type in ("ADDED", "MODIFIED", "DELETED") and found.object.metadata.name:
            value = self._finished(found.object)
            if self._whole is not None:
                self._keep(found.type, value, bytes(_raw_line.decode(data).object))
            return Changed(found.type, value)
        return self._patiently(data)

    def _keep(self, change: str, value: Object, spelling: bytes) -> None:
        assert self._whole is not None
        if change == "DELETED":
            self._whole.drop(value)
        else:
            self._whole.keep(value, spelling)

    def forget(self, value: Object) -> None:
        """An object is gone."""
        if self._whole is not None:
            self._whole.drop(value)

    def keep_for(self, n_objects: int) -> None:
        """There are so many objects now."""
        if self._templates is not None:
            self._templates.keep_for(n_objects)

    def _patiently(self, data: bytes) -> Told:
        try:
            raw = _raw_line.decode(data)
        except _BROKEN as problem:
            return Unreadable(f"got {_shown(data)} ({problem}), wanted a watch event", is_line=True)
        if raw.type == "BOOKMARK":
            return _bookmark(data)
        if raw.type == "ERROR":
            return _error(bytes(raw.object))
        if raw.type not in ("ADDED", "MODIFIED", "DELETED"):
            what = f"got type {raw.type!r}, wanted ADDED, MODIFIED, DELETED, BOOKMARK or ERROR"
            return Unreadable(what, is_line=True)
        value = self._object(bytes(raw.object))
        return value if isinstance(value, Unreadable) else Changed(raw.type, value)

    def _object(self, data: bytes) -> Object | Unreadable:
        try:
            value = decode(data, self._kind)
        except (DecodeError, UnicodeDecodeError, RecursionError) as problem:
            return Unreadable(f"{self._kind.__name__} {_name_in(data)}: {problem}")
        if not value.metadata.name:
            return Unreadable(f"{self._kind.__name__}: got no metadata.name, wanted one")
        return self._finished(value)

    def page(self, data: bytes) -> Page | Unreadable:
        """What a page of a list holds; Unreadable where it is no list, cut off for one."""
        try:
            found: Any = self._page.decode(data)
        except _BROKEN:
            return self._page_patiently(data)
        if not found.metadata.resource_version:
            return Unreadable(f"got {_shown(data)}, wanted a list with a resourceVersion", True)
        items = [self._finished(item) for item in found.items]
        if self._whole is not None:
            for item, raw in zip(items, _raw_page.decode(data).items or (), strict=True):
                self._whole.keep(item, bytes(raw))
        return Page(found.metadata, items, [])

    def _page_patiently(self, data: bytes) -> Page | Unreadable:
        try:
            found = _raw_page.decode(data)
        except _BROKEN as problem:
            return Unreadable(f"got {_shown(data)} ({problem}), wanted a list", is_line=True)
        if not found.metadata.resource_version:
            return Unreadable(f"got {_shown(data)}, wanted a list with a resourceVersion", True)
        read = [self._object(bytes(item)) for item in found.items or ()]
        return Page(
            found.metadata,
            [item for item in read if not isinstance(item, Unreadable)],
            [item for item in read if isinstance(item, Unreadable)],
        )


class Lines:
    """Cuts a stream of bytes into lines; the last one is kept until its end has come."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def fed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole now, empty ones left out."""
        *whole, rest = data.split(b"\n")
        if whole and self._rest:
            self._rest.append(whole[0])
            whole[0] = b"".join(self._rest)
            self._rest = []
        if rest:
            self._rest.append(rest)
        return (line for line in whole if line and not line.isspace())

    @property
    def is_cut(self) -> bool:
        """True in the middle of a line."""
        return bool(self._rest)


def _as_it_is(value: Object) -> Object:
    return value


def _bookmark(data: bytes) -> Bookmark | Unreadable:
    try:
        meta = _mark.decode(bytes(_raw_line.decode(data).object)).metadata
    except _BROKEN as problem:
        return Unreadable(f"got {_shown(data)} ({problem}), wanted a bookmark", is_line=True)
    return Bookmark(meta.resource_version, (meta.annotations or {}).get(INITIAL_END) == "true")


def _error(data: bytes) -> Status:
    try:
        return _failure.decode(data)
    except _BROKEN:
        pass
    try:
        return convert(without_nulls(msgspec.json.decode(data)), Status)
    except (*_BROKEN, DecodeError):
        return Status(kind="Status", message=f"got {_shown(data)}, wanted a Status")


def _name_in(data: bytes) -> str:
    try:
        tree = msgspec.json.decode(data)
    except _BROKEN:
        return "?"
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(meta, dict):
        return "?"
    namespace = meta.get("namespace")
    return f"{namespace}/{meta.get('name')}" if namespace else str(meta.get("name"))


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode(errors="replace")
    return repr(text) if len(data) <= _SHOWN else f"{text!r} and {len(data) - _SHOWN} bytes more"
