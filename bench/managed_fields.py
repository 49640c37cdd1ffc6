"""What managedFields cost: `bench/managed_fields.py [--count N] [--rounds N] [--addresses]`.

Two API servers in this process, one that keeps managedFields and one that does not, take the same
writes in turn, chunk by chunk, without HTTP: pods created, bound, their status patched, and
replaced with another label. --addresses: each pod has an address of its own. Printed are medians of
it takes with managedFields. Last come applies (server-side) of pods that change nothing, which need
managedFields.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.admission import admission_plugins
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.driver.storage.credentials_files import ADMIN

PODS = "/api/v1/namespaces/default/pods"
JSON = "application/json"
MERGE = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
Tree = dict[str, Any]


class Server:
    """An API server with a controller manager that runs nothing, as `stowplan up` assembles it."""

    def __init__(self, *, keeps: bool) -> None:
        access = TokenRbacAccess(StaticTokens((("t", ADMIN),)))
        options = ApiServerOptions(
            registry=built_in_registry(),
            access=access,
            admission=admission_plugins(accounts=True, taints=False),
            observers=(access,),
            keeps_managed_fields=keeps,
        )
        manager = ControllerManagerOptions(hollow_nodes=False, heartbeats=False)
        self.cluster = EmbeddedCluster(options, np.random.default_rng(1), manager_options=manager)
        self.now = time.time()
        create_bootstrap_objects(self.cluster.server, self.now)
        self.settle()
        self.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})

    def settle(self) -> None:
        """Let controllers work."""
        while (due := self.cluster.tick(self.now)) is not None and due <= self.now:
            pass

    def ask(self, method: str, path: str, body: Tree, media: str = JSON) -> Tree:
        """The answer to a request, which must be good."""
        return dict(json.loads(self._answer(request(method, path, body, media)).body))

    def seconds(self, requests: list[HttpRequest]) -> float:
        """Processor time of the answers to requests, in seconds of each."""
        began = time.process_time()
        for one in requests:
            self._answer(one)
        return (time.process_time() - began) / len(requests)

    def _answer(self, asked: HttpRequest) -> HttpResponse:
        answer = self.cluster.handle(asked, self.now)
        assert isinstance(answer, HttpResponse)
        assert 200 <= answer.status < 300, answer.body
        return answer


def request(method: str, path: str, body: Tree, media: str = JSON) -> HttpRequest:
    headers = {
        "content-type": media,
        "accept": JSON,
        "authorization": "Bearer t",
        "user-agent": "bench/1",
    }
    query = (("fieldManager", "bench"),) if media == APPLY else ()
    return HttpRequest(method, path, query, headers, json.dumps(body).encode())


def pod(name: str, **labels: str) -> Tree:
    container = {
        "name": "main",
        "image": "registry.example/app:1.0",
        "resources": {"requests": {"cpu": "100m", "memory": "200Mi"}},
        "ports": [{"containerPort": 8080}],
        "env": [{"name": "MODE", "value": "fast"}],
    }
    meta = {"name": name, "labels": {"app": "web", "pod-template-hash": "5d8f", **labels}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container]},
    }


def bindings(name: str) -> HttpRequest:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    tree = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return request("POST", f"{PODS}/{name}/binding", tree)


def statuses(name: str, address: str) -> HttpRequest:
    status: Tree = {"phase": "Running", "conditions": [READY]}
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return request("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE)


def replaced(server: Server, name: str) -> HttpRequest:
    found = server.ask("GET", f"{PODS}/{name}", {})
    found["metadata"]["labels"]["more"] = "x"
    return request("PUT", f"{PODS}/{name}", found)


def writes(
    server: Server, names: list[str], addresses: list[str]
) -> Iterator[tuple[str, Callable[[], list[HttpRequest]]]]:
    """The kinds of writes in order, with what makes their requests."""
    yield "created", lambda: [request("POST", PODS, pod(name)) for name in names]
    yield "bound", lambda: [bindings(name) for name in names]
    yield "status patched", lambda: [statuses(*pair) for pair in zip(names, addresses, strict=True)]
    yield "replaced", lambda: [replaced(server, name) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="writes in a chunk")
    parser.add_argument("--rounds", type=int, default=15, help="chunks of each kind")
    parser.add_argument("--addresses", action="store_true", help="each pod has an address")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    servers = {True: Server(keeps=True), False: Server(keeps=False)}
    found: dict[str, dict[bool, list[float]]] = {}
    gc.freeze()
    for number in range(options.rounds):
        names = [f"p{number}-{at}" for at in range(options.count)]
        addresses = [""] * options.count
        if options.addresses:
            addresses = [f"10.{number}.{at // 256}.{at % 256}" for at in range(options.count)]
        for keeps in (True, False) if number % 2 else (False, True):
            for what, make in writes(servers[keeps], names, addresses):
                spent = servers[keeps].seconds(make())
                found.setdefault(what, {}).setdefault(keeps, []).append(spent)
    for what, spent in found.items():
        kept, bare = (statistics.median(spent[keeps]) * 1e6 for keeps in (True, False))
        more = (kept / bare - 1) * 100
        print(f"{what:15} {kept:6.0f} us with managedFields, {bare:6.0f} without: {more:+.0f} %")
    server, applied = servers[True], []
    for _ in range(options.rounds + 1):
        names = [f"a{at}" for at in range(options.count)]
        asked = [request("PATCH", f"{PODS}/{name}", pod(name), APPLY) for name in names]
        applied.append(server.seconds(asked))
    # The first round creates them.
    print(f"applied without a change {statistics.median(applied[1:]) * 1e6:6.0f} us")


if __name__ == "__main__":
    main()
