"""A cluster in virtual time with its controllers, asked over HTTP messages."""

from __future__ import annotations

import json
from typing import Any

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apiserver.discovery.default_pages import default_pages
from tests.apiserver.small_cluster import SmallCluster

Tree = dict[str, Any]

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CLUSTER_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Answer:
    """Status, headers and tree of an answer."""

    def __init__(self, made: HttpResponse) -> None:
        self.status, self.headers = made.status, dict(made.headers)
        self.warnings = [value for name, value in made.headers if name == "Warning"]
        self.tree: Tree = json.loads(made.body) if made.body[:1] == b"{" else {}

    @property
    def message(self) -> str:
        return str(self.tree.get("message", ""))

    @property
    def version(self) -> str:
        return str(self.tree["metadata"]["resourceVersion"])

    def names(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.tree["items"]]


class ConformanceClient:
    """Sends requests; the controllers have acted when an answer is there."""

    def __init__(self, nodes: int = 1) -> None:
        self.cluster = SmallCluster(nodes, pages=default_pages())
        self.server = self.cluster.server

    def send(
        self,
        method: str,
        path: str,
        body: Tree | None = None,
        media: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        """One request. path: with its query."""
        path, _, query = path.partition("?")
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        raw = b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": media, "accept": accept}
        request = HttpRequest(method, path, pairs, headers, raw)
        made = self.server.handle(request, self.cluster.now)
        assert isinstance(made, HttpResponse), made
        self.cluster.settle()
        return Answer(made)

    def done(self, method: str, path: str, body: Tree | None = None, media: str = JSON) -> Answer:
        """A request that must succeed."""
        made = self.send(method, path, body, media)
        assert made.status < 300, made.tree
        return made

    def apply(self, path: str, body: Tree, manager: str, *, force: bool = False) -> Answer:
        """Server-side apply."""
        query = f"?fieldManager={manager}" + ("&force=true" if force else "")
        return self.send("PATCH", path + query, body, APPLY)

    def watch(self, path: str, query: str) -> int:
        """A watch from now on, or from a version that the query names."""
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        request = HttpRequest("GET", path, (("watch", "true"), *pairs), {"accept": JSON}, b"")
        made = self.server.handle(request, self.cluster.now)
        assert isinstance(made, WatchResponse), made
        return made.number

    def events(self, number: int) -> list[Tree]:
        """What a watch has sent since the last call."""
        chunk = self.server.read(number, self.cluster.now)
        return [json.loads(line) for line in chunk.body.splitlines()]

    def seen(self, number: int) -> list[tuple[str, str]]:
        """Type and name of each event."""
        return [
            (one["type"], one["object"].get("metadata", {}).get("name", ""))
            for one in self.events(number)
        ]


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Tree:
    """A ConfigMap to create."""
    meta: Tree = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def definition(schema: Tree, **version: Any) -> Tree:
    """A definition of Things in example.com/v1."""
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [served],
        },
    }


THINGS = "/apis/example.com/v1/namespaces/default/things"


def thing(name: str, **fields: Any) -> Tree:
    """A Thing to create."""
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, **fields}
