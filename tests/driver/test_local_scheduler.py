"""`stowplan up` with its own scheduler, and what happens when that ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver import local_scheduler
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from tests.driver.embedded import Tree, pod
from tests.driver.processes import replica

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]
LEASES = ("kube-scheduler", "stowplan")
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: {}
"""
PODS = "/api/v1/namespaces/default/pods"


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


async def create(api: ApiClient, tree: Tree) -> None:
    answer = await api.send(ApiRequest("POST", PODS, (), json.dumps(tree).encode(), JSON))
    assert answer.status == 201, answer.body


async def nodes_of(api: ApiClient) -> dict[str, str]:
    answer = await api.send(ApiRequest("GET", PODS))
    items = json.loads(answer.body)["items"]
    return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in items}


def test_pods_of_the_two_scheduler_names_are_scheduled_and_no_others(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0", "--node-count", "2"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(tmp_path / "k")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("kubectl "):
            break

    async def steps() -> None:
        async with ApiClient(load_client_config(str(tmp_path / "k"))) as api:
            plain = pod("plain")
            del plain["spec"]["schedulerName"]
            for tree in (pod("foreign", scheduler="somebody"), plain, pod("ours")):
                await create(api, tree)
            nodes = await nodes_of(api)
            while not (nodes["plain"] and nodes["ours"]):
                await asyncio.sleep(0.1)
                nodes = await nodes_of(api)
            assert nodes["foreign"] == ""

    try:
        run(steps())
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert process.returncode == 0
    assert "".join(lines) + rest == "".join(lines) + "Stopped.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_changed_configuration_applies_while_it_runs(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text(PROFILES.format("[{schedulerName: one}]"))
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0", "--node-count", "1"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(tmp_path / "k"), "--config", str(config)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("kubectl "):
        pass

    async def bound(api: ApiClient, name: str) -> None:
        while not (await nodes_of(api))[name]:
            await asyncio.sleep(0.1)

    async def steps() -> None:
        async with ApiClient(load_client_config(str(tmp_path / "k"))) as api:
            await create(api, pod("first", scheduler="one"))
            await create(api, pod("second", scheduler="two"))
            await bound(api, "first")
            config.write_text(PROFILES.format("[{schedulerName: one}, {schedulerName: two}]"))
            await bound(api, "second")
            config.write_text(PROFILES.format("[{schedulerName: one, plugin: {}}]"))
            assert process.stderr is not None
            line = ""
            while "keeping the last valid one" not in line:
                line = await asyncio.to_thread(process.stderr.readline)
            assert "profiles[0].plugin: Unknown field" in line
            await create(api, pod("third", scheduler="two"))
            await bound(api, "third")

    try:
        run(steps())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert process.returncode == 0


def test_its_leases_keep_others_from_deciding_the_same_pods(tmp_path: Path) -> None:
    async def steps() -> None:
        settings = LocalClusterSettings(kubeconfig=tmp_path / "k")
        async with running_local_cluster(settings) as cluster:
            file = str(cluster.kubeconfig)
            async with ApiClient(load_client_config(file)) as api:
                async with local_scheduler.local_scheduler(cluster):
                    for name in LEASES:
                        while not (await holder(api, name)).startswith("stowplan-up_"):
                            await asyncio.sleep(0.05)
                    async with replica("--kubeconfig", file, "--listen", "0") as other:
                        assert await other.ended() == 1
                    assert "renews lease kube-system/stowplan" in other.raw[-1]
                # Given back at the end.
                assert [await holder(api, name) for name in LEASES] == ["", ""]

    run(steps())


def test_a_lost_lease_is_reacquired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[SchedulerServer] = []
    made = SchedulerServer.__init__

    def noted(self: SchedulerServer, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        begun.append(self)

    async def steps() -> None:
        settings = LocalClusterSettings(nodes=1, kubeconfig=tmp_path / "k")
        async with (
            running_local_cluster(settings) as cluster,
            local_scheduler.local_scheduler(cluster),
        ):
            while not (begun and begun[0].is_synced and begun[0].leadership.leads):
                await asyncio.sleep(0.05)
            async with ApiClient(load_client_config(str(cluster.kubeconfig))) as api:
                holders = [await holder(api, name) for name in LEASES]
            assert "" not in holders
            # As after a sleep. The next one goes by the same name: another would have to wait until
            # the lease is over.
            assert begun[0].leadership.election is not None
            begun[0].leadership.election.deadline = 1
            async with ApiClient(load_client_config(str(cluster.kubeconfig))) as api:
                while len(begun) == 1:
                    await asyncio.sleep(0.05)
                await create(api, pod("later"))
                while not (await nodes_of(api))["later"]:
                    await asyncio.sleep(0.05)
                assert [await holder(api, name) for name in LEASES] == holders
            assert len(begun) == 2
            assert not cluster.failed.done()

    monkeypatch.setattr(SchedulerServer, "__init__", noted)
    run(steps())


def test_the_scheduler_of_a_killed_cluster_leaves_no_lease_to_wait_for(tmp_path: Path) -> None:
    async def identity(folder: Path) -> str:
        settings = LocalClusterSettings(data=folder, kubeconfig=tmp_path / "k")
        async with running_local_cluster(settings) as cluster:
            config = load_client_config(str(cluster.scheduler_kubeconfig))
            return await local_scheduler.local_lease_identity(config)

    async def steps() -> None:
        killed, other = tmp_path / "killed", tmp_path / "other"
        before = await identity(killed)
        # The next process is the holder, and need not wait until the lease expires.
        assert await identity(killed) == before
        assert await identity(other) != before

    run(steps())


async def holder(api: ApiClient, name: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
    answer = await api.send(ApiRequest("GET", path))
    spec = json.loads(answer.body).get("spec", {})
    return str(spec.get("holderIdentity") or "")


def test_a_cluster_whose_scheduler_has_ended_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: SchedulerServer, *_: object) -> int:
        raise ValueError("no more")

    async def steps() -> None:
        settings = LocalClusterSettings(kubeconfig=tmp_path / "k")
        async with (
            running_local_cluster(settings) as cluster,
            local_scheduler.local_scheduler(cluster),
        ):
            text = await cluster.failed
            assert text == "the scheduler failed: ValueError('no more')"

    monkeypatch.setattr(SchedulerServer, "run", broken)
    run(steps())
