"""An embedded cluster with scheduler and page, as `stowplan up --web` runs it, in a thread."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stowplan.assembly.deciders import Deciders
from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.live.scheduler_server import SchedulerServer
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster
from stowplan.driver.local_scheduler import local_scheduler
from stowplan.web.serving.page_server import PageServer

Tree = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
JSON_PATCH = "application/json-patch+json"


class ServedCluster:
    """A running cluster. url: of its page. viewed: the page's server. kubeconfig: of its
    administrator. server: the scheduler server."""

    def __init__(self, viewed: PageServer, kubeconfig: Path) -> None:
        self.url, self.viewed, self.kubeconfig = viewed.url, viewed, kubeconfig
        self.server: SchedulerServer | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.api: ApiClient | None = None

    def send(self, method: str, path: str, body: Any = None, content_type: str = JSON) -> Tree:
        """What the API server answers."""
        assert self.loop is not None
        assert self.api is not None
        data = b"" if body is None else json.dumps(body).encode()
        request = ApiRequest(method, path, (), data, content_type)
        sending = asyncio.run_coroutine_threadsafe(self.api.send(request), self.loop)
        answer = sending.result(60)
        assert answer.is_done, (method, path, answer.status, answer.body[:300])
        return json.loads(answer.body or b"{}")

    def page(self, path: str) -> Tree:
        """An answer of the page's data API."""
        with urllib.request.urlopen(f"{self.url}/api/page/v1/{path}", timeout=240) as answer:
            return json.loads(answer.read())

    def pod(self, name: str) -> Tree:
        return self.send("GET", f"{PODS}/{name}")

    def until(self, holds: Callable[[], Any], seconds: float = 240) -> Any:
        """What a condition returns once that is true."""
        end = time.monotonic() + seconds
        while True:
            found = holds()
            if found:
                return found
            assert time.monotonic() < end, "the condition did not become true"
            time.sleep(0.03)


@contextmanager
def served_cluster(
    folder: Path, trees: Sequence[Tree], deciders: Deciders | None = None
) -> Iterator[ServedCluster]:
    """Run a cluster with these objects until the end of the block. deciders: None for those of
    `stowplan up`."""
    page = PageServer(ListenAddress("127.0.0.1", 0))
    page.start()
    cluster = ServedCluster(page, folder / "kubeconfig")
    ready, stop = threading.Event(), threading.Event()
    faults: list[BaseException] = []

    def attach(server: SchedulerServer) -> None:
        cluster.server = server
        page.attach(server)

    async def run() -> None:
        settings = LocalClusterSettings(kubeconfig=cluster.kubeconfig)
        documents = [("", tree) for tree in trees]
        async with (
            running_local_cluster(settings, documents) as local,
            ApiClient(load_client_config(str(local.kubeconfig))) as api,
            local_scheduler(local, deciders, on_server=attach),
        ):
            cluster.loop, cluster.api = asyncio.get_running_loop(), api
            while cluster.server is None or not cluster.server.is_synced:
                await asyncio.sleep(0.02)
            ready.set()
            await asyncio.to_thread(stop.wait)

    def thread() -> None:
        try:
            asyncio.run(run())
        except BaseException as fault:  # noqa: BLE001 - the test reports it
            faults.append(fault)
        finally:
            ready.set()

    running = threading.Thread(target=thread, daemon=True)
    running.start()
    try:
        assert ready.wait(120), "the cluster did not start"
        assert not faults, faults
        yield cluster
    finally:
        stop.set()
        running.join(30)
        page.stop()


def node(name: str, cpu: str = "8", labels: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A node with a hollow kubelet."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"kind": "Node", "apiVersion": "v1", "metadata": meta, "spec": spec, "status": status}


def pod(name: str, cpu: str = "1", notes: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A pod with one container."""
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": name, "namespace": "default", "annotations": notes or {}}
    whole = {"containers": [container], **spec}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": whole}
