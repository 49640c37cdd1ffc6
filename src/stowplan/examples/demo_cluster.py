"""Cluster of the demo: an embedded cluster, a scheduler in a thread, and the operations of a step.
All requests are those of an ordinary client."""

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

from stowplan.apis.core.pod_lifecycle import PodLifecycleDefaults
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import JSON, MERGE_PATCH, ApiRequest
from stowplan.client.resources import NODES, PODS, resources_of
from stowplan.client.responses import error_message
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.client.one_shot_requests import ClusterListing
from stowplan.driver.live.background_scheduler import BackgroundScheduler
from stowplan.driver.live.informers import Informers
from stowplan.driver.live.scheduler_server import SchedulerServer, SchedulerServerOptions
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.examples.demo_manifests import CONFIGURATION, GROUP_API, PATHS, initial_objects
from stowplan.examples.demo_state import ObservedCluster
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.podgroup import PodGroup, Queue

EXPECT_TIMEOUT_S = 30.0
"""Timeout of an expectation."""
POLL_INTERVAL_S = 0.05
SYNC_S = 60.0
CLOCK_STEP_MAX_S = 1.0


class DemoError(Exception):
    """The demo cannot continue; the text is for the user."""


class DemoCheck(msgspec.Struct, frozen=True):
    """An expectation of a step, what was observed, and whether they agree."""

    expected: str
    seen: str
    held: bool


class AppPlacement(msgspec.Struct, frozen=True):
    """Placement of an app's pods. where: node -> number of pods.

    pod: key of the pod that was scheduled last, or is pending; "" if none is left. snapshot: the
    cluster then. written: messages that the scheduler wrote about the app.
    """

    app: str
    decided_by: str
    n_placed: int
    n_pods: int
    where: dict[str, int]
    pod: str
    snapshot: ClusterListing
    written: list[str]


class DemoObserver(Protocol):
    """Shows the progress of the demo."""

    def say(self, text: str) -> None:
        """Describe the next action."""

    def report_check(self, check: DemoCheck) -> None:
        """An expectation was met or not."""

    def refresh(self, view: ObservedCluster) -> None:
        """The current cluster; called many times a second."""


class AcceleratedClock:
    """Wall clock of the cluster, which can run faster."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._seen = self._virtual_s = wall()
        self._speed = 1.0

    def __call__(self) -> float:
        """Seconds since 1970.

        While it runs faster, a process that was paused must not find all its nodes unreachable, so
        a long interval counts as a short one.
        """
        now = self._wall()
        passed_s = max(0.0, now - self._seen)
        if self._speed > 1.0:
            passed_s = min(passed_s, CLOCK_STEP_MAX_S)
        self._seen = now
        self._virtual_s += passed_s * self._speed
        return self._virtual_s

    def run(self, speed: float) -> None:
        """Run so many times as fast as real time."""
        self()
        self._speed = speed


class DemoCluster:
    """Operations of a step. checks, placements: results so far. snapshot: the cluster at the last
    `keep_snapshot`."""

    def __init__(
        self,
        api: ApiClient,
        view: ObservedCluster,
        clock: AcceleratedClock,
        observer: DemoObserver,
        scheduler: BackgroundScheduler,
        pause_s: float,
    ) -> None:
        """pause_s: time for reading."""
        self.api = api
        self.view = view
        self.clock = clock
        self.scheduler = scheduler
        self.checks: list[DemoCheck] = []
        self.placements: list[AppPlacement] = []
        self.snapshot = ClusterListing()
        self._observer = observer
        self._pause_s = pause_s

    def say(self, text: str) -> None:
        """Describe the next action."""
        self._observer.say(text)

    async def pause(self) -> None:
        """Wait while people read."""
        await self.until(lambda: False, self._pause_s)

    # Actions.

    async def create(self, *trees: Tree) -> None:
        """Create objects. Raises DemoError."""
        for tree in trees:
            body = json.dumps(tree).encode()
            await self._send(ApiRequest("POST", PATHS[tree["kind"]], (), body, JSON))

    async def delete(self, kind: str, *names: str) -> None:
        """Delete objects of a kind, and their dependents. Raises DemoError."""
        body = json.dumps({"propagationPolicy": "Background"}).encode()
        for name in names:
            await self._send(ApiRequest("DELETE", f"{PATHS[kind]}/{name}", (), body, JSON))

    async def annotate_node(self, name: str, annotation: str, text: str | None) -> None:
        """Set or remove an annotation of a node. Raises DemoError."""
        body = json.dumps({"metadata": {"annotations": {annotation: text}}}).encode()
        await self._send(ApiRequest("PATCH", NODES.path(name), (), body, MERGE_PATCH))

    async def _send(self, request: ApiRequest) -> None:
        answer = await self.api.send(request)
        if not answer.is_done:
            raise DemoError(f"{request.method} {request.path} failed: {error_message(answer)}")

    # Expectations.

    async def until(self, holds: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until a condition holds; False after the timeout. Raises DemoError."""
        clock = asyncio.get_running_loop().time
        ends = clock() + (EXPECT_TIMEOUT_S if timeout_s is None else timeout_s)
        while True:
            if holds():
                return True
            if clock() >= ends:
                return False
            if not self.scheduler.is_running:
                raise DemoError(f"the scheduler failed: {self.scheduler.fault!r}")
            self._observer.refresh(self.view)
            await asyncio.sleep(POLL_INTERVAL_S)

    async def expect(
        self, expected: str, holds: Callable[[], bool], seen: Callable[[], str]
    ) -> None:
        """Wait for a condition, and record whether it came true. seen: the observed state, in the
        same words."""
        held = await self.until(holds)
        check = DemoCheck(expected, seen(), held)
        self.checks.append(check)
        self._observer.refresh(self.view)
        self._observer.report_check(check)

    async def gone(self, *apps: str) -> bool:
        """Wait until no pod of these apps is left."""
        pods = self.view.pods
        return await self.until(
            lambda: all(pod.deleted_at or pod.app not in apps for pod in pods.values())
        )

    def note(self, app: str, n_pods: int) -> None:
        """Record the placement of an app's pods for the summary. n_pods: wanted number."""
        view = self.view
        live = sorted(view.live(app), key=lambda one: one.placed_at)
        placement = AppPlacement(
            app,
            ", ".join(sorted({one.pod.spec.scheduler_name for one in live})),
            len(view.placed(app)),
            n_pods,
            dict(sorted(view.per_node(app).items())),
            live[-1].pod.key if live else "",
            view.snapshot(),
            view.written(app),
        )
        self.placements.append(placement)

    def keep_snapshot(self) -> None:
        """Keep a snapshot of the cluster for the summary."""
        self.snapshot = self.view.snapshot()


