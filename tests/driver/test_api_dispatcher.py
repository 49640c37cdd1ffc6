"""Effects are performed concurrently, those of one pod in order."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any

import msgspec
import numpy as np
import pytest

from stowplan.client.api_calls import ApiCalls, RequestTime
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.pending_events import EVENT_AGE_MAX, LOADED_WRITES, PENDING_EVENTS_MAX
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.clocks import monotonic_ns
from stowplan.driver.live.api_dispatcher import BIND_WORKERS, EVENT_WORKERS, ApiDispatcher
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from tests.driver.logged import lines_of

MOMENT = RequestTime(0, 1, "2026-11-21T10:00:00Z", "2026-11-21T10:00:00.000000Z")


WORDS = ("s", "Normal", "Scheduled", "Binding", "note")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


class SlowApi:
    """Answers everything, each after a while of its own. most: requests at once."""

    def __init__(self) -> None:
        self.done: list[ApiRequest] = []
        self.busy = self.most = 0
        self._rng = np.random.default_rng(1)

    async def send(self, request: ApiRequest) -> ApiResponse:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(float(self._rng.random()) / 200)
        self.busy -= 1
        self.done.append(request)
        return ApiResponse(201)


class Hasty(ApiDispatcher):
    """Wrong: does not wait for an earlier effect of the same pod."""

    def take(self, effect: Any) -> None:
        super().take(effect)
        behind = self._waiting_by_uid.get(effect.uid)
        while behind:
            self._ready.append(behind.popleft())


def patch(effect: int, uid: str, message: str, term: int = 1) -> to_do.PatchStatus:
    return to_do.PatchStatus(effect, term, uid, "ns", uid, "Unschedulable", message)


async def written(kind: type[ApiDispatcher], n_pods: int) -> tuple[dict[str, list[int]], SlowApi]:
    """Pod -> numbers of what was written about it, in order."""
    api = SlowApi()
    performer = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
    api_dispatcher = kind(api, performer, lambda event: None, lambda effect: True)  # type: ignore[arg-type]
    async with background_tasks() as tasks:
        api_dispatcher.start(tasks)
        for number in range(600):
            api_dispatcher.take(patch(number, f"pod{number % n_pods}", str(number)))
            if number % 50 == 0:
                await asyncio.sleep(0.001)
        assert await api_dispatcher.wait_until_settled(20)
    found = defaultdict(list)
    for request in api.done:
        (condition,) = json.loads(request.body)["status"]["conditions"]
        found[request.path].append(int(condition["message"]))
    return found, api


def test_effects_of_one_pod_run_in_order_and_others_concurrently() -> None:
    async def steps() -> None:
        for n_pods in (20, 90):
            found, api = await written(ApiDispatcher, n_pods)
            assert sum(map(len, found.values())) == 600
            assert all(numbers == sorted(numbers) for numbers in found.values())
        assert BIND_WORKERS // 2 < api.most <= BIND_WORKERS

    run(steps())


def test_a_dispatcher_without_order_is_caught() -> None:
    async def steps() -> None:
        found, _ = await written(Hasty, 20)
        assert any(numbers != sorted(numbers) for numbers in found.values())

    run(steps())


def test_effects_of_a_term_that_is_over_are_dropped_and_reads_are_not() -> None:
    async def steps() -> None:
        api = SlowApi()
        reported: list[Event] = []
        performer = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
        api_dispatcher = ApiDispatcher(api, performer, reported.append, lambda e: e.term == 2)  # type: ignore[arg-type]
        async with background_tasks() as tasks:
            api_dispatcher.start(tasks)
            api_dispatcher.take(to_do.Bind(1, 1, "a", "ns", "a", "n"))
            api_dispatcher.take(to_do.Bind(2, 2, "b", "ns", "b", "n"))
            api_dispatcher.take(to_do.ReadPod(3, 1, "c", "ns", "c"))
            api_dispatcher.take(to_do.RecordEvent(4, 1, "a", "ns", "a", *WORDS))
            assert await api_dispatcher.wait_until_settled(5)
        assert [one.path for one in api.done if one.method == "POST"] == [
            "/api/v1/namespaces/ns/pods/b/binding"
        ]
        assert any(one.method == "GET" for one in api.done)
        assert reported == [happened.BindDone(2, "b")]
        assert api_dispatcher.n_dropped == 2

    run(steps())


def test_a_bug_in_a_worker_does_not_go_unnoticed(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(SlowApi):
        async def send(self, request: ApiRequest) -> ApiResponse:
            raise ZeroDivisionError

    async def steps() -> None:
        performer = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
        api_dispatcher = ApiDispatcher(Broken(), performer, print, lambda e: True)  # type: ignore[arg-type]
        async with background_tasks() as tasks:
            api_dispatcher.start(tasks)
            api_dispatcher.take(patch(1, "a", "1"))
            await asyncio.sleep(60)

    with pytest.raises(ZeroDivisionError):
        run(steps())
    (line,) = lines_of(caplog)
    assert line.startswith("Background task failed task=API write worker ")
    assert line.endswith(" err=ZeroDivisionError()")


def test_an_unknown_kind_of_effect_is_a_bug() -> None:
    with pytest.raises(KeyError):
        ApiCalls(EventCorrelator("h"), lambda: MOMENT).steps(to_do.Wake(1, 1, 5))


def scheduled(number: int, uid: str) -> to_do.RecordEvent:
    return to_do.RecordEvent(number, 1, uid, "ns", uid, *WORDS)


class CountingApi(SlowApi):
    """beside: most requests of events at once, while bindings were under way and else. bindings:
    most that were under way when an event was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: Counter[str] = Counter()
        self.beside: dict[bool, int] = {True: 0, False: 0}
        self.bindings = 0

    async def send(self, request: ApiRequest) -> ApiResponse:
        kind = "event" if "/events" in request.path else "binding"
        self.under_way[kind] += 1
        is_binding = self.under_way["binding"] > 0
        if kind == "event":
            self.bindings = max(self.bindings, self.under_way["binding"])
            self.beside[is_binding] = max(self.beside[is_binding], self.under_way["event"])
        try:
            return await super().send(request)
        finally:
            self.under_way[kind] -= 1


