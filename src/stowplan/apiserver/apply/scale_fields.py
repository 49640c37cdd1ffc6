"""Entries of managedFields at the scale subresource: those of the parent, by its replicas.

Source: apimachinery v0.36, util/managedfields/scalehandler.go; kubernetes v1.36, ScaleREST of the
workloads; apiextensions-apiserver v0.36, registry/customresource.
"""

from __future__ import annotations

from functools import cache

from stowplan.apis.machinery.resource import (
    Resource,
    ResourceRegistry,
    ResourceStrategy,
    Subresource,
)
from stowplan.apis.schema import kind_schema
from stowplan.apis.subresources.scale import CustomScaleView
from stowplan.apiserver.apply.field_set import difference, field_element, has_path, set_of_path
from stowplan.apiserver.apply.manager_entries import (
    InvalidEntries,
    ManagerFields,
    ManagerKey,
    Managers,
    manager_key,
    read_entries,
    write_entries,
    write_pairs,
)
from stowplan.objects.encoding.tree import Tree

SCALE = "scale"
SCALE_VERSION = "autoscaling/v1"
Path = tuple[str, ...]
REPLICAS: Path = ("f:spec", "f:replicas")


@cache
def scale_resource() -> Resource:
    """The kind Scale, for its field type; it is not stored."""
    schema = kind_schema("autoscaling/v1.Scale", "autoscaling")
    return Resource("autoscaling", "v1", SCALE, "Scale", True, schema, ResourceStrategy())


def replicas_paths(registry: ResourceRegistry, resource: Resource) -> dict[str, Path | None]:
    """The path of the replicas in each version of a kind; None in one without scale."""
    found: dict[str, Path | None] = {}
    for one in registry.all():
        if one.path == resource.path:
            found[one.api_version] = _replicas_path(one.subresources.get(SCALE))
    return found


def _replicas_path(sub: Subresource | None) -> Path | None:
    if sub is None:
        return None
    if isinstance(sub.view, CustomScaleView):
        return tuple(field_element(step) for step in sub.view.spec_path.split(".") if step)
    return REPLICAS


class ScaleEntries:
    """The entries of one parent. version: of the request. paths: see `replicas_paths`."""

    def __init__(self, parent: Tree, version: str, paths: dict[str, Path | None]) -> None:
        self._entries = parent["metadata"].get("managedFields")
        self._version = version
        self._paths = paths

    def _managers(self) -> Managers:
        try:
            return read_entries(self._entries)
        except InvalidEntries:
            return {}

    def of_scale(self) -> list[Tree]:
        """The entries that have the replicas, as entries of the scale."""
        found: Managers = {}
        for key, one in self._managers().items():
            path = self._paths.get(one.api_version)
            if path is not None and has_path(one.fields, path):
                at = manager_key(key.manager, key.operation, SCALE_VERSION, key.subresource)
                found[at] = one._replace(fields=set_of_path(REPLICAS), api_version=SCALE_VERSION)
        return write_entries(found)

    def of_parent(self, entries: list[Tree]) -> list[Tree]:
        """The parent's entries after a write of the scale. entries: those of the scale."""
        scaled = read_entries(entries)
        parents = self._managers()
        out: list[tuple[ManagerKey, ManagerFields]] = []
        for key, one in parents.items():
            if one.api_version not in self._paths:
                continue
            path = self._paths[one.api_version]
            if path is None or not has_path(one.fields, path):
                out.append((key, one))
                continue
            # As in the original only keys of applies match: those of updates have a version.
            if scaled.pop(key, None) is not None:
                out.append((key, one))
                continue
            left = difference(one.fields, set_of_path(path))
            if left:
                out.append((key, one._replace(fields=left)))
        path = self._paths[self._version]
        for key, one in scaled.items():
            if path is None or not has_path(one.fields, REPLICAS):
                continue
            known = parents.get(key)
            # The original takes the time of the parent's entry, so a new one has none.
            time = known.time if known is not None else ""
            fields = set_of_path(path)
            out.append((key, ManagerFields(fields, self._version, time)))
        return write_pairs(out)
