"""A scheduler under lasting load holds nothing of pods and nodes that are gone.

What the informers, the scheduler, the dispatcher and their observers refer to is counted after
equal spans of a repeatable load whose pods and nodes all have new names, when recent events have
been forgotten. There is no clock and no server.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
from collections import Counter, deque
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from stowplan.assembly.deciders import deciders_of
from stowplan.client.api_calls import ApiCalls, RequestTime
from stowplan.client.event_correlator import SERIES_FINISHED_S, EventCorrelator
from stowplan.client.informer import Informer
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import NODES, PODS
from stowplan.client.responses import ApiResponse
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.live.api_dispatcher import ApiDispatcher
from stowplan.driver.live.decision_log import DecisionLog
from stowplan.driver.live.metrics_recorder import MetricsRecorder
from stowplan.insight.fairness.fairness_watch import watch_for
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.scheduler import SchedulerOptions

Tree = dict[str, Any]

N_NODES, STEPS, PODS_PER_STEP, LIFE = 20, 40, 10, 5
"""Steps of a span, and after how many steps a pod is deleted."""
SYNCED = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}


class LoadedApi:
    """An API server in memory that answers at once: its watches, and what is there."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {"nodes": [], "pods": []}
        self.objects: dict[str, Tree] = {}
        self._versions = itertools.count(2)

    def change(self, plural: str, kind: str, tree: Tree) -> None:
        tree["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[tree["metadata"]["name"]] = tree
        if kind == "DELETED":
            del self.objects[tree["metadata"]["name"]]
        self.lines[plural].append(json.dumps({"type": kind, "object": tree}).encode() + b"\n")

    async def send(self, request: ApiRequest) -> ApiResponse:
        await asyncio.sleep(0)
        if not request.path.endswith("/binding"):
            return ApiResponse(201)
        tree = self.objects.get(request.path.split("/")[-2])
        if tree is None:
            return ApiResponse(404)
        tree["spec"]["nodeName"] = json.loads(request.body)["target"]["name"]
        self.change("pods", "MODIFIED", tree)
        return ApiResponse(201)


def node_tree(name: str) -> Tree:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    labels = {"kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_tree(number: int) -> Tree:
    """A pod of one of ten applications; one in twenty asks for more than any node has."""
    name, cpu = f"p{number}", "100" if number % 20 == 7 else "1m"
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    labels = {"app": f"app{number % 10}"}
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels},
        "spec": {"schedulerName": "default-scheduler", "containers": [container]},
        "status": {"phase": "Pending"},
    }


class LoadedScheduler:
    """The parts of a scheduler server, called one after the other. n_bound: bound pods."""

    def __init__(self) -> None:
        self.api = LoadedApi()
        self.now = SECOND
        self.n_bound = 0
        self.metrics = MetricsRecorder()
        deciders = deciders_of(())
        self.scheduler = deciders.scheduler(
            options=SchedulerOptions(leads=False), metrics=self.metrics.counted
        )
        self.metrics.watch(self.scheduler)
        rng, templates = np.random.default_rng(1), PodTemplates(prepare=PodInfo.of)
        self.informers = {
            "nodes": Informer(NODES, rng, templates),
            "pods": Informer(PODS, rng, templates),
        }
        self.inbox: deque[Event] = deque()
        self.decision_log = DecisionLog(self.scheduler, lambda key: "")
        self.watch = watch_for(deciders.configuration)
        self.series = EventCorrelator("h", self._version)
        self.dispatcher = ApiDispatcher(
            self.api,  # type: ignore[arg-type]
            ApiCalls(self.series, lambda: RequestTime(self.now, self.now, "s", "micros")),
            self.inbox.append,
            lambda effect: True,
        )
        self._numbers = itertools.count()
        self._nodes: deque[Tree] = deque()
        self._pods: deque[list[Tree]] = deque([[]] * LIFE)
        for informer in self.informers.values():
            for line in ({"metadata": SYNCED}, None):
                informer.next(0)
                informer.opened(0)
                if line is not None:
                    whole = {"type": "BOOKMARK", "object": line}
                    informer.feed(json.dumps(whole).encode() + b"\n", 0)
        for _ in range(N_NODES):
            self._add_node()
        self.inbox += [happened.LeaderElected(1), happened.Synced()]

    def _version(self, namespace: str, name: str, uid: str) -> str:
        found = self.informers["pods"].find(f"{namespace}/{name}")
        is_there = isinstance(found, Pod) and found.uid == uid
        return found.metadata.resource_version if is_there else ""

    def _add_node(self) -> None:
        self._nodes.append(node_tree(f"n{next(self._numbers)}"))
        self.api.change("nodes", "ADDED", self._nodes[-1])

    async def span(self) -> None:
        """One span of the load; afterwards its events have been forgotten."""
        for _ in range(STEPS):
            self.now += SECOND
            self._pods.append([pod_tree(next(self._numbers)) for _ in range(PODS_PER_STEP)])
            for tree in self._pods[-1]:
                self.api.change("pods", "ADDED", tree)
            for tree in self._pods.popleft():
                self.n_bound += "nodeName" in tree["spec"]
                self.api.change("pods", "DELETED", tree)
            self._add_node()
            self.api.change("nodes", "DELETED", self._nodes.popleft())
            self._handle()
            # Its binding is under way.
            self.api.change("pods", "DELETED", self._pods[-1].pop())
            for _ in range(3):
                assert await self.dispatcher.wait_until_settled(60)
                self._handle()
        self.now += SERIES_FINISHED_S * SECOND

    def _handle(self) -> None:
        events: list[Event] = []
        for plural, informer in self.informers.items():
            lines, self.api.lines[plural] = self.api.lines[plural], []
            events += informer.feed(b"".join(lines), self.now)
        events += self.inbox
        self.inbox.clear()
        effects = self.scheduler.handle(events, self.now, 1000)
        self.metrics.handled(events, effects, self.now, 1)
        self.decision_log.handled(events, effects, self.now)
        self.watch.handled(events, effects, self.now)
        for effect in effects:
            if not isinstance(effect, to_do.Wake | to_do.Report | to_do.Cancel):
                self.dispatcher.take(effect)


