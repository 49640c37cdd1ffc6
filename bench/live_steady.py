"""Steady load on `stowplan run`: `python bench/live_steady.py [RFC3339 [PODS_PER_S [NODES]]]`.

Pods arrive at a constant rate on hollow nodes and end after a fixed time. Prints the time from the
creation request to the watch event of the binding, and the memory of scheduler and server over
time. Target: p99 under 200 ms, and constant memory of the scheduler.

The server keeps its watch cache for some minutes and events for an hour, so it grows until then.
"""

import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import NamedTuple

import numpy as np
from live_rate import JSON, PODS, cpu_s, listed, pod, process

from stowplan.client.requests import ApiRequest
from stowplan.client.resources import PODS as POD_RESOURCE
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.informers import Informers
from stowplan.messages.events import Event, PodAdded, PodUpdated

LIFE_S = 20.0
"""Lifetime of a pod, in seconds."""
REPORT_S = 10.0
SLACK_S = 30.0
"""Grace time for the last pods, in seconds."""
P99_MS_AIM = 200.0
GROWTH_AIM = 0.03
"""Allowed growth of memory from the second to the last quarter."""


class IdleUsage(NamedTuple):
    """memory_mb, busy: of scheduler and server; busy is CPU time / wall clock."""

    memory_mb: tuple[float, float]
    busy: tuple[float, float]

    def __str__(self) -> str:
        (scheduler_mb, server_mb), (scheduler, server) = self
        return (
            f"scheduler {scheduler_mb:.0f} MB, {scheduler:.0%} of a core; "
            f"server {server_mb:.0f} MB, {server:.0%}"
        )


class Load:
    """The load. delays_ms: from creation to binding. n_late: arrivals that this process started
    more than 50 ms late."""

    def __init__(self, api: ApiClient, per_s: float) -> None:
        self.delays_ms: list[float] = []
        self.n_late = 0
        self.n_failed = 0
        self._api = api
        self._per_s = per_s
        self._sent: dict[str, float] = {}
        self._leaving: deque[tuple[float, str]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def n_waiting(self) -> int:
        return len(self._sent)

    def seen(self, events: list[Event]) -> None:
        """Process watch events."""
        now = time.perf_counter()
        for event in events:
            if isinstance(event, PodAdded | PodUpdated) and event.pod.node_name:
                sent = self._sent.pop(event.pod.name, None)
                if sent is not None:
                    self.delays_ms.append((now - sent) * 1000)

    async def run(self, seconds: float) -> None:
        begun = time.perf_counter()
        for i in range(round(seconds * self._per_s)):
            due = begun + i / self._per_s
            late_s = time.perf_counter() - due
            if late_s < 0:
                await asyncio.sleep(-late_s)
            self.n_late += late_s > 0.05
            self._begin(self._come(f"p{i}"))
            while self._leaving and self._leaving[0][0] <= time.perf_counter():
                self._begin(self._go(self._leaving.popleft()[1]))
        await asyncio.gather(*self._tasks)

    def _begin(self, doing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _come(self, name: str) -> None:
        body = json.dumps(self._pod(name)).encode()
        self._sent[name] = time.perf_counter()
        answer = await self._api.send(ApiRequest("POST", PODS, (), body, JSON))
        if answer.is_done:
            self._leaving.append((time.perf_counter() + LIFE_S, name))
        else:
            self.n_failed += 1
            self._sent.pop(name, None)

    async def _go(self, name: str) -> None:
        answer = await self._api.send(ApiRequest("DELETE", f"{PODS}/{name}"))
        self.n_failed += not answer.is_done

    def _pod(self, name: str) -> dict:
        return pod(name, f"app{hash(name) % 50}")


def memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024 / 1e6  # type: ignore[index]


async def report(load: Load, pids: tuple[int, int], found: list[IdleUsage]) -> None:
    """Print a line at intervals."""
    begun = time.perf_counter()
    n_events, used, at = 0, [cpu_s(pid) for pid in pids], begun
    while True:
        await asyncio.sleep(REPORT_S)
        now, now_used = time.perf_counter(), [cpu_s(pid) for pid in pids]
        busy = [(b - a) / (now - at) for a, b in zip(used, now_used, strict=True)]
        idle = IdleUsage((memory_mb(pids[0]), memory_mb(pids[1])), (busy[0], busy[1]))
        found.append(idle)
        used, at = now_used, now
        fresh, n_events = load.delays_ms[n_events:], len(load.delays_ms)
        print(f"{now - begun:4.0f} s: {spread(fresh)}; {idle}", flush=True)


def spread(delays_ms: list[float]) -> str:
    if not delays_ms:
        return "nothing bound"
    half, most, top = np.percentile(delays_ms, (50, 99, 100))
    return f"{len(delays_ms)} bound, p50 {half:.0f} ms, p99 {most:.0f} ms, at most {top:.0f} ms"


def growth(found: list[IdleUsage], which: int) -> float:
    """Growth of memory from the second to the last quarter."""
    quarter = len(found) // 4
    early = statistics.mean(one.memory_mb[which] for one in found[quarter : 2 * quarter])
    late = statistics.mean(one.memory_mb[which] for one in found[-quarter:])
    return late / early - 1


async def main(seconds: float, per_s: float, n_nodes: int) -> None:
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as name:
        directory, file = Path(name), f"{name}/kubeconfig"
        up = ("up", "--no-scheduler", "--port", "0", "--kubeconfig", file)
        run = ("run", "--kubeconfig", file, "--listen", "0", "--no-leader-elect")
        async with (
            process(directory, "up", "Listening on", *up, "--node-count", str(n_nodes)) as server,
            ApiClient(load_client_config(file)) as api,
            process(directory, "run", "synced", *run) as scheduler,
            background_tasks() as tasks,
        ):
            load = Load(api, per_s)
            following = Informers(api, [POD_RESOURCE], load.seen, np.random.default_rng())
            following.start(tasks)
            await following.synced.wait()
            found: list[IdleUsage] = []
            tasks.start(report(load, (scheduler, server), found), "report")
            await load.run(seconds)
            ends = time.perf_counter() + SLACK_S
            while load.n_waiting and time.perf_counter() < ends:
                await asyncio.sleep(0.1)
            tasks.cancel()
            n_left = len(await listed(api))
            last = (directory / "run.log").read_text().splitlines()[-3:]
    print(f"{spread(load.delays_ms)}; {load.n_waiting} never, {n_left} pods there at the end")
    if load.n_late or load.n_failed:
        print(f"{load.n_late} arrivals came late, {load.n_failed} requests failed")
    p99_ms = float(np.percentile(load.delays_ms, 99))
    print(f"p99 from creation to binding: {p99_ms:.0f} ms, aim < {P99_MS_AIM:.0f} ms: ", end="")
    print("reached" if p99_ms < P99_MS_AIM and not load.n_waiting else "missed")
    for which, who in enumerate(("scheduler", "server") if len(found) >= 4 else ()):
        change = growth(found, which)
        verdict = "reached" if change < GROWTH_AIM else "missed"
        aim = f", aim < {GROWTH_AIM:.0%}: {verdict}" if which == 0 else ""
        print(f"memory of the {who}, last quarter over the second: {change:+.1%}{aim}")
    print("\n".join(f"  {line}" for line in last))


if __name__ == "__main__":
    words = [float(word) for word in sys.argv[1:]]
    seconds, per_s, n_nodes = (words + [60, 200, 1000][len(words) :])[:3]
    asyncio.run(main(seconds, per_s, int(n_nodes)))