def counting(age: int) -> tuple[ApiDispatcher, CountingApi]:
    """A dispatcher whose events look as if taken so many nanoseconds ago."""

    def clock() -> RequestTime:
        return msgspec.structs.replace(MOMENT, now=monotonic_ns() - age)

    api = CountingApi()
    calls = ApiCalls(EventCorrelator("h"), clock)
    return ApiDispatcher(api, calls, lambda event: None, lambda effect: True), api  # type: ignore[arg-type]


async def bound_and_recorded(dispatcher: ApiDispatcher) -> None:
    async with background_tasks() as tasks:
        dispatcher.start(tasks)
        for number in range(600):
            dispatcher.take(scheduled(number, f"old{number}"))
            dispatcher.take(to_do.Bind(600 + number, 1, f"p{number}", "ns", f"p{number}", "n"))
        assert await dispatcher.wait_until_settled(60)
        assert dispatcher.n_pending == dispatcher.n_dropped == 0


def test_bindings_go_first_and_no_event_is_lost() -> None:
    async def steps() -> None:
        dispatcher, api = counting(age=0)
        await bound_and_recorded(dispatcher)
        assert sum("/events" in request.path for request in api.done) == 600
        assert api.bindings < LOADED_WRITES
        assert api.beside[True] <= 1
        assert api.beside[False] == EVENT_WORKERS

    run(steps())


def test_old_events_are_posted_beside_bindings() -> None:
    async def steps() -> None:
        dispatcher, api = counting(age=EVENT_AGE_MAX)
        await bound_and_recorded(dispatcher)
        assert api.beside[True] == EVENT_WORKERS
        assert api.bindings >= LOADED_WRITES

    run(steps())


