"""Load and nodes that are replaced: `python bench/live_real_steady.py [SECONDS [RATE [NODES]]]`.

KUBE_APISERVER and ETCD name the programs of a real API server. Pods arrive at a constant rate (per
second) and are deleted after LIFE_S; every ROLL_S one node is cordoned, its pods are deleted, and
it is replaced by a new one of another name. Prints delays from creation to binding, memory, and
processor time per interval. Target: every pod is bound, and no growth of the scheduler's memory.
"""

import asyncio
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from live_rate import NODES, PODS, listed, node, post_all
from live_real import OURS, command_of, program, real_server, waiting
from live_steady import GROWTH_AIM, SLACK_S, IdleUsage, Load, growth, report, spread

from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.resources import PODS as POD_RESOURCE
from stowplan.driver.background_tasks import background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.informers import Informers
from stowplan.messages.events import Event, PodAdded, PodDeleted, PodUpdated

ROLL_S = 2.0
"""Between two replaced nodes, in seconds: a thousand nodes in about half an hour."""
SETTLE_S = 1.0
"""From the cordon to the deletion of the node, in seconds: what was being bound has arrived."""
HTTP_NOT_FOUND = 404
MERGE_PATCH = "application/merge-patch+json"
AT_ONCE_DELETED = (("gracePeriodSeconds", "0"),)


class RollingNodes:
    """Nodes that are replaced one by one. n_replaced, n_pods_moved: what was done. The pods of a
    replaced node are deleted, as a drain would."""

    def __init__(self, api: ApiClient, n_nodes: int) -> None:
        self.n_replaced = 0
        self.n_pods_moved = 0
        self._api = api
        self._n_nodes = n_nodes
        self._pods_on: dict[str, set[str]] = {}
        self._node_of: dict[str, str] = {}

    def seen(self, events: list[Event]) -> None:
        """Follow where pods run."""
        for event in events:
            if isinstance(event, PodAdded | PodUpdated) and event.pod.node_name:
                self._node_of[event.pod.name] = event.pod.node_name
                self._pods_on.setdefault(event.pod.node_name, set()).add(event.pod.name)
            elif isinstance(event, PodDeleted):
                where = self._node_of.pop(event.pod.name, "")
                self._pods_on.get(where, set()).discard(event.pod.name)

    async def roll(self) -> None:
        """Replace a node every ROLL_S seconds, for ever."""
        old = [f"n{i}" for i in range(self._n_nodes)]
        for generation in itertools.count(1):
            for i in range(self._n_nodes):
                begun = time.perf_counter()
                await self._replace(old[i], f"n{i}-{generation}")
                old[i] = f"n{i}-{generation}"
                await asyncio.sleep(max(0.0, begun + ROLL_S - time.perf_counter()))

    async def _replace(self, old: str, new: str) -> None:
        cordon = json.dumps({"spec": {"unschedulable": True}}).encode()
        await self._done(ApiRequest("PATCH", f"{NODES}/{old}", (), cordon, MERGE_PATCH))
        await asyncio.sleep(SETTLE_S)
        for name in tuple(self._pods_on.pop(old, ())):
            await self._api.send(ApiRequest("DELETE", f"{PODS}/{name}", AT_ONCE_DELETED))
            self.n_pods_moved += 1
        await self._done(ApiRequest("DELETE", f"{NODES}/{old}"))
        await self._done(ApiRequest("POST", NODES, (), json.dumps(node(new)).encode(), JSON))
        self.n_replaced += 1

    async def _done(self, request: ApiRequest) -> None:
        answer = await self._api.send(request)
        if not answer.is_done:
            raise SystemExit(f"{request.path}: {answer.status} {answer.body[:200]!r}")


class RealLoad(Load):
    """Load whose pods ask for our scheduler and are deleted at once, as no kubelet ends them."""

    def _pod(self, name: str) -> dict:
        return waiting(name, OURS)

    async def _go(self, name: str) -> None:
        answer = await self._api.send(ApiRequest("DELETE", f"{PODS}/{name}", AT_ONCE_DELETED))
        # Its node was replaced, and it went with it.
        self.n_failed += not answer.is_done and answer.status != HTTP_NOT_FOUND


async def main(seconds: float, per_s: float, n_nodes: int) -> None:
    apiserver, etcd = os.environ.get("KUBE_APISERVER", ""), os.environ.get("ETCD", "")
    if not (shutil.which(apiserver) and shutil.which(etcd)):
        print("No real API server: KUBE_APISERVER and ETCD name no programs.")
        return
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        async with (
            real_server(directory, apiserver, etcd, "--event-ttl=5m") as server,
            ApiClient(load_client_config(server.kubeconfig)) as api,
            background_tasks() as tasks,
        ):
            await post_all(api, NODES, [node(f"n{i}") for i in range(n_nodes)])
            command = command_of(OURS, directory, server.kubeconfig)
            async with program(directory, OURS, *command) as scheduler:
                load, nodes = RealLoad(api, per_s), RollingNodes(api, n_nodes)

                def seen(events: list[Event]) -> None:
                    load.seen(events)
                    nodes.seen(events)

                following = Informers(api, [POD_RESOURCE], seen, np.random.default_rng())
                following.start(tasks)
                await following.synced.wait()
                found: list[IdleUsage] = []
                used = server.used(scheduler)
                tasks.start(report(load, (scheduler, server.pid), found), "report")
                tasks.start(nodes.roll(), "roll")
                await load.run(seconds)
                ends = time.perf_counter() + SLACK_S
                while load.n_waiting and time.perf_counter() < ends:
                    await asyncio.sleep(0.1)
                spent = server.used(scheduler).since(used, len(load.delays_ms) / 1000)
                tasks.cancel()
                n_unbound = sum(not item["spec"].get("nodeName") for item in await listed(api))
    print(f"{spread(load.delays_ms)}; {n_unbound} without a node at the end")
    print(f"{nodes.n_replaced} nodes replaced, {nodes.n_pods_moved} pods deleted with them")
    print(f"processor time per 1,000 pods {spent}")
    if load.n_late or load.n_failed:
        print(f"{load.n_late} arrivals came late, {load.n_failed} requests failed")
    if len(found) >= 4:
        verdict = "reached" if growth(found, 0) < GROWTH_AIM else "missed"
        change = f"{growth(found, 0):+.1%}, aim < {GROWTH_AIM:.0%}: {verdict}"
        print(f"memory of the scheduler, last quarter over the second: {change}")


if __name__ == "__main__":
    words = [float(word) for word in sys.argv[1:]]
    seconds, per_s, n_nodes = (words + [60, 200, 1000][len(words) :])[:3]
    asyncio.run(main(seconds, per_s, int(n_nodes)))
