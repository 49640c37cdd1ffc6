"""Watch cache: watchers read one log per resource, each from its own position.

Nothing is queued per watcher. A saved change is appended once to the log of its resource path; a
watcher has a position in it, and an event is encoded when the first watcher reads it. So a slow
watcher costs nothing; when the log is compacted beyond its position, its stream ends, and the
client gets 410 when it returns with its old version.

Source: apiserver v0.36, storage/cacher, as recorded; the design is our own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from stowplan.apis.machinery.http_messages import StreamChunk
from stowplan.apis.machinery.object_selector import ObjectSelector
from stowplan.apis.machinery.resource import Resource, StoreChange
from stowplan.apis.machinery.stored_form import as_served, decode, encode, with_version
from stowplan.apis.protobuf.object_codec import watch_frame
from stowplan.apiserver.http.negotiation import PROTOBUF, ResponseForm, in_form
from stowplan.apiserver.http.tables import INITIAL_EVENTS_END, make_table, metadata_only, table_for
from stowplan.objects.encoding.tree import Tree

BOOKMARK_BEFORE_END_S = 2.0
"""A watch with bookmarks gets the last one so long before its timeout."""
TIMERS_MIN = 64


class CachedEvent:
    """A change with its encodings, which are made on demand."""

    __slots__ = ("change", "lines", "version")

    def __init__(self, change: StoreChange) -> None:
        self.change = change
        self.version = change.version
        self.lines: dict[object, bytes] | None = None

    def encodings(self) -> dict[object, bytes]:
        """The encodings that were made so far; the caller may add some."""
        if self.lines is None:
            self.lines = {}
        return self.lines


def encode_watch_event(kind: str, value: bytes, form: ResponseForm) -> bytes:
    """One event of a watch stream: a line of JSON, or a frame."""
    if form.media == PROTOBUF:
        return watch_frame(kind, in_form(value, form))
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), value)


class ResourceWatchCache:
    """The saved changes of a resource path; `base` is the absolute index of the first."""

    __slots__ = ("base", "events", "watchers")

    def __init__(self) -> None:
        self.base = 0
        self.events: list[CachedEvent] = []
        self.watchers: dict[int, CacheWatcher] = {}

    @property
    def end(self) -> int:
        """The index after the last event."""
        return self.base + len(self.events)

    def index_after(self, version: int) -> int:
        """The index of the first event after `version`."""
        return self.base + bisect_right(self.events, version, key=lambda event: event.version)

    def forget(self, version: int) -> None:
        """Drop the events up to and including `version`."""
        count = self.index_after(version) - self.base
        del self.events[:count]
        self.base += count


class CacheWatcher:
    """One stream.

    after: events up to this version are skipped, since the watch named a future version. initial:
    stored bytes still to be sent as ADDED, before all events.

    """

    __slots__ = (
        "after", "bookmark_at", "bookmark_due", "bookmarks", "channel", "deadline", "final_error",
        "form", "headers", "include", "initial", "marks_initial_end", "number", "place", "prefix",
        "resource", "selection",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        resource: Resource,
        prefix: str,
        selection: ObjectSelector,
        form: ResponseForm,
    ) -> None:
        self.number = number
        self.resource = resource
        self.prefix = prefix
        self.selection = selection
        self.form = form
        self.include = ""
        self.headers = True
        self.channel = ResourceWatchCache()
        self.place = 0
        self.after = 0
        self.initial: Iterator[bytes] | None = None
        self.marks_initial_end = False
        self.bookmarks = False
        self.bookmark_at: float | None = None
        self.bookmark_due = False
        self.deadline = 0.0
        self.final_error: Tree | None = None
        """A Status that is sent as the last event at the deadline."""

    def shows(self, event: CachedEvent) -> tuple[str, bytes] | None:
        """Type and object of the event for this watcher; None: not selected."""
        change = event.change
        if not self.selection:
            return change.type, change.value
        selected = self.selection.matches
        before = change.previous is not None and selected(change.previous)
        if change.type == "DELETED":
            return (change.type, change.value) if before else None
        if selected(change.value):
            return ("MODIFIED" if before else "ADDED"), change.value
        if before and change.previous is not None:
            # It left the selection: sent as it was before.
            return "DELETED", with_version(change.previous, change.version)
        return None


class WatchCache:
    """All logs and watchers. saved: the last version that watchers may see. lines_bytes_max: bound
    of the encoded events that are kept for further watchers; the oldest are encoded anew."""

    def __init__(
        self, version: int, chunk_bytes_max: int, bookmark_s: float, lines_bytes_max: int
    ) -> None:
        self.saved = version
        self.chunk_bytes_max = chunk_bytes_max
        self.bookmark_s = bookmark_s
        self.lines_bytes_max = lines_bytes_max
        self.lines_bytes = 0
        self.sent: Counter[tuple[str, str, str]] = Counter()
        """Events sent by group, version and resource."""
        self._encoded: deque[tuple[dict[object, bytes], int]] = deque()
        self.watchers: dict[int, CacheWatcher] = {}
        self._channels: dict[str, ResourceWatchCache] = {}
        self._woken: dict[int, None] = {}
        self._timers: list[tuple[float, int]] = []
        self._forgotten = 0
        self._blank: dict[Resource, Tree] = {}

    def channel(self, path: str) -> ResourceWatchCache:
        """The channel of a resource path."""
        found = self._channels.get(path)
        if found is None:
            found = self._channels[path] = ResourceWatchCache()
        return found

    def publish(self, changes: Iterable[StoreChange], compacted: int) -> None:
        """Append saved changes, in order, and drop what the store has compacted."""
        woken = self._woken
        for change in changes:
            channel = self.channel(change.resource.path)
            channel.events.append(CachedEvent(change))
            key = change.key
            for number, watcher in channel.watchers.items():
                if key.startswith(watcher.prefix):
                    woken[number] = None
            self.saved = change.version
        if compacted > self._forgotten:
            self._forgotten = compacted
            for channel in self._channels.values():
                channel.forget(compacted)

    def add(self, watcher: CacheWatcher, version: int, now: float) -> None:
        """Begin a watch after `version`; the watcher's other fields are set."""
        channel = self.channel(watcher.resource.path)
        watcher.channel = channel
        watcher.place = channel.index_after(version)
        watcher.after = version
        channel.watchers[watcher.number] = watcher
        self.watchers[watcher.number] = watcher
        self._woken[watcher.number] = None
        self._set_bookmark(watcher, now)
        heappush(self._timers, (watcher.deadline, watcher.number))

    def _set_bookmark(self, watcher: CacheWatcher, now: float) -> None:
        at = min(now + self.bookmark_s, watcher.deadline - BOOKMARK_BEFORE_END_S)
        watcher.bookmark_at = at if watcher.bookmarks and at > now else None
        if watcher.bookmark_at is not None:
            heappush(self._timers, (watcher.bookmark_at, watcher.number))

    def close(self, number: int) -> None:
        """Remove a watcher."""
        watcher = self.watchers.pop(number, None)
        if watcher is not None:
            watcher.channel.watchers.pop(number, None)
        self._woken.pop(number, None)
        if len(self._timers) > 4 * len(self.watchers) + TIMERS_MIN:
            # Entries of removed watchers would accumulate.
            self._timers = [timer for timer in self._timers if timer[1] in self.watchers]
            heapify(self._timers)

    def end(self, path: str, now: float) -> None:
        """End the watches of a resource path, after the pending events."""
        for number, watcher in self.channel(path).watchers.items():
            watcher.deadline = min(watcher.deadline, now)
            self._woken[number] = None

    def woken(self) -> list[int]:
        """Watchers that may have new data since the last call."""
        numbers = list(self._woken)
        self._woken.clear()
        return numbers

    def tick(self, now: float) -> float | None:
        """Wake watchers at their deadline or bookmark time; returns the next such time."""
        while self._timers and self._timers[0][0] <= now:
            _, number = heappop(self._timers)
            watcher = self.watchers.get(number)
            if watcher is None:
                continue
            self._woken[number] = None
            if watcher.bookmark_at is not None and watcher.bookmark_at <= now:
                watcher.bookmark_due = True
                self._set_bookmark(watcher, now)
        return self._timers[0][0] if self._timers else None

    def read(self, number: int, now: float) -> StreamChunk:
        """The next bytes of a stream; an unknown stream has ended."""
        watcher = self.watchers.get(number)
        if watcher is None or watcher.place < watcher.channel.base:
            self.close(number)
            return StreamChunk(b"", end=True)
        lines: list[bytes] = []
        full = self._read_initial(watcher, lines, now) or self._read_events(watcher, lines, now)
        if lines:
            resource = watcher.resource
            self.sent[resource.group, resource.version, resource.plural] += len(lines)
        if full:
            self._woken[number] = None
            return StreamChunk(b"".join(lines))
        if watcher.bookmark_due:
            watcher.bookmark_due = False
            lines.append(self._bookmark(watcher, False, now))
        end = watcher.deadline <= now
        if end:
            if watcher.final_error is not None:
                lines.append(encode_watch_event("ERROR", encode(watcher.final_error), watcher.form))
            self.close(number)
        return StreamChunk(b"".join(lines), end)

    def _read_initial(self, watcher: CacheWatcher, lines: list[bytes], now: float) -> bool:
        """Send the initial events; True if the chunk is full before their end."""
        if watcher.initial is None:
            return False
        room = self.chunk_bytes_max
        for value in watcher.initial:
            line = self._line(watcher, "ADDED", value, now)
            lines.append(line)
            room -= len(line)
            if room <= 0:
                return True
        watcher.initial = None
        if watcher.marks_initial_end:
            lines.append(self._bookmark(watcher, True, now))
        return False

    def _read_events(self, watcher: CacheWatcher, lines: list[bytes], now: float) -> bool:
        """Send new events; True if the chunk is full before their end."""
        channel = watcher.channel
        room = self.chunk_bytes_max
        plain = not watcher.selection and not watcher.form.kind
        for event in channel.events[watcher.place - channel.base :]:
            if room <= 0:
                return True
            watcher.place += 1
            if event.version <= watcher.after or not event.change.key.startswith(watcher.prefix):
                continue
            if plain:
                line = self._shared_line(event, watcher.resource, watcher.form)
            else:
                printed = watcher.shows(event)
                if printed is None:
                    continue
                line = self._line(watcher, *printed, now)
            lines.append(line)
            room -= len(line)
        return False

    def _shared_line(self, event: CachedEvent, resource: Resource, form: ResponseForm) -> bytes:
        """An event for watchers without a selector, encoded for the first of them."""
        lines, key = event.encodings(), (resource, form.media)
        got = lines.get(key)
        if got is None:
            value = as_served(resource, event.change.value)
            got = lines[key] = encode_watch_event(event.change.type, value, form)
            self._encoded.append((lines, len(got)))
            self.lines_bytes += len(got)
            while self.lines_bytes > self.lines_bytes_max:
                old, size = self._encoded.popleft()
                old.clear()
                self.lines_bytes -= size
        return got

    def _line(self, watcher: CacheWatcher, kind: str, value: bytes, now: float) -> bytes:
        value = as_served(watcher.resource, value)
        if not watcher.form.kind:
            return encode_watch_event(kind, value, watcher.form)
        tree = self._in_form(watcher, decode(value), now)
        return encode_watch_event(kind, encode(tree), watcher.form)

    def _in_form(self, watcher: CacheWatcher, obj: Tree, now: float) -> Tree:
        form = watcher.form
        if form.kind != "Table":
            return metadata_only(obj, form.version)
        headers, watcher.headers = watcher.headers, False
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return make_table(
            table_for(watcher.resource), (obj,), meta, form, watcher.include, now, headers
        )

    def _bookmark(self, watcher: CacheWatcher, closing: bool, now: float) -> bytes:
        """A bookmark. closing: it ends the initial events."""
        meta: Tree = {"resourceVersion": str(max(self.saved, watcher.after))}
        if closing:
            meta["resourceVersion"] = str(watcher.after)
            meta["annotations"] = {INITIAL_EVENTS_END: "true"}
        obj = {**self._blank_object(watcher.resource), "metadata": meta}
        if watcher.form.kind:
            obj = self._in_form(watcher, obj, now)
        return encode_watch_event("BOOKMARK", encode(obj), watcher.form)

    def _blank_object(self, resource: Resource) -> Tree:
        blank = self._blank.get(resource)
        if blank is None:
            head: Tree = {"kind": resource.kind, "apiVersion": resource.api_version}
            blank = self._blank[resource] = {**head, "metadata": {}, **resource.schema.blank()}
            blank.update(head)
        return blank
