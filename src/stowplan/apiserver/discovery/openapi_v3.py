"""OpenAPI v3: one document for each group and version, and their index.

It has what kubectl needs: the schemas of all kinds, with the keys of strategic merge, and the verbs
of each path with the parameters that clients check for. Descriptions are our own, or those of
`FieldTexts`.

Source: kube-openapi handler3, as recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from stowplan.apis.builtin_kinds import type_tables
from stowplan.apis.machinery.errors import method_not_allowed
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import Resource, ResourceRegistry, ServerContext
from stowplan.apis.schema import KindSchema, StructType, openapi_name
from stowplan.apiserver.discovery import openapi_messages
from stowplan.apiserver.http.negotiation import JSON, accept_clauses
from stowplan.apiserver.http.plain_pages import TEXT, UNCACHED, decoded_path
from stowplan.objects.encoding.tree import Tree

if TYPE_CHECKING:
    from stowplan.apiserver.crd.custom_resources import CustomSchema


ROOT = "/openapi/v3"
_VARY = ("Vary", "Accept")
_IMMUTABLE_CACHE = ("Cache-Control", "public, immutable")
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_GVK = "x-kubernetes-group-version-kind"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_OPERATION_TEXTS = {"create": "create", "update": "replace", "patch": "partially update"}
_WRITE = {"dryRun": "string", "fieldManager": "string", "fieldValidation": "string"}
_LIST = {
    "allowWatchBookmarks": "boolean",
    "continue": "string",
    "fieldSelector": "string",
    "labelSelector": "string",
    "limit": "integer",
    "resourceVersion": "string",
    "resourceVersionMatch": "string",
    "sendInitialEvents": "boolean",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
_DELETE = {
    "dryRun": "string",
    "gracePeriodSeconds": "integer",
    "orphanDependents": "boolean",
    "propagationPolicy": "string",
}
_PARAMETERS = {
    "get": {},
    "list": _LIST,
    "create": _WRITE,
    "update": _WRITE,
    "patch": {**_WRITE, "force": "boolean"},
    "delete": _DELETE,
    "deletecollection": {**_LIST, **_DELETE},
}
_METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
_ACTIONS = {**_METHODS, "list": "list", "deletecollection": "deletecollection"}


FieldTexts = Callable[[str], Mapping[str, str]]
"""Name of a type in OpenAPI -> its fields' descriptions, "" for the type itself."""


def no_texts(struct: str) -> Mapping[str, str]:
    """None but our own."""
    return {}


class OpenApiV3Pages:
    """`/openapi/v3` and the documents below (`options.NonResourcePages`).

    texts: descriptions that are used where ours would be.
    """

    def __init__(self, texts: FieldTexts = no_texts) -> None:
        self._texts = texts
        self._changes = -1
        self._documents: dict[str, tuple[bytes, str]] = {}
        self._messages: dict[str, tuple[bytes, bytes]] = {}

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        path = decoded_path(request)
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            return None
        if request.method != "GET":
            raise method_not_allowed()
        registry = server.registry
        if path == ROOT:
            if request.path.endswith("/"):
                return HttpResponse(404, (UNCACHED,))
            return HttpResponse(200, (TEXT, UNCACHED), self._index(registry))
        name = path.removeprefix(f"{ROOT}/")
        if name not in document_names(registry):
            return HttpResponse(404, (UNCACHED,))
        return self._page(request, registry, name)

    def _index(self, registry: ResourceRegistry) -> bytes:
        paths = {
            name: {"serverRelativeURL": f"{ROOT}/{name}?hash={self._document(registry, name)[1]}"}
            for name in sorted(document_names(registry))
        }
        return msgspec.json.encode({"paths": paths}) + b"\n"

    def _page(self, request: HttpRequest, registry: ResourceRegistry, name: str) -> HttpResponse:
        media = _accepted(request.headers.get("accept", ""))
        if not media:
            return HttpResponse(406, (_VARY, UNCACHED))
        body, digest = self._document(registry, name)
        hashes = [value for key, value in request.query if key == "hash"]
        tag = ("ETag", f'"{digest}"')
        if hashes and hashes[0] != digest:
            where = ("Location", f"{ROOT}/{name}?hash={digest}")
            return HttpResponse(301, (("Content-Type", media), tag, where, _VARY, UNCACHED))
        cached = _IMMUTABLE_CACHE if hashes else UNCACHED
        if request.headers.get("if-none-match", "") == tag[1]:
            return HttpResponse(304, (tag, _VARY, cached))
        if media == openapi_messages.MEDIA:
            body = self._message(name, body)
        return HttpResponse(200, (("Content-Type", media), tag, _VARY, cached), body)

    def _message(self, name: str, document: bytes) -> bytes:
        """A document as protobuf."""
        known = self._messages.get(name)
        if known is None or known[0] is not document:
            known = self._messages[name] = document, openapi_messages.openapi_message(document)
        return known[1]

    def _document(self, registry: ResourceRegistry, name: str) -> tuple[bytes, str]:
        """A document and its hash; built again when the served kinds change."""
        changes: int = getattr(registry, "changes", 0)
        if changes != self._changes:
            self._changes = changes
            self._documents.clear()
        made = self._documents.get(name)
        if made is None:
            body = msgspec.json.encode(
                openapi_document(document_names(registry)[name], self._texts)
            )
            made = body, hashlib.sha512(body).hexdigest().upper()
            self._documents[name] = made
        return made


