"""`--kubeconfig` of `explain`, `simulate` and `queues`, and `stowplan status`, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from stowplan.driver.client.one_shot_requests import LIST_ATTEMPTS_MAX
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.http.status_server import StatusServer
from stowplan.driver.live.scheduler_server import SchedulerServer
from tests.cli import run as command_line
from tests.driver.processes import kubeconfig
from tests.driver.small_api import SmallApi, status
from tests.driver.test_live import scheduler

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "")


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


async def stowplan(*arguments: str) -> tuple[int, str, str]:
    """The command in a thread of this process: to start one takes a second of processor time."""
    ran = await asyncio.to_thread(command_line.run, *arguments)
    return ran.code, ran.out, ran.err


async def stowplan_process(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stowplan",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def test_a_pod_of_a_live_cluster_is_explained_by_listing_only(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi({"services", "namespaces"}) as api:
            api.node("small", cpu="1")
            api.node("large", cpu="8")
            api.pod("web", cpu="4", scheduler="default-scheduler")
            api.pod("huge", cpu="40")
            file = kubeconfig(tmp_path / "k", api.url)
            asked = ("explain", "--kubeconfig", file, "web", "-o", "json")
            code, out, err = await stowplan_process(*asked)
            assert (code, err) == (0, "")
            output = json.loads(out)
            assert output["node"] == "large"
            code, out, _ = await stowplan("explain", "--kubeconfig", file, "huge")
            assert code == 1
            assert "Insufficient cpu" in out
            assert {method for method, _ in api.asked} == {"GET"}
            assert not [path for _, path in api.asked if "watch" in path]

    run(steps())


def test_a_live_cluster_is_simulated_and_shared_out_by_listing_only(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi({"services", "namespaces"}) as api:
            api.node("small", cpu="1")
            api.node("large", cpu="8")
            api.pod("web", cpu="4", scheduler="default-scheduler")
            api.pod("huge", cpu="40", scheduler="default-scheduler")
            file = kubeconfig(tmp_path / "k", api.url)
            code, out, err = await stowplan("simulate", "--kubeconfig", file, "-o", "csv")
            assert (code, err) == (0, "")
            rows = [line.split(",")[:2] for line in out.splitlines()[1:]]
            assert sorted(rows) == [["default/huge", ""], ["default/web", "large"]]
            code, out, err = await stowplan("simulate", "--kubeconfig", file, "-o", "json")
            assert json.loads(out)["nodes"] == 2
            code, out, err = await stowplan("queues", "--kubeconfig", file, "-o", "json")
            assert (code, err) == (0, "")
            assert json.loads(out)["total"]["cpu"] == 9
            assert {method for method, _ in api.asked} == {"GET"}
            assert not [path for _, path in api.asked if "watch" in path]
            code, _, err = await stowplan("simulate", "--kubeconfig", file, "x.yaml")
            assert code == 2
            assert "cannot be used with files" in err

    run(steps())


def test_a_forbidden_list_names_the_resource(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:

            async def forbids(request: web.Request) -> web.Response | None:
                if request.path.endswith("/pods"):
                    return status(403, "Forbidden", "pods is forbidden")
                return None

            api.fault = forbids
            file = kubeconfig(tmp_path / "k", api.url)
            code, _, err = await stowplan("explain", "--kubeconfig", file, "web")
            assert code == 2
            assert "unable to list pods" in err
            assert len(err.splitlines()) == 1

    run(steps())


def test_what_if_goes_on_without_kinds_that_may_not_be_listed(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi({"services", "namespaces"}) as api:
            api.node("n1", cpu="4")
            api.pod("web", cpu="1", scheduler="default-scheduler")

            async def forbids(request: web.Request) -> web.Response | None:
                if request.path.endswith(forbidden):
                    return status(403, "Forbidden", "it is forbidden")
                return None

            api.fault = forbids
            file = kubeconfig(tmp_path / "k", api.url)
            asked = ("what-if", "--kubeconfig", file, "--cordon", "n1", "-o", "json")
            forbidden = "/persistentvolumes"
            code, out, err = await stowplan(*asked)
            assert (code, err) == (0, "")
            found = json.loads(out)
            assert found["summary"]["unplaced"] == 1
            notes = [note for note in found["notes"] if "could not be listed" in note]
            assert notes == ["persistentvolumes could not be listed: it is forbidden"]
            forbidden = "/pods"
            code, _, err = await stowplan(*asked)
            assert code == 2
            assert "unable to list pods" in err

    run(steps())


@pytest.mark.parametrize(("n_busy", "code"), [(2, 0), (99, 2)])
def test_a_throttled_list_is_retried_a_few_times(tmp_path: Path, n_busy: int, code: int) -> None:
    async def steps() -> None:
        n_asked = 0

        async def busy(request: web.Request) -> web.Response | None:
            nonlocal n_asked
            if not request.path.endswith("/pods"):
                return None
            n_asked += 1
            if n_asked > n_busy:
                return None
            refusal = status(429, "TooManyRequests", "later, please")
            refusal.headers["Retry-After"] = "0"
            return refusal

        async with SmallApi() as api:
            api.node("small")
            api.pod("web", scheduler="default-scheduler")
            api.fault = busy
            file = kubeconfig(tmp_path / "k", api.url)
            ended, _, err = await stowplan("explain", "--kubeconfig", file, "web")
            assert ended == code
            assert ("unable to list pods: later, please" in err) == bool(code)
            assert n_asked == (n_busy + 1 if not code else LIST_ATTEMPTS_MAX)

    run(steps())


def test_status_of_a_running_scheduler() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            api.pod("fits")
            api.pod("huge", cpu="40")
            api.pod("gated", schedulingGates=[{"name": "wait"}])
            ports: list[int] = []

            @asynccontextmanager
            async def service(live: SchedulerServer) -> AsyncIterator[None]:
                async with StatusServer(live, ListenAddress("127.0.0.1", 0)) as one:
                    ports.append(one.port)
                    yield

            async with scheduler(api, service=service) as live:
                await api.until(lambda: live.metrics_recorder.n_refused > 0 and len(api.binds) == 1)
                address = f"127.0.0.1:{ports[0]}"
                code, out, err = await stowplan("status", "--address", address, "-o", "json")
                assert (code, err) == (0, "")
                tree = json.loads(out)
                assert tree["pending"] == {
                    "active": 0,
                    "backoff": 0,
                    "unschedulable": 1,
                    "gated": 1,
                }
                assert tree["counts"]["bound"] == 1
                code, out, _ = await stowplan("status", "--address", address)
                assert code == 0
                assert "stowplan at http" in out
                metrics = await page(ports[0], "/metrics")
                assert 'scheduler_pending_pods{queue="unschedulable"} 1.0' in metrics
                result = 'result="scheduled"'
                line = f'scheduler_schedule_attempts_total{{profile="stowplan",{result}}} 1.0'
                assert line in metrics
                assert (
                    'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"}' in metrics
                )
                assert "rest_client_requests_total{" in metrics
                assert await page(ports[0], "/healthz") == "ok"
                assert await page(ports[0], "/readyz") == "ok"
                config = json.loads(await page(ports[0], "/configz"))
                assert config["kubescheduler.config.k8s.io"]["profiles"]
            code, _, err = await stowplan("status", "--address", address)
            assert code == 2
            assert "is `stowplan run` running there?" in err

    run(steps())


async def page(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
    )
    text = (await reader.read()).decode()
    writer.close()
    return text.partition("\r\n\r\n")[2]
