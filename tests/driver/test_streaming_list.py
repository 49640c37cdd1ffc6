"""A scheduler against servers that refuse streaming lists, or all lists, over real HTTP."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from aiohttp import web

from stowplan.driver.live.informers import FALLBACK_MESSAGE
from tests.driver.logged import line_of
from tests.driver.small_api import Fault, SmallApi, status
from tests.driver.test_live import run, scheduler

NO_PROGRESS = (
    "a watch stream was requested by the client but the required storage feature "
    "RequestWatchProgress is disabled"
)
NO_WATCH_LIST = (
    'ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is '
    "forbidden for watch unless the WatchList feature gate is enabled"
)


async def in_the_stream(request: web.Request) -> web.StreamResponse | None:
    """As kube-apiserver 1.36.2 answered, byte for byte, whose etcd was 3.4.23."""
    if request.query.get("sendInitialEvents") != "true":
        return None
    line = (
        '{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},'
        f'"status":"Failure","message":"{NO_PROGRESS}","reason":"InternalError","code":500}}}}\n'
    )
    return web.Response(text=line, content_type="application/json")


async def by_status(request: web.Request) -> web.StreamResponse | None:
    """As kube-apiserver 1.36.2 answered, byte for byte, without the feature gate WatchList."""
    if request.query.get("sendInitialEvents") != "true":
        return None
    text = NO_WATCH_LIST.replace('"', '\\"')
    cause = NO_WATCH_LIST.partition("sendInitialEvents: ")[2]
    body = (
        f'{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{text}",'
        '"reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":'
        f'[{{"reason":"FieldValueForbidden","message":"{cause}","field":"sendInitialEvents"}}]}},'
        '"code":422}\n'
    )
    return web.Response(text=body, status=422, content_type="application/json")


async def without_rights(request: web.Request) -> web.StreamResponse | None:
    """Who asks may neither list pods nor watch them."""
    if request.path != "/api/v1/pods":
        return None
    verb = "watch" if request.query.get("watch") else "list"
    text = f'pods is forbidden: User "u" cannot {verb} resource "pods"'
    return status(403, "Forbidden", text)


@pytest.mark.parametrize(
    ("refuse", "words"), [(in_the_stream, NO_PROGRESS), (by_status, NO_WATCH_LIST)]
)
def test_pods_are_bound_where_streaming_lists_are_refused(
    refuse: Fault, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.fault = refuse
            api.node("n1")
            api.pod("one")
            async with scheduler(api):
                await api.until(lambda: api.placed() == {"one": "n1"})
                # The list after an expired version is not asked for as a stream again.
                api.forget_history()
                api.cut_watches()
                api.pod("two")
                await api.until(lambda: api.placed()["two"] == "n1")
            streams = Counter(
                path.partition("?")[0] for _, path in api.asked if "sendInitialEvents" in path
            )
            assert streams["/api/v1/pods"] == streams["/api/v1/nodes"] == 1

    caplog.set_level(logging.INFO, "stowplan.informers")
    run(steps())
    fallbacks = [record for record in caplog.records if record.getMessage() == FALLBACK_MESSAGE]
    keys = [getattr(record, "keys", {}) for record in fallbacks]
    assert keys.count({"resource": "pods", "err": words}) == 1


def test_a_forbidden_list_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    err = 'pods is forbidden: User "u" cannot list resource "pods"'
    line = f"List or watch failed; retrying resource=pods err={err}"

    def reported() -> bool:
        return any(line_of(record) == line for record in caplog.records)

    async def steps() -> None:
        async with SmallApi() as api:
            api.fault = without_rights
            async with scheduler(api) as live:
                await api.until(reported)
                assert live.informers is not None
                assert any(err in text for text in live.informers.unsynced())

    caplog.set_level(logging.INFO, "stowplan.informers")
    run(steps())
    assert not any(record.getMessage() == FALLBACK_MESSAGE for record in caplog.records)
