"""The stage of the demonstration: an embedded cluster, a scheduler in a thread, and what an act may
do with them. All requests are those that any client could send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders, Text, deciders_of
from stowplan.client.answers import told
from stowplan.client.kubeconfig import Connection
from stowplan.client.requests import JSON, MERGE_PATCH, Request
from stowplan.client.resources import NODES, PODS, resources_of
from stowplan.cluster.hollow.plan import Habits
from stowplan.cluster.life import Living
from stowplan.driver.api import ApiClient
from stowplan.driver.asking import Found
from stowplan.driver.companion import Companion
from stowplan.driver.connecting import connection_to
from stowplan.driver.demo_view import View
from stowplan.driver.demo_world import CONFIGURATION, GROUP_API, PATHS, Tree, beginning
from stowplan.driver.following import Following
from stowplan.driver.live import LiveOptions
from stowplan.driver.local_cluster import Settings, running
from stowplan.objects.podgroup import PodGroup, Queue

PATIENCE_S = 30.0
"""How long something that is expected may take."""
LOOK_S = 0.05
SYNC_S = 60.0
MOMENT_S = 1.0


class DemoError(Exception):
    """The demonstration cannot go on; the text is for the user."""


class Check(msgspec.Struct, frozen=True):
    """What an act expected, what was seen of it, and whether that is the same."""

    expected: str
    seen: str
    held: bool


class Placement(msgspec.Struct, frozen=True):
    """Where the pods of an app went. where: node -> how many.

    pod: by key, the one whose node was chosen last, or that waits; "" where none is left. picture:
    the cluster then. written: what the scheduler has written about the app.
    """

    app: str
    decided_by: str
    n_placed: int
    n_pods: int
    where: dict[str, int]
    pod: str
    picture: Found
    written: list[str]


class Audience(Protocol):
    """Whoever watches."""

    def say(self, text: str) -> None:
        """A line about what is done next."""

    def checked(self, check: Check) -> None:
        """Something expected has come, or has not."""

    def look(self, view: View) -> None:
        """The cluster as it is now; called many times a second."""


class Clock:
    """The cluster's time of day, which can be hurried on."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._seen = self._shown = wall()
        self._speed = 1.0

    def __call__(self) -> float:
        """Seconds since 1970.

        While it is hurried a process that stood still must not find all its nodes silent, so a
        long moment counts as a short one.
        """
        now = self._wall()
        passed_s = max(0.0, now - self._seen)
        if self._speed > 1.0:
            passed_s = min(passed_s, MOMENT_S)
        self._seen = now
        self._shown += passed_s * self._speed
        return self._shown

    def run(self, speed: float) -> None:
        """Go on so many times as fast as other clocks."""
        self()
        self._speed = speed


