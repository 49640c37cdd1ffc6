"""`stowplan run` as a process: refusals at the start, signals, log, dry run summary."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver import process
from stowplan.driver.live import competing_schedulers
from stowplan.driver.live.competing_schedulers import CompetingSchedulerError
from stowplan.driver.live.scheduler_server import SchedulerServerOptions
from stowplan.driver.process import ProcessOptions
from tests.driver.deciders import default_deciders
from tests.driver.processes import CONFIG, kubeconfig, replica
from tests.driver.real_server import free_port
from tests.driver.small_api import SmallApi, status
from tests.driver.test_live import GANGS

pytestmark = pytest.mark.slow


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 600))


# Refusals.


@pytest.mark.parametrize(
    ("code", "hint"),
    [(401, "check the credentials"), (403, "permission to list nodes is required")],
)
def test_a_refusal_of_the_api_server_is_one_line(tmp_path: Path, code: int, hint: str) -> None:
    async def refuses(request: web.Request) -> web.Response:
        return status(code, "No", "not you")

    async def steps() -> None:
        async with SmallApi() as api:
            api.fault = refuses
            file = kubeconfig(tmp_path / "k", api.url)
            async with replica("--kubeconfig", file, "--listen", "0") as one:
                assert await one.ended() == 2
            (line,) = one.raw
            text = f"refused with status {code} (not you); {hint}"
            assert line == f"error: {file}: {api.url}: {text}"

    run(steps())


def test_a_server_that_is_not_there_is_waited_for_and_named_once(tmp_path: Path) -> None:
    async def steps() -> None:
        port = free_port()
        file = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{port}")
        async with replica("--kubeconfig", file, "--listen", "0") as one:
            async with asyncio.timeout(240):
                while not one.raw:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(1.2)
            one.signal(signal.SIGTERM)
            assert await one.ended() == 0
        (line,) = one.lines
        assert line["msg"] == "Unable to connect to the API server; retrying"
        assert line["server"] == f"http://127.0.0.1:{port}"
        assert line["err"].startswith("Cannot connect")

    run(steps())


def lease(holder: str, renewals: int) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3, "renewTime": f"{renewals}"}
    return {"metadata": {"name": "stowplan", "namespace": "kube-system"}, "spec": spec}


async def renewing(api: SmallApi, holder: str) -> None:
    for i in range(1000):
        api.put("leases", lease(holder, i))
        await asyncio.sleep(0.5)


def test_a_competing_scheduler_is_refused(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            task = asyncio.create_task(renewing(api, "other"))
            file = kubeconfig(tmp_path / "k", api.url)
            async with replica("--kubeconfig", file, "--listen", "0") as one:
                assert await one.ended() == 1
            assert "'other' renews lease kube-system/stowplan" in one.raw[-1]
            assert "--take-over" in one.raw[-1]
            task.cancel()

    run(steps())


@pytest.mark.parametrize(
    ("holder", "is_renewed", "orders", "is_refused"),
    [
        ("other", True, ProcessOptions(), True),
        ("other", True, ProcessOptions(take_over=True), False),
        ("other", False, ProcessOptions(), False),
        ("stowplan_a_replica", True, ProcessOptions(), False),
    ],
)
def test_which_holders_count_as_competing(
    monkeypatch: pytest.MonkeyPatch,
    holder: str,
    is_renewed: bool,
    orders: ProcessOptions,
    is_refused: bool,
) -> None:
    monkeypatch.setattr(competing_schedulers, "LEASE_POLL_S", 0.1)

    async def steps() -> None:
        async with SmallApi() as api:
            api.put("leases", lease(holder, 0))
            task = asyncio.create_task(renewing(api, holder)) if is_renewed else None
            options = SchedulerServerOptions(ClientConfig(api.url, "test"))
            begins = process.check_startup(default_deciders("stowplan"), options, orders)
            if is_refused:
                with pytest.raises(CompetingSchedulerError, match="'other' renews lease"):
                    await begins
            else:
                await begins
            if task is not None:
                task.cancel()

    run(steps())


@pytest.mark.parametrize("every", [2, 3])
def test_failing_reads_do_not_hide_the_renewing_holder(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Of the looks at the lease some fail, the first among them."""
    monkeypatch.setattr(competing_schedulers, "LEASE_POLL_S", 0.05)
    n_looks = 0

    async def trouble(request: web.Request) -> web.StreamResponse | None:
        nonlocal n_looks
        if "/leases/" not in request.path or request.method != "GET":
            return None
        n_looks += 1
        if n_looks % every == 1:
            return status(500, "InternalError", "etcdserver: request timed out")
        return None

    async def steps() -> None:
        async with SmallApi() as api:
            api.put("leases", lease("other", 0))
            api.fault = trouble
            task = asyncio.create_task(renewing(api, "other"))
            options = SchedulerServerOptions(ClientConfig(api.url, "test"))
            with pytest.raises(CompetingSchedulerError, match="'other' renews lease"):
                await process.check_startup(default_deciders("stowplan"), options, ProcessOptions())
            task.cancel()

    run(steps())


