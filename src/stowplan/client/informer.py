"""Informer: follows all objects of one resource, and says what became of them.

    list, or streaming list -> watch -> (the stream ends) -> watch from the last version seen
                                     -> (410, or a line that makes no sense) -> list anew
    streaming list -> (refused) -> paged list, from then on

It asks for requests to be made and is told their answers; it opens no socket and reads no clock.
After a list that starts over, what has gone meanwhile is told as gone, and what is as it was is
not told again. A resource that is not served counts as empty, and is looked for from time to time.

Source: client-go v1.36, tools/cache reflector; as recorded of kube-scheduler v1.36.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np

from stowplan.client.answers import (
    Answer,
    Status,
    Verdict,
    is_expired,
    is_expired_status,
    is_not_served,
    refuses_stream,
    told,
    wait_s,
)
from stowplan.client.backoff import SECOND, Backoff, after
from stowplan.client.decoding import Bookmark, Changed, Decoder, Lines, Unreadable, Whole
from stowplan.client.requests import Request, list_page, watch
from stowplan.client.resources import Resource
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.templates import Templates

PAGE_LIMIT = 500
WATCH_S = 300
"""A watch is asked to end after 5 to 10 minutes, so that load spreads over API servers."""
SILENCE_S = 150.0
"""Bookmarks come every minute or so; a stream that says nothing for longer is taken for broken."""
BEGINNING_S = 30.0
"""The same, until a streaming list has told all there was at its beginning."""
ABSENT_S = 10.0
SHORT_LIVED_S = 1.0
FAILURES_MAX = 4
"""Watches that fail in a row before all is listed anew."""
FAULTS_KEPT = 100


class Phase(Enum):
    """What is asked for next."""

    LIST = "list"
    STREAM = "streaming list"
    WATCH = "watch"


class Informer:
    """version: of all that has been seen. is_synced: all objects have been told once. is_served:
    the server knows the resource. is_over: the stream is to be closed. fault: what went wrong
    last, "" while all is well. unreadable: objects that made no sense, the latest ones.
    stream_refusal: why the server gives no streaming list of this resource, in its words, "" unless
    it has refused one; lists are paged since."""

    def __init__(
        self,
        resource: Resource,
        dice: np.random.Generator,
        templates: Templates | None = None,
        *,
        streams: bool = True,
        whole: Whole | None = None,
    ) -> None:
        """dice: spread what would come together. streams: try a streaming list first. whole: keeps
        objects as the server spells them."""
        self.resource = resource
        self.version = ""
        self.is_synced = False
        self.is_served = True
        self.is_over = False
        self.fault = ""
        self.stream_refusal = ""
        self.unreadable: deque[str] = deque(maxlen=FAULTS_KEPT)
        self.n_lists = 0
        self.n_events = 0
        self._dice = dice
        self._decoder = Decoder(resource.kind, templates, whole)
        self._known: dict[str, Object] = {}
        self._streams = streams
        self._is_refusal_known = False
        self._phase = Phase.STREAM if streams else Phase.LIST
        self._limit = PAGE_LIMIT
        self._token = ""
        self._seen: set[str] = set()
        self._not_before = 0
        self._backoff = Backoff(dice)
        self._lines = Lines()
        self._opened_at = 0
        self._n_told = 0
        self._n_failed = 0

    def __len__(self) -> int:
        """How many objects are known."""
        return len(self._known)

    def find(self, key: str) -> Object | None:
        """An object as it was shown last, by `NAMESPACE/NAME` or name."""
        return self._known.get(key)

    @property
    def patience_s(self) -> float:
        """How long a stream may say nothing before it counts as broken."""
        return BEGINNING_S if self._phase is Phase.STREAM else SILENCE_S

    # What to do.

    def next(self, now: int) -> Request | int:
        """The request to make, or the time until which to wait. A watch is a request that goes on:
        see `patience_s`."""
        if now < self._not_before:
            return self._not_before
        if self._phase is Phase.LIST:
            return list_page(self.resource, self._limit, self._token)
        ends_s = WATCH_S + int(self._dice.integers(WATCH_S))
        if self._phase is Phase.STREAM:
            self._seen = set()
            return watch(self.resource, "", ends_s, initial=True)
        return watch(self.resource, self.version, ends_s)

    # Lists, and watches that are refused.

    def answered(self, answer: Answer, now: int) -> list[Event]:
        """A page has come, or a list or watch has been refused, or not answered at all."""
        if answer.is_done:
            return self._listed(answer, now)
        if self._phase is Phase.STREAM and refuses_stream(answer):
            # A list tells whether it is the stream that is refused, or the resource.
            self._list_plainly(told(answer))
            return []
        self.fault = told(answer)
        self._doubt_refusal(answer)
        if is_not_served(answer) and not self.resource.is_needed:
            return self._absent(now)
        if is_expired(answer):
            self._too_old(now)
        elif answer.verdict is Verdict.THROTTLED:
            self._not_before = after(now, self._backoff.jittered(wait_s(answer)))
        else:
            self._wait(now, answer)
        return []

    def _doubt_refusal(self, answer: Answer) -> None:
        """A list that fails like the streaming list before says nothing against streams."""
        is_open = self._phase is Phase.LIST and not self._is_refusal_known
        if is_open and answer.verdict is not Verdict.THROTTLED and not is_expired(answer):
            self.stream_refusal = ""

    def _listed(self, answer: Answer, now: int) -> list[Event]:
        page = self._decoder.page(answer.body)
        if isinstance(page, Unreadable):
            self.fault = page.what
            self._start_over()
            self._wait(now)
            return []
        if not self._token:
            self._seen = set()
        self.unreadable.extend(fault.what for fault in page.faults)
        found = [event for item in page.items for event in self._shown(item)]
        self._token = page.meta.token
        if not self._token:
            found += self._unseen()
            self._arrived(page.meta.resource_version)
        return found

    def _arrived(self, version: str) -> None:
        """All there is has been told."""
        self.version = version
        self.is_synced = self.is_served = True
        self.fault = ""
        self.n_lists += 1
        self._seen = set()
        self._limit = PAGE_LIMIT
        self._phase = Phase.WATCH
        self._is_refusal_known = bool(self.stream_refusal)
        self._n_failed = 0

    def _absent(self, now: int) -> list[Event]:
        """The server does not know the resource (any more)."""
        gone = [_deleted(value) for value in self._known.values()]
        for value in self._known.values():
            self._decoder.forget(value)
        self._known.clear()
        self._start_over()
        # Looked for by lists: a refused streaming list would not tell.
        self._phase = Phase.LIST
        self.is_served, self.is_synced = False, True
        self._not_before = after(now, ABSENT_S * (1 + float(self._dice.random()) / 5))
        return gone

    # Streams.

    def opened(self, now: int) -> None:
        """The server has begun to answer a watch."""
        self.is_over = False
        self.is_served = True
        self._lines = Lines()
        self._opened_at = now
        self._n_told = 0

    def fed(self, data: bytes, now: int) -> list[Event]:
        """The next bytes of a stream; afterwards `is_over` says whether to close it."""
        found: list[Event] = []
        for line in self._lines.fed(data):
            said = self._decoder.line(line)
            self._n_told += 1
            if isinstance(said, Changed):
                found += self._changed(said)
            elif isinstance(said, Bookmark):
                found += self._marked(said)
            elif isinstance(said, Unreadable) and not said.is_line:
                self.unreadable.append(said.what)
            else:
                self._broken(said, now)
                break
        return found

    def closed(self, now: int, fault: str = "") -> None:
        """The stream has ended, by itself or broken (fault: how). What it had begun to say is
        lost; it will be said again."""
        if self.is_over:
            return
        self.is_over = True
        self.fault = fault
        if self._phase is Phase.STREAM:
            # It may be that the server does not know this way of listing and has just watched.
            self._list_plainly(fault or "the stream ended before all had been told")
            self._wait(now)
        elif self._n_told == 0 and now - self._opened_at < SHORT_LIVED_S * SECOND:
            self._wait(now)
        else:
            self._backoff.reset()
            self._n_failed = 0

    def _changed(self, said: Changed) -> list[Event]:
        value = said.value
        self.n_events += 1
        if self._phase is Phase.WATCH:
            self.version = value.metadata.resource_version or self.version
            self.fault = ""
        if said.type != "DELETED":
            return self._shown(value)
        before = self._known.pop(_key(value), None)
        self._decoder.forget(value)
        self._decoder.keep_for(len(self._known))
        self._seen.discard(_key(value))
        return [] if before is None else [_deleted(value)]

    def _marked(self, mark: Bookmark) -> list[Event]:
        if self._phase is Phase.STREAM:
            if not mark.is_initial_end:
                return []
            gone = self._unseen()
            self._arrived(mark.version)
            return gone
        self.version = mark.version or self.version
        return []

    def _broken(self, said: Status | Unreadable, now: int) -> None:
        self.is_over = True
        if isinstance(said, Unreadable):
            self.fault = said.what
            self._too_old(now)
            return
        text = said.message or said.reason or f"an ERROR event of code {said.code}"
        if said.code != 429 and self._phase is Phase.STREAM:
            self._list_plainly(text)
            return
        self.fault = text
        if is_expired_status(said):
            self._too_old(now)
        elif said.code == 429:
            seconds = said.details.retry_after_seconds if said.details is not None else 0
            self._not_before = after(now, self._backoff.jittered(max(1.0, float(seconds))))
        else:
            self._wait(now)

    # The objects.

    def _shown(self, value: Object) -> list[Event]:
        key = _key(value)
        if self._phase is not Phase.WATCH:
            self._seen.add(key)
        before = self._known.get(key)
        self._known[key] = value
        if before is None:
            self._decoder.keep_for(len(self._known))
            return [_added(value)]
        return [] if _is_same(before, value) else [_updated(value)]

    def _unseen(self) -> list[Event]:
        """Those that have gone while nobody looked."""
        gone = [value for key, value in self._known.items() if key not in self._seen]
        for value in gone:
            del self._known[_key(value)]
            self._decoder.forget(value)
        return [_deleted(value) for value in gone]

    # Starting over.

    def _start_over(self) -> None:
        self._token = ""
        streams = self._streams and not self.stream_refusal
        self._phase = Phase.STREAM if streams else Phase.LIST

    def _list_plainly(self, why: str) -> None:
        self.stream_refusal = why
        self._start_over()

    def _too_old(self, now: int) -> None:
        """What was to be read on has been forgotten by the server."""
        if self._phase is Phase.LIST:
            # Pages that take too long: all in one.
            self._limit = 0
        self._start_over()
        self._wait(now)

    def _wait(self, now: int, answer: Answer | None = None) -> None:
        self._n_failed += 1
        if self._phase is Phase.WATCH and self._n_failed >= FAILURES_MAX:
            # The version may be one that the server has not reached: it was restored, say.
            self._start_over()
        wait = self._backoff.next_s()
        if answer is not None and answer.retry_after is not None:
            wait = max(wait, answer.retry_after)
        self._not_before = after(now, wait)


def _key(value: Object) -> str:
    return value.key if isinstance(value, NamespacedObject) else value.name


def _is_same(before: Object, now: Object) -> bool:
    return (
        before.metadata.resource_version == now.metadata.resource_version != ""
        and before.metadata.uid == now.metadata.uid
    )


def _added(value: Object) -> Event:
    if isinstance(value, Pod):
        return happened.PodAdded(value)
    return happened.NodeAdded(value) if isinstance(value, Node) else happened.ObjectAdded(value)


def _updated(value: Object) -> Event:
    if isinstance(value, Pod):
        return happened.PodUpdated(value)
    return happened.NodeUpdated(value) if isinstance(value, Node) else happened.ObjectUpdated(value)


def _deleted(value: Object) -> Event:
    if isinstance(value, Pod):
        return happened.PodDeleted(value)
    return happened.NodeDeleted(value) if isinstance(value, Node) else happened.ObjectDeleted(value)
