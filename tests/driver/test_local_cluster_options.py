"""`stowplan up` with a configuration and plugins, and `stowplan status`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.local_scheduler import NAMES, leader_election_configs, local_deciders
from tests.cli.run import Ran, run
from tests.driver.embedded import pod

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: first}, {schedulerName: second}]
"""
PLUGIN = """\
from stowplan.framework import NodeInfo, filter


@filter("OnlyTwo")
def only_two(node: NodeInfo) -> bool:
    return node.name == "node-2"
"""
PODS = "/api/v1/namespaces/default/pods"


@contextlib.contextmanager
def up(directory: Path, *arguments: str) -> Iterator[list[str]]:
    """`stowplan up` in a directory; the lines that it says until it listens."""
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory
    ) as process:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if line.startswith("kubectl "):
                break
        try:
            yield output
        finally:
            process.terminate()
            process.communicate(timeout=240)


def synced(directory: Path, *arguments: str) -> Ran:
    """The status of a scheduler that has listed its cluster."""
    with contextlib.chdir(directory):
        for _ in range(600):
            ran = run("status", *arguments)
            if ran.code == 0:
                return ran
            time.sleep(0.2)
    pytest.fail(f"no status: {ran}")


async def placed(directory: Path, scheduler: str) -> str:
    """The node of a pod of this scheduler."""
    async with ApiClient(load_client_config(str(directory / "stowplan.kubeconfig"))) as api:
        body = json.dumps(pod("p", scheduler=scheduler)).encode()
        answer = await api.send(ApiRequest("POST", PODS, (), body, JSON))
        assert answer.status == 201, answer.body
        async with asyncio.timeout(240):
            while True:
                answer = await api.send(ApiRequest("GET", f"{PODS}/p"))
                node: str = json.loads(answer.body)["spec"].get("nodeName", "")
                if node:
                    return node
                await asyncio.sleep(0.1)


def test_its_configuration_and_plugins_decide_and_its_status_is_found(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "two.py").write_text(PLUGIN)
    options = ("--config", "config.yaml", "--plugin", "two.py", "--node-count", "3")
    with up(tmp_path, *options) as output:
        assert any("pods without schedulerName stay pending" in line for line in output)
        ran = synced(tmp_path)
        assert ran.out.startswith("first, second at https://127.0.0.1:")
        # Elsewhere it is found by the kubeconfig.
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        file = str(tmp_path / "stowplan.kubeconfig")
        ran = synced(elsewhere, "--kubeconfig", file, "-o", "json")
        assert json.loads(ran.out)["nodes"] == 3
        assert asyncio.run(placed(tmp_path, "second")) == "node-2"


def test_a_cluster_without_a_scheduler_has_no_status(tmp_path: Path) -> None:
    with up(tmp_path, "--no-scheduler"):
        ran = run("status", "--kubeconfig", str(tmp_path / "stowplan.kubeconfig"))
    assert ran.code == 2
    assert ran.out == ""
    assert 'configmaps "stowplan-status" not found' in ran.err
    assert "Traceback" not in ran.err


def test_files_that_are_wrong_are_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG.replace("profiles", "profile"))
    for arguments, text in (
        (("--config", "nope.yaml"), "nope.yaml: no such file"),
        (("--config", "config.yaml"), "did you mean 'profiles'?"),
        (("--plugin", "nope.py"), "nope.py"),
        (("--plugin", "nope.py", "--no-scheduler"), "--no-scheduler"),
    ):
        ran = run("up", "--port", "0", *arguments)
        assert ran.code == 2, ran
        assert text in ran.err
        assert ran.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_each_name_has_its_lease(tmp_path: Path) -> None:
    assert tuple(local_deciders().configuration.profiles) == NAMES
    leases = leader_election_configs(local_deciders(), "me")
    assert [election_config.name for election_config in leases] == ["kube-scheduler", "stowplan"]
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    leases = leader_election_configs(local_deciders([str(config)]), "me")
    assert [election_config.name for election_config in leases] == ["first", "second"]
    config.write_text(CONFIG + "leaderElection: {leaderElect: false}\n")
    assert leader_election_configs(local_deciders([str(config)]), "me") == []
