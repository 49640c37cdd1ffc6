"""Decoding of watch lines and list pages to typed objects.

Nearly every line is an object of the expected kind and is decoded in one step. Everything else
(bookmarks with nulls, Statuses) is decoded leniently. An object that cannot be decoded is skipped
and reported, so that one malformed object does not hide the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from stowplan.client.responses import ApiStatus, ListMeta, excerpt
from stowplan.messages.extender_api import object_tree
from stowplan.objects.encoding.json_codec import DecodeError, convert, decode, without_nulls
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""Annotation of the bookmark that ends the initial events of a streaming list."""


class Bookmark(msgspec.Struct, frozen=True):
    """Progress of a watch. is_initial_end: the initial events are complete."""

    version: str
    is_initial_end: bool


class UndecodableObject(msgspec.Struct, frozen=True):
    """An object or a line that cannot be decoded. what: location and error.

    is_stream_broken: the line itself is malformed, so the rest of the stream cannot be trusted.
    """

    what: str
    is_stream_broken: bool = False


class WatchedChange(msgspec.Struct, frozen=True, gc=False):
    """A change of an object in a watch. type: ADDED, MODIFIED or DELETED."""

    type: str
    value: Object


DecodedWatchEvent = WatchedChange | Bookmark | ApiStatus | UndecodableObject


class ListPage(msgspec.Struct, frozen=True):
    """A page of a list."""

    meta: ListMeta
    items: list[Object]
    faults: list[UndecodableObject]


class _BookmarkMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _BookmarkObject(msgspec.Struct, frozen=True):
    metadata: _BookmarkMeta = _BookmarkMeta()


