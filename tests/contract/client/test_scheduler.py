"""kube-scheduler's own conversation with an API server, with our client and machine in its place.

They are shown what the recorded watches showed, when they showed it; every request is answered as
done. What is written must be what was written then.

What may differ: which of several equal nodes is taken (the recording drew one), times, names of
events, the uid that our patches and deletions carry beside the rest, and the fields that say how a
strategic merge patch was made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.assembly.deciders import deciders_of
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.client.api_calls import ApiCalls, RequestTime
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.informer import Informer
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import RESOURCES, ApiResource, resources_of
from stowplan.client.responses import ApiResponse
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event, Tick
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from tests.contract.client.recorded import Tree, concrete, lines, scenarios

DROPPED = ("lastTransitionTime", "lastProbeTime", "observedGeneration")


def recording() -> list[Tree]:
    (found,) = [s for s in scenarios("scheduler") if s["scenario"] == "json"]
    return [e for e in found["exchanges"] if "request" in e]


def watched() -> dict[str, Tree]:
    return {e["request"]["path"]: e for e in recording() if "events" in e}


class Conversation:
    """writes: (method, path, body) of everything that was written."""

    def __init__(self) -> None:
        configuration, registry = configuration_of(None, "default")
        self.scheduler = scheduler_for(configuration, registry, engine="walk")
        self.now = 0
        moment = RequestTime(0, 0, "2026-11-21T10:00:00Z", "2026-11-21T10:00:00.000000Z")
        clock = lambda: RequestTime(self.now, self.now, moment.seconds, moment.micros)  # noqa: E731
        self.pods: Informer | None = None
        self.performer = ApiCalls(EventCorrelator("host", self.version), clock)
        self.writes: list[tuple[str, str, Tree]] = []
        self._event_queue: list[tuple[int, int, Any]] = []
        self._n = 0

    def version(self, namespace: str, name: str, uid: str) -> str:
        pod = None if self.pods is None else self.pods.find(f"{namespace}/{name}")
        return "" if pod is None else pod.metadata.resource_version

    def plan(self, at: int, what: Any) -> None:
        self._n += 1
        heappush(self._event_queue, (at, self._n, what))

    def play(self, end: int) -> None:
        while self._event_queue:
            at, _, what = heappop(self._event_queue)
            if at > end:
                break
            self.now = max(self.now, at)
            events = what() if callable(what) else [what]
            for effect in self.scheduler.handle(events, self.now):
                self.perform(effect)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, to_do.Wake):
            self.plan(effect.at, Tick())
            return
        steps = self.performer.steps(effect)
        answer: ApiResponse | None = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as over:
                if over.value is not None:
                    self.plan(self.now, over.value)
                return
            assert isinstance(request, ApiRequest)
            body = json.loads(request.body) if request.body else {}
            self.writes.append((request.method, request.path, body))
            answer = ApiResponse(201 if request.method == "POST" else 200, b"{}")


@pytest.fixture(scope="module")
def played() -> Conversation:
    conversation = Conversation()
    for path, exchange in watched().items():
        resource = next(r for r in RESOURCES if r.path() == path)
        informer = Informer(resource, np.random.default_rng(1))
        assert isinstance(informer.next(0), ApiRequest)
        informer.opened(0)
        if resource.kind is Pod:
            conversation.pods = informer
        for event, line in zip(exchange["events"], lines(exchange), strict=True):
            conversation.plan(round(event["at"] * SECOND), decode_line(informer, line))
    conversation.play(16 * SECOND)
    return conversation


def decode_line(informer: Informer, line: bytes) -> Any:
    def events() -> list[Event]:
        found = informer.feed(line, 0)
        assert not informer.unreadable
        return found

    return events


def test_it_watches_what_the_original_watches() -> None:
    kinds = (Node, Pod, *kinds_read(deciders_of(())))
    ours: set[ApiResource] = set(resources_of(kinds))
    theirs = {next(r for r in RESOURCES if r.path() == path) for path in watched()}
    assert ours == theirs


def test_watches_ask_as_the_original_does() -> None:
    for path, exchange in watched().items():
        resource = next(r for r in RESOURCES if r.path() == path)
        request = Informer(resource, np.random.default_rng(1)).next(0)
        assert isinstance(request, ApiRequest)
        theirs = dict(pair.split("=", 1) for pair in exchange["request"]["query"].split("&"))
        # The Go client says the same time twice.
        del theirs["timeout"]
        ours = dict(pair.split("=", 1) for pair in request.target.partition("?")[2].split("&"))
        assert ours.keys() == theirs.keys()
        seconds = int(ours.pop("timeoutSeconds"))
        del theirs["timeoutSeconds"]
        assert 300 <= seconds <= 600
        assert ours == theirs


def recorded(method: str, end: str) -> Iterator[tuple[str, Tree]]:
    for exchange in recording():
        request = exchange["request"]
        if request["method"] == method and request["path"].endswith(end):
            body = json.loads(concrete(json.dumps(request.get("body") or {})))
            yield request["path"], body


def ours(played: Conversation, method: str, end: str) -> Iterator[tuple[str, Tree]]:
    for how, path, body in played.writes:
        if how == method and path.endswith(end):
            yield path, body


def test_each_pod_is_bound_once_in_the_same_words(played: Conversation) -> None:
    def latest_events(found: Iterator[tuple[str, Tree]]) -> dict[str, Tree]:
        bodies = list(found)
        by_path = {
            path: body | {"target": {"kind": body["target"]["kind"]}} for path, body in bodies
        }
        assert len(by_path) == len(bodies)
        return by_path

    theirs = latest_events(recorded("POST", "/binding"))
    assert latest_events(ours(played, "POST", "/binding")) == theirs
    assert len(theirs) == 22


def statuses(found: Iterator[tuple[str, Tree]]) -> list[Any]:
    """Conditions and nominations that were written, one after the other for each pod."""
    effects_seen: list[Any] = []
    for path, body in found:
        status = dict(body["status"])
        status.pop("$setElementOrder/conditions", None)
        conditions = [
            {key: value for key, value in one.items() if key not in DROPPED}
            for one in status.get("conditions", ())
        ]
        effects_seen.append((path, conditions, status.get("nominatedNodeName")))
    return effects_seen


def test_conditions_are_those_of_the_original(played: Conversation) -> None:
    theirs = statuses(recorded("PATCH", "/status"))
    mine = statuses(ours(played, "PATCH", "/status"))
    pods = {path for path, *_ in theirs}
    assert {path for path, *_ in mine if "/p" not in path.removesuffix("/status")[-4:]} <= pods
    for name in ("toobig", "vip"):
        assert texts(mine, name) == texts(theirs, name)
    victims = [c for p, c, _ in mine if c and c[0]["type"] == "DisruptionTarget"]
    expected = [c for p, c, _ in theirs if c and c[0]["type"] == "DisruptionTarget"]
    assert victims == expected


def texts(found: list[Any], name: str) -> list[str]:
    """The messages about a pod, in order."""
    return [
        one["message"] for path, conditions, _ in found for one in conditions if f"/{name}/" in path
    ]


def test_victims_are_deleted_by_uid(played: Conversation) -> None:
    theirs = dict(recorded("DELETE", ""))
    mine = dict(ours(played, "DELETE", ""))
    assert len(mine) == len(theirs) == 2
    assert all(body["preconditions"]["uid"] for body in mine.values())


def test_events_are_those_of_the_original(played: Conversation) -> None:
    def latest_events(found: Iterator[tuple[str, Tree]]) -> Counter[Any]:
        counts: Counter[Any] = Counter()
        for _, body in found:
            if body.get("apiVersion") != "events.k8s.io/v1":
                continue
            note = body["note"].partition(" to n")[0].partition(" on node ")[0]
            regarding = body["regarding"]
            about = (regarding["kind"], regarding["apiVersion"])
            if body["reason"] != "Preempted":
                about += (regarding["namespace"], regarding["name"], regarding["uid"])
            head = (body["type"], body["reason"], body["action"], body["reportingController"])
            counts[(*head, note, *about)] += 1
        return counts

    assert latest_events(ours(played, "POST", "/events")) == latest_events(
        recorded("POST", "/events")
    )


def test_a_repeated_event_gets_a_series(played: Conversation) -> None:
    theirs = [body for path, body in recorded("PATCH", "") if "/events/" in path]
    mine = [body for path, body in ours(played, "PATCH", "") if "/events/" in path]
    assert [set(body["series"]) for body in mine] == [set(body["series"]) for body in theirs]
    assert [body["series"]["count"] for body in mine] == [2]
