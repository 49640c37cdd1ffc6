"""What managedFields cost: `bench/managed_fields.py [--writes N] [--blocks N] [--plain]`.

Two API servers in this process, one that keeps managedFields and one that does not, take the same
writes of pods in turn, ten by ten, without HTTP. Of each block the median processor time of a write
is taken for each server, with the collector off; printed are the median of the ratios of blocks,
and their quartiles. A kubelet writes statuses, others the rest, and each pod has an address of its
own (--plain: none has). Last come applies (server-side) of pods that change nothing, which need
managedFields.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.protobuf.object_codec import object_codec
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
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}
RUN = 10
"""So many writes of the one server, then those of the other."""
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
        # With generated names of its own: what the one server decodes is not known to the other.
        rng = np.random.default_rng(1 + keeps)
        self.cluster = EmbeddedCluster(options, rng, manager_options=manager)
        self.now = time.time()
        create_bootstrap_objects(self.cluster.server, self.now)
        self.settle()
        self.ask(request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}}))

    def settle(self) -> None:
        """Let controllers work."""
        while (due := self.cluster.tick(self.now)) is not None and due <= self.now:
            pass

    def ask(self, asked: HttpRequest) -> HttpResponse:
        """The answer to a request, which must be good."""
        answer = self.cluster.handle(asked, self.now)
        assert isinstance(answer, HttpResponse)
        assert 200 <= answer.status < 300, answer.body
        return answer

    def stored(self, name: str) -> Tree:
        """A pod as it is now."""
        return dict(json.loads(self.ask(request("GET", f"{PODS}/{name}", {})).body))

    def seconds(self, asked: HttpRequest) -> float:
        """Processor time of an answer."""
        began = time.process_time()
        self.ask(asked)
        return time.process_time() - began


def request(
    method: str, path: str, body: Tree | bytes | list[Any], media: str = JSON, agent: str = "bench"
) -> HttpRequest:
    headers = {
        "content-type": media,
        "accept": JSON,
        "authorization": "Bearer t",
        "user-agent": f"{agent}/1",
    }
    query = (("fieldManager", "bench"),) if media == APPLY else ()
    sent = body if isinstance(body, bytes) else compact(body)
    return HttpRequest(method, path, query, headers, sent)


def compact(body: Any, **options: Any) -> bytes:
    return json.dumps(body, separators=(",", ":"), **options).encode()


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


def bound(name: str) -> HttpRequest:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    tree = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    return request("POST", f"{PODS}/{name}/binding", tree, agent="scheduler")


def status(phase: str, address: str) -> Tree:
    made: Tree = {"phase": phase, "conditions": [READY]}
    if address:
        made |= {"podIP": address, "podIPs": [{"ip": address}]}
    return made


def patched(name: str, media: str, label: str) -> HttpRequest:
    body: Any = {"metadata": {"labels": {label: "x"}}}
    if media == JSON_PATCH:
        body = [{"op": "add", "path": f"/metadata/labels/{label}", "value": "x"}]
    return request("PATCH", f"{PODS}/{name}", body, media)


def replaced(server: Server, name: str, label: str, form: str) -> HttpRequest:
    found = server.stored(name)
    found["metadata"]["labels"][label] = "x"
    media, body = JSON, compact(found)
    if form == "with spaces":
        body = json.dumps(found).encode()
    elif form == "sorted":
        body = compact(found, sort_keys=True)
    elif form == "protobuf":
        media, body = PROTOBUF, object_codec().encode(found)
    return request("PUT", f"{PODS}/{name}", body, media)


def replaced_status(server: Server, name: str, address: str) -> HttpRequest:
    found = server.stored(name)
    found["status"] |= status("Running", address) | {"startTime": READY["lastTransitionTime"]}
    return request("PUT", f"{PODS}/{name}/status", compact(found), agent="kubelet")


Make = Callable[[Server, str, str], HttpRequest]
KINDS: dict[str, Make] = {
    "created, of a template": lambda _, name, __: request("POST", PODS, pod(name)),
    "created, one of a kind": lambda _, name, __: request(
        "POST", PODS, pod(f"{name}-one", one=f"of-{name}")
    ),
    "bound": lambda _, name, __: bound(name),
    "status patched": lambda _, name, address: request(
        "PATCH",
        f"{PODS}/{name}/status",
        {"status": status("Pending", address)},
        STRATEGIC,
        "kubelet",
    ),
    "status replaced": replaced_status,
    "patched, merge": lambda _, name, __: patched(name, MERGE, "m"),
    "patched, strategic": lambda _, name, __: patched(name, STRATEGIC, "s"),
    "patched, JSON": lambda _, name, __: patched(name, JSON_PATCH, "j"),
    "replaced": lambda server, name, _: replaced(server, name, "a", ""),
    "replaced, with spaces": lambda server, name, _: replaced(server, name, "b", "with spaces"),
    "replaced, keys sorted": lambda server, name, _: replaced(server, name, "c", "sorted"),
    "replaced, protobuf": lambda server, name, _: replaced(server, name, "d", "protobuf"),
}
"""The kinds of writes in order: what makes the request for a pod of a name and an address."""


def ratios(
    servers: dict[bool, Server], options: argparse.Namespace
) -> dict[str, list[tuple[float, float]]]:
    """Median seconds of a write with and without managedFields, by kind and block."""
    found: dict[str, list[tuple[float, float]]] = {what: [] for what in KINDS}
    for number in range(options.blocks + 1):
        names = [f"p{number}-{at}" for at in range(options.writes)]
        for what, make in KINDS.items():
            spent: dict[bool, list[float]] = {True: [], False: []}
            pairs = [
                {
                    keeps: make(server, name, address_of(number, at, options))
                    for keeps, server in servers.items()
                }
                for at, name in enumerate(names)
            ]
            gc.collect()
            gc.disable()
            for at in range(0, options.writes, RUN):
                for keeps in (True, False) if at // RUN % 2 else (False, True):
                    for pair in pairs[at : at + RUN]:
                        spent[keeps].append(servers[keeps].seconds(pair[keeps]))
            gc.enable()
            # The first block is worked out where later ones repeat.
            if number:
                found[what].append(
                    (statistics.median(spent[True]), statistics.median(spent[False]))
                )
    return found


def applies(server: Server, count: int) -> float:
    """Median seconds of an apply."""
    asked = [request("PATCH", f"{PODS}/a{at}", pod(f"a{at}"), APPLY) for at in range(count)]
    return statistics.median(server.seconds(one) for one in asked)


def address_of(block: int, at: int, options: argparse.Namespace) -> str:
    return "" if options.plain else f"10.{block % 256}.{at // 256}.{at % 256}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writes", type=int, default=50, help="of each server in a block")
    parser.add_argument("--blocks", type=int, default=30, help="of each kind")
    parser.add_argument("--plain", action="store_true", help="pods have no addresses")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    servers = {True: Server(keeps=True), False: Server(keeps=False)}
    gc.collect()
    gc.freeze()
    for what, blocks in ratios(servers, options).items():
        kept, bare = (statistics.median(one[at] for one in blocks) * 1e6 for at in (0, 1))
        low, middle, high = statistics.quantiles([(a / b - 1) * 100 for a, b in blocks], n=4)
        print(
            f"{what:22} {kept:6.0f} us with managedFields, {bare:6.0f} without: {middle:+5.1f} %"
            f" ({low:+.1f} to {high:+.1f})"
        )
    applied = [applies(servers[True], options.writes) for _ in range(options.blocks + 1)]
    # The first round creates them.
    print(f"applied without a change {statistics.median(applied[1:]) * 1e6:6.0f} us")


if __name__ == "__main__":
    main()