class _RawWatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _RawListPage(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_bookmark_decoder = msgspec.json.Decoder(_BookmarkObject)
_raw_watch_event_decoder = msgspec.json.Decoder(_RawWatchEvent)
_raw_list_page_decoder = msgspec.json.Decoder(_RawListPage)
_status_decoder = msgspec.json.Decoder(ApiStatus)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class RawObjectCache:
    """Objects in the API server's encoding, with all the fields that scheduling does not read, for
    extenders that receive whole objects."""

    def __init__(self) -> None:
        # By kind and key, not by uid: a recreated object replaces its predecessor.
        self._kept: dict[tuple[type, str], tuple[str, str, bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, value: Object, encoded: bytes) -> None:
        """Store the newest version of an object."""
        meta = value.metadata
        self._kept[_cache_key(value)] = meta.uid, meta.resource_version, encoded

    def drop(self, value: Object) -> None:
        """Remove a deleted object."""
        self._kept.pop(_cache_key(value), None)

    def full_tree(self, value: Object) -> dict[str, Any]:
        """An object with all its fields; with the known fields if that version is not cached."""
        encoded = self.encoded(value)
        if encoded is None:
            return object_tree(value)
        tree: dict[str, Any] = msgspec.json.decode(encoded)
        return tree

    def encoded(self, value: Object) -> bytes | None:
        """An object as the server encoded it; None if that version is not cached."""
        kept, meta = self._kept.get(_cache_key(value)), value.metadata
        if kept is None or kept[:2] != (meta.uid, meta.resource_version):
            return None
        return kept[2]


def _cache_key(value: Object) -> tuple[type, str]:
    return type(value), value.key if isinstance(value, NamespacedObject) else value.name


class WatchDecoder:
    """Decodes lists and watches of one kind."""

    def __init__(
        self,
        kind: type[Object],
        templates: PodTemplates | None = None,
        whole: RawObjectCache | None = None,
    ) -> None:
        """templates: pods of one template share their common parts. whole: keeps objects as the
        server encodes them."""
        self._kind = kind
        self._whole = whole
        items: Any = list[kind]  # type: ignore[valid-type]
        line = msgspec.defstruct("TypedLine", [("type", str), ("object", kind)], gc=False)
        page = msgspec.defstruct(
            "TypedPage", [("metadata", ListMeta, ListMeta()), ("items", items, [])]
        )
        self._line = msgspec.json.Decoder(line)
        self._page = msgspec.json.Decoder(page)
        self._postprocess: Callable[[Any], Object] = lambda value: value
        self._templates: PodTemplates | None = None
        if kind is Pod:
            self._templates = PodTemplates() if templates is None else templates
            self._postprocess = self._templates.intern

    def line(self, data: bytes) -> DecodedWatchEvent:
        """Decode one line of a watch."""
        try:
            found: Any = self._line.decode(data)
        except _DECODE_ERRORS:
            return self._decode_leniently(data)
        if found.type == "BOOKMARK":
            return _bookmark(data)
        if found.type in ("ADDED", "MODIFIED", "DELETED") and found.object.metadata.name:
            value = self._postprocess(found.object)
            if self._whole is not None:
                self._keep(found.type, value, bytes(_raw_watch_event_decoder.decode(data).object))
            return WatchedChange(found.type, value)
        return self._decode_leniently(data)

    def _keep(self, change: str, value: Object, encoded: bytes) -> None:
        assert self._whole is not None
        if change == "DELETED":
            self._whole.drop(value)
        else:
            self._whole.keep(value, encoded)

    def forget(self, value: Object) -> None:
        """Remove a deleted object."""
        if self._whole is not None:
            self._whole.drop(value)

    def keep_for(self, n_objects: int) -> None:
        """Adapt the caches to the number of objects."""
        if self._templates is not None:
            self._templates.keep_for(n_objects)

    def _decode_leniently(self, data: bytes) -> DecodedWatchEvent:
        try:
            raw = _raw_watch_event_decoder.decode(data)
        except _DECODE_ERRORS as problem:
            return UndecodableObject(
                f"invalid watch event: {excerpt(data)}: {problem}", is_stream_broken=True
            )
        if raw.type == "BOOKMARK":
            return _bookmark(data)
        if raw.type == "ERROR":
            return _error(bytes(raw.object))
        if raw.type not in ("ADDED", "MODIFIED", "DELETED"):
            what = f"invalid watch event type: {raw.type!r}"
            return UndecodableObject(what, is_stream_broken=True)
        value = self._object(bytes(raw.object))
        return value if isinstance(value, UndecodableObject) else WatchedChange(raw.type, value)

    def _object(self, data: bytes) -> Object | UndecodableObject:
        try:
            value = decode(data, self._kind)
        except (DecodeError, UnicodeDecodeError, RecursionError) as problem:
            return UndecodableObject(f"{self._kind.__name__} {_name_in(data)}: {problem}")
        if not value.metadata.name:
            return UndecodableObject(f"{self._kind.__name__}: metadata.name: Required value")
        return self._postprocess(value)

    def page(self, data: bytes) -> ListPage | UndecodableObject:
        """Decode one page of a list; UndecodableObject if it is not a list or is truncated."""
        try:
            found: Any = self._page.decode(data)
        except _DECODE_ERRORS:
            return self._decode_page_leniently(data)
        if not found.metadata.resource_version:
            return _without_version(data)
        items = [self._postprocess(item) for item in found.items]
        if self._whole is not None:
            for item, raw in zip(
                items, _raw_list_page_decoder.decode(data).items or (), strict=True
            ):
                self._whole.keep(item, bytes(raw))
        return ListPage(found.metadata, items, [])

    def _decode_page_leniently(self, data: bytes) -> ListPage | UndecodableObject:
        try:
            found = _raw_list_page_decoder.decode(data)
        except _DECODE_ERRORS as problem:
            return UndecodableObject(
                f"invalid list: {excerpt(data)}: {problem}", is_stream_broken=True
            )
        if not found.metadata.resource_version:
            return _without_version(data)
        read = [self._object(bytes(item)) for item in found.items or ()]
        return ListPage(
            found.metadata,
            [item for item in read if not isinstance(item, UndecodableObject)],
            [item for item in read if isinstance(item, UndecodableObject)],
        )


class LineSplitter:
    """Splits a stream of bytes into lines; keeps an incomplete last line."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Lines that are complete now, without empty ones."""
        *whole, rest = data.split(b"\n")
        if whole and self._rest:
            self._rest.append(whole[0])
            whole[0] = b"".join(self._rest)
            self._rest = []
        if rest:
            self._rest.append(rest)
        return (line for line in whole if line and not line.isspace())


def _without_version(data: bytes) -> UndecodableObject:
    what = f"invalid list: {excerpt(data)}: metadata.resourceVersion: Required value"
    return UndecodableObject(what, is_stream_broken=True)


def _bookmark(data: bytes) -> Bookmark | UndecodableObject:
    try:
        meta = _bookmark_decoder.decode(
            bytes(_raw_watch_event_decoder.decode(data).object)
        ).metadata
    except _DECODE_ERRORS as problem:
        return UndecodableObject(
            f"invalid bookmark: {excerpt(data)}: {problem}", is_stream_broken=True
        )
    return Bookmark(
        meta.resource_version, (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
    )


def _error(data: bytes) -> ApiStatus:
    try:
        return _status_decoder.decode(data)
    except _DECODE_ERRORS:
        pass
    try:
        return convert(without_nulls(msgspec.json.decode(data)), ApiStatus)
    except (*_DECODE_ERRORS, DecodeError):
        return ApiStatus(kind="Status", message=f"invalid Status: {excerpt(data)}")


def _name_in(data: bytes) -> str:
    try:
        tree = msgspec.json.decode(data)
    except _DECODE_ERRORS:
        return "?"
    meta = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(meta, dict):
        return "?"
    namespace = meta.get("namespace")
    return f"{namespace}/{meta.get('name')}" if namespace else str(meta.get("name"))
