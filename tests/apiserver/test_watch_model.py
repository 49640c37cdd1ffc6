"""Any interleaving of writes and watches: each watch gets every change once, in order, or a 410."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import WatchResponse
from stowplan.apiserver.server import ApiServer
from stowplan.apiserver.storage.watch_cache import CacheWatcher, WatchCache
from stowplan.objects.store import DeleteOptions
from tests.apiserver.plain import NOW, asked, plain_server, tree
from tests.soak import examples, found_within

Seen = tuple[int, str, str]
"""Version, type, key."""
NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["n", "m"])
COLORS = st.sampled_from(["red", "blue"])
HISTORY = 12
CHUNK = 300


class Model:
    """What should be seen: the state of each object after each version."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str, str | None, str | None]] = []
        """Version, key, color before and after; None: not there."""
        self.colors: dict[str, str] = {}

    def write(self, version: int, key: str, color: str | None) -> None:
        self.changes.append((version, key, self.colors.get(key), color))
        if color is None:
            del self.colors[key]
        else:
            self.colors[key] = color

    def at(self, version: int) -> dict[str, str]:
        """Key and color of what was there at a version."""
        state: dict[str, str] = {}
        for number, key, _, after in self.changes:
            if number > version:
                break
            if after is None:
                del state[key]
            else:
                state[key] = after
        return state


class Follower:
    """A watch, and what it should have seen by now."""

    def __init__(
        self, number: int, model: Model, start: int, initial: bool, space: str, color: str
    ) -> None:
        self.number = number
        self.model = model
        self.start = start
        self.space = space
        self.color = color
        self.got: list[Seen] = []
        self.rest = b""
        self.over = False
        self.refused = False
        self.initial = 0
        self.wanted: list[Seen] = []
        self.drained = start
        """It has read all changes up to this one, wanted or not."""
        if initial:
            state = model.at(start)
            visible = [key for key in sorted(state) if self.shows(key, state[key])]
            self.wanted = [(0, "ADDED", key) for key in visible]
            self.initial = len(self.wanted)

    def shows(self, key: str, color: str | None) -> bool:
        """True if an object of this color is one that is watched."""
        inside = not self.space or key.startswith(f"{self.space}/")
        return color is not None and inside and (not self.color or color == self.color)

    def due(self, saved: int) -> list[Seen]:
        """All that it may have seen when changes up to `saved` are saved."""
        found = list(self.wanted)
        for version, key, before, after in self.model.changes:
            if not self.start < version <= saved:
                continue
            was, stays = self.shows(key, before), self.shows(key, after)
            if stays:
                found.append((version, "MODIFIED" if was else "ADDED", key))
            elif was:
                found.append((version, "DELETED", key))
        return found

    def take(self, body: bytes) -> None:
        *lines, self.rest = (self.rest + body).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                assert event["object"]["code"] == 410
                self.refused = True
                continue
            meta = event["object"]["metadata"]
            version = 0 if len(self.got) < self.initial else int(meta["resourceVersion"])
            self.got.append((version, event["type"], f"{meta['namespace']}/{meta['name']}"))