# While it runs.


def test_state_dump_configz_and_shutdown_with_pending_bindings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    held = asyncio.Event()
    gangs, profiles = tmp_path / "gangs.yaml", tmp_path / "profiles.json"

    async def slow_bindings(request: web.Request) -> None:
        if request.path.endswith("/binding"):
            held.set()
            await asyncio.sleep(1.5)

    async def steps() -> None:
        gangs.write_text(GANGS)
        profiles.write_text(json.dumps(CONFIG))
        port = free_port()
        async with SmallApi() as api:
            api.node("n1")
            api.pod("huge", cpu="40")
            file = kubeconfig(tmp_path / "k", api.url)
            configs = ("--config", str(profiles), "--config", str(gangs), "--qps", "500")
            levels = ("--log-level", "warning,leader=info,scheduler=info,writes=debug")
            listen = ("--listen", f"127.0.0.1:{port}")
            async with replica("--kubeconfig", file, *configs, *levels, *listen) as one:
                await api.until(lambda: any(w[0] == "PATCH" for w in api.writes))
                one.signal(signal.SIGUSR2)
                await api.until(lambda: one.has_logged("Wrote state dump"))
                (dumped,) = tmp_path.glob("stowplan-state-*.json")
                assert json.loads(dumped.read_text())["queue"][0]["pod"] == "default/huge"

                holds = await page(port)
                assert holds["clientConnection"]["qps"] == 500
                assert holds["leaderElection"]["resourceName"] == "stowplan"
                assert holds["batch"]["actions"] == "allocate, backfill"
                gangs.write_text(GANGS.replace("allocate, backfill", "allocate"))
                async with asyncio.timeout(240):
                    while (await page(port))["batch"]["actions"] != "allocate":
                        await asyncio.sleep(0.1)

                api.fault = slow_bindings  # type: ignore[assignment]
                api.pod("last")
                await asyncio.wait_for(held.wait(), 240)
                one.signal(signal.SIGTERM)
                assert await one.ended() == 0
            # What was begun was finished, and the lease given back after it.
            assert api.binds == [("last", "n1")]
            kept = api.objects["leases", "kube-system", "stowplan"]
            assert kept["spec"]["holderIdentity"] == ""
            paths = [path for _, path, _ in api.writes]
            ends = next(i for i, path in enumerate(paths) if path.endswith("/last/binding"))
            assert max(i for i, path in enumerate(paths) if "/leases/" in path) > ends
        parts = {(line["part"], line["level"]) for line in one.lines}
        assert {("leader", "info"), ("scheduler", "info")} <= parts
        assert not parts & {("informers", "info"), ("http", "info")}

    run(steps())


async def page(port: int) -> dict[str, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/configz") as response,
    ):
        tree: dict[str, Any] = (await response.json())["kubescheduler.config.k8s.io"]
        return tree


def test_a_dry_run_logs_differences_and_a_summary(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("small", cpu="1")
            api.node("large", cpu="4")
            file = kubeconfig(tmp_path / "k", api.url)
            async with replica("--kubeconfig", file, "--dry-run", "--listen", "0") as one:
                await api.until(lambda: one.has_logged("Informers synced"))
                for name, node in (("right", "large"), ("wrong", "small")):
                    api.pod(name, cpu="600m", scheduler="default-scheduler")
                    tree = api.objects["pods", "default", name]
                    api.put("pods", tree | {"spec": tree["spec"] | {"nodeName": node}})
                await api.until(lambda: one.has_logged("Decision differs"))
                one.signal(signal.SIGTERM)
                assert await one.ended() == 0
            (differs,) = (line for line in one.lines if line["msg"] == "Decision differs")
            pod, here, there = (differs[key] for key in ("pod", "here", "there"))
            assert (pod, here, there) == ("default/wrong", "large", "small")
            (summary,) = (line for line in one.lines if line["msg"] == "Dry run finished")
            counts = [summary[key] for key in ("compared", "same", "equallyGood", "otherNode")]
            assert counts == [2, 1, 0, 1]
            assert api.writes == []

    run(steps())