def test_events_have_the_time_and_the_version_of_when_they_happened() -> None:
    async def steps() -> None:
        api, versions, moments = SlowApi(), ["7"], [MOMENT]
        calls = ApiCalls(EventCorrelator("h", lambda *_: versions[-1]), lambda: moments[-1])
        dispatcher = ApiDispatcher(api, calls, lambda event: None, lambda effect: True)  # type: ignore[arg-type]
        dispatcher.take(scheduled(1, "a"))
        versions.append("8")
        moments.append(msgspec.structs.replace(MOMENT, wall_ns=2, micros="later"))
        async with background_tasks() as tasks:
            dispatcher.start(tasks)
            assert await dispatcher.wait_until_settled(5)
        (request,) = api.done
        body = json.loads(request.body)
        assert body["eventTime"] == MOMENT.micros
        assert body["metadata"]["name"] == "a.1"
        assert body["regarding"]["resourceVersion"] == "7"

    run(steps())


def test_a_repeated_event_becomes_a_series_after_its_creation() -> None:
    async def steps() -> None:
        for _ in range(5):
            dispatcher, api = counting(age=0)
            for number in range(300):
                dispatcher.take(scheduled(number, f"pod{number % 100}"))
            async with background_tasks() as tasks:
                dispatcher.start(tasks)
                assert await dispatcher.wait_until_settled(60)
            methods = defaultdict(list)
            for request in api.done:
                name = json.loads(request.body).get("regarding", {}).get("name")
                methods[name or request.path.split("/")[-1].split(".")[0]].append(request.method)
            assert len(methods) == 100
            assert all(found == ["POST", "PATCH"] for found in methods.values())

    run(steps())


def test_events_that_do_not_fit_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, _ = counting(age=0)
    for number in range(PENDING_EVENTS_MAX + 3):
        dispatcher.take(scheduled(number, str(number)))
    assert dispatcher.n_dropped == 3
    (line,) = lines_of(caplog)
    assert line.startswith("Too many events wait; dropping further ones waiting=50000 dropped=1")


class AbsentApi(SlowApi):
    """Does not answer to so many requests of events."""

    def __init__(self, n_lost: int) -> None:
        super().__init__()
        self.n_lost = n_lost

    async def send(self, request: ApiRequest) -> ApiResponse:
        answer = await super().send(request)
        if self.n_lost and "/events" in request.path:
            self.n_lost -= 1
            return ApiResponse(0, fault="no route")
        return answer


async def recorded_after_losses(kind: type[ApiDispatcher], n_lost: int) -> list[str]:
    """The paths and methods of what is sent until all is delivered."""
    api = AbsentApi(n_lost)
    calls = ApiCalls(EventCorrelator("h"), lambda: MOMENT)
    dispatcher = kind(api, calls, lambda event: None, lambda effect: True)  # type: ignore[arg-type]
    async with background_tasks() as tasks:
        dispatcher.start(tasks)
        for number in range(6):
            dispatcher.take(scheduled(number, f"pod{number % 3}"))
        # A shutdown does not wait for a server that is away.
        assert await dispatcher.wait_until_settled(60)
        for _ in range(2000):
            if not dispatcher.n_pending:
                break
            await asyncio.sleep(0.005)
        assert dispatcher.n_pending == dispatcher.n_dropped == 0
    return [request.method for request in api.done]


class Forgetful(ApiDispatcher):
    """Wrong: gives an event up that the server has not answered."""

    async def _perform(self, effect: Any, steps: Any = None) -> float:
        await super()._perform(effect, steps)
        return 0.0


@pytest.mark.parametrize(("kind", "n_sent"), [(ApiDispatcher, 3 + 6), (Forgetful, 3 + 3)])
def test_unanswered_events_are_sent_again_in_order(
    kind: type[ApiDispatcher], n_sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stowplan.client.api_calls.EVENT_RETRY_S", 0.02)

    async def steps() -> None:
        methods = await recorded_after_losses(kind, n_lost=3)
        assert len(methods) == n_sent
        if kind is ApiDispatcher:
            assert Counter(methods) == {"POST": 6, "PATCH": 3}

    run(steps())