class Watches(RuleBasedStateMachine):
    """Writes, saves, watches from anywhere, and readers of any speed."""

    def __init__(self) -> None:
        super().__init__()
        self.server: ApiServer = plain_server(
            durable=True, history_max=HISTORY, chunk_bytes_max=CHUNK
        )
        self.things: Any = self.server.registry.find("", "v1", "things")
        self.model = Model()
        self.saved = self.server.version
        self.batches: list[tuple[int, int]] = []
        self.followers: list[Follower] = []

    @rule(space=SPACES, name=NAMES, color=COLORS)
    def put(self, space: str, name: str, color: str) -> None:
        key = f"{space}/{name}"
        before = self.server.version
        if key in self.model.colors:
            # A second counter, so that each update changes something.
            spec = {"color": color, "turn": before}
            obj = {**tree(name), "spec": spec}
            obj["metadata"]["namespace"] = space
            self.server.update(self.things, obj, NOW)
        else:
            self.server.create(self.things, tree(name, color=color), NOW, space)
        assert self.server.version == before + 1
        self.model.write(self.server.version, key, color)

    @rule(space=SPACES, name=NAMES)
    def remove(self, space: str, name: str) -> None:
        key = f"{space}/{name}"
        if key not in self.model.colors:
            with pytest.raises(ApiError):
                self.server.delete(self.things, space, name, NOW)
            return
        self.server.delete(self.things, space, name, NOW, DeleteOptions(0))
        # It is marked first, and then it goes.
        self.model.write(self.server.version - 1, key, self.model.colors[key])
        self.model.write(self.server.version, key, None)

    @rule()
    def ask_what_is_unsaved(self) -> None:
        batch = self.server.unsaved()
        if batch is not None:
            self.batches.append((batch.number, batch.records[-1][1]))

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def save(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.batches) - 1))
        number, self.saved = self.batches[at]
        del self.batches[: at + 1]
        self.server.saved(number)

    @rule(
        back=st.integers(0, 3 * HISTORY),
        space=st.sampled_from(["", "n"]),
        color=st.sampled_from(["", "red"]),
    )
    def watch(self, back: int, space: str, color: str) -> None:
        version = self.saved - back
        where = f"namespaces/{space}/" if space else ""
        query = f"&fieldSelector=spec.color%3D{color}" if color else ""
        initial = version < 2
        if not initial:
            query += f"&resourceVersion={version}"
        answer = asked(self.server, "GET", f"/api/v1/{where}things?watch=1{query}")
        assert isinstance(answer, WatchResponse)
        start = self.saved if initial else version
        self.followers.append(Follower(answer.number, self.model, start, initial, space, color))

    @precondition(lambda self: self.followers)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        follower = data.draw(st.sampled_from(self.followers))
        self._read(follower)

    def _read(self, follower: Follower) -> bool:
        if follower.over:
            return False
        chunk = self.server.read(follower.number, NOW)
        follower.take(chunk.body)
        follower.over = chunk.end
        if len(chunk.body) < CHUNK and not chunk.end:
            follower.drained = max(follower.drained, self.saved)
        return bool(chunk.body)

    @invariant()
    def nothing_is_lost_repeated_or_early(self) -> None:
        for follower in self.followers:
            due = follower.due(self.saved)
            assert follower.got == due[: len(follower.got)], (follower.got, due)

    @invariant()
    def an_end_means_that_history_was_cut(self) -> None:
        for follower in self.followers:
            if follower.over:
                assert follower.refused or follower.drained < self.server.store.compacted

    def teardown(self) -> None:
        self.ask_what_is_unsaved()
        for number, _ in self.batches[-1:]:
            self.server.saved(number)
        self.saved = self.server.version
        for follower in self.followers:
            while self._read(follower):
                pass
            if not follower.over:
                assert follower.got == follower.due(self.saved)


MODEL = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
# That a wrong variant fails is enough; the smallest way to make it fail takes long to find.
WRONG = settings(MODEL, max_examples=found_within(200), phases=(Phase.generate,))


def test_every_watch_gets_every_change_once_in_order_or_410() -> None:
    run_state_machine_as_test(Watches, settings=MODEL)


def early(self: WatchCache, watcher: CacheWatcher, version: int, now: float) -> None:
    """A wrong start: the change of the very version is shown once more."""
    ADD(self, watcher, version - 1, now)


def forgetful(self: CacheWatcher, event: Any) -> Any:
    """A wrong selection: what leaves it is not said to be gone."""
    change = event.change
    return (change.type, change.value) if self.selection.matches(change.value) else None


def greedy(self: WatchCache, watcher: CacheWatcher, lines: list[bytes], now: float) -> bool:
    """A wrong reader: what does not fit into a chunk is skipped."""
    channel = watcher.channel
    room = self.chunk_bytes_max
    for event in channel.events[watcher.place - channel.base :]:
        watcher.place += 1
        if event.change.key.startswith(watcher.prefix) and room > 0:
            visible = watcher.shows(event)
            if visible is not None:
                line = self._line(watcher, *visible, now)
                lines.append(line)
                room -= len(line)
    return False


def patient(self: WatchCache, number: int, now: float) -> Any:
    """A wrong end: a watch that history has left behind goes on where history begins."""
    watcher = self.watchers.get(number)
    if watcher is not None:
        watcher.place = max(watcher.place, watcher.channel.base)
    return READ(self, number, now)


ADD, READ = WatchCache.add, WatchCache.read


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (WatchCache, "add", early),
        (CacheWatcher, "shows", forgetful),
        (WatchCache, "_read_events", greedy),
        (WatchCache, "read", patient),
    ],
)
def test_wrong_hubs_are_caught(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, wrong: Any
) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Watches, settings=WRONG)


def test_a_server_that_shows_what_is_not_saved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ApiServer, "_on_change", _published_before_saved)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Watches, settings=WRONG)


WRITTEN = ApiServer._on_change


def _published_before_saved(self: ApiServer, change: Any) -> None:
    WRITTEN(self, change)
    self._publish((change,))
    self._pending.pop()
