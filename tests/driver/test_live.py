"""A whole scheduler over real HTTP, against a small API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from stowplan.assembly.deciders import Deciders
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.client.resources import resources_of
from stowplan.driver import kernel_warming
from stowplan.driver.client.connection_pool import ResponseStream
from stowplan.driver.live import scheduler_server as live_module
from stowplan.driver.live.background_scheduler import BackgroundScheduler
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.scheduler_server import (
    LeaseThreadService,
    SchedulerServer,
    SchedulerServerOptions,
)
from stowplan.driver.live.scheduler_status import status_summary, write_state_dump
from tests.driver.deciders import default_deciders
from tests.driver.logged import lines_of
from tests.driver.small_api import SmallApi

QUICK = {"duration_s": 1.5, "renew_s": 1.0, "retry_s": 0.2}


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def deciders() -> Deciders:
    return default_deciders("stowplan")


@asynccontextmanager
async def scheduler(
    api: SmallApi,
    identity: str = "",
    service: LeaseThreadService | None = None,
    decider: Deciders | None = None,
    **options: Any,
) -> AsyncIterator[SchedulerServer]:
    election_config = (
        LeaderElectionConfig("kube-system", "stowplan", identity, **QUICK) if identity else None
    )
    connection = ClientConfig(api.url, "test")
    live = SchedulerServer(
        decider or deciders(),
        SchedulerServerOptions(
            connection, election_config, seed=1, **({"engine": "walk"} | options)
        ),
        service,
    )
    task = asyncio.create_task(live.run())
    try:
        yield live
    finally:
        live.stop()
        await task


def test_pods_that_are_there_and_pods_that_come_are_bound_once() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            for i in range(5):
                api.node(f"n{i}")
            for i in range(20):
                api.pod(f"p{i}")
            async with scheduler(api):
                await api.until(lambda: all(api.placed().values()))
                for i in range(20, 40):
                    api.pod(f"p{i}")
                await api.until(lambda: all(api.placed().values()))
            assert len(api.binds) == 40
            scheduled = [w for w in api.writes if w[1].endswith("/events")]
            assert len(scheduled) == 40

    run(steps())


def test_while_many_writes_wait_watches_are_read_at_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_module, "PENDING_WRITES_MAX", 10)
    leave, n_left = ResponseStream.leave_unread, 0

    async def counted(stream: ResponseStream, seconds: float) -> None:
        nonlocal n_left
        n_left += 1
        await leave(stream, seconds)

    monkeypatch.setattr(ResponseStream, "leave_unread", counted)

    async def steps() -> None:
        async with SmallApi() as api:
            may_pass = asyncio.Event()
            may_pass.set()

            async def held(request: web.Request) -> None:
                if request.path.endswith("/binding"):
                    await may_pass.wait()

            api.fault = held
            for i in range(5):
                api.node(f"n{i}")
            async with scheduler(api) as live:
                api.pod("first", cpu="1m")
                await api.until(lambda: all(api.placed().values()))
                assert n_left == 0
                may_pass.clear()
                for i in range(100):
                    api.pod(f"p{i}", cpu="1m")
                await api.until(lambda: live._is_held_back)
                n_before = n_left
                for i in range(20):
                    api.pod(f"q{i}", cpu="1m")
                    await asyncio.sleep(0.02)
                assert n_left > n_before
                may_pass.set()
                await api.until(lambda: all(api.placed().values()))
            assert len(api.binds) == 121

    run(steps())


def test_events_that_wait_are_posted_before_the_scheduler_stops() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            may_pass = asyncio.Event()

            async def held(request: web.Request) -> None:
                if request.path.endswith("/events"):
                    await may_pass.wait()

            api.fault = held
            for i in range(5):
                api.node(f"n{i}")
            for i in range(100):
                api.pod(f"p{i}", cpu="1m")
            async with scheduler(api) as live:
                await api.until(lambda: len(api.binds) == 100)
                assert not any(path.endswith("/events") for _, path, _ in api.writes)
                live.stop()
                await asyncio.sleep(0.3)
                may_pass.set()
            noted = Counter(
                (tree["reason"], tree["regarding"]["name"])
                for _, path, tree in api.writes
                if path.endswith("/events")
            )
            assert noted == {("Scheduled", f"p{i}"): 1 for i in range(100)}

    run(steps())


def test_a_stop_does_not_wait_for_events_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_module, "DRAIN_S", 0.2)

    async def steps() -> None:
        async with SmallApi() as api:
            leaving = asyncio.Event()

            async def stuck(request: web.Request) -> None:
                if request.path.endswith("/events"):
                    await leaving.wait()

            api.fault = stuck
            api.node("n1")
            api.pod("p1")
            async with scheduler(api):
                await api.until(lambda: len(api.binds) == 1)
            leaving.set()

    run(steps())
    assert "Stopped before pending writes were done writes=1" in lines_of(caplog)


def test_an_unschedulable_pod_is_reported_and_retried_when_it_may_fit() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1", cpu="1")
            api.pod("huge", cpu="2")
            async with scheduler(api):
                await api.until(lambda: any(w[0] == "PATCH" for w in api.writes))
                (condition,) = api.objects["pods", "default", "huge"]["status"]["conditions"]
                assert condition["type"] == "PodScheduled"
                assert condition["status"] == "False"
                assert condition["reason"] == "Unschedulable"
                assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient")
                api.node("n2", cpu="4")
                await api.until(lambda: api.placed()["huge"] == "n2")

    run(steps())


def test_a_pod_of_higher_priority_has_others_marked_then_deleted_and_takes_their_place() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1", cpu="1")
            for name in ("a", "b"):
                api.pod(name, cpu="400m")
            async with scheduler(api):
                await api.until(lambda: all(api.placed().values()))
                api.pod("vip", cpu="900m", priority=1000)
                await api.until(lambda: api.placed() == {"vip": "n1"})
            about = [(w[0], w[1], w[2]) for w in api.writes if "/pods/a" in w[1]]
            assert [method for method, *_ in about] == ["POST", "PATCH", "DELETE"]
            _, (_, path, body), (_, _, deletion) = about
            assert path.endswith("/status")
            (condition,) = body["status"]["conditions"]
            assert condition["type"] == "DisruptionTarget"
            assert condition["reason"] == "PreemptionByScheduler"
            assert deletion["preconditions"] == {"uid": body["metadata"]["uid"]}

    run(steps())


def test_a_dry_run_writes_nothing_and_logs_its_decisions() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("small", cpu="1")
            api.node("large", cpu="4")
            api.pod("one", cpu="3")
            api.pod("two", cpu="800m")
            api.pod("vip", cpu="40", priority=10)
            async with scheduler(api, dry_run=True) as live:
                comparer = live.comparer
                assert comparer is not None
                await api.until(lambda: len(comparer.ours_only()) == 2)
                assert {one.key for one in comparer.ours_only()} == {"default/one", "default/two"}
            assert api.writes == []

    run(steps())


GANGS = """\
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""