def _accepted(header: str) -> str:
    """The first media type of an Accept header that documents have, "" for none."""
    if not header:
        return JSON
    for media, _ in accept_clauses(header):
        if media in (JSON, "*/*"):
            return JSON
        if media in openapi_messages.ACCEPTED:
            return openapi_messages.MEDIA
    return ""


def document_names(registry: ResourceRegistry) -> dict[str, list[Resource]]:
    """The names of the documents: `api/v1`, `apis/apps/v1`."""
    found: dict[str, list[Resource]] = {}
    for one in registry.all():
        name = f"apis/{one.api_version}" if one.group else f"api/{one.version}"
        found.setdefault(name, []).append(one)
    return found


def openapi_document(resources: list[Resource], texts: FieldTexts = no_texts) -> Tree:
    """The document of a group and version."""
    schemas: dict[str, Tree] = {}
    paths: dict[str, Tree] = {}
    for one in sorted(resources, key=lambda each: each.plural):
        _describe(one, schemas, texts)
        paths.update(_paths(one))
    for name in ("DeleteOptions", "Status", "Patch"):
        schemas.setdefault(_META + name, {"type": "object"})
    custom = all(one.custom for one in resources)
    title = "Kubernetes CRD Swagger" if custom else "Kubernetes"
    return {
        "openapi": "3.0.0",
        "info": {"title": title, "version": "v0.1.0" if custom else "1.36"},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def _ref(name: str) -> Tree:
    return {"$ref": f"#/components/schemas/{name}"}


def _name_of(one: Resource) -> str:
    """The name of a kind's schema."""
    if isinstance(one.schema, KindSchema):
        return openapi_name(one.schema.full_name)
    turned = ".".join(reversed(one.group.split(".")))
    return f"{turned}.{one.version}.{one.kind}"


def _describe(one: Resource, schemas: dict[str, Tree], texts: FieldTexts) -> None:
    """Add the schemas of a kind, its list and their types."""
    name = _name_of(one)
    ids = {"group": one.group, "kind": one.kind, "version": one.version}
    if isinstance(one.schema, KindSchema):
        _describe_struct(one.schema.struct, schemas, texts)
    else:
        schemas[name] = _custom_schema(one)
        _describe_struct(type_tables.struct("meta/v1.ObjectMeta"), schemas, texts)
    schemas[name][_GVK] = [ids]
    if one.act is None:
        _describe_struct(type_tables.struct("meta/v1.ListMeta"), schemas, texts)
        schemas[f"{name}List"] = {
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": _ref(name)},
                "kind": {"type": "string"},
                "metadata": _ref(f"{_META}ListMeta"),
            },
            _GVK: [{**ids, "kind": one.list_kind or f"{one.kind}List"}],
        }
    for sub in one.subresources.values():
        if isinstance(sub.schema, KindSchema):
            _describe_struct(sub.schema.struct, schemas, texts)


def _custom_schema(one: Resource) -> Tree:
    schema: CustomSchema = one.schema  # type: ignore[assignment]
    made = dict(schema.structure)
    texts = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    meta = {"metadata": _ref(f"{_META}ObjectMeta")}
    made["properties"] = {**(made.get("properties") or {}), **texts, **meta}
    made.setdefault("type", "object")
    return made


