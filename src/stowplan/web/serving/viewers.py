"""Viewers of the page: frames are encoded once for all of them, and none waits for a slow one.

At most `WAITING_MAX` frames wait for a viewer. With more all of them are dropped and it gets new
snapshots, so that it never has only a part of the updates.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable

from stowplan.web.model.page_frames import (
    FrameBody,
    FrameHeader,
    FrameKind,
    Topic,
    encode_frame,
)
from stowplan.web.serving.page_source import PageSource, TopicState

TICK_S = 0.1
WAITING_MAX = 4
STATUS_S = 2.0
"""A status frame is sent at least this often, so that viewers see that the connection lives."""


class Viewer:
    """One connection. topics: what it has subscribed to. due: those of which it needs a snapshot.
    n_dropped: frames dropped because it was behind."""

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.topics: set[Topic] = set()
        self.due: set[Topic] = set()
        self.n_dropped = 0
        self._waiting: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self._is_busy = False
        self.subscribe(topics)

    def subscribe(self, topics: Iterable[Topic]) -> None:
        """Change the topics; new ones begin with a snapshot."""
        wanted = set(topics)
        self.due = (self.due & wanted) | (wanted - self.topics)
        self.topics = wanted

    def need_snapshot(self, topic: Topic) -> None:
        """Send a snapshot of a topic that it has subscribed to."""
        if topic in self.topics:
            self.due.add(topic)

    @property
    def takes_snapshots(self) -> bool:
        """True when it has received all before."""
        return not self._waiting and not self._is_busy

    def put(self, frame: bytes, *, is_snapshot: bool = False) -> None:
        """Send a frame, or drop all that wait. Snapshots are only put when nothing waits."""
        if len(self._waiting) >= WAITING_MAX and not is_snapshot:
            self.n_dropped += len(self._waiting) + 1
            self._waiting.clear()
            self.due = set(self.topics)
            return
        self._waiting.append(frame)
        self._ready.set()

    async def next(self) -> bytes:
        """The next frame; `done` when it has been sent."""
        while not self._waiting:
            self._ready.clear()
            await self._ready.wait()
        self._is_busy = True
        return self._waiting.popleft()

    def done(self) -> None:
        """The frame of `next` has been sent."""
        self._is_busy = False

    @property
    def n_waiting(self) -> int:
        """Frames that wait, without the one that is being sent."""
        return len(self._waiting)


class _Channel:
    """What all viewers of a topic have. sequence: of the last frame. snapshot: the frame of the
    current state, once encoded."""

    def __init__(self) -> None:
        self.state: TopicState | None = None
        self.sequence = 0
        self.snapshot: bytes | None = None
        self.sent_at = 0.0


class Viewers:
    """All viewers, and the loop that serves them. n_ticks: times that the source was
    looked at. n_encoded: frames encoded so far."""

    def __init__(self, tick_s: float = TICK_S) -> None:
        self.n_ticks = 0
        self.n_encoded = 0
        self.source: PageSource | None = None
        self._tick_s = tick_s
        self._viewers: set[Viewer] = set()
        self._channels: dict[Topic, _Channel] = {}
        self._epoch = 0
        self._someone = asyncio.Event()

    def __len__(self) -> int:
        return len(self._viewers)

    def use(self, source: PageSource) -> None:
        """Look at a source from now on."""
        self.source = source
        self._someone.set()

    def add(self, viewer: Viewer) -> None:
        """Serve a viewer."""
        self._viewers.add(viewer)
        self._someone.set()

    def remove(self, viewer: Viewer) -> None:
        """Serve it no longer."""
        self._viewers.discard(viewer)

    async def run(self) -> None:
        """Look and send, ten times a second and only while there are viewers."""
        while True:
            if not self._viewers or self.source is None:
                self._channels_without(())
                self._someone.clear()
                await self._someone.wait()
            begun = time.monotonic()
            # A session takes longer than this: viewers keep what they have.
            with contextlib.suppress(TimeoutError):
                await self.tick(begun)
            await asyncio.sleep(max(0.0, self._tick_s - (time.monotonic() - begun)))

    async def tick(self, now: float) -> None:
        """Look once, and send what has changed. now: seconds, of any clock. Raises
        TimeoutError."""
        source = self.source
        if source is None:
            return
        self.n_ticks += 1
        topics = {topic for viewer in self._viewers for topic in viewer.topics}
        self._channels_without(topics)
        if source.epoch != self._epoch:
            self._begin_epoch(source.epoch)
        last = {topic: self._channel(topic).state for topic in sorted(topics)}
        found = await source.look(last)
        if source is not self.source:
            return
        for topic, state in found.items():
            self._publish(topic, state, now)
        status = self._channels.get(Topic.STATUS)
        if status is not None and status.state is not None and now - status.sent_at >= STATUS_S:
            self._publish(Topic.STATUS, status.state, now, is_repeated=True)
        self._send_snapshots()

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._channels.clear()
        for viewer in self._viewers:
            viewer.due = set(viewer.topics)

    def _channels_without(self, topics: Iterable[Topic]) -> None:
        """Forget states without a viewer: they would cost memory, and updates that go nowhere."""
        wanted = set(topics)
        for topic, channel in self._channels.items():
            if topic not in wanted:
                channel.state = channel.snapshot = None

    def _channel(self, topic: Topic) -> _Channel:
        return self._channels.setdefault(topic, _Channel())

    def _publish(
        self, topic: Topic, state: TopicState, now: float, *, is_repeated: bool = False
    ) -> None:
        """Send a new state of a topic to those who have the one before it."""
        channel = self._channel(topic)
        before, channel.state, channel.snapshot = channel.state, state, None
        channel.sequence += 1
        channel.sent_at = now
        if before is None:
            # Viewers with an older state need a snapshot.
            for viewer in self._viewers:
                viewer.need_snapshot(topic)
            return
        followers = [one for one in self._viewers if topic in one.topics and topic not in one.due]
        body = None if is_repeated else state.update_since(before)
        if not followers:
            return
        if body is None:
            frame = self._snapshot(topic, channel)
        else:
            frame = self._encoded(topic, FrameKind.UPDATE, channel.sequence, body)
        for viewer in followers:
            viewer.put(frame)

    def _send_snapshots(self) -> None:
        for viewer in self._viewers:
            if not viewer.due or not viewer.takes_snapshots:
                continue
            for topic in sorted(viewer.due):
                channel = self._channels.get(topic)
                if channel is not None and channel.state is not None:
                    viewer.due.discard(topic)
                    viewer.put(self._snapshot(topic, channel), is_snapshot=True)

    def _snapshot(self, topic: Topic, channel: _Channel) -> bytes:
        if channel.snapshot is None:
            assert channel.state is not None
            body = channel.state.snapshot()
            channel.snapshot = self._encoded(topic, FrameKind.SNAPSHOT, channel.sequence, body)
        return channel.snapshot

    def _encoded(self, topic: Topic, kind: FrameKind, sequence: int, body: FrameBody) -> bytes:
        self.n_encoded += 1
        header = FrameHeader(topic, kind, self._epoch, sequence, time.time() * 1000)
        return encode_frame(header, body)
