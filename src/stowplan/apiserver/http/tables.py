"""Table and PartialObjectMetadata: transformed lists, objects and watch events.

Source: apiserver v0.36, endpoints/handlers/response.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stowplan.apis.machinery import timestamps
from stowplan.apis.machinery.errors import bad_request
from stowplan.apis.machinery.resource import Resource, Table, TableColumn
from stowplan.apiserver.http.negotiation import ResponseForm, not_acceptable
from stowplan.objects.encoding.tree import Tree

NAME_TEXT = (
    "Name must be unique within a namespace. Is required when creating resources, although some"
    " resources may allow a client to request the generation of an appropriate name automatically."
    " Name is primarily intended for creation idempotence and configuration definition. Cannot be"
    " updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names"
    "#names"
)
CREATED_TEXT = (
    "CreationTimestamp is a timestamp representing the server time when this object was created."
    " It is not guaranteed to be set in happens-before order across separate operations. Clients"
    " may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the"
    " system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel"
    "/sig-architecture/api-conventions.md#metadata"
)
INCLUDE_OBJECT_POLICIES = ("Metadata", "Object", "None", "")
_FIELD_ANNOTATIONS = frozenset(
    {
        "deprecated.daemonset.template.generation",
        "autoscaling.alpha.kubernetes.io/metrics",
        "autoscaling.alpha.kubernetes.io/current-metrics",
        "autoscaling.alpha.kubernetes.io/behavior",
        "autoscaling.alpha.kubernetes.io/conditions",
    }
)
"""Annotations that conversion to a version makes of fields; tables are made of what is inside."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class PlainTable:
    """The default table: name and creationTimestamp."""

    columns: tuple[TableColumn, ...] = (
        TableColumn("Name", "string", NAME_TEXT, "name"),
        TableColumn("Created At", "date", CREATED_TEXT),
    )

    def cells(self, obj: Tree, now: float) -> list[Any]:
        meta = obj["metadata"]
        return [meta.get("name", ""), meta.get("creationTimestamp")]

    def conditions(self, obj: Tree) -> list[Tree]:
        return []


class ScaleTable:
    """The table of the scale subresource."""

    columns: tuple[TableColumn, ...] = (
        TableColumn("Name", "string", NAME_TEXT),
        TableColumn("Desired", "integer", "Replicas that the object is to have."),
        TableColumn("Available", "integer", "Replicas that the object has."),
        TableColumn("Age", "string", CREATED_TEXT),
    )

    def cells(self, obj: Tree, now: float) -> list[Any]:
        meta = obj["metadata"]
        wanted, found = obj["spec"].get("replicas", 0), obj["status"].get("replicas", 0)
        return [
            meta.get("name", ""),
            wanted,
            found,
            timestamps.human_age(meta.get("creationTimestamp"), now),
        ]

    def conditions(self, obj: Tree) -> list[Tree]:
        return []


PLAIN_TABLE: Table = PlainTable()
_VIEWS: Mapping[str, Table] = {"Scale": ScaleTable()}
"""Tables of subresources of another kind."""


def include_object_policy(query_value: str) -> str:
    """The parameter includeObject. Raises ApiError 400."""
    if query_value not in INCLUDE_OBJECT_POLICIES:
        why = "must be 'Metadata', 'Object', 'None', or empty"
        text = f'includeObject: Invalid value: "{query_value}": {why}'
        raise bad_request(f"Unable to convert to Table as requested: {text}")
    return query_value


def column_definitions(table: Table) -> list[Tree]:
    """`columnDefinitions`."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in table.columns
    ]


def metadata_only(obj: Tree, form_version: str) -> Tree:
    """PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{form_version}",
        "metadata": _metadata_in_table(obj["metadata"]),
    }


def _metadata_in_table(meta: Tree) -> Tree:
    """Metadata without annotations that the original keeps in fields (daemon sets, autoscalers)."""
    annotations = meta.get("annotations")
    if not annotations or _FIELD_ANNOTATIONS.isdisjoint(annotations):
        return meta
    rest = {key: value for key, value in annotations.items() if key not in _FIELD_ANNOTATIONS}
    without = {key: value for key, value in meta.items() if key != "annotations"}
    return {**without, "annotations": rest} if rest else without


def table_row(table: Table, obj: Tree, form: ResponseForm, include: str, now: float) -> Tree:
    """One row of a table."""
    made: Tree = {"cells": table.cells(obj, now)}
    conditions = table.conditions(obj)
    if conditions:
        made["conditions"] = conditions
    marked = INITIAL_EVENTS_END in (obj["metadata"].get("annotations") or {})
    if include == "Object":
        made["object"] = obj
    elif include == "None" and not marked:
        made["object"] = None
    else:
        made["object"] = metadata_only(obj, form.version)
    return made


def table_for(resource: Resource, kind: str = "") -> Table:
    """The table of objects at a resource's path. kind: theirs, if it is not the resource's."""
    if kind and kind != resource.kind:
        return _VIEWS.get(kind, PLAIN_TABLE)
    return resource.table or PLAIN_TABLE


def make_table(
    table: Table,
    objects: Iterable[Tree],
    meta: Tree,
    form: ResponseForm,
    include: str,
    now: float,
    headers: bool = True,
) -> Tree:
    """A Table. meta: its metadata. headers: False after the first event of a watch."""
    rows = [table_row(table, obj, form, include, now) for obj in objects]
    return {
        "kind": "Table",
        "apiVersion": form.api_version,
        "metadata": meta,
        "columnDefinitions": column_definitions(table) if headers else None,
        # In the original the rows of default tables are made with the first one.
        "rows": rows or (None if _is_plain(table) else []),
    }


def _is_plain(table: Table) -> bool:
    """True for the default table."""
    return [column.name for column in table.columns] == [one.name for one in PLAIN_TABLE.columns]


def transformed(
    resource: Resource, obj: Tree, form: ResponseForm, include: str, now: float
) -> Tree:
    """One object as Table or PartialObjectMetadata. Raises ApiError 406 for a list form."""
    if form.kind == "PartialObjectMetadata":
        return metadata_only(obj, form.version)
    if form.kind == "Table":
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        table = table_for(resource, obj.get("kind", ""))
        return make_table(table, (obj,), meta, form, include, now)
    raise not_acceptable(
        "you requested PartialObjectMetadataList, but the requested object is not a list"
        f" (*{go_object_type(resource)})"
    )


def transformed_list(
    resource: Resource,
    objects: Sequence[Tree],
    meta: Tree,
    form: ResponseForm,
    include: str,
    now: float,
) -> Tree:
    """A list as Table or PartialObjectMetadataList. Raises ApiError 406 for another form."""
    if form.kind == "PartialObjectMetadataList":
        items = [metadata_only(obj, form.version) for obj in objects]
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": form.api_version,
            "metadata": meta,
            "items": items or None,
        }
    if form.kind == "Table":
        return make_table(table_for(resource), objects, meta, form, include, now)
    raise not_acceptable(
        "you requested PartialObjectMetadata, but the requested object is a list"
        f" (*{go_object_type(resource)}List)"
    )


def go_object_type(resource: Resource) -> str:
    """The Go type of objects in the original's texts: `core.Pod`."""
    if resource.custom:
        return "unstructured.Unstructured"
    return f"{internal_group(resource.group)}.{resource.kind}"


def internal_group(group: str) -> str:
    """The Go package of a group's internal types: `core`, `apps`, `storage`."""
    return group.split(".", 1)[0] if group else "core"