@pytest.mark.slow
def test_gangs_are_placed_whole_as_soon_as_their_kinds_are_served(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            config = tmp_path / "gangs.yaml"
            config.write_text(GANGS)
            found, _ = read_configuration_files([str(config)])
            api.node("n1", cpu="2")
            for i in range(3):
                gang_member(api, i)
            async with scheduler(api, decider=found) as live:
                await api.until(lambda: live.is_synced)
                api.served |= {"podgroups", "queues", "priorityclasses"}
                group_of_three(api)
                await api.until(lambda: bool(live.informers and served(live, "podgroups")))
                await asyncio.sleep(1.5)
                assert api.binds == []
                assert status_summary(live)["sessions"]["waiting"] == 3
                api.node("n2", cpu="4")
                await api.until(lambda: all(api.placed().values()))
                assert sorted(pod for pod, _ in api.binds) == ["m0", "m1", "m2"]

    run(steps())


@pytest.mark.slow
@pytest.mark.parametrize("asks_for_ended", [True, False])
def test_finished_members_count_in_their_gang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks_for_ended: bool
) -> None:
    """So one that failed is replaced while others have ended; whoever does not ask for pods that
    have ended is caught."""
    if not asks_for_ended:
        monkeypatch.setattr(live_module, "resources_of", lambda kinds, **_: resources_of(kinds))

    def phase(api: SmallApi, name: str, phase: str) -> None:
        tree = api.objects["pods", "default", name]
        api.put("pods", tree | {"status": {"phase": phase}})

    async def steps() -> None:
        async with SmallApi({"podgroups", "queues", "priorityclasses"}) as api:
            config = tmp_path / "gangs.yaml"
            config.write_text(GANGS)
            found, _ = read_configuration_files([str(config)])
            api.node("n1", cpu="4")
            group_of_three(api)
            for i in range(3):
                gang_member(api, i)
            async with scheduler(api, decider=found):
                await api.until(lambda: all(api.placed().values()))
                for i, group_phase in enumerate(["Succeeded", "Running", "Failed"]):
                    phase(api, f"m{i}", group_phase)
                gang_member(api, 3)
                if not asks_for_ended:
                    await asyncio.sleep(3)
                    assert len(api.binds) == 3
                    return
                await api.until(lambda: len(api.binds) == 4)
                group = ("podgroups", "default", "g")
                await api.until(lambda: api.objects[group]["status"].get("succeeded") == 1)

    run(steps())


