"""Replicas of `stowplan run` that are killed, paused, and stopped."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.driver.processes import CONFIG, RENEW_S, kubeconfig, replica
from tests.driver.real_server import free_port
from tests.driver.small_api import SmallApi
from tests.driver.test_live import GANGS

pytestmark = pytest.mark.slow


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 600))


def arguments(tmp_path: Path, api: SmallApi) -> list[str]:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    file = kubeconfig(tmp_path / "kubeconfig", api.url)
    return ["--config", str(config), "--kubeconfig", file, "--listen", "0"]


def filled(api: SmallApi, n_nodes: int = 10) -> None:
    for i in range(n_nodes):
        api.node(f"n{i}")


def test_a_leader_that_is_killed_is_followed_by_the_other(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            filled(api)
            args = arguments(tmp_path, api)
            async with replica(*args) as first:
                await api.until(lambda: first.has_logged("Successfully acquired lease"))
                async with replica(*args) as second:
                    await api.until(lambda: second.has_logged("Informers synced"))
                    for i in range(50):
                        api.pod(f"a{i}")
                    await api.until(lambda: len(api.binds) >= 20)
                    first.signal(signal.SIGKILL)
                    await first.ended()
                    for i in range(20):
                        api.pod(f"b{i}")
                    await api.until(lambda: second.has_logged("Successfully acquired lease"))
                    await api.until(lambda: all(api.placed().values()))
                    pods = [pod for pod, _ in api.binds]
                    assert len(pods) == len(set(pods)) == 70
                    second.signal(signal.SIGTERM)
                    assert await second.ended() == 0
            lease = api.objects["leases", "kube-system", "stowplan"]
            assert lease["spec"]["holderIdentity"] == ""

    run(steps())


def test_a_leader_that_stood_still_past_its_lease_writes_nothing_more(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            filled(api)
            args = arguments(tmp_path, api)
            async with replica(*args) as first:
                await api.until(lambda: first.has_logged("Successfully acquired lease"))
                holder = api.objects["leases", "kube-system", "stowplan"]["spec"]["holderIdentity"]
                await api.until(lambda: first.has_logged("Informers synced"))
                api.pod("before")
                await api.until(lambda: all(api.placed().values()))
                # The more is under way when it is stopped, the better.
                for i in range(300):
                    api.pod(f"p{i}")
                await api.until(lambda: len(api.binds) > 5)
                first.signal(signal.SIGSTOP)
                await asyncio.sleep(RENEW_S + 1.5)
                # Nobody else is there: whatever is written now is written by the one that stood.
                api.node("late")
                n_writes = len(api.writes)
                first.signal(signal.SIGCONT)
                assert await first.ended() == 1
                after = [w for w in api.writes[n_writes:] if "/leases" not in w[1]]
                assert after == []
                lease = api.objects["leases", "kube-system", "stowplan"]
                assert lease["spec"]["holderIdentity"] == holder
            assert first.has_logged("Leader election lost")

    run(steps())


def test_a_lease_lost_to_a_late_server_is_logged_as_elsewhere_and_the_next_process_leads(
    tmp_path: Path,
) -> None:
    late = True

    async def answer_late(request: web.Request) -> web.StreamResponse | None:
        while late and "/leases" in request.path:
            await asyncio.sleep(0.1)
        return None

    async def steps() -> None:
        nonlocal late
        async with SmallApi() as api:
            filled(api)
            args = arguments(tmp_path, api)
            async with replica(*args) as first:
                await api.until(lambda: first.has_logged("Successfully acquired lease"))
                api.fault = answer_late
                assert await first.ended() == 1
            errors = [line for line in first.lines if line["level"] == "error"]
            assert [line["msg"] for line in errors] == [
                "Failed to renew lease",
                "Leader election lost",
            ]
            assert errors[0]["lease"] == "kube-system/stowplan"
            assert all(
                line["err"].startswith(f"not renewed within {RENEW_S:g} s: ") for line in errors
            )
            late = False
            async with replica(*args) as second:
                await api.until(lambda: second.has_logged("Successfully acquired lease"))
                api.pod("after")
                await api.until(lambda: bool(api.placed()["after"]))
                second.signal(signal.SIGTERM)
                assert await second.ended() == 0
            assert "Released leader lease" in second.lines[-1]["msg"]

    run(steps())


def test_a_scheduler_name_in_use_is_refused(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            spec = {"holderIdentity": "host_1234", "leaseDurationSeconds": 15, "renewTime": "0"}
            meta = {"name": "kube-scheduler", "namespace": "kube-system"}
            api.put("leases", {"metadata": meta, "spec": spec})

            async def renews() -> None:
                for i in itertools.count():
                    await asyncio.sleep(0.3)
                    tree = {"metadata": meta, "spec": spec | {"renewTime": str(i)}}
                    api.put("leases", tree)

            renewing = asyncio.create_task(renews())
            config = tmp_path / "config.json"
            config.write_text(json.dumps({k: CONFIG[k] for k in ("apiVersion", "kind")}))
            file = kubeconfig(tmp_path / "kubeconfig", api.url)
            args = ["--config", str(config), "--kubeconfig", file, "--listen", "0"]
            async with replica(*args) as one:
                assert await one.ended() == 1
                assert "host_1234" in one.raw[-1]
                assert "--take-over" in one.raw[-1]
            renewing.cancel()
            assert not [w for w in api.writes if w[0] != "GET"]

    run(steps())


def test_sessions_are_read_again_when_their_file_changes_and_the_state_is_written_down(
    tmp_path: Path,
) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            filled(api)
            gangs = tmp_path / "gangs.yaml"
            gangs.write_text(GANGS)
            args = [*arguments(tmp_path, api), "--config", str(gangs)]
            async with replica(*args) as one:
                await api.until(lambda: one.has_logged("Informers synced"))
                gangs.write_text(GANGS.replace("allocate", "allcate"))
                await api.until(lambda: one.has_logged("configuration: "))
                logged = next(line for line in one.lines if "configuration: " in line["msg"])
                assert logged["level"] == "error"
                assert "did you mean 'allocate'?" in logged["msg"]
                one.signal(signal.SIGUSR2)
                await api.until(lambda: one.has_logged("Wrote state dump"))
                dumped = next(line for line in one.lines if line["msg"] == "Wrote state dump")
                file = Path(dumped["file"])
                assert json.loads(file.read_text())["nodes"] == 10
                file.unlink()
                one.signal(signal.SIGTERM)
                assert await one.ended() == 0

    run(steps())


def test_an_extender_answers_as_a_program(tmp_path: Path) -> None:
    async def steps() -> None:
        port = free_port()
        command = (sys.executable, "-m", "stowplan", "extender", "--alone", "--listen")
        process = await asyncio.create_subprocess_exec(*command, f"127.0.0.1:{port}")
        try:
            async with asyncio.timeout(240), aiohttp.ClientSession() as session:
                while True:
                    try:
                        body = {"Pod": {}, "Nodes": {"items": [{"metadata": {"name": "n"}}]}}
                        url = f"http://127.0.0.1:{port}/filter"
                        async with session.post(url, json=body) as response:
                            tree = await response.json()
                            break
                    except aiohttp.ClientConnectorError:
                        await asyncio.sleep(0.1)
            assert tree["FailedNodes"] == {"n": "Too many pods"}
        finally:
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0

    run(steps())
