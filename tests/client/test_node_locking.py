"""Locks of nodes around bindings, as Volcano's and HAMi's device plugins expect them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stowplan.client.api_calls import LOCKED, ApiCalls, ApiCallSteps, RequestTime
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.node_lock import HAMI_LOCK, VOLCANO_LOCK, NodeLock

NOW = RequestTime(0, 1_795_464_000 * 10**9, "2026-11-23T20:00:00Z", "2026-11-23T20:00:00.000000Z")
CALLS = ApiCalls(EventCorrelator("h"), lambda: NOW)


class OneNodeServer:
    """An API server with one node; bindings are answered with `bind_code`."""

    def __init__(self, lock: NodeLock, held: str = "", bind_code: int = 201) -> None:
        self.lock, self.bind_code = lock, bind_code
        self.annotations: dict[str, str] = {lock.annotation: held} if held else {}
        self.version = 1
        self.pods = {f"/api/v1/namespaces/ns/pods/{name}" for name in ("there", "a", "b")}
        self.bound: list[str] = []

    def answer(self, request: ApiRequest) -> ApiResponse:
        if request.path.endswith("/binding"):
            if self.bind_code == 201:
                self.bound.append(request.path.split("/")[-2])
            return ApiResponse(self.bind_code, b"why")
        if "/pods/" in request.path:
            return ApiResponse(200 if request.path in self.pods else 404, b"{}")
        assert request.path == "/api/v1/nodes/n1"
        if request.method == "PATCH":
            meta = msgspec.json.decode(request.body)["metadata"]
            if meta["resourceVersion"] != str(self.version):
                return ApiResponse(409)
            self.version += 1
            merged = {**self.annotations, **meta["annotations"]}
            self.annotations = {key: text for key, text in merged.items() if text is not None}
        meta = {"name": "n1", "resourceVersion": str(self.version), "annotations": self.annotations}
        return ApiResponse(200, msgspec.json.encode({"metadata": meta}))

    @property
    def held(self) -> str:
        return self.annotations.get(self.lock.annotation, "")


def binding(lock: NodeLock, name: str = "web") -> ApiCallSteps:
    return CALLS.steps(to_do.Bind(1, 1, f"uid-{name}", "ns", name, "n1", lock=lock))


def in_turn(server: OneNodeServer, *bindings: ApiCallSteps) -> list[Any]:
    """The outcomes of bindings whose requests are answered in turn."""
    outcomes: list[Any] = [None] * len(bindings)
    answers: dict[int, ApiResponse | None] = dict.fromkeys(range(len(bindings)))
    while answers:
        for place in tuple(answers):
            try:
                request = bindings[place].send(answers[place])
            except StopIteration as end:
                outcomes[place] = end.value
                del answers[place]
            else:
                assert isinstance(request, ApiRequest)
                answers[place] = server.answer(request)
    return outcomes


@pytest.mark.parametrize(
    ("lock", "text"),
    [(VOLCANO_LOCK, "2026-11-23T20:00:00Z"), (HAMI_LOCK, "2026-11-23T20:00:00Z,ns,a")],
)
def test_of_two_pods_at_once_one_is_bound(lock: NodeLock, text: str) -> None:
    server = OneNodeServer(lock)
    first, second = in_turn(server, binding(lock, "a"), binding(lock, "b"))
    assert first == happened.BindDone(1, "uid-a")
    assert (second.code, server.bound) == (LOCKED, ["a"])
    assert second.reason == f"node n1 is locked: {lock.annotation} is {text}"
    assert server.held == text
    # The device plugin has served the first one.
    server.annotations.clear()
    assert in_turn(server, binding(lock, "b")) == [happened.BindDone(1, "uid-b")]


def test_without_locks_both_are_bound() -> None:
    server = OneNodeServer(HAMI_LOCK)
    steps = [CALLS.steps(to_do.Bind(1, 1, "u", "ns", name, "n1")) for name in "ab"]
    in_turn(server, *steps)
    assert (server.bound, server.version) == (["a", "b"], 1)


@pytest.mark.parametrize(
    ("held", "is_taken_over"),
    [
        ("2026-11-23T19:54:59Z", True),  # more than five minutes old
        ("2026-11-23T19:55:01Z", False),
        ("2026-11-24T03:54:59+08:00", True),
        ("2026-11-24T03:59:00+08:00,ns,there", False),
        ("2026-11-23T19:59:00Z,ns,gone", True),
        ("2026-11-23T19:59:00Z,ns,web", True),  # its own
        ("soon", False),
    ],
)
def test_locks_that_no_longer_count_are_taken_over(held: str, is_taken_over: bool) -> None:
    server = OneNodeServer(HAMI_LOCK, held)
    (outcome,) = in_turn(server, binding(HAMI_LOCK))
    if is_taken_over:
        assert outcome == happened.BindDone(1, "uid-web")
        assert server.held == "2026-11-23T20:00:00Z,ns,web"
    else:
        assert (outcome.code, server.held, server.bound) == (LOCKED, held, [])
        assert held in outcome.reason


@pytest.mark.parametrize(("code", "is_held"), [(404, False), (409, False), (0, True), (500, True)])
def test_a_refused_binding_gives_the_lock_back(code: int, is_held: bool) -> None:
    # After 0 or 500 the pod may be bound.
    server = OneNodeServer(VOLCANO_LOCK, bind_code=code)
    (outcome,) = in_turn(server, binding(VOLCANO_LOCK))
    assert outcome.code == code
    assert bool(server.held) == is_held


class ChangingServer(OneNodeServer):
    """Something else happens after each answer, or after the binding."""

    def __init__(self, lock: NodeLock, *, lock_after_binding: str = "") -> None:
        super().__init__(lock, bind_code=409)
        self.lock_after_binding, self.n_requests = lock_after_binding, 0

    def answer(self, request: ApiRequest) -> ApiResponse:
        self.n_requests += 1
        found = super().answer(request)
        if not self.lock_after_binding:
            self.version += 1
        elif request.path.endswith("/binding"):
            self.annotations[self.lock.annotation] = self.lock_after_binding
        return found


def test_a_lock_that_another_has_taken_over_is_left() -> None:
    server = ChangingServer(HAMI_LOCK, lock_after_binding="2026-11-23T20:06:00Z,ns,other")
    in_turn(server, binding(HAMI_LOCK))
    assert server.held == "2026-11-23T20:06:00Z,ns,other"


def test_a_node_that_keeps_changing_is_given_up() -> None:
    server = ChangingServer(VOLCANO_LOCK)
    (outcome,) = in_turn(server, binding(VOLCANO_LOCK))
    assert (outcome.code, server.n_requests) == (LOCKED, 10)
    assert outcome.reason.endswith("the node changed 5 times")
