"""What a scheduler shows of itself elsewhere than on loopback, its logs, and its pace."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stowplan.driver.clocks import steady
from stowplan.driver.limits import Limiter
from stowplan.driver.live import Live
from stowplan.driver.logs import JsonFormatter, LogError, TextFormatter, levels_of
from stowplan.driver.serving import Address, AddressError, Serving, address_of
from tests.driver.small_api import SmallApi
from tests.driver.test_live import scheduler


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 30))


def test_elsewhere_than_on_loopback_readers_must_be_known_and_allowed() -> None:
    async def reviews(request: web.Request) -> web.Response | None:
        if request.path.endswith("/tokenreviews"):
            token = (await request.json())["spec"]["token"]
            user = {"username": token, "groups": ["g"]}
            known = {"authenticated": token != "stranger", "user": user}
            return web.json_response({"status": known}, status=201)
        if request.path.endswith("/subjectaccessreviews"):
            spec = (await request.json())["spec"]
            asked.append(spec)
            allowed = spec["user"] == "reader"
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        return None

    asked: list[Any] = []

    async def story() -> None:
        async with SmallApi() as api:
            api.fault = reviews
            ports: list[int] = []

            @asynccontextmanager
            async def beside(live: Live) -> AsyncIterator[None]:
                async with Serving(live, Address("0.0.0.0", 0)) as one:
                    ports.append(one.port)
                    yield

            async with scheduler(api, beside=beside) as live:
                await api.until(lambda: live.is_synced)
                url = f"https://127.0.0.1:{ports[0]}"
                assert await code(url, "/healthz") == 200
                assert await code(url, "/readyz") == 200
                for path in ("/metrics", "/configz", "/statusz"):
                    assert await code(url, path) == 401
                    assert await code(url, path, "stranger") == 401
                    assert await code(url, path, "somebody") == 403
                    assert await code(url, path, "reader") == 200
                assert await code(url, "/metrics", "reader", "POST") == 405
                n_asked = len(asked)
                assert await code(url, "/metrics", "reader") == 200
                assert len(asked) == n_asked
            plain = f"http://127.0.0.1:{ports[0]}"
            with pytest.raises(aiohttp.ClientError):
                await code(plain, "/healthz")

    run(story())
    assert asked[0]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert asked[0]["groups"] == ["g"]


async def code(url: str, path: str, token: str = "", method: str = "GET") -> int:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, headers=headers, ssl=context) as response,
    ):
        return response.status


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0", None),
        ("", None),
        ("8080", Address("127.0.0.1", 8080)),
        ("127.0.0.1:1", Address("127.0.0.1", 1)),
        ("[::1]:1", Address("::1", 1)),
        (":443", Address("0.0.0.0", 443)),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["here", "127.0.0.1:x", "127.0.0.1:99999"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(AddressError, match="wanted HOST:PORT"):
        address_of(text)


def test_an_address_in_use_is_told() -> None:
    async def story() -> None:
        async with SmallApi() as api:
            port = int(api.url.rpartition(":")[2])

            def beside(live: Live) -> Serving:
                return Serving(live, Address("127.0.0.1", port))

            with pytest.raises(AddressError, match="in use"):
                async with scheduler(api, beside=beside) as live:
                    await api.until(lambda: live.is_synced, 2)

    run(story())


def test_loopback_is_told_from_the_rest() -> None:
    assert Address("localhost", 1).is_loopback
    assert Address("::1", 1).is_loopback
    assert not Address("0.0.0.0", 1).is_loopback
    assert not Address("example.com", 1).is_loopback


# Logs.


def record(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("stowplan.leader", logging.WARNING, "f", 1, text, args, None)


def test_logs_are_text_or_json() -> None:
    tree = json.loads(JsonFormatter().format(record("a %s", "ü\n")))
    assert (tree["level"], tree["part"], tree["msg"]) == ("warning", "leader", "a ü\n")
    assert "WARNING leader: a b" in TextFormatter().format(record("a b"))


def test_levels_are_told_by_part() -> None:
    assert levels_of("info,informers=debug") == {"": logging.INFO, "informers": logging.DEBUG}
    for text in ("loud", "nobody=info"):
        with pytest.raises(LogError, match="wanted one of"):
            levels_of(text)


# Pace.


def test_requests_go_as_fast_as_they_may_and_no_faster() -> None:
    async def story() -> None:
        limiter = Limiter(100, 10)
        begun = steady()
        await asyncio.gather(*(limiter.turn() for _ in range(10)))
        assert steady() - begun < 50_000_000
        await asyncio.gather(*(limiter.turn() for _ in range(20)))
        assert steady() - begun > 150_000_000
        begun = steady()
        free = Limiter()
        for _ in range(1000):
            await free.turn()
        assert steady() - begun < 200_000_000

    run(story())
