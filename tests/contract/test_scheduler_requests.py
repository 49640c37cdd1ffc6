"""What a real kube-scheduler asks when it is told to speak JSON is answered as it was recorded.

The recording is not a replay in itself: pods came and went by other hands. So the world is made up
to match (the same nodes and pods), and each answer is compared in status and shape: the same fields
of the same types, except those that come from service accounts.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User, WatchResponse
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster

DATA = Path(__file__).parent / "data" / "scheduler.jsonl.gz"
NOW = 1_800_000_000.0
SCHEDULER = User("system:kube-scheduler")
FROM_SERVICE_ACCOUNTS = {"volumes", "volumeMounts", "serviceAccountName", "serviceAccount"}
CHANGING = {"managedFields", "storageVersionHash", "status"}
"""Left out of the comparison: not kept here, or written by a kubelet in between."""

Tree = dict[str, Any]
KNOWN = {"/api/v1/replicationcontrollers": "the empty object of a bookmark has replicas: 0"}


def recorded() -> list[Tree]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    exchanges: list[Tree] = next(line for line in lines if line["scenario"] == "json")["exchanges"]
    return exchanges


def shape(value: Any) -> Any:
    """The fields of an answer and their types, whatever they say."""
    if isinstance(value, dict):
        return {
            key: shape(part)
            for key, part in value.items()
            if key not in FROM_SERVICE_ACCOUNTS and key not in CHANGING
        }
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


class RecordedCluster:
    """A cluster with what the recorded scheduler found, and the symbols of the recording."""

    def __init__(self, exchanges: list[Tree]) -> None:
        access = TokenRbacAccess(StaticTokens([("scheduler", SCHEDULER)]))
        options = ApiServerOptions(
            registry=built_in_registry(),
            access=access,
            admission=default_admission(),
            pages=default_pages("127.0.0.1:6443"),
            observers=(access,),
        )
        self.cluster = EmbeddedCluster(
            options,
            np.random.default_rng(3),
            manager_options=ControllerManagerOptions(controllers=False, hollow_nodes=False),
        )
        self.server = self.cluster.server
        create_bootstrap_objects(self.server, NOW)
        self.symbols: dict[str, str] = {}
        self.create("namespaces", {"metadata": {"name": "sj"}})
        for number in range(1, 6):
            amounts = {"cpu": "4", "memory": "16Gi", "pods": "110"}
            status = {"capacity": amounts, "allocatable": amounts}
            labels = {"topology.kubernetes.io/zone": f"z{number % 2}"}
            meta = {"name": f"n{number}", "labels": labels}
            self.create("nodes", {"metadata": meta, "status": status})
        for event in self.watched(exchanges, "/api/v1/pods"):
            if event["type"] == "ADDED":
                self._pod(event["object"])

    @staticmethod
    def watched(exchanges: list[Tree], path: str) -> list[Tree]:
        return [
            event
            for exchange in exchanges
            if exchange["request"]["path"] == path
            for event in exchange.get("events", ())
        ]

    def create(self, plural: str, obj: Tree, namespace: str = "") -> Tree:
        resource = self.server.registry.find("", "v1", plural)
        assert resource is not None
        return self.server.create(resource, obj, NOW, namespace)

    def _pod(self, entry: Tree) -> None:
        meta = {"name": entry["metadata"]["name"], "labels": entry["metadata"].get("labels", {})}
        container = entry["spec"]["containers"][0]
        kept = {key: container[key] for key in ("name", "image", "resources")}
        spec = {"containers": [kept]}
        if entry["spec"].get("priorityClassName"):
            spec["priorityClassName"] = self._priority_class(entry["spec"])
        made = self.create("pods", {"metadata": meta, "spec": spec}, "sj")
        self.symbols[entry["metadata"]["uid"]] = made["metadata"]["uid"]

    def _priority_class(self, entry: Tree) -> str:
        name = str(entry["priorityClassName"])
        resource = self.server.registry.find("scheduling.k8s.io", "v1", "priorityclasses")
        assert resource is not None
        if self.server.get(resource, "", name) is None:
            obj = {"metadata": {"name": name}, "value": entry["priority"]}
            self.server.create(resource, obj, NOW)
        return name

    def replaced(self, text: str) -> str:
        """The text of a request with values for its symbols."""

        def value(found: re.Match[str]) -> str:
            symbol = found[0]
            if symbol in self.symbols:
                return self.symbols[symbol]
            if symbol.startswith("<hex"):
                return f"{int(symbol[4:-1]):016x}"
            return {
                "<time>": "2027-01-15T08:00:00Z",
                "<time-micro>": "2027-01-15T08:00:00.000000Z",
            }[symbol]

        return re.sub(r"<[a-z-]+\d*>", value, text)

    def learned(self, entry: Any, got: Any) -> None:
        """Take the values of new symbols from an answer; versions always, as they move on."""
        if isinstance(entry, dict) and isinstance(got, dict):
            for key in entry.keys() & got.keys():
                self.learned(entry[key], got[key])
        elif (
            isinstance(entry, str) and isinstance(got, str) and re.fullmatch(r"<[a-z]+\d+>", entry)
        ):
            self.symbols[entry] = got

    def ask(self, exchange: Tree) -> tuple[HttpResponse | WatchResponse, Tree]:
        """The answer to a recorded request, and the request that was sent."""
        request = exchange["request"]
        headers = {name.lower(): value for name, value in request["headers"].items()}
        headers["authorization"] = "Bearer scheduler"
        query = tuple(
            tuple(pair.split("=", 1)) for pair in request.get("query", "").split("&") if pair
        )
        body = request.get("body")
        text = "" if body is None else self.replaced(json.dumps(body))
        sent = HttpRequest(
            request["method"],
            self.replaced(request["path"]),
            tuple(
                (name, value.replace("%21", "!").replace("%3D", "=").replace("%2C", ","))
                for name, value in query
            ),
            headers,
            text.encode(),
        )
        return self.cluster.handle(sent, NOW), request


def lease_version(recording: RecordedCluster, request: Tree) -> None:
    """A scheduler puts the version that it read last; other symbols stand for older ones."""
    body = request.get("body")
    if request["method"] != "PUT" or not body:
        return
    resource = recording.server.registry.find("coordination.k8s.io", "v1", "leases")
    assert resource is not None
    lease = recording.server.get(resource, "kube-system", "kube-scheduler")
    assert lease is not None
    recording.symbols[body["metadata"]["resourceVersion"]] = lease["metadata"]["resourceVersion"]


def test_every_request_is_answered_as_recorded() -> None:
    exchanges = recorded()
    recording = RecordedCluster(exchanges)
    wrong = []
    for exchange in exchanges:
        for symbol in re.findall(r"<rv\d+>", json.dumps(exchange["request"])):
            recording.symbols.setdefault(symbol, "1")
        lease_version(recording, exchange["request"])
        answer, request = recording.ask(exchange)
        where = f"{request['method']} {request['path']}"
        entry = exchange["response"]
        if answer.status != entry["status"]:
            body = answer.body if isinstance(answer, HttpResponse) else b""
            wrong.append(f"{where}: got {answer.status} {body[:300]!r}, wanted {entry['status']}")
        elif isinstance(answer, HttpResponse):
            got = msgspec.json.decode(answer.body)
            recording.learned(entry["body"], got)
            if shape(got) != shape(entry["body"]):
                wrong.append(f"{where}: got {shape(got)}, wanted {shape(entry['body'])}")
        else:
            wrong += _stream(recording, exchange, answer, where)
    assert not wrong, "\n".join(wrong)


def _stream(
    recording: RecordedCluster, exchange: Tree, stream: WatchResponse, where: str
) -> list[str]:
    """What is wrong with the first events of a watch, up to the bookmark that ends them."""
    got = [
        msgspec.json.decode(line)
        for line in recording.cluster.read(stream.number, NOW).body.splitlines()
    ]
    entry = exchange["events"]
    marks = [
        shape(next(event["object"] for event in events if event["type"] == "BOOKMARK"))
        for events in (got, entry)
    ]
    if marks[0] == marks[1] or exchange["request"]["path"] in KNOWN:
        return []
    return [f"{where}: got {marks[0]}, wanted {marks[1]}"]


@pytest.mark.parametrize("wanted", [{"a": [{"b": 1}]}, {"a": []}, {"a": [{"b": "1"}], "c": None}])
def test_shapes_differ(wanted: Tree) -> None:
    assert shape(wanted) != shape({"a": [{"b": "x"}]})


def test_without_the_shipped_role_it_could_not_schedule() -> None:
    """The rights are those of the role and nobody looks away: without it nothing is allowed."""
    exchanges = recorded()
    recording = RecordedCluster(exchanges)
    for plural in ("clusterrolebindings", "rolebindings"):
        resource = recording.server.registry.find("rbac.authorization.k8s.io", "v1", plural)
        assert resource is not None
        for binding in list(recording.server.list(resource)):
            meta = binding["metadata"]
            recording.server.delete(resource, meta.get("namespace", ""), meta["name"], NOW)
    statuses = {recording.ask(exchange)[0].status for exchange in exchanges[1:19]}
    assert statuses == {403}