class WarningCollector(logging.Handler):
    """Collects logged warnings, so that they do not disturb the display."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Store a line."""
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def collected_warnings() -> Iterator[WarningCollector]:
    """Collect warnings meanwhile."""
    kept, log = WarningCollector(), logging.getLogger("stowplan")
    handlers, propagates = list(log.handlers), log.propagate
    log.handlers[:], log.propagate = [kept], False
    try:
        yield kept
    finally:
        log.handlers[:], log.propagate = handlers, propagates


def demo_deciders() -> Deciders:
    """Deciders of the demo."""
    return deciders_of([ConfigText(CONFIGURATION, "the demonstration")])


@contextlib.asynccontextmanager
async def running_demo_cluster(
    observer: DemoObserver,
    pause_s: float,
    on_server: Callable[[SchedulerServer], None] | None = None,
) -> AsyncIterator[DemoCluster]:
    """A cluster with a scheduler, removed at the end. on_server: called with the scheduler server
    before it runs. Raises DemoError and UpError."""
    clock, view = AcceleratedClock(), ObservedCluster()
    manager_options = ControllerManagerOptions(pod_lifecycle=PodLifecycleDefaults(start_s=0.3))
    with tempfile.TemporaryDirectory(prefix="stowplan-demo-") as folder:
        settings = LocalClusterSettings(kubeconfig=Path(folder, "kubeconfig"))
        async with running_local_cluster(
            settings, list(initial_objects()), manager_options
        ) as cluster:
            cluster.server_loop.clock = clock
            client_config = load_client_config(str(cluster.kubeconfig))
            async with (
                ApiClient(client_config) as api,
                _followed(api, view),
                _scheduler(client_config, on_server) as scheduler,
            ):
                made = DemoCluster(api, view, clock, observer, scheduler, pause_s)
                if not await made.until(lambda: scheduler.server.is_synced, SYNC_S):
                    raise DemoError(f"the scheduler did not start within {SYNC_S:g} s")
                yield made


@contextlib.asynccontextmanager
async def _followed(api: ApiClient, view: ObservedCluster) -> AsyncIterator[None]:
    """A view of the cluster, kept up to date."""
    groups = [one for one in resources_of([PodGroup, Queue]) if one.api_version == GROUP_API]
    following = Informers(api, (NODES, PODS, *groups), view.handle, np.random.default_rng())
    async with background_tasks() as tasks:
        following.start(tasks)
        async with asyncio.timeout(SYNC_S):
            await following.synced.wait()
        yield


@contextlib.asynccontextmanager
async def _scheduler(
    client_config: ClientConfig, on_server: Callable[[SchedulerServer], None] | None
) -> AsyncIterator[BackgroundScheduler]:
    """The scheduler of `stowplan run`, in a thread. For so few pods no kernels are compiled."""
    scheduler = BackgroundScheduler(
        demo_deciders(), SchedulerServerOptions(client_config, engine="walk")
    )
    if on_server is not None:
        on_server(scheduler.server)
    scheduler.start()
    try:
        yield scheduler
    finally:
        # This loop answers the scheduler's last requests.
        await asyncio.to_thread(scheduler.stop)
