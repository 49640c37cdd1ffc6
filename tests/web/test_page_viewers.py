"""Viewers of the page: frames encoded once, slow viewers, and no work while nobody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from stowplan.web.model.page_frames import FrameBody, FrameKind, Topic
from stowplan.web.serving.page_source import TopicState
from stowplan.web.serving.viewers import STATUS_S, WAITING_MAX, Viewer, Viewers
from tests.web.frame_client import FrameClient, decode_frame


class NumberState(msgspec.Struct, frozen=True):
    """A state whose updates have only what is new."""

    numbers: tuple[int, ...]

    def snapshot(self) -> FrameBody:
        return FrameBody({"decisions": list(self.numbers)})

    def update_since(self, before: NumberState) -> FrameBody | None:
        if self.numbers[: len(before.numbers)] != before.numbers:
            return None
        return FrameBody({"decisions": list(self.numbers[len(before.numbers) :])})


class NumberSource:
    """A source of states that a test changes. n_looks: how often it was asked."""

    def __init__(self) -> None:
        self.epoch = 1
        self.n_looks = 0
        self.states: dict[Topic, NumberState] = {
            topic: NumberState(()) for topic in (Topic.STATUS, Topic.DECISIONS)
        }

    def add(self, number: int) -> None:
        for topic, state in self.states.items():
            self.states[topic] = NumberState((*state.numbers, number))

    async def look(self, last: Mapping[Topic, TopicState | None]) -> dict[Topic, TopicState]:
        self.n_looks += 1
        return {
            topic: self.states[topic]
            for topic, state in last.items()
            if state != self.states[topic]
        }


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 240))


def made() -> tuple[Viewers, NumberSource]:
    viewers, source = Viewers(), NumberSource()
    viewers.use(source)  # type: ignore[arg-type]
    return viewers, source


async def received(viewer: Viewer, client: FrameClient) -> int:
    """Take all frames that wait for a viewer; returns their number."""
    before = client.n_frames
    while viewer.n_waiting:
        client.take(await viewer.next())
        viewer.done()
    return client.n_frames - before


def test_frames_are_encoded_once_for_all_viewers() -> None:
    async def steps() -> None:
        viewers, source = made()
        all_of_them = [Viewer([Topic.DECISIONS]) for _ in range(50)]
        for one in all_of_them:
            viewers.add(one)
        for number in range(3):
            source.add(number)
            await viewers.tick(number)
        assert viewers.n_encoded == 3
        for one in all_of_them:
            client = FrameClient()
            await received(one, client)
            assert client.state[Topic.DECISIONS]["decisions"] == [0, 1, 2]
            assert client.gaps == set()

    run(steps())


def test_without_viewers_nothing_is_looked_at() -> None:
    async def steps() -> None:
        viewers, source = made()
        viewers_task = asyncio.create_task(viewers.run())
        await asyncio.sleep(0.3)
        assert source.n_looks == viewers.n_ticks == viewers.n_encoded == 0
        viewer = Viewer([Topic.DECISIONS])
        viewers.add(viewer)
        decode_frame(await viewer.next())
        viewers.remove(viewer)
        await asyncio.sleep(0.25)
        n_looks = source.n_looks
        await asyncio.sleep(0.3)
        assert source.n_looks == n_looks
        viewers_task.cancel()

    run(steps())


def test_a_viewer_that_comes_later_begins_with_a_snapshot_at_the_same_sequence() -> None:
    async def steps() -> None:
        viewers, source = made()
        first, second = Viewer([Topic.DECISIONS]), Viewer([Topic.DECISIONS])
        viewers.add(first)
        for number in range(3):
            source.add(number)
            await viewers.tick(number)
        viewers.add(second)
        await viewers.tick(3)
        header, body = decode_frame(await second.next())
        assert (header.kind, header.sequence) == (FrameKind.SNAPSHOT, 3)
        assert body.tree == {"decisions": [0, 1, 2]}
        second.done()
        source.add(3)
        await viewers.tick(4)
        header, body = decode_frame(await second.next())
        assert (header.kind, header.sequence, body.tree) == (
            FrameKind.UPDATE,
            4,
            {"decisions": [3]},
        )

    run(steps())


def test_a_slow_viewer_gets_a_snapshot_and_never_a_part_of_the_updates() -> None:
    async def steps() -> None:
        viewers, source = made()
        slow, client = Viewer([Topic.DECISIONS]), FrameClient()
        viewers.add(slow)
        for number in range(40):
            source.add(number)
            await viewers.tick(number)
            assert slow.n_waiting <= WAITING_MAX
        # It has received nothing: one frame is under way, all others were dropped.
        assert slow.n_dropped >= 30
        await received(slow, client)
        await viewers.tick(50)
        await received(slow, client)
        assert client.gaps == set()
        assert client.state[Topic.DECISIONS]["decisions"] == list(range(40))
        # A fast viewer beside it costs no snapshot.
        n_encoded = viewers.n_encoded
        source.add(40)
        await viewers.tick(51)
        assert viewers.n_encoded == n_encoded + 1

    run(steps())


def test_while_a_frame_is_under_way_no_snapshot_is_made_for_a_slow_viewer() -> None:
    async def steps() -> None:
        viewers, source = made()
        slow = Viewer([Topic.DECISIONS])
        viewers.add(slow)
        await viewers.tick(0)
        await slow.next()
        for number in range(20):
            source.add(number)
            await viewers.tick(number)
        # One snapshot at the start, then the updates, and no further snapshot.
        assert viewers.n_encoded <= 1 + 20
        assert slow.n_waiting <= WAITING_MAX

    run(steps())


def test_topics_can_be_changed_and_snapshots_asked_for() -> None:
    async def steps() -> None:
        viewers, source = made()
        viewer, client = Viewer([Topic.DECISIONS]), FrameClient()
        viewers.add(viewer)
        await viewers.tick(0)
        await received(viewer, client)
        viewer.subscribe([Topic.STATUS])
        source.add(1)
        await viewers.tick(1)
        await received(viewer, client)
        assert client.state[Topic.STATUS]["decisions"] == [1]
        assert client.state[Topic.DECISIONS]["decisions"] == []
        viewer.need_snapshot(Topic.STATUS)
        viewer.need_snapshot(Topic.DECISIONS)
        await viewers.tick(1.1)
        assert await received(viewer, client) == 1
        # The first topic goes on where a new viewer of it would begin.
        viewer.subscribe([Topic.DECISIONS])
        await viewers.tick(1.2)
        await received(viewer, client)
        assert client.state[Topic.DECISIONS]["decisions"] == [1]

    run(steps())


def test_status_is_sent_though_nothing_changes() -> None:
    async def steps() -> None:
        viewers, _ = made()
        viewer, client = Viewer([Topic.STATUS, Topic.DECISIONS]), FrameClient()
        viewers.add(viewer)
        await viewers.tick(0)
        assert await received(viewer, client) == 2
        await viewers.tick(STATUS_S / 2)
        assert await received(viewer, client) == 0
        await viewers.tick(STATUS_S + 0.1)
        assert await received(viewer, client) == 1

    run(steps())


def test_another_epoch_begins_with_snapshots() -> None:
    async def steps() -> None:
        viewers, source = made()
        viewer, client = Viewer([Topic.DECISIONS]), FrameClient()
        viewers.add(viewer)
        source.add(1)
        await viewers.tick(0)
        await received(viewer, client)
        after = NumberSource()
        after.epoch = 2
        after.add(7)
        viewers.use(after)  # type: ignore[arg-type]
        await viewers.tick(1)
        await received(viewer, client)
        assert client.state[Topic.DECISIONS]["decisions"] == [7]
        assert client.sequence[Topic.DECISIONS][0] == 2
        assert client.gaps == set()

    run(steps())