PROGRAM = type, ModuleType, FunctionType, asyncio.AbstractEventLoop, asyncio.Task
"""What belongs to the program as such; it refers to all of it, and to this test."""


def held(roots: list[object]) -> Counter[str]:
    """Numbers of objects, by type, that the roots refer to; of dicts and sets the entries too."""
    seen: set[int] = set()
    found: Counter[str] = Counter()
    left = list(roots)
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, PROGRAM):
            continue
        seen.add(id(one))
        name = type(one).__name__
        found[name] += 1
        if isinstance(one, dict | set | list | deque):
            found[f"entries of {name}"] += len(one)
        left += gc.get_referents(one)
    return found


@pytest.fixture(autouse=True)
def short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals of changed rows are trimmed at the length of a few steps, not of thousands."""
    monkeypatch.setattr("stowplan.columns.journal.KEPT_MIN", 16)


async def growth(kind: type[LoadedScheduler]) -> Counter[str]:
    """How much more is held after eight spans than after four, by type."""
    loaded = kind()
    roots = [value for value in vars(loaded).values() if value is not loaded.api]
    counts = []
    async with background_tasks() as tasks:
        loaded.dispatcher.start(tasks)
        for _ in range(2):
            for _ in range(4):
                await loaded.span()
            gc.collect()
            counts.append(held(roots))
    assert loaded.n_bound > 8 * STEPS * (PODS_PER_STEP - 1) * 0.8
    assert len(loaded.series) <= 2 * STEPS * PODS_PER_STEP
    early, late = counts
    return late - early


def most(found: Counter[str]) -> int:
    # Numbers grow, and some become objects of their own; they are not held, they are values.
    return max((count for name, count in found.items() if name not in ("int", "float")), default=0)


SLACK = STEPS
"""Less than one object a step: caches that have a size are not quite full."""


def test_a_scheduler_holds_nothing_of_what_is_gone() -> None:
    found = asyncio.run(asyncio.wait_for(growth(LoadedScheduler), 600))
    assert most(found) < SLACK, found.most_common(8)


class Remembering(ApiDispatcher):
    """Wrong: keeps the order of each object after its last effect."""

    def _start_next_for(self, uid: str) -> None:
        super()._start_next_for(uid)
        self._waiting_by_uid.setdefault(f"{uid} ", deque())


class Hoarding(LoadedScheduler):
    def __init__(self) -> None:
        super().__init__()
        self.dispatcher.__class__ = Remembering


class Counting(DecisionLog):
    """Wrong: a log that forgets no pod."""

    def handled(self, events: Any, effects: Any, now: int) -> None:
        super().handled([e for e in events if not isinstance(e, happened.PodDeleted)], effects, now)


class Talkative(LoadedScheduler):
    def __init__(self) -> None:
        super().__init__()
        self.decision_log.__class__ = Counting


@pytest.mark.parametrize("kind", [Hoarding, Talkative])
def test_what_is_never_dropped_is_found(kind: type[LoadedScheduler]) -> None:
    found = asyncio.run(asyncio.wait_for(growth(kind), 600))
    assert most(found) >= SLACK
