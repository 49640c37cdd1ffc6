"""Informer: lists and watches all objects of one resource, and emits an event for each change.

    list, or streaming list -> watch -> (stream ends) -> watch from the last version
                                     -> (410, or an undecodable line) -> list again
    streaming list -> (refused) -> paged list, from then on

It returns requests and is passed their responses; it opens no socket and reads no clock. After a
relist, objects that have disappeared are reported as deleted, and unchanged objects are not
reported again. A resource that is not served counts as empty, and is listed again periodically.

Source: client-go v1.36, tools/cache reflector; as recorded of kube-scheduler v1.36.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np

from stowplan.client.backoff import JitteredBackoff, seconds_after
from stowplan.client.requests import ApiRequest, list_request, watch_request
from stowplan.client.resources import ApiResource
from stowplan.client.responses import (
    ApiResponse,
    ApiStatus,
    ResponseOutcome,
    error_message,
    is_expired,
    is_expired_status,
    is_streaming_list_refused,
    is_unserved_resource,
    retry_delay_s,
)
from stowplan.client.watch_decoding import (
    Bookmark,
    LineSplitter,
    RawObjectCache,
    UndecodableObject,
    WatchDecoder,
    WatchedChange,
)
from stowplan.messages.events import Event
from stowplan.messages.watch_events import added_event, deleted_event, updated_event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.pod_templates import PodTemplates

PAGE_LIMIT = 500
WATCH_TIMEOUT_S = 300
"""A watch ends after 5 to 10 minutes, so that load spreads over API servers."""
WATCH_IDLE_TIMEOUT_S = 150.0
"""Bookmarks arrive about every minute; a stream that is silent for longer counts as broken."""
INITIAL_EVENTS_TIMEOUT_S = 30.0
"""The same, until a streaming list has sent all initial events."""
UNSERVED_RETRY_S = 10.0
SHORT_LIVED_S = 1.0
FAILURES_MAX = 4
"""Consecutive failed watches before a relist."""
UNREADABLE_KEPT_MAX = 100


class InformerPhase(Enum):
    """The kind of the next request."""

    LIST = "list"
    STREAM = "streaming list"
    WATCH = "watch"


class Informer:
    """Informer of one resource.

    version: the latest resource version. is_synced: the initial list is complete. is_served: the
    server knows the resource. is_closed: the stream is to be closed. fault: the last error, "" if
    none. unreadable: the latest objects that could not be decoded. stream_refusal: the server's
    reason for refusing streaming lists, "" if it has not; lists are paged since.
    """

    def __init__(
        self,
        resource: ApiResource,
        rng: np.random.Generator,
        templates: PodTemplates | None = None,
        *,
        streams: bool = True,
        whole: RawObjectCache | None = None,
    ) -> None:
        """rng: spreads requests over time. streams: try a streaming list first. whole: keeps
        objects as the server encodes them."""
        self.resource = resource
        self.version = ""
        self.is_synced = False
        self.is_served = True
        self.is_closed = False
        self.fault = ""
        self.stream_refusal = ""
        self.unreadable: deque[str] = deque(maxlen=UNREADABLE_KEPT_MAX)
        self.n_lists = 0
        self.n_events = 0
        self._rng = rng
        self._decoder = WatchDecoder(resource.kind, templates, whole)
        self._known: dict[str, Object] = {}
        self._streams = streams
        self._is_refusal_known = False
        self._phase = InformerPhase.STREAM if streams else InformerPhase.LIST
        self._limit = PAGE_LIMIT
        self._token = ""
        self._seen: set[str] = set()
        self._not_before = 0
        self._backoff = JitteredBackoff(rng)
        self._lines = LineSplitter()
        self._opened_at = 0
        self._n_received = 0
        self._n_failed = 0

    def __len__(self) -> int:
        """Number of known objects."""
        return len(self._known)

    def find(self, key: str) -> Object | None:
        """The latest version of an object, by `NAMESPACE/NAME` or name; None if unknown."""
        return self._known.get(key)

    def objects(self) -> list[Object]:
        """The latest version of every object."""
        return list(self._known.values())

    @property
    def idle_timeout_s(self) -> float:
        """How long a stream may be silent before it counts as broken."""
        return (
            INITIAL_EVENTS_TIMEOUT_S
            if self._phase is InformerPhase.STREAM
            else WATCH_IDLE_TIMEOUT_S
        )

    # Requests.

    def next(self, now: int) -> ApiRequest | int:
        """The request to make, or the time until which to wait. For a watch, which has no end, see
        `idle_timeout_s`."""
        if now < self._not_before:
            return self._not_before
        if self._phase is InformerPhase.LIST:
            return list_request(self.resource, self._limit, self._token)
        ends_s = WATCH_TIMEOUT_S + int(self._rng.integers(WATCH_TIMEOUT_S))
        if self._phase is InformerPhase.STREAM:
            self._seen = set()
            return watch_request(self.resource, "", ends_s, initial=True)
        return watch_request(self.resource, self.version, ends_s)

    # Lists, and watches that failed.

    def answered(self, answer: ApiResponse, now: int) -> list[Event]:
        """Handle the response to a list, or to a list or watch that failed."""
        if answer.is_done:
            return self._handle_page(answer, now)
        if self._phase is InformerPhase.STREAM and is_streaming_list_refused(answer):
            # A list shows whether streaming or the resource is refused.
            self._fall_back_to_lists(error_message(answer))
            return []
        self.fault = error_message(answer)
        self._reconsider_refusal(answer)
        if is_unserved_resource(answer) and not self.resource.is_needed:
            return self._handle_unserved(now)
        if is_expired(answer):
            self._relist_expired(now)
        elif answer.verdict is ResponseOutcome.THROTTLED:
            self._not_before = seconds_after(now, self._backoff.jittered(retry_delay_s(answer)))
        else:
            self._back_off(now, answer)
        return []

    def _reconsider_refusal(self, answer: ApiResponse) -> None:
        """Forget a refusal when the list fails like the streaming list did: it says nothing about
        streaming."""
        is_open = self._phase is InformerPhase.LIST and not self._is_refusal_known
        if is_open and answer.verdict is not ResponseOutcome.THROTTLED and not is_expired(answer):
            self.stream_refusal = ""

    def _handle_page(self, answer: ApiResponse, now: int) -> list[Event]:
        page = self._decoder.page(answer.body)
        if isinstance(page, UndecodableObject):
            self.fault = page.what
            self._start_over()
            self._back_off(now)
            return []
        if not self._token:
            self._seen = set()
        self.unreadable.extend(fault.what for fault in page.faults)
        found = [event for item in page.items for event in self._upsert(item)]
        self._token = page.meta.token
        if not self._token:
            found += self._drop_unseen()
            self._complete_list(page.meta.resource_version)
        return found

    def _complete_list(self, version: str) -> None:
        """Record that a list is complete."""
        self.version = version
        self.is_synced = self.is_served = True
        self.fault = ""
        self.n_lists += 1
        self._seen = set()
        self._limit = PAGE_LIMIT
        self._phase = InformerPhase.WATCH
        self._is_refusal_known = bool(self.stream_refusal)
        self._n_failed = 0

    def _handle_unserved(self, now: int) -> list[Event]:
        """Report all objects as deleted: the server does not serve the resource (any more)."""
        gone = [deleted_event(value) for value in self._known.values()]
        for value in self._known.values():
            self._decoder.forget(value)
        self._known.clear()
        self._start_over()
        # By list: a refused streaming list does not show whether the resource is served.
        self._phase = InformerPhase.LIST
        self.is_served, self.is_synced = False, True
        self._not_before = seconds_after(
            now, UNSERVED_RETRY_S * (1 + float(self._rng.random()) / 5)
        )
        return gone

    # Streams.

    def opened(self, now: int) -> None:
        """Record that the server has accepted a watch."""
        self.is_closed = False
        self.is_served = True
        self._lines = LineSplitter()
        self._opened_at = now
        self._n_received = 0

    def feed(self, data: bytes, now: int) -> list[Event]:
        """Decode bytes of a stream; afterwards `is_closed` says whether to close it."""
        found: list[Event] = []
        for line in self._lines.feed(data):
            decoded_event = self._decoder.line(line)
            self._n_received += 1
            if isinstance(decoded_event, WatchedChange):
                found += self._handle_change(decoded_event)
            elif isinstance(decoded_event, Bookmark):
                found += self._handle_bookmark(decoded_event)
            elif (
                isinstance(decoded_event, UndecodableObject) and not decoded_event.is_stream_broken
            ):
                self.unreadable.append(decoded_event.what)
            else:
                self._handle_stream_error(decoded_event, now)
                break
        return found

    def closed(self, now: int, fault: str = "") -> None:
        """Handle the end of the stream. fault: error, "" for a regular end. An incomplete line is
        dropped; the next watch repeats it."""
        if self.is_closed:
            return
        self.is_closed = True
        self.fault = fault
        if self._phase is InformerPhase.STREAM:
            # The server may not know streaming lists and may have started a plain watch.
            self._fall_back_to_lists(fault or "the stream ended during the initial events")
            self._back_off(now)
        elif self._n_received == 0 and now - self._opened_at < SHORT_LIVED_S * SECOND:
            self._back_off(now)
        else:
            self._backoff.reset()
            self._n_failed = 0

    def _handle_change(self, decoded_event: WatchedChange) -> list[Event]:
        value = decoded_event.value
        self.n_events += 1
        if self._phase is InformerPhase.WATCH:
            self.version = value.metadata.resource_version or self.version
            self.fault = ""
        if decoded_event.type != "DELETED":
            return self._upsert(value)
        before = self._known.pop(_key(value), None)
        self._decoder.forget(value)
        self._decoder.keep_for(len(self._known))
        self._seen.discard(_key(value))
        return [] if before is None else [deleted_event(value)]

    def _handle_bookmark(self, mark: Bookmark) -> list[Event]:
        if self._phase is InformerPhase.STREAM:
            if not mark.is_initial_end:
                return []
            gone = self._drop_unseen()
            self._complete_list(mark.version)
            return gone
        self.version = mark.version or self.version
        return []

    def _handle_stream_error(self, decoded_event: ApiStatus | UndecodableObject, now: int) -> None:
        self.is_closed = True
        if isinstance(decoded_event, UndecodableObject):
            self.fault = decoded_event.what
            self._relist_expired(now)
            return
        text = (
            decoded_event.message
            or decoded_event.reason
            or f"ERROR event with code {decoded_event.code}"
        )
        if decoded_event.code != 429 and self._phase is InformerPhase.STREAM:
            self._fall_back_to_lists(text)
            return
        self.fault = text
        if is_expired_status(decoded_event):
            self._relist_expired(now)
        elif decoded_event.code == 429:
            seconds = (
                decoded_event.details.retry_after_seconds
                if decoded_event.details is not None
                else 0
            )
            self._not_before = seconds_after(now, self._backoff.jittered(max(1.0, float(seconds))))
        else:
            self._back_off(now)

    # The objects.

    def _upsert(self, value: Object) -> list[Event]:
        key = _key(value)
        if self._phase is not InformerPhase.WATCH:
            self._seen.add(key)
        before = self._known.get(key)
        self._known[key] = value
        if before is None:
            self._decoder.keep_for(len(self._known))
            return [added_event(value)]
        return [] if _is_same(before, value) else [updated_event(value)]

    def _drop_unseen(self) -> list[Event]:
        """Remove objects that the new list does not contain."""
        gone = [value for key, value in self._known.items() if key not in self._seen]
        for value in gone:
            del self._known[_key(value)]
            self._decoder.forget(value)
        return [deleted_event(value) for value in gone]

    # Starting over.

    def _start_over(self) -> None:
        self._token = ""
        streams = self._streams and not self.stream_refusal
        self._phase = InformerPhase.STREAM if streams else InformerPhase.LIST

    def _fall_back_to_lists(self, why: str) -> None:
        self.stream_refusal = why
        self._start_over()

    def _relist_expired(self, now: int) -> None:
        """List again: the resource version has expired on the server."""
        if self._phase is InformerPhase.LIST:
            # Paging takes longer than the version lives: list everything in one response.
            self._limit = 0
        self._start_over()
        self._back_off(now)

    def _back_off(self, now: int, answer: ApiResponse | None = None) -> None:
        self._n_failed += 1
        if self._phase is InformerPhase.WATCH and self._n_failed >= FAILURES_MAX:
            # The server may not have reached this version yet, for example after a restore.
            self._start_over()
        wait = self._backoff.next_s()
        if answer is not None and answer.retry_after is not None:
            wait = max(wait, answer.retry_after)
        self._not_before = seconds_after(now, wait)


def _key(value: Object) -> str:
    return value.key if isinstance(value, NamespacedObject) else value.name


def _is_same(before: Object, now: Object) -> bool:
    return (
        before.metadata.resource_version == now.metadata.resource_version != ""
        and before.metadata.uid == now.metadata.uid
    )
