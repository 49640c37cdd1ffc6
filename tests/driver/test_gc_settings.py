"""Settings of the garbage collector are the program's: only a process of ours changes them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver import process
from stowplan.driver.gc_settings import paused_collector, uncollected_imports
from stowplan.driver.live.background_scheduler import BackgroundScheduler
from stowplan.driver.live.scheduler_server import SchedulerServer, SchedulerServerOptions
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_scheduler
from stowplan.driver.process import ProcessOptions
from stowplan.inputs.cluster_reader import _ClusterReader, read_cluster
from stowplan.inputs.files import InputFile
from tests.driver.deciders import default_deciders
from tests.driver.small_api import SmallApi
from tests.tidy import tree

Settings = tuple[bool, tuple[int, int, int]]


def settings() -> Settings:
    return gc.isenabled(), gc.get_threshold()


@contextlib.contextmanager
def switched(on: bool) -> Iterator[Settings]:
    """The collector on or off, as a program has chosen; checked at the end."""
    was_on = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        known, n_frozen = settings(), gc.get_freeze_count()
        yield known
        assert settings() == known
        # Frozen objects may be freed; more of them come only by freezing.
        assert gc.get_freeze_count() <= n_frozen
    finally:
        (gc.enable if was_on else gc.disable)()


@pytest.fixture
def frozen() -> Iterator[None]:
    """What a test freezes is freed again, and what was frozen before stays so."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("on", [True, False])
def test_a_scheduler_in_a_thread_leaves_the_settings_alone(on: bool) -> None:
    seen: list[Settings] = []

    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            options = SchedulerServerOptions(ClientConfig(api.url, "test"), engine="walk")
            scheduler = BackgroundScheduler(default_deciders("stowplan"), options)
            scheduler.server.on_synced = lambda: seen.append(settings())
            scheduler.start()
            api.pod("web")
            await api.until(lambda: all(api.placed().values()))
            seen.append(settings())
            await asyncio.to_thread(scheduler.stop)

    with switched(on) as known:
        asyncio.run(asyncio.wait_for(steps(), 240))
    assert seen == [known, known]


def test_a_cluster_with_its_scheduler_leaves_the_settings_alone(tmp_path: Path) -> None:
    async def steps() -> None:
        options = LocalClusterSettings(nodes=2, kubeconfig=tmp_path / "kubeconfig")
        synced = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with (
            running_local_cluster(options) as cluster,
            local_scheduler(cluster, on_synced=lambda: loop.call_soon_threadsafe(synced.set)),
        ):
            await asyncio.wait_for(synced.wait(), 240)

    with switched(True):
        asyncio.run(steps())


@pytest.mark.usefixtures("frozen")
def test_a_process_pauses_the_collector_until_the_cluster_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    during: list[bool] = []
    frozen_before = gc.get_freeze_count()
    run_as_before = SchedulerServer.run

    async def run(server: SchedulerServer, *arguments: object) -> int:
        during.append(gc.isenabled())
        return await run_as_before(server, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SchedulerServer, "run", run)

    async def steps() -> None:
        async with SmallApi() as api:
            api.node("n1")
            options = SchedulerServerOptions(ClientConfig(api.url, "test"), engine="walk")
            orders = ProcessOptions(take_over=True)
            running = asyncio.create_task(
                process._run(default_deciders("stowplan"), options, orders)
            )
            api.pod("web")
            await api.until(lambda: all(api.placed().values()))
            during.append(gc.isenabled())
            assert gc.get_freeze_count() > frozen_before
            os.kill(os.getpid(), signal.SIGTERM)
            assert await running == 0

    asyncio.run(asyncio.wait_for(steps(), 240))
    assert during == [False, True]
    assert gc.isenabled()


@pytest.mark.usefixtures("frozen")
def test_the_collector_runs_again_after_a_start_that_failed() -> None:
    known = gc.get_freeze_count()
    with contextlib.suppress(KeyError), paused_collector():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() <= known
    with paused_collector() as resume:
        resume()
        assert gc.isenabled()
        assert gc.get_freeze_count() > known


@pytest.mark.usefixtures("frozen")
def test_what_is_imported_is_exempt_and_the_collector_is_as_before() -> None:
    known = gc.get_freeze_count()
    with contextlib.suppress(KeyError), uncollected_imports():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    assert gc.get_freeze_count() <= known
    with switched(False), contextlib.suppress(KeyError), uncollected_imports():
        raise KeyError
    with uncollected_imports():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > known


def test_reading_a_cluster_leaves_the_settings_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    take = _ClusterReader.take

    def seen_take(reading: _ClusterReader, file: InputFile) -> None:
        seen.append(gc.isenabled())
        take(reading, file)

    monkeypatch.setattr(_ClusterReader, "take", seen_take)
    file = tmp_path / "node.yaml"
    file.write_text("{apiVersion: v1, kind: Node, metadata: {name: n}}")
    for on in (True, False):
        with switched(on):
            read_cluster(file)
    assert seen == [True, False]


# Modules of programs, and of measurements that are programs of their own.
OF_PROGRAMS = ("benchmarks/", "cli/", "driver/gc_settings.py")


def test_only_programs_name_the_collector() -> None:
    folder = tree.ROOT / "src" / "stowplan"
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"^(?:import gc|from gc import)\b", path.read_text(), re.MULTILINE)
    }
    assert "driver/gc_settings.py" in found
    assert [path for path in sorted(found) if not path.startswith(OF_PROGRAMS)] == []
