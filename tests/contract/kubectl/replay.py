"""Recorded kubectl commands, run again against a cluster in this process."""

import asyncio
import gzip
import json
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.controllers.node_lifecycle.node_lifecycle_controller import (
    NodeLifecycleController,
)
from stowplan.driver.local_cluster import LocalCluster, LocalClusterSettings, running_local_cluster
from tests.contract.kubectl.normal import normal
from tests.contract.kubectl.standins import StandIns

DATA = Path(__file__).parent.parent / "data"
PRIORITY = "scheduling.k8s.io/v1"
STEP_S = 0.03
QUIET_STEPS = 4
QUIET_S_MAX = 6.0
COMMAND_S_MAX = 240.0

Tree = dict[str, Any]


class Ran(NamedTuple):
    """A command and what it came to. got, wanted: exit code, stdout and stderr in normal form."""

    number: int
    command: str
    got: tuple[Any, str, str]
    wanted: tuple[Any, str, str]

    @property
    def same(self) -> bool:
        return self.got == self.wanted


def recording(name: str) -> list[Tree]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def homes(lines: list[Tree]) -> dict[str, str]:
    """Where each pod of the recording ran. Those of the deployment all go where it was drained."""
    found: dict[str, str] = {}
    for line in lines:
        for pod, node in re.findall(r"assigned k\d+/(\S+) to (n\d)", line["stdout"]):
            found.setdefault(pod, node)
    drains = [line["argv"][1] for line in lines if line["argv"][0] == "drain"]
    found["web"] = drains[-1]
    return found


def node(number: int) -> Tree:
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
    name = f"n{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 2}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        # The annotation comes from a controller that knows how large the cluster is.
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {},
        "status": {
            "capacity": dict(amounts),
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


class Replay:
    """Runs the commands of one recording in order."""

    def __init__(self, name: str, kubectl: str, directory: Path) -> None:
        self.lines = recording(name)
        self.kubectl = kubectl
        self.directory = directory

    async def run(self) -> list[Ran]:
        settings = LocalClusterSettings(kubeconfig=self.directory / "kubeconfig", seed=1)
        documents: list[tuple[str, Any]] = [("", node(number)) for number in range(1, 6)]
        documents += [
            ("", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for name in ("sd", "sj")
        ]
        documents += [
            (
                "",
                {"apiVersion": PRIORITY, "kind": "PriorityClass", "metadata": {"name": name}}
                | {"value": value},
            )
            for name, value in (("high", 1000), ("low", 10))
        ]
        # Life without kubelets: those of the recording sent no heartbeats.
        async with running_local_cluster(
            settings, documents, ControllerManagerOptions(hollow_nodes=False)
        ) as cluster:
            assert not cluster.loading.problems
            # Nor did anybody mind, as the recording took less time than it takes to notice.
            controller_manager = cluster.cluster.controller_manager
            controller_manager.parts = [
                part
                for part in controller_manager.parts
                if not isinstance(part, NodeLifecycleController)
            ]
            standins = StandIns(cluster.cluster, homes(self.lines))
            work = asyncio.ensure_future(self._run_standins(cluster, standins))
            try:
                ran = []
                for number, line in enumerate(self.lines, 1):
                    ran.append(await self._one(number, line))
                    if work.done():
                        work.result()
                return ran
            finally:
                work.cancel()

    async def _run_standins(self, cluster: LocalCluster, standins: StandIns) -> None:
        self.quiet = 0
        while True:
            done = standins.step(time.time())
            cluster.server_loop._schedule_soon()
            self.quiet = 0 if done else self.quiet + 1
            await asyncio.sleep(STEP_S)

    async def _settled(self) -> None:
        """Wait until nothing happens by itself any more, as between recorded commands."""
        deadline = time.monotonic() + QUIET_S_MAX
        await asyncio.sleep(2 * STEP_S)
        while self.quiet < QUIET_STEPS and time.monotonic() < deadline:
            await asyncio.sleep(STEP_S)

    async def _one(self, number: int, line: Tree) -> Ran:
        await self._settled()
        for name, text in (line.get("files") or {}).items():
            (self.directory / name).write_text(text)
        process = await asyncio.create_subprocess_exec(
            self.kubectl,
            "--kubeconfig",
            str(self.directory / "kubeconfig"),
            *line["argv"],
            cwd=self.directory,
            env={**os.environ, "HOME": str(self.directory), "KUBECTL_EXTERNAL_DIFF": "diff -u -N"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        stdin = (line.get("stdin") or "").encode()
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), COMMAND_S_MAX)
        except TimeoutError:
            process.kill()
            out, err = await process.communicate()
        return Ran(
            number,
            " ".join(line["argv"]),
            (process.returncode, normal(out.decode()), normal(err.decode())),
            (line["exit"], normal(line["stdout"]), normal(line["stderr"])),
        )
