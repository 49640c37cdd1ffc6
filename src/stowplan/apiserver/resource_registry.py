"""The table of built-in resources, and what is served now.

Source: kubernetes v1.36, discovery of a server with its default APIs, as recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.resource import Resource, Subresource
from stowplan.apis.schema import kind_schema
from stowplan.apiserver.builtin_kinds import builtin_kinds

GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
)
"""The named groups, in the order in which discovery lists them."""


class BuiltInRegistry:
    """What is served: the built-in kinds, and custom ones while they are defined
    (`resource.Registry`)."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        self._by_name: dict[tuple[str, str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str, str], Resource] = {}
        self._by_path: dict[str, Resource] = {}
        self.changes = 0
        for one in resources:
            self.add(one)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a path, or None."""
        return self._by_name.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> Resource | None:
        """The resource that stores objects of a kind, or None."""
        return self._by_kind.get((group, version, kind))

    def by_path(self, path: str) -> Resource | None:
        """The resource whose keys begin with `path`, or None."""
        return self._by_path.get(path)

    def all(self) -> Iterable[Resource]:
        """Every resource, core first, then group by group as discovery lists them."""
        return list(self._by_name.values())

    def has_group(self, group: str, version: str) -> bool:
        """True if anything of this group and version is served."""
        return any(key[:2] == (group, version) for key in self._by_name)

    def add(self, resource: Resource) -> None:
        """Serve one more, in place of one of the same name."""
        self._by_name[(resource.group, resource.version, resource.plural)] = resource
        if resource.act is None:
            self._by_kind[(resource.group, resource.version, resource.kind)] = resource
        if resource.alias is None and resource.act is None:
            self._by_path[resource.path] = resource
        self.changes += 1

    def remove(self, resource: Resource) -> None:
        """Serve it no more."""
        self._by_name.pop((resource.group, resource.version, resource.plural), None)
        self._by_kind.pop((resource.group, resource.version, resource.kind), None)
        if self._by_path.get(resource.path) is resource:
            del self._by_path[resource.path]
        self.changes += 1


def built_in_registry() -> BuiltInRegistry:
    """A fresh registry of the built-in kinds."""
    made = sorted(builtin_kinds(), key=_discovery_order)
    return BuiltInRegistry(_resource(row) for row in made)


def _discovery_order(row: KindRegistration) -> tuple[int, str]:
    return (GROUPS.index(row.group) + 1 if row.group else 0, row.plural)


def _resource(row: KindRegistration) -> Resource:
    subresources = {one.name: one for one in row.subresources}
    if row.status is not None:
        subresources["status"] = Subresource("status", ("get", "patch", "update"), row.status)
    return Resource(
        group=row.group,
        version="v1",
        plural=row.plural,
        kind=row.kind,
        namespaced=row.namespaced,
        schema=kind_schema(row.type, row.group),
        strategy=row.strategy,
        verbs=row.verbs,
        singular=row.kind.lower(),
        short_names=row.short_names,
        categories=row.categories,
        list_kind=f"{row.kind}List",
        subresources=dict(sorted(subresources.items())),
        table=row.table,
        fields=row.fields,
        act=row.act,
        ttl_s=row.ttl_s,
        alias=row.alias,
        deprecation=row.deprecation,
        stored_as=row.stored_as,
    )
