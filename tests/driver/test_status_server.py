"""The status server on other addresses than loopback, logs, and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.driver.client import rate_limiter
from stowplan.driver.client.rate_limiter import RateLimiter
from stowplan.driver.http.listen_address import AddressError, ListenAddress, parse_listen_address
from stowplan.driver.http.origins import is_local
from stowplan.driver.http.status_server import StatusServer
from stowplan.driver.live.exposition import exposition_text
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.driver.logs import JsonFormatter, LogError, TextFormatter, parse_levels
from stowplan.framework import PermitWait
from tests.driver.small_api import SmallApi
from tests.driver.test_live import scheduler


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


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

    async def steps() -> None:
        async with SmallApi() as api:
            api.fault = reviews
            ports: list[int] = []

            @asynccontextmanager
            async def service(live: SchedulerServer) -> AsyncIterator[None]:
                async with StatusServer(live, ListenAddress("0.0.0.0", 0)) as one:
                    ports.append(one.port)
                    yield

            async with scheduler(api, service=service) as live:
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

    run(steps())
    assert asked[0]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert asked[0]["groups"] == ["g"]


def test_on_loopback_no_page_of_a_browser_reads_by_another_name() -> None:
    async def steps() -> None:
        async with SmallApi() as api, aiohttp.ClientSession() as session:
            ports: list[int] = []

            @asynccontextmanager
            async def service(live: SchedulerServer) -> AsyncIterator[None]:
                async with StatusServer(live, ListenAddress("127.0.0.1", 0)) as one:
                    ports.append(one.port)
                    yield

            async def asked(path: str, **headers: str) -> int:
                url = f"http://127.0.0.1:{ports[0]}{path}"
                async with session.get(url, headers=headers) as response:
                    return response.status

            async with scheduler(api, service=service) as live:
                await api.until(lambda: live.is_synced)
                for path in ("/metrics", "/configz", "/statusz"):
                    assert await asked(path) == 200
                    assert await asked(path, Host=f"localhost:{ports[0]}") == 200
                    assert await asked(path, Host="evil.example") == 403
                    assert await asked(path, Host="") == 403
                    assert await asked(path, Origin="http://evil.example") == 403
                assert await asked("/healthz", Host="evil.example") == 200

    run(steps())


@pytest.mark.parametrize(
    ("authority", "local"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("localhost.", True),
        ("127.0.0.1:10259", True),
        ("127.1.2.3", True),
        ("[::1]:80", True),
        ("", False),
        ("null", False),
        ("0.0.0.0", False),
        ("localhost.evil.example", False),
        ("evil.example@127.0.0.1", True),
        ("127.0.0.1@evil.example", False),
        ("[", False),
        ("[::1", False),
        ("10.0.0.1", False),
    ],
)
def test_which_hosts_are_this_machine(authority: str, local: bool) -> None:
    assert is_local(authority) == local


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
        ("8080", ListenAddress("127.0.0.1", 8080)),
        ("127.0.0.1:1", ListenAddress("127.0.0.1", 1)),
        ("[::1]:1", ListenAddress("::1", 1)),
        (":443", ListenAddress("0.0.0.0", 443)),
    ],
)
def test_addresses(text: str, address: ListenAddress | None) -> None:
    assert parse_listen_address(text) == address


@pytest.mark.parametrize("text", ["here", "127.0.0.1:x", "127.0.0.1:99999"])
def test_invalid_addresses(text: str) -> None:
    with pytest.raises(AddressError, match="expected HOST:PORT"):
        parse_listen_address(text)


def test_an_address_in_use_is_reported() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            port = int(api.url.rpartition(":")[2])

            def service(live: SchedulerServer) -> StatusServer:
                return StatusServer(live, ListenAddress("127.0.0.1", port))

            with pytest.raises(AddressError, match="in use"):
                async with scheduler(api, service=service) as live:
                    await api.until(lambda: live.is_synced, 2)

    run(steps())


def test_which_addresses_are_loopback() -> None:
    assert ListenAddress("localhost", 1).is_loopback
    assert ListenAddress("::1", 1).is_loopback
    assert not ListenAddress("0.0.0.0", 1).is_loopback
    assert not ListenAddress("example.com", 1).is_loopback


# Metrics.

SHARED = {
    "scheduler_schedule_attempts_total": {"result", "profile"},
    "scheduler_scheduling_attempt_duration_seconds": {"result", "profile"},
    "scheduler_scheduling_algorithm_duration_seconds": set(),
    "scheduler_pod_scheduling_sli_duration_seconds": {"attempts"},
    "scheduler_pod_scheduling_attempts": set(),
    "scheduler_pod_scheduled_after_flush_total": set(),
    "scheduler_pending_pods": {"queue"},
    "scheduler_queue_incoming_pods_total": {"queue", "event"},
    "scheduler_unschedulable_pods": {"plugin", "profile"},
    "scheduler_inflight_events": {"event"},
    "scheduler_cache_size": {"type"},
    "scheduler_preemption_attempts_total": set(),
    "scheduler_preemption_victims": set(),
    "scheduler_plugin_evaluation_total": {"plugin", "extension_point", "profile"},
    "scheduler_plugin_execution_duration_seconds": {"plugin", "extension_point", "status"},
    "scheduler_framework_extension_point_duration_seconds": {
        "extension_point",
        "status",
        "profile",
    },
    "scheduler_event_handling_duration_seconds": {"event"},
    "scheduler_permit_wait_duration_seconds": {"result"},
    "rest_client_requests_total": {"code", "method", "host"},
    "leader_election_master_status": {"name"},
}
"""Names and labels of kube-scheduler's metrics."""


