"""`stowplan up` with the gates of pod groups: a gang over HTTP, bound whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from tests.driver.embedded import Tree, pod

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("embedded")]
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
GATES = "GenericWorkload=true,GangScheduling=true"


@contextlib.contextmanager
def cluster(kubeconfig: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "stowplan", "up", "--port", "0", "--node-count", "2"]
    process = subprocess.Popen(
        [*command, "--kubeconfig", str(kubeconfig), "--feature-gates", GATES],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        while not process.stdout.readline().startswith("kubectl "):
            assert process.poll() is None
        yield
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=240)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def member(name: str, **spec: Any) -> Tree:
    tree = pod(name, **spec)
    tree["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return tree


async def create(api: ApiClient, path: str, tree: Tree) -> None:
    answer = await api.send(ApiRequest("POST", path, (), json.dumps(tree).encode(), JSON))
    assert answer.status == 201, answer.body


async def until(api: ApiClient, path: str, holds: Callable[[Tree], bool]) -> Tree:
    while True:
        answer = await api.send(ApiRequest("GET", path))
        tree: Tree = json.loads(answer.body) if answer.is_done else {}
        if holds(tree):
            return tree
        await asyncio.sleep(0.1)


def all_bound(tree: Tree) -> bool:
    return all(one["spec"].get("nodeName") for one in tree["items"])


def test_a_gang_is_bound_whole_and_its_condition_is_written(tmp_path: Path) -> None:
    async def steps() -> None:
        async with ApiClient(load_client_config(str(tmp_path / "k"))) as api:
            group: Tree = {
                "metadata": {"name": "train"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            }
            await create(api, PODS, member("a"))
            await create(api, GROUPS, group)
            # It does not fit, so that neither is bound.
            await create(api, PODS, member("big", cpu="1000"))
            found = await until(
                api, f"{GROUPS}/train", lambda one: bool(one.get("status", {}).get("conditions"))
            )
            (condition,) = found["status"]["conditions"]
            assert (condition["type"], condition["status"]) == ("PodGroupScheduled", "False")
            assert condition["reason"] == "Unschedulable"
            answer = await api.send(ApiRequest("GET", f"{PODS}/a"))
            assert not json.loads(answer.body)["spec"].get("nodeName")
            await api.send(ApiRequest("DELETE", f"{PODS}/big"))
            await create(api, PODS, member("b"))
            await until(api, PODS, all_bound)
            found = await until(
                api,
                f"{GROUPS}/train",
                lambda one: one["status"]["conditions"][0]["status"] == "True",
            )
            assert found["status"]["conditions"][0]["reason"] == "Scheduled"

    with cluster(tmp_path / "k"):
        asyncio.run(asyncio.wait_for(steps(), 300))
