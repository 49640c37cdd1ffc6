"""How much of the API server's rate the scheduler gets: `python bench/live_rate.py [PODS [NODES]]`.

First a client that decides nothing posts the Binding and the Scheduled event of each pod, then
`stowplan run` schedules as many pods of another server of the same kind. Both find all pods waiting
when they begin. Aim: the scheduler reaches 0.9 of the client's rate.
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

from stowplan.client.requests import JSON, Request, bind
from stowplan.client.series import Series
from stowplan.driver.api import ApiClient
from stowplan.driver.clocks import moment
from stowplan.driver.connecting import connection_to
from stowplan.messages.effects import Bind, RecordEvent

PODS = "/api/v1/namespaces/default/pods"
AT_ONCE = 64


@asynccontextmanager
async def process(directory: Path, name: str, said: str, *arguments: str) -> AsyncIterator[int]:
    """The pid of a command, once it has said something."""
    log = directory / f"{name}.log"
    with log.open("w") as file:
        command = [sys.executable, "-m", "stowplan", *arguments]
        child = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file)
    try:
        while not re.search(said, log.read_text()):
            if child.returncode is not None:
                raise SystemExit(f"{name}: {log.read_text()}")
            await asyncio.sleep(0.05)
        yield child.pid
    finally:
        if child.returncode is None:
            child.terminate()
            await child.wait()


@asynccontextmanager
async def server(directory: Path, n_nodes: int) -> AsyncIterator[str]:
    """The kubeconfig of a fresh cluster."""
    file = str(directory / "kubeconfig")
    arguments = ("--port", "0", "--node-count", str(n_nodes), "--kubeconfig", file)
    async with process(directory, "up", "Listening on", "up", "--no-scheduler", *arguments):
        yield file


async def create(api: ApiClient, prefix: str, n_pods: int) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(i: int) -> None:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}
        spec = {"schedulerName": "stowplan", "containers": [container]}
        meta = {"name": f"{prefix}{i}", "labels": {"app": prefix}}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
        async with limit:
            answer = await api.send(Request("POST", PODS, (), json.dumps(body).encode(), JSON))
            assert answer.is_done, (answer.status, answer.fault, answer.body[:200])

    await asyncio.gather(*(one(i) for i in range(n_pods)))


async def listed(api: ApiClient, **query: str) -> list[dict]:
    answer = await api.send(Request("GET", PODS, tuple(query.items())))
    assert answer.is_done, (answer.status, answer.fault)
    return json.loads(answer.body)["items"]


async def posting_rate(directory: Path, n_pods: int, n_nodes: int) -> float:
    """Pods a second of the client that decides nothing."""
    async with server(directory, n_nodes) as file, ApiClient(connection_to(file)) as api:
        await create(api, "p", n_pods)
        nodes = json.loads((await api.send(Request("GET", "/api/v1/nodes"))).body)["items"]
        names = [node["metadata"]["name"] for node in nodes]
        pods = await listed(api)
        limit = asyncio.Semaphore(AT_ONCE)
        series = Series("bench")

        async def one(i: int, meta: dict) -> None:
            uid, name, node = meta["uid"], meta["name"], names[i % len(names)]
            note = f"Successfully assigned default/{name} to {node}"
            words = ("Normal", "Scheduled", "Binding", note)
            now = moment()
            event = RecordEvent(i, 1, uid, "default", name, "stowplan", *words)
            told = series.told(event, now.now, now.wall_ns, now.micros)
            assert told is not None
            async with limit:
                answer = await api.send(bind(Bind(i, 1, uid, "default", name, node)))
                assert answer.is_done, (answer.status, answer.fault, answer.body[:200])
                answer = await api.send(told)
                assert answer.is_done, (answer.status, answer.fault, answer.body[:200])

        begun = time.perf_counter()
        await asyncio.gather(*(one(i, pod["metadata"]) for i, pod in enumerate(pods)))
        return n_pods / (time.perf_counter() - begun)


async def scheduling_rate(directory: Path, n_pods: int, n_nodes: int) -> float:
    """Pods a second of `stowplan run`, from when it may go on to the last event."""
    async with server(directory, n_nodes) as file, ApiClient(connection_to(file)) as api:
        arguments = ("--kubeconfig", file, "--listen", "0", "--no-leader-elect")
        async with process(directory, "run", "synced", "run", *arguments) as pid:
            await create(api, "warm", 100)
            while await listed(api, fieldSelector="spec.nodeName="):
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            before = await n_events(api)
            os.kill(pid, signal.SIGSTOP)
            await create(api, "p", n_pods)
            os.kill(pid, signal.SIGCONT)
            begun = time.perf_counter()
            while await n_events(api) < before + n_pods:
                await asyncio.sleep(0.25)
            return n_pods / (time.perf_counter() - begun)


async def n_events(api: ApiClient) -> int:
    """How many events there are, told by a page of one."""
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    answer = await api.send(Request("GET", path, (("limit", "1"),)))
    tree = json.loads(answer.body)
    return len(tree["items"]) + tree["metadata"].get("remainingItemCount", 0)


async def main(n_pods: int, n_nodes: int, rounds: int = 3) -> None:
    posting, scheduling = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            posting.append(await posting_rate(Path(name), n_pods, n_nodes))
        with tempfile.TemporaryDirectory() as name:
            scheduling.append(await scheduling_rate(Path(name), n_pods, n_nodes))
        print(
            f"posting {posting[-1]:.0f} pods/s, scheduling {scheduling[-1]:.0f} pods/s", flush=True
        )
    share = statistics.median(scheduling) / statistics.median(posting)
    print(f"{n_pods} pods on {n_nodes} nodes: {share:.2f} of the rate of posting; aim 0.90")


if __name__ == "__main__":
    n_pods, n_nodes = ([int(word) for word in sys.argv[1:]] + [2000, 500][len(sys.argv) - 1 :])[:2]
    asyncio.run(main(n_pods, n_nodes))
