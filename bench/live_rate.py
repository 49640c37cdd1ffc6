"""Scheduler rate relative to the API server's: `python bench/live_rate.py [PODS [NODES]]`.

First a client without decisions posts the Binding and the Scheduled event of each pod; then
`stowplan run` schedules the same number of pods on another server. Both start with all pods
pending, use the same HTTP client, and have the same number of requests in flight; kubelets are off.
Target: 0.9 of the client's rate. On a shared machine the CPU times of both and their servers are
more meaningful than wall clock.
"""

import asyncio
import json
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import JSON, ApiRequest, bind
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.clocks import request_time
from stowplan.messages.effects import Bind, RecordEvent

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
AT_ONCE = 96
SETTLING_S = 2.0
"""Pause, so that work left from creating the pods is not measured."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Rate(NamedTuple):
    """per_s: pods by wall clock. client_ms, server_ms: CPU time per pod of each process."""

    per_s: float
    client_ms: float
    server_ms: float

    def __str__(self) -> str:
        return f"{self.per_s:.0f} pods/s ({self.client_ms:.2f} + {self.server_ms:.2f} ms per pod)"


class Watch:
    """Wall clock and CPU time since its creation."""

    def __init__(self, n_pods: int, client: int, server: int) -> None:
        self._n_pods = n_pods
        self._pids = client, server
        self._cpu_s = [cpu_s(pid) for pid in self._pids]
        self._begun = time.perf_counter()

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self._begun

    def stopped(self) -> Rate:
        took_s = self.elapsed_s
        used = [cpu_s(pid) - s for pid, s in zip(self._pids, self._cpu_s, strict=True)]
        client_ms, server_ms = (1000 * s / self._n_pods for s in used)
        return Rate(self._n_pods / took_s, client_ms, server_ms)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@asynccontextmanager
async def process(directory: Path, name: str, pattern: str, *arguments: str) -> AsyncIterator[int]:
    """The pid of a command, after its first output."""
    log = directory / f"{name}.log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "stowplan", *arguments]
        child = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)
    try:
        while not re.search(pattern, log.read_text()):
            if child.returncode is not None:
                raise SystemExit(f"{name}: {log.read_text()}")
            await asyncio.sleep(0.05)
        yield child.pid
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def server(directory: Path, n_nodes: int) -> AsyncIterator[tuple[str, int]]:
    """Kubeconfig and pid of a new cluster."""
    file = str(directory / "kubeconfig")
    arguments = ("--port", "0", "--node-count", "0", "--kubeconfig", file)
    async with process(directory, "up", "Listening on", "up", "--no-scheduler", *arguments) as pid:
        async with ApiClient(load_client_config(file)) as api:
            await post_all(api, NODES, [node(f"n{i}") for i in range(n_nodes)])
        yield file, pid


def node(name: str) -> dict:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "1000"}
    meta = {"name": name, "annotations": {"stowplan.dev/kubelet": "off"}}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status}


def pod(name: str, app: str) -> dict:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}
    spec = {"schedulerName": "stowplan", "containers": [container]}
    meta = {"name": name, "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


async def post_all(api: ApiClient, path: str, trees: list[dict]) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(tree: dict) -> None:
        async with limit:
            answer = await api.send(ApiRequest("POST", path, (), json.dumps(tree).encode(), JSON))
            assert answer.is_done, (answer.status, answer.fault, answer.body[:200])

    await asyncio.gather(*map(one, trees))


async def create(api: ApiClient, prefix: str, n_pods: int) -> None:
    await post_all(api, PODS, [pod(f"{prefix}{i}", prefix) for i in range(n_pods)])


async def listed(api: ApiClient, **query: str) -> list[dict]:
    answer = await api.send(ApiRequest("GET", PODS, tuple(query.items())))
    assert answer.is_done, (answer.status, answer.fault)
    return json.loads(answer.body)["items"]


async def posting_rate(directory: Path, n_pods: int, n_nodes: int) -> Rate:
    """Figures of the client without decisions."""
    async with (
        server(directory, n_nodes) as (file, serving),
        ApiClient(load_client_config(file)) as api,
    ):
        await create(api, "p", n_pods)
        nodes = json.loads((await api.send(ApiRequest("GET", "/api/v1/nodes"))).body)["items"]
        names = [node["metadata"]["name"] for node in nodes]
        pods = await listed(api)
        limit = asyncio.Semaphore(AT_ONCE)
        correlator = EventCorrelator("bench")

        async def one(i: int, meta: dict) -> None:
            uid, name, node = meta["uid"], meta["name"], names[i % len(names)]
            note = f"Successfully assigned default/{name} to {node}"
            words = ("Normal", "Scheduled", "Binding", note)
            now = request_time()
            event = RecordEvent(i, 1, uid, "default", name, "stowplan", *words)
            request = correlator.record(event, now.now, now.wall_ns, now.micros)
            assert request is not None
            async with limit:
                answer = await api.send(bind(Bind(i, 1, uid, "default", name, node), {}))
                assert answer.is_done, (answer.status, answer.fault, answer.body[:200])
                answer = await api.send(request)
                assert answer.is_done, (answer.status, answer.fault, answer.body[:200])

        await asyncio.sleep(SETTLING_S)
        watch = Watch(n_pods, os.getpid(), serving)
        await asyncio.gather(*(one(i, pod["metadata"]) for i, pod in enumerate(pods)))
        return watch.stopped()


async def scheduling_rate(directory: Path, n_pods: int, n_nodes: int) -> Rate:
    """Figures of `stowplan run`, from its release to the last event."""
    async with (
        server(directory, n_nodes) as (file, serving),
        ApiClient(load_client_config(file)) as api,
    ):
        arguments = ("--kubeconfig", file, "--listen", "0", "--no-leader-elect")
        async with process(directory, "run", "synced", "run", *arguments) as pid:
            await create(api, "warm", 100)
            while await listed(api, fieldSelector="spec.nodeName="):
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            before = await n_events(api)
            os.kill(pid, signal.SIGSTOP)
            await create(api, "p", n_pods)
            await asyncio.sleep(SETTLING_S)
            watch = Watch(n_pods, pid, serving)
            os.kill(pid, signal.SIGCONT)
            while (done := await n_events(api) - before) < n_pods:
                # Polling costs server time: the more events are missing, the longer the interval.
                per_s = max(done, 100) / watch.elapsed_s
                await asyncio.sleep(min(1.0, max(0.01, (n_pods - done) / per_s / 2)))
            return watch.stopped()


async def n_events(api: ApiClient) -> int:
    """Number of events, from a list with limit 1."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    answer = await api.send(ApiRequest("GET", path, (("limit", "1"),)))
    tree = json.loads(answer.body)
    return len(tree["items"]) + tree["metadata"].get("remainingItemCount", 0)


async def main(n_pods: int, n_nodes: int, rounds: int = 3) -> None:
    posting, scheduling = [], []
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            posting.append(await posting_rate(Path(name), n_pods, n_nodes))
        with tempfile.TemporaryDirectory() as name:
            scheduling.append(await scheduling_rate(Path(name), n_pods, n_nodes))
        print(f"posting {posting[-1]}, scheduling {scheduling[-1]}", flush=True)
    share = middle(scheduling, "per_s") / middle(posting, "per_s")
    # Time per pod with a core each: the larger of client and server.
    needed = [max(middle(r, "client_ms"), middle(r, "server_ms")) for r in (posting, scheduling)]
    print(
        f"{n_pods} pods on {n_nodes} nodes: {share:.2f} of the rate of posting; aim 0.90 "
        f"({needed[0] / needed[1]:.2f} by the processor time of the busier process)"
    )


def middle(rates: list[Rate], name: str) -> float:
    return statistics.median(getattr(rate, name) for rate in rates)


if __name__ == "__main__":
    n_pods, n_nodes = ([int(word) for word in sys.argv[1:]] + [2000, 500][len(sys.argv) - 1 :])[:2]
    asyncio.run(main(n_pods, n_nodes))