class Slow:
    """Lets a pod wait at Permit for a moment."""

    name = "Slow"

    def permit(self) -> PermitWait:
        return PermitWait(0.05)


def test_metrics_have_the_names_and_labels_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: stowplan}, {schedulerName: slow}]\n"
    )
    plain = deciders_of([ConfigText(file.read_text(), str(file))])
    slow = deciders_of([ConfigText(file.read_text(), str(file))], [Slow])

    async def steps() -> dict[str, Metric]:
        async with SmallApi() as api:
            api.node("n1", cpu="4")
            api.pod("first", cpu="100m")
            api.pod("gated", schedulingGates=[{"name": "g"}])
            api.pod("huge", cpu="40")
            api.pod("low", cpu="3500m")
            async with scheduler(api, decider=plain) as live:
                StatusServer(live, ListenAddress("127.0.0.1", 0))
                await api.until(lambda: live.metrics_recorder.n_bound == 2)
                api.pod("vip", cpu="3800m", priority=10)
                await api.until(lambda: bool(api.placed().get("vip")))
                await api.until(lambda: live.metrics_recorder.n_bound == 3)
                first = read(await live.call_between_handles(lambda: exposition_text(live)))
            async with scheduler(api, decider=slow) as live:
                StatusServer(live, ListenAddress("127.0.0.1", 0))
                api.pod("waits", cpu="1m", scheduler="slow")
                await api.until(lambda: live.metrics_recorder.n_refused >= 1)
                await api.until(lambda: permit_waits(live) > 0)
                return first | {
                    name: metric
                    for name, metric in read(
                        await live.call_between_handles(lambda: exposition_text(live))
                    ).items()
                    if "permit_wait" in name
                }

    found = asyncio.run(asyncio.wait_for(steps(), 300))
    for name, labels in SHARED.items():
        metric = found[name.removesuffix("_total")]
        samples = [s for s in metric.samples if not s.name.endswith("_bucket")]
        assert samples, name
        assert all(s.labels.keys() == labels for s in samples), name
        assert not any(s.name.endswith("_created") for s in metric.samples)
    assert value(found, "scheduler_schedule_attempts_total", result="scheduled") == 3
    assert value(found, "scheduler_pending_pods", queue="gated") == 1
    assert value(found, "scheduler_unschedulable_pods", plugin="SchedulingGates") == 1
    assert value(found, "scheduler_unschedulable_pods", plugin="NodeResourcesFit") == 1
    assert value(found, "scheduler_preemption_victims_count") == 1
    assert value(found, "scheduler_pod_scheduling_sli_duration_seconds_count", attempts="2") == 1
    assert value(found, "scheduler_pod_scheduling_attempts_sum") == 4
    for event, queue in (
        ("UnschedulablePodAdd", "active"),
        ("ScheduleAttemptFailure", "unschedulable"),
    ):
        name = "scheduler_queue_incoming_pods_total"
        assert value(found, name, event=event, queue=queue) >= 2
    evaluated = value(found, "scheduler_plugin_evaluation_total", extension_point="Filter")
    assert evaluated > value(found, "scheduler_schedule_attempts_total")


def permit_waits(live: SchedulerServer) -> int:
    return sum(1 for name, _ in live.metrics_recorder.counted.histograms if "permit_wait" in name)


def read(body: bytes) -> dict[str, Metric]:
    return {one.name: one for one in text_string_to_metric_families(body.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    """The sum of what has such labels."""
    return sum(
        sample.value
        for metric in found.values()
        for sample in metric.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


# Logs.


def record(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("stowplan.leader", logging.WARNING, "f", 1, text, args, None)


def test_logs_are_text_or_json() -> None:
    tree = json.loads(JsonFormatter().format(record("a %s", "ü\n")))
    assert (tree["level"], tree["part"], tree["msg"]) == ("warning", "leader", "a ü\n")
    assert "WARNING leader: a b" in TextFormatter().format(record("a b"))


def test_log_levels_by_component() -> None:
    assert parse_levels("info,informers=debug") == {"": logging.INFO, "informers": logging.DEBUG}
    for text in ("loud", "nobody=info"):
        with pytest.raises(LogError, match="supported values"):
            parse_levels(text)


# Pace.


def test_requests_go_as_fast_as_they_may_and_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(rate_limiter, "monotonic_ns", lambda: 7)
    monkeypatch.setattr(rate_limiter, "asyncio", SimpleNamespace(sleep=sleep))

    async def steps() -> None:
        limiter = RateLimiter(100, 10)
        for _ in range(10):
            await limiter.turn()
        assert waits == []
        for _ in range(20):
            await limiter.turn()
        assert waits == pytest.approx([n / 100 for n in range(1, 21)])
        waits.clear()
        free = RateLimiter()
        for _ in range(1000):
            await free.turn()
        assert waits == []

    run(steps())
