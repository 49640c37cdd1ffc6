"""A running scheduler applies a changed session configuration, if it is valid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stowplan.driver.live import competing_schedulers, configuration_reload
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.driver.live.scheduler_server import SchedulerServer
from tests.driver.logged import line_of
from tests.driver.small_api import SmallApi
from tests.driver.test_live import run, scheduler, served
from tests.driver.test_process import lease, renewing
from tests.scenarios import group_commands


def solo(api: SmallApi, name: str) -> None:
    api.pod(name, cpu="1", scheduler="kube-batch")


def has_logged(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in line_of(record) for record in caplog.records)


def actions(live: SchedulerServer) -> tuple[str, ...]:
    batch = live.deciders.batch
    assert batch is not None
    return tuple(batch.actions)


def test_a_changed_file_applies_or_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration_reload, "CONFIGURATION_POLL_S", 0.1)
    caplog.set_level("INFO")
    config = tmp_path / "gangs.yaml"

    async def steps() -> None:
        async with SmallApi() as api:
            config.write_text(group_commands.configured(["actions=backfill"]))
            found, _ = read_configuration_files([str(config)])
            api.served |= {"podgroups", "queues", "priorityclasses"}
            version = "scheduling.sigs.dev/v1alpha2"
            queue = {"apiVersion": version, "metadata": {"name": "default"}, "spec": {"weight": 1}}
            api.put("queues", queue)
            api.node("n1", cpu="2")
            solo(api, "a")
            async with scheduler(api, decider=found) as live:
                rereading = asyncio.create_task(configuration_reload.reload_configuration(live))
                await api.until(lambda: bool(live.informers and served(live, "queues")))
                config.write_text(group_commands.configured(["actions=backfil"]))
                await api.until(
                    has_logged(caplog, "invalid configuration, keeping the last valid one")
                )
                assert has_logged(caplog, "Invalid value: 'backfil'")()
                config.write_text(group_commands.configured(["schedulerName=other"]))
                await api.until(has_logged(caplog, "cannot change before a restart"))
                assert actions(live) == ("backfill",)
                assert api.binds == []
                config.write_text(group_commands.configured(["actions=allocate"]))
                await api.until(lambda: all(api.placed().values()))
                assert actions(live) == ("allocate",)
                rereading.cancel()

    run(steps())


def profiles(*names: str, **top: object) -> str:
    """A configuration of profiles; those of kube-scheduler's defaults."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return json.dumps(head | {"profiles": [{"schedulerName": name} for name in names]} | top)


def n_reloads(live: SchedulerServer, result: str) -> float:
    counters = live.metrics_recorder.counted.counters
    return counters["stowplan_configuration_reloads_total", (("result", result),)]


def test_profiles_of_a_changed_file_apply_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration_reload, "CONFIGURATION_POLL_S", 0.05)
    monkeypatch.setattr(competing_schedulers, "LEASE_POLL_S", 0.05)
    caplog.set_level("INFO")
    config = tmp_path / "scheduler.yaml"

    async def steps() -> None:
        async with SmallApi() as api:
            config.write_text(profiles("stowplan"))
            found, _ = read_configuration_files([str(config)])
            api.node("n1")
            api.pod("first")
            api.pod("second", scheduler="another")
            async with scheduler(api, decider=found) as live:
                rereading = asyncio.create_task(configuration_reload.reload_configuration(live))
                await api.until(lambda: bool(api.placed()["first"]))
                config.write_text(profiles("stowplan", "another", profile=1))
                await api.until(lambda: n_reloads(live, "refused") == 1)
                config.write_text(
                    profiles("stowplan", "another", leaderElection={"leaderElect": False})
                )
                await api.until(lambda: bool(api.placed()["second"]))
                assert n_reloads(live, "applied") == 1
                assert sorted(live.scheduler_names()) == ["another", "stowplan"]
                assert live.deciders.configuration.leader_election.leader_elect
                # Pods of a name that is gone are left alone.
                config.write_text(profiles("another"))
                await api.until(lambda: n_reloads(live, "applied") == 2)
                api.pod("third")
                api.pod("fourth", scheduler="another")
                await api.until(lambda: bool(api.placed()["fourth"]))
                assert not api.placed()["third"]
                rereading.cancel()

    run(steps())
    lines = [line_of(record) for record in caplog.records]
    about = [line for line in lines if "onfiguration" in line]
    assert len([line for line in about if "keeping the last valid one" in line]) == 1
    assert f"Configuration change needs a restart file={config} fields=leaderElection" in about
    assert any("'stowplan' is left to others (" in line for line in about)


def test_a_name_that_another_scheduler_serves_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration_reload, "CONFIGURATION_POLL_S", 0.05)
    monkeypatch.setattr(competing_schedulers, "LEASE_POLL_S", 0.05)
    config = tmp_path / "scheduler.yaml"

    async def steps() -> None:
        async with SmallApi() as api:
            config.write_text(profiles("mine"))
            found, _ = read_configuration_files([str(config)])
            api.put("leases", lease("other", 0))
            renewed = asyncio.create_task(renewing(api, "other"))
            async with scheduler(api, decider=found) as live:
                rereading = asyncio.create_task(configuration_reload.reload_configuration(live))
                await api.until(lambda: live.is_synced)
                config.write_text(profiles("mine", "stowplan"))
                await api.until(lambda: n_reloads(live, "refused") == 1)
                assert list(live.scheduler_names()) == ["mine"]
                rereading.cancel()
            renewed.cancel()

    run(steps())
    assert any("renews lease" in line_of(record) for record in caplog.records)


def test_what_a_file_names_without_effect_is_a_warning_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    config = tmp_path / "volcano.yaml"
    text = group_commands.configured(["actions=enqueue,allocate"])
    config.write_text(f"scheduler: kube-batch\n{text}")
    deciders, _ = read_configuration_files([str(config)])
    (record,) = caplog.records
    assert line_of(record).startswith(
        f"Setting has no effect file={config} warning=actions: action 'enqueue' has no effect"
    )
    assert deciders.batch is not None