def _describe_struct(one: StructType, schemas: dict[str, Tree], texts: FieldTexts) -> None:
    name = openapi_name(f"{one.package}.{one.name}")
    if name in schemas:
        return
    made: Tree = {"type": "object"}
    schemas[name] = made
    known = texts(name)
    about = known.get("") or one.about
    if about:
        made["description"] = about
    wanted = sorted(field.name for field in one.fields.values() if field.required)
    if wanted:
        made["required"] = wanted
    properties: Tree = {}
    for field in sorted(one.fields.values(), key=lambda each: each.name):
        printed = dict(field.value.openapi)
        about = known.get(field.name) or field.about
        if about and "$ref" in printed:
            printed = {"allOf": [printed]}
        if about:
            printed["description"] = about
        if field.default is not None:
            printed["default"] = field.default
        if field.strategies:
            printed["x-kubernetes-patch-strategy"] = ",".join(field.strategies)
        if field.key:
            printed["x-kubernetes-patch-merge-key"] = field.key
        properties[field.name] = printed
        if field.value.shape is not None:
            _describe_struct(field.value.shape, schemas, texts)
    if properties:
        made["properties"] = properties


# Paths


def _paths(one: Resource) -> Iterator[tuple[str, Tree]]:
    root = f"/apis/{one.api_version}" if one.group else f"/api/{one.version}"
    place = f"{root}/namespaces/{{namespace}}" if one.namespaced else root
    many = ("list", "create", "deletecollection")
    collection = [verb for verb in many if verb in one.verbs]
    single: list[str] = [v for v in ("get", "update", "patch", "delete") if v in one.verbs]
    if collection:
        yield f"{place}/{one.plural}", _operations(one, collection, "", one.namespaced)
    if one.namespaced and "list" in one.verbs:
        yield f"{root}/{one.plural}", _operations(one, ["list"], "ForAllNamespaces", False)
    if single:
        path = f"{place}/{one.plural}/{{name}}"
        yield path, _operations(one, single, "", one.namespaced, named=True)
        for sub in one.subresources.values():
            title = f"{sub.name[0].upper()}{sub.name[1:]}"
            verbs = list(sub.verbs)
            yield f"{path}/{sub.name}", _operations(one, verbs, title, one.namespaced, named=True)


def _operations(
    one: Resource, verbs: list[str], suffix: str, placed: bool, named: bool = False
) -> Tree:
    made: Tree = {_METHODS[verb]: _operation(one, verb, suffix) for verb in verbs}
    common = [("name", "path")] if named else []
    common += [("namespace", "path")] if placed else []
    made["parameters"] = [
        *({"name": n, "in": w, "required": True, "schema": _TEXT_SCHEMA} for n, w in common),
        {"name": "pretty", "in": "query", "schema": _TEXT_SCHEMA},
    ]
    return made


_TEXT_SCHEMA: Tree = {"type": "string", "uniqueItems": True}


def _operation(one: Resource, verb: str, suffix: str) -> Tree:
    group = one.group.removesuffix(".k8s.io") or "core"
    kind = openapi_kind(one, suffix)
    listed = f"{_name_of(one)}List" if verb == "list" else ""
    answer = listed or (f"{_META}Status" if verb.startswith("delete") else kind)
    words = "".join(part[0].upper() + part[1:] for part in group.split(".") if part)
    version = f"{one.version[0].upper()}{one.version[1:]}"
    where = "Namespaced" if one.namespaced and suffix != "ForAllNamespaces" else ""
    action = {"get": "read", "update": "replace", "deletecollection": "deleteCollection"}
    made: Tree = {
        "tags": [f"{group}_{one.version}"],
        "description": f"{_OPERATION_TEXTS.get(verb, verb)} {one.kind}",
        "operationId": f"{action.get(verb, verb)}{words}{version}{where}{one.kind}{suffix}",
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": kind_of, "uniqueItems": True}}
            for name, kind_of in _PARAMETERS[verb].items()
        ],
        "responses": {
            "200": {"description": "OK", "content": {JSON: {"schema": _ref(answer)}}},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": _ACTIONS[verb],
        _GVK: {"group": one.group, "version": one.version, "kind": one.kind},
    }
    if verb in ("create", "update"):
        made["requestBody"] = {"content": {"*/*": {"schema": _ref(kind)}}, "required": True}
    elif verb == "patch":
        offered = [media for media in _PATCHES if not one.custom or "strategic" not in media]
        content = {media: {"schema": _ref(f"{_META}Patch")} for media in offered}
        made["requestBody"] = {"content": content, "required": True}
    elif verb.startswith("delete"):
        made["requestBody"] = {"content": {"*/*": {"schema": _ref(f"{_META}DeleteOptions")}}}
    return made


def openapi_kind(one: Resource, suffix: str) -> str:
    """The schema of the objects of a path. suffix: of a subresource, for its title."""
    for sub in one.subresources.values():
        if sub.name.lower() == suffix.lower() and isinstance(sub.schema, KindSchema):
            return openapi_name(sub.schema.full_name)
    return _name_of(one)
