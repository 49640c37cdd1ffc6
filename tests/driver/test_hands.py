"""Effects are carried out side by side, those about one pod in their order."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from stowplan.client.answers import Answer
from stowplan.client.performing import Moment, Performer
from stowplan.client.requests import Request
from stowplan.client.series import Series
from stowplan.driver.hands import BINDERS, Hands
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event

MOMENT = Moment(0, 1, "2026-11-21T10:00:00Z", "2026-11-21T10:00:00.000000Z")


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 300))


class SlowApi:
    """Answers everything, each after a while of its own. most: requests at once."""

    def __init__(self) -> None:
        self.done: list[Request] = []
        self.busy = self.most = 0
        self._dice = np.random.default_rng(1)

    async def send(self, request: Request) -> Answer:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(float(self._dice.random()) / 200)
        self.busy -= 1
        self.done.append(request)
        return Answer(201)


class Hasty(Hands):
    """Wrong: lets nobody wait for an earlier effect about the same pod."""

    def take(self, effect: Any) -> None:
        super().take(effect)
        behind = self._behind.get(effect.uid)
        while behind:
            self._ready.append(behind.popleft())


def patch(effect: int, uid: str, message: str, term: int = 1) -> to_do.PatchStatus:
    return to_do.PatchStatus(effect, term, uid, "ns", uid, "Unschedulable", message)


async def written(kind: type[Hands], n_pods: int) -> tuple[dict[str, list[int]], SlowApi]:
    """Pod -> numbers of what was written about it, in order."""
    api = SlowApi()
    performer = Performer(Series("h"), lambda: MOMENT)
    hands = kind(api, performer, lambda event: None, lambda effect: True)  # type: ignore[arg-type]
    hands.start()
    for number in range(600):
        hands.take(patch(number, f"pod{number % n_pods}", str(number)))
        if number % 50 == 0:
            await asyncio.sleep(0.001)
    assert await hands.settled(20)
    await hands.stop()
    found = defaultdict(list)
    for request in api.done:
        (condition,) = json.loads(request.body)["status"]["conditions"]
        found[request.path].append(int(condition["message"]))
    return found, api


def test_what_is_about_one_pod_is_done_in_order_and_the_rest_side_by_side() -> None:
    async def story() -> None:
        for n_pods in (20, 90):
            found, api = await written(Hands, n_pods)
            assert sum(map(len, found.values())) == 600
            assert all(numbers == sorted(numbers) for numbers in found.values())
        assert BINDERS // 2 < api.most <= BINDERS

    run(story())


def test_hands_that_do_not_wait_are_caught() -> None:
    async def story() -> None:
        found, _ = await written(Hasty, 20)
        assert any(numbers != sorted(numbers) for numbers in found.values())

    run(story())


def test_effects_of_a_term_that_is_over_are_dropped_and_reads_are_not() -> None:
    async def story() -> None:
        api = SlowApi()
        told: list[Event] = []
        performer = Performer(Series("h"), lambda: MOMENT)
        hands = Hands(api, performer, told.append, lambda e: e.term == 2)  # type: ignore[arg-type]
        hands.start()
        hands.take(to_do.Bind(1, 1, "a", "ns", "a", "n"))
        hands.take(to_do.Bind(2, 2, "b", "ns", "b", "n"))
        hands.take(to_do.ReadPod(3, 1, "c", "ns", "c"))
        words = ("s", "Normal", "Scheduled", "Binding", "n")
        hands.take(to_do.RecordEvent(4, 1, "a", "ns", "a", *words))
        assert await hands.settled(5)
        await hands.stop()
        assert [one.path for one in api.done if one.method == "POST"] == [
            "/api/v1/namespaces/ns/pods/b/binding"
        ]
        assert any(one.method == "GET" for one in api.done)
        assert told == [happened.BindDone(2, "b")]
        assert hands.n_dropped == 2

    run(story())


def test_a_bug_in_a_worker_does_not_go_unnoticed() -> None:
    class Broken(SlowApi):
        async def send(self, request: Request) -> Answer:
            raise ZeroDivisionError

    async def story() -> None:
        performer = Performer(Series("h"), lambda: MOMENT)
        hands = Hands(Broken(), performer, print, lambda e: True)  # type: ignore[arg-type]
        hands.start()
        hands.take(patch(1, "a", "1"))
        await asyncio.sleep(0.05)
        assert isinstance(hands.failed(), ZeroDivisionError)
        await hands.stop()

    run(story())


def test_kinds_of_effects_that_nobody_performs_are_a_bug() -> None:
    with pytest.raises(KeyError):
        Performer(Series("h"), lambda: MOMENT).steps(to_do.Wake(1, 1, 5))