def group_of_three(api: SmallApi) -> None:
    version = "scheduling.sigs.dev/v1alpha2"
    queue = {"metadata": {"name": "default"}, "spec": {"weight": 1}}
    api.put("queues", {"apiVersion": version} | queue)
    meta = {"name": "g", "namespace": "default"}
    spec = {"minMember": 3, "queue": "default"}
    api.put("podgroups", {"apiVersion": version, "metadata": meta, "spec": spec, "status": {}})


def served(live: SchedulerServer, plural: str) -> bool:
    assert live.informers is not None
    return any(len(one) for one in live.informers.informers if one.resource.plural == plural)


def gang_member(api: SmallApi, i: int, scheduler: str = "kube-batch") -> None:
    api.pod(f"m{i}", cpu="1", scheduler=scheduler)
    tree = api.objects["pods", "default", f"m{i}"]
    tree["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "g"}


def test_the_state_is_dumped(tmp_path: Path) -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1", cpu="1")
            api.pod("fits")
            api.pod("huge", cpu="40")
            async with scheduler(api) as live:
                await api.until(lambda: live.metrics_recorder.n_refused > 0 and len(api.binds) == 1)
                await api.until(lambda: live.scheduler.cache.nodes.info(0).pods != [])
                path = write_state_dump(live)
            assert path.stat().st_mode & 0o077 == 0
            tree = json.loads(path.read_text())
            path.unlink()
            assert tree["cache"] == {"n1": ["default/fits"]}
            assert tree["queue"][0]["refusedBy"] == ["NodeResourcesFit"]

    run(steps())


def test_an_end_does_not_wait_for_what_is_being_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, over = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        over.wait(300)

    async def steps() -> None:
        async with SmallApi() as api:
            live = SchedulerServer(
                deciders(), SchedulerServerOptions(ClientConfig(api.url, "test"))
            )
            task = asyncio.create_task(live.run())
            await api.until(lambda: begun.is_set() and live.is_synced)
            api.node("n1")
            await asyncio.sleep(0.3)
            live.stop()
            assert await asyncio.wait_for(task, 240) == 0

    monkeypatch.setattr(kernel_warming, "warm_kernels", slow)
    run(steps())
    over.set()


def test_a_compile_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ValueError("no kernels")

    async def steps() -> None:
        async with SmallApi() as api:
            live = SchedulerServer(
                deciders(), SchedulerServerOptions(ClientConfig(api.url, "test"))
            )
            with pytest.raises(ValueError, match="no kernels"):
                await asyncio.wait_for(live.run(), 240)

    monkeypatch.setattr(kernel_warming, "warm_kernels", broken)
    run(steps())


def test_a_scheduler_runs_in_a_thread_of_another_program() -> None:
    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            options = SchedulerServerOptions(ClientConfig(api.url, "test"), engine="walk")
            companion = BackgroundScheduler(deciders(), options)
            companion.start()
            api.pod("web")
            await api.until(lambda: all(api.placed().values()))
            await asyncio.to_thread(companion.stop)
            assert not companion.is_running
            assert companion.fault is None

    run(steps())