class Stage:
    """What acts work with. checks, placements: what came of them so far. picture: the cluster as it
    was when somebody last kept it."""

    def __init__(
        self,
        api: ApiClient,
        view: View,
        clock: Clock,
        audience: Audience,
        companion: Companion,
        pause_s: float,
    ) -> None:
        """pause_s: how long people are given to read."""
        self.api = api
        self.view = view
        self.clock = clock
        self.companion = companion
        self.checks: list[Check] = []
        self.placements: list[Placement] = []
        self.picture = Found()
        self._audience = audience
        self._pause_s = pause_s

    def say(self, text: str) -> None:
        """Tell what is done next."""
        self._audience.say(text)

    async def pause(self) -> None:
        """Let people read."""
        await self.until(lambda: False, self._pause_s)

    # Doing.

    async def create(self, *trees: Tree) -> None:
        """Create objects. Raises DemoError."""
        for tree in trees:
            body = json.dumps(tree).encode()
            await self._send(Request("POST", PATHS[tree["kind"]], (), body, JSON))

    async def delete(self, kind: str, *names: str) -> None:
        """Delete objects of a kind, and what belongs to them. Raises DemoError."""
        body = json.dumps({"propagationPolicy": "Background"}).encode()
        for name in names:
            await self._send(Request("DELETE", f"{PATHS[kind]}/{name}", (), body, JSON))

    async def annotate_node(self, name: str, annotation: str, text: str | None) -> None:
        """Set an annotation of a node, or take it away. Raises DemoError."""
        body = json.dumps({"metadata": {"annotations": {annotation: text}}}).encode()
        await self._send(Request("PATCH", NODES.path(name), (), body, MERGE_PATCH))

    async def _send(self, request: Request) -> None:
        answer = await self.api.send(request)
        if not answer.is_done:
            wanted = "it done (a defect of the demonstration or of the cluster)"
            raise DemoError(f"{request.method} {request.path}: got {told(answer)}, wanted {wanted}")

    # Expecting.

    async def until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until something holds; False if it did not in time. Raises DemoError."""
        clock = asyncio.get_running_loop().time
        ends = clock() + (PATIENCE_S if timeout_s is None else timeout_s)
        while True:
            if holds():
                return True
            if clock() >= ends:
                return False
            if not self.companion.is_running:
                raise DemoError(f"the scheduler has ended: {self.companion.fault!r}")
            self._audience.look(self.view)
            await asyncio.sleep(LOOK_S)

    async def expect(
        self, expected: str, holds: Callable[[], bool], seen: Callable[[], str]
    ) -> None:
        """Wait for something, and note whether it came. seen: what there is, in the same words."""
        held = await self.until(holds)
        check = Check(expected, seen(), held)
        self.checks.append(check)
        self._audience.look(self.view)
        self._audience.checked(check)

    async def gone(self, *apps: str) -> bool:
        """Wait until no pod of these apps is left."""
        pods = self.view.pods
        return await self.until(lambda: all(p.gone_at or p.app not in apps for p in pods.values()))

    def note(self, app: str, n_pods: int) -> None:
        """Keep where the pods of an app are, for the end. n_pods: so many were asked for."""
        view = self.view
        live = sorted(view.live(app), key=lambda one: one.placed_at)
        placement = Placement(
            app,
            ", ".join(sorted({one.pod.spec.scheduler_name for one in live})),
            len(view.placed(app)),
            n_pods,
            dict(sorted(view.per_node(app).items())),
            live[-1].pod.key if live else "",
            view.picture(),
            view.written(app),
        )
        self.placements.append(placement)

    def keep_picture(self) -> None:
        """Keep the cluster as it is now, for the end."""
        self.picture = self.view.picture()


class Complaints(logging.Handler):
    """Keeps what parts of Stowplan warn of, so that it does not fall into the picture."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def complaints() -> Iterator[Complaints]:
    """What is warned of meanwhile."""
    kept, log = Complaints(), logging.getLogger("stowplan")
    handlers, propagates = list(log.handlers), log.propagate
    log.handlers[:], log.propagate = [kept], False
    try:
        yield kept
    finally:
        log.handlers[:], log.propagate = handlers, propagates


def deciders() -> Deciders:
    """Who decides the pods of the demonstration."""
    return deciders_of([Text(CONFIGURATION, "the demonstration")])


@contextlib.asynccontextmanager
async def stage(audience: Audience, pause_s: float) -> AsyncIterator[Stage]:
    """A cluster with a scheduler, gone at the end. Raises DemoError and UpError."""
    clock, view = Clock(), View()
    living = Living(habits=Habits(start_s=0.3))
    with tempfile.TemporaryDirectory(prefix="stowplan-demo-") as folder:
        settings = Settings(kubeconfig=Path(folder, "kubeconfig"))
        async with running(settings, list(beginning()), living) as cluster:
            cluster.pump.clock = clock
            connection = connection_to(str(cluster.kubeconfig))
            async with (
                ApiClient(connection) as api,
                _followed(api, view),
                _scheduler(connection) as companion,
            ):
                made = Stage(api, view, clock, audience, companion, pause_s)
                if not await made.until(lambda: companion.live.is_synced, SYNC_S):
                    raise DemoError(f"the scheduler did not start within {SYNC_S:g} s")
                yield made


@contextlib.asynccontextmanager
async def _followed(api: ApiClient, view: View) -> AsyncIterator[None]:
    """The view, kept up to date."""
    groups = [one for one in resources_of([PodGroup, Queue]) if one.api_version == GROUP_API]
    following = Following(api, (NODES, PODS, *groups), view.tell, np.random.default_rng())
    following.start()
    try:
        async with asyncio.timeout(SYNC_S):
            await following.synced.wait()
        yield
    finally:
        await following.stop()


@contextlib.asynccontextmanager
async def _scheduler(connection: Connection) -> AsyncIterator[Companion]:
    """The scheduler of `stowplan run`, in a thread. So few pods are walked: nothing is compiled."""
    companion = Companion(deciders(), LiveOptions(connection, engine="walk"))
    companion.start()
    try:
        yield companion
    finally:
        # Its last requests are answered by this loop.
        await asyncio.to_thread(companion.stop)
