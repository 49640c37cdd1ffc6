"""An API server of two kinds without rules, for tests of what all kinds have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apis.machinery.resource import MergeShape, MergeStrategy, Resource, ResourceStrategy
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.server import ApiServer
from stowplan.apiserver.storage.versioned_store import Record
from stowplan.objects.encoding.tree import Tree

NOW = 1_790_000_000.0


class PlainSchema:
    """Takes any tree. `spec.items` merge by `name`, `spec.tags` as a set."""

    def __init__(self) -> None:
        self.shape: MergeShape | None = _Spec(self)

    def decode(self, tree: Tree, duplicates: Sequence[str], mode: str) -> tuple[Tree, list[str]]:
        return copy.deepcopy(tree), list(duplicates)

    def blank(self) -> Tree:
        return {"spec": {}}

    def default(self, tree: Tree) -> None:
        tree.setdefault("spec", {})


class _Spec:
    def __init__(self, schema: PlainSchema) -> None:
        self.schema = schema

    def merging(self, name: str) -> MergeStrategy | None:
        return {
            "spec": MergeStrategy((), "", self),
            "items": MergeStrategy(("merge",), "name", self),
            "tags": MergeStrategy(("merge",), "", None),
            "whole": MergeStrategy(("replace",), "", None),
        }.get(name)


class Graceful(ResourceStrategy):
    """A kind that is deleted by grace, as its spec says, and answers with the object."""

    returns_deleted = True

    def prepare_create(self, obj: Tree, call: Any) -> None:
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Tree, old: Tree, call: Any) -> None:
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1

    def grace(self, obj: Tree, asked: Any, call: Any) -> int | None:
        own = obj["spec"].get("grace", 0)
        return int(own if asked.grace_s is None else asked.grace_s)


class Plain:
    """A registry of what it is given."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = list(resources)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._first(lambda r: (r.group, r.version, r.plural) == (group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        return self._first(lambda r: (r.group, r.version, r.kind) == (group, version, kind))

    def by_path(self, path: str) -> Resource | None:
        return self._first(lambda r: r.path == path)

    def _first(self, fits: Any) -> Resource | None:
        return next((resource for resource in self.resources if fits(resource)), None)

    def all(self) -> Iterable[Resource]:
        return self.resources

    def has_group(self, group: str, version: str) -> bool:
        return any((r.group, r.version) == (group, version) for r in self.resources)

    def add(self, resource: Resource) -> None:
        self.resources.append(resource)

    def remove(self, resource: Resource) -> None:
        self.resources.remove(resource)


def thing() -> Resource:
    """A namespaced kind."""
    fields = {"spec.color": lambda obj: str(obj["spec"].get("color", ""))}
    return Resource("", "v1", "things", "Thing", True, PlainSchema(), Graceful(), fields=fields)


def place() -> Resource:
    """A kind that is not namespaced, and is deleted at once."""
    return Resource("", "v1", "places", "Place", False, PlainSchema(), ResourceStrategy())


def plain_server(records: Iterable[Record] = (), **options: Any) -> ApiServer:
    """A server of things and places."""
    registry = options.pop("registry", None) or Plain([thing(), place()])
    made = ApiServerOptions(registry=registry, **options)
    return ApiServer(made, np.random.default_rng(3), records)


def tree(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Tree:
    """A thing."""
    meta: Tree = {"name": name}
    if labels:
        meta["labels"] = labels
    return {"metadata": meta, "spec": spec}


def asked(
    server: ApiServer, method: str, target: str, body: bytes = b"", now: float = NOW, **headers: str
) -> HttpResponse | WatchResponse:
    """A request; target: path and query. headers: underscores stand for dashes."""
    from urllib.parse import parse_qsl

    path, _, query = target.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    pairs = tuple(parse_qsl(query, keep_blank_values=True))
    return server.handle(HttpRequest(method, path, pairs, named, body), now)
