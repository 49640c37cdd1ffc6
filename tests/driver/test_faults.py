"""A scheduler with a misbehaving API server: nothing is lost, nothing is bound twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from tests.driver.small_api import SmallApi, status
from tests.driver.test_live import scheduler


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 600))


class Trouble:
    """Faults, drawn for each request. seen: number of faults by kind."""

    def __init__(self, api: SmallApi, share: float, kinds: list[str], seed: int = 1) -> None:
        self.seen: Counter[str] = Counter()
        self._api = api
        self._share = share
        self._kinds = kinds
        self._rng = np.random.default_rng(seed)

    async def __call__(self, request: web.Request) -> web.StreamResponse | None:
        if request.query.get("watch") or self._rng.random() > self._share:
            return None
        kind = self._kinds[int(self._rng.integers(len(self._kinds)))]
        self.seen[kind] += 1
        if kind == "500":
            return status(500, "InternalError", "etcdserver: leader changed")
        if kind == "429":
            answer = status(429, "TooManyRequests", "too many requests")
            if self._rng.random() < 0.5:
                answer.headers["Retry-After"] = "0.1"
            return answer
        if kind == "stall":
            await asyncio.sleep(0.5)
            return None
        if kind == "lost reply":
            self._api.fault = None
            # It is told of again.
            self._api.asked.pop()
            await self._api._serve(request)
            self._api.fault = self
        assert request.transport is not None
        request.transport.close()
        raise ConnectionResetError


KINDS = ["500", "429", "reset", "lost reply", "stall"]


def repeated_blindly(asked: list[tuple[str, str]]) -> list[str]:
    """Bindings that were repeated without a read of the pod in between."""
    sent: set[str] = set()
    found = []
    for method, path in asked:
        if method == "POST" and path.endswith("/binding"):
            if path in sent:
                found.append(path)
            sent.add(path)
        elif method == "GET":
            sent.discard(f"{path}/binding")
    return found


def test_a_binding_that_is_sent_again_without_a_look_is_caught() -> None:
    binding, look = ("POST", "/api/v1/x/pods/p/binding"), ("GET", "/api/v1/x/pods/p")
    assert repeated_blindly([binding, look, binding]) == []
    assert repeated_blindly([look, binding, binding]) == [binding[1]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_trouble_is_got_over(kind: str) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            trouble = Trouble(api, 0.15, [kind])
            await placed_in_trouble(api, trouble, 60)
            assert trouble.seen[kind] >= 5
            if kind != "429":
                assert repeated_blindly(api.asked) == []

    run(steps())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in (2, 3))])
def test_all_kinds_at_once_with_watches_that_break_and_versions_that_expire(seed: int) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            trouble = Trouble(api, 0.2, KINDS, seed)
            breaking = asyncio.create_task(breaks(api))
            try:
                await placed_in_trouble(api, trouble, 200)
            finally:
                breaking.cancel()

    run(steps())


async def breaks(api: SmallApi) -> None:
    while True:
        await asyncio.sleep(0.4)
        api.forget_history()
        api.cut_watches()


async def placed_in_trouble(api: SmallApi, trouble: Trouble, n_pods: int) -> None:
    for i in range(10):
        api.node(f"n{i}", cpu="8")
    async with scheduler(api) as live:
        await api.until(lambda: live.is_synced)
        api.fault = trouble
        for i in range(n_pods):
            api.pod(f"p{i}")
            if i % 20 == 19:
                await asyncio.sleep(0.1)
        await api.until(lambda: all(api.placed().values()))
        api.fault = None
        await api.until(lambda: not live.scheduler.cache.assumed())
        live.scheduler.validate()
    pods = Counter(pod for pod, _ in api.binds)
    assert len(pods) == n_pods
    assert set(pods.values()) == {1}
    assert dict(api.binds) == api.placed()


def test_a_watch_cut_inside_an_object_continues() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            async with scheduler(api) as live:
                for i in range(5):
                    api.pod(f"p{i}")
                    await api.until(lambda: all(api.placed().values()))
                    api.cut_watches()
                informers = live.informers
                assert informers is not None
                assert all(one.n_lists == 1 for one in informers.informers if one.is_served)

    run(steps())


def test_deletions_during_an_expired_version_are_noticed() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1", cpu="1")
            api.pod("first", cpu="900m")
            async with scheduler(api) as live:
                await api.until(lambda: all(api.placed().values()))
                await api.until(lambda: not live.scheduler.cache.assumed())

                async def refuses(request: web.Request) -> web.Response | None:
                    is_watch = request.query.get("watch") == "true"
                    return status(503, "ServiceUnavailable", "later") if is_watch else None

                api.fault = refuses
                api.cut_watches()
                await api.until(lambda: api.n_watchers == 0)
                api.drop("pods", "default", "first")
                api.forget_history()
                api.pod("second", cpu="900m")
                api.fault = None
                await api.until(lambda: api.placed() == {"second": "n1"})

    run(steps())
