"""Background tasks: none ends unnoticed, and what depends on one ends or restarts with it."""

from __future__ import annotations

import ast
import asyncio
import gc
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stowplan.client.backoff import JitteredBackoff
from stowplan.client.informer import Informer
from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver import process
from stowplan.driver.background_tasks import BackgroundTasks, background_tasks
from stowplan.driver.http.http_server import HttpServer
from stowplan.driver.live import configuration_reload
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.scheduler_server import SchedulerServer, SchedulerServerOptions
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.process import ProcessOptions
from tests.driver.deciders import default_deciders
from tests.driver.logged import lines_of
from tests.driver.small_api import SmallApi
from tests.scenarios import group_commands
from tests.tidy import tree


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 240))


async def forever(ended: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(name)


async def broken() -> None:
    raise KeyError("spec")


def soon() -> JitteredBackoff:
    return JitteredBackoff(np.random.default_rng(1), first_s=0.001, most_s=0.002)


def test_a_failed_task_ends_the_block_and_the_others(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def steps() -> None:
        async with background_tasks() as tasks:
            tasks.start(forever(ended, "other"), "other")
            tasks.start_independent(forever(ended, "one of many"), "one of many")
            tasks.start(broken(), "first")
            await forever(ended, "block")

    with pytest.raises(KeyError, match="spec"):
        run(steps())
    assert sorted(ended) == ["block", "one of many", "other"]
    assert lines_of(caplog) == ["Background task failed task=first err=KeyError('spec')"]


def test_a_failure_of_an_independent_task_concerns_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def steps() -> None:
        ended: list[str] = []
        async with background_tasks() as tasks:
            tasks.start(forever(ended, "other"), "other")
            task = tasks.start_independent(broken(), "response")
            await task
            assert (task.get_name(), ended) == ("response", [])
        assert ended == ["other"]

    run(steps())
    assert lines_of(caplog) == ["Background task failed task=response err=KeyError('spec')"]


def test_a_task_is_restarted_until_it_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    starts = []

    async def fails_twice() -> None:
        starts.append(None)
        if len(starts) < 3:
            raise KeyError(len(starts))

    async def steps() -> None:
        async with background_tasks() as tasks:
            await tasks.start_restarted(fails_twice, "reload", soon())

    run(steps())
    assert len(starts) == 3
    assert lines_of(caplog) == [
        f"Background task failed; restarting task=reload err=KeyError({n})" for n in (1, 2)
    ]


def test_an_error_of_the_block_is_raised_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    ended: list[str] = []

    async def steps() -> None:
        async with background_tasks() as tasks:
            tasks.start(forever(ended, "task"), "task")
            await asyncio.sleep(0)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        run(steps())
    assert ended == ["task"]
    assert caplog.records == []


def test_work_that_never_begins_leaves_no_warning() -> None:
    """A coroutine that nobody awaits is a warning, which is an error here."""

    async def steps() -> BackgroundTasks:
        async with background_tasks() as tasks:
            tasks.start(broken(), "cancelled at once").cancel()
            tasks.start_independent(broken(), "cancelled at once").cancel()
        with pytest.raises(RuntimeError):
            tasks.start_independent(broken(), "late")
        return tasks

    asyncio.run(steps())
    gc.collect()


# What the processes do.


def test_a_bug_in_an_informer_ends_the_scheduler_also_before_the_lists_are_complete(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def next_request(informer: Informer, now: int) -> int:
        if informer.resource.plural == "pods":
            raise ZeroDivisionError("pods")
        return now + 10**12

    monkeypatch.setattr(Informer, "next", next_request)

    async def steps() -> None:
        async with SmallApi() as api:
            options = SchedulerServerOptions(ClientConfig(api.url, "test"), engine="walk")
            live = SchedulerServer(default_deciders("stowplan"), options)
            with pytest.raises(ZeroDivisionError):
                await live.run()
            assert not live.is_synced
            assert not live.leadership.leads

    run(steps())
    assert lines_of(caplog) == [
        "Background task failed task=informer pods err=ZeroDivisionError('pods')"
    ]


def test_the_configuration_is_reread_after_a_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(configuration_reload, "CONFIGURATION_POLL_S", 0.01)
    config = tmp_path / "gangs.yaml"
    config.write_text(group_commands.configured(["actions=backfill"]))
    read: list[str] = []

    async def apply(
        server: SchedulerServer, text: str, source: str, *, take_over: bool = False
    ) -> None:
        read.append(text)
        if len(read) == 1:
            raise KeyError("tiers")

    monkeypatch.setattr(configuration_reload, "_apply_text", apply)

    async def change_until_read(n_read: int) -> None:
        while len(read) < n_read:
            with config.open("a") as file:
                file.write("#\n")
            await asyncio.sleep(0.05)

    async def steps() -> None:
        deciders, _ = read_configuration_files([str(config)])
        options = SchedulerServerOptions(ClientConfig("http://127.0.0.1:1", "test"))
        server = SchedulerServer(deciders, options)
        async with background_tasks() as tasks:
            process._start_background_tasks(server, ProcessOptions(), tasks)
            await change_until_read(3)

    run(steps())
    assert lines_of(caplog) == [
        "Background task failed; restarting task=configuration reload err=KeyError('tiers')"
    ]


def test_a_bug_where_connections_are_accepted_ends_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def accept(self: HttpServer, *_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HttpServer, "_accept", accept)

    async def steps() -> None:
        settings = LocalClusterSettings(kubeconfig=tmp_path / "kubeconfig")
        async with running_local_cluster(settings):
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        run(steps())
    assert lines_of(caplog) == ["Background task failed task=HTTP accept err=ZeroDivisionError()"]


# Tasks beside the group: whoever makes one of these waits for it, or it reports its own failure.
AWAITED = {
    "http/extender_service.py": 2,
    "http/server_loop.py": 2,
    "live/kueue/kueue_manager.py": 2,
    "live/leadership.py": 1,
    "live/scheduler_server.py": 1,
    "local_cluster.py": 1,
    "process.py": 1,
}


def made_tasks(text: str) -> int:
    """Number of calls that make a task."""
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = {"create_task", "ensure_future"}
    return sum(isinstance(call, ast.Attribute) and call.attr in names for call in calls)


def test_all_other_tasks_are_children_of_the_group() -> None:
    folder = tree.ROOT / "src" / "stowplan" / "driver"
    found = {
        str(path.relative_to(folder)): made_tasks(path.read_text())
        for path in folder.rglob("*.py")
        if path.name != "background_tasks.py"
    }
    assert {path: n for path, n in found.items() if n} == AWAITED
    assert made_tasks("loop.create_task(x())\nasyncio.ensure_future(y())") == 2
