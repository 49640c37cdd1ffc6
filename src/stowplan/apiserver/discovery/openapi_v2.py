"""`/openapi/v2`: the schemas and paths of all kinds in one document.

It is made of the documents under `/openapi/v3`, when it is first asked for. What OpenAPI v2 cannot
say is left out, as in the original: alternatives, `not`, `nullable` and defaults.

Source: kube-openapi, pkg/openapiconv (the other way round); media types and headers as recorded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ResourceRegistry, ServerContext
from stowplan.apiserver.discovery import openapi_v2_messages
from stowplan.apiserver.discovery.openapi_v3 import (
    FieldTexts,
    document_names,
    no_texts,
    openapi_document,
)
from stowplan.apiserver.http.negotiation import JSON, PROTOBUF
from stowplan.objects.encoding.tree import Tree

PATH = "/openapi/v2"
TITLE, VERSION = "Kubernetes", "1.36"
_REF_V3, _REF_V2 = "#/components/schemas/", "#/definitions/"
_DROPPED = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable", "default"})
_METHODS = ("get", "put", "post", "delete", "patch")
_PRODUCED = [JSON, "application/yaml", PROTOBUF]


def openapi_v2_document(registry: ResourceRegistry, texts: FieldTexts = no_texts) -> Tree:
    """The document of all kinds."""
    definitions: Tree = {}
    paths: Tree = {}
    for _, resources in sorted(document_names(registry).items()):
        document = openapi_document(resources, texts)
        for name, one in document["components"]["schemas"].items():
            made = _schema(one)
            if len(made) > len(definitions.get(name, ())):
                definitions[name] = made
        paths |= {path: _path(one) for path, one in document["paths"].items()}
    return {
        "swagger": "2.0",
        "info": {"title": TITLE, "version": VERSION},
        "paths": dict(sorted(paths.items())),
        "definitions": dict(sorted(definitions.items())),
    }


def _schema(one: Tree) -> Tree:
    made = _kept(one)
    if "oneOf" in one and "type" not in one and "properties" not in one:
        # A number or a string: an IntOrString, a Quantity.
        made["type"] = "string"
    inner: list[Tree] = one.get("allOf") or []
    if len(inner) == 1 and "$ref" in inner[0]:
        # A reference with a description; v2 readers look at the reference only.
        made["$ref"] = inner[0]["$ref"]
    if "$ref" in made:
        made["$ref"] = made["$ref"].replace(_REF_V3, _REF_V2)
    return made


def _kept(one: Tree) -> Tree:
    return {key: _value(key, value) for key, value in one.items() if key not in _DROPPED}


def _value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _schema(one) for name, one in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return _schema(value)
    return value


def _path(one: Tree) -> Tree:
    made: Tree = {verb: _operation(one[verb]) for verb in _METHODS if verb in one}
    made["parameters"] = [_parameter(each) for each in one.get("parameters", ())]
    return made


def _parameter(one: Tree) -> Tree:
    made = {key: value for key, value in one.items() if key != "schema"}
    return {**made, **one.get("schema", {})}


def _operation(one: Tree) -> Tree:
    made = {key: value for key, value in one.items() if key not in ("requestBody", "responses")}
    made["parameters"] = [_parameter(each) for each in one.get("parameters", ())]
    made["consumes"] = ["*/*"]
    body = one.get("requestBody")
    if body is not None:
        media, content = next(iter(body["content"].items()))
        made["consumes"] = ["*/*"] if media == "*/*" else list(body["content"])
        schema = _schema(content["schema"])
        made["parameters"].append(
            {"name": "body", "in": "body", "schema": schema}
            | ({"required": True} if body.get("required") else {})
        )
    made["produces"] = list(_PRODUCED)
    made["schemes"] = ["https"]
    made["responses"] = {code: _response(each) for code, each in one["responses"].items()}
    return made


def _response(one: Tree) -> Tree:
    made: Tree = {"description": one["description"]}
    for content in one.get("content", {}).values():
        made["schema"] = _schema(content["schema"])
    return made


class OpenApiV2Page:
    """`options.NonResourcePages` of `/openapi/v2`. texts: descriptions that are used where ours
    would be."""

    def __init__(self, texts: FieldTexts = no_texts) -> None:
        self._texts = texts
        self._changes = -1
        self._document: Tree = {}
        self._made: dict[str, tuple[bytes, str]] = {}

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        if request.path.rstrip("/") != PATH or request.method not in ("GET", "HEAD"):
            return None
        accepted = request.headers.get("accept", "")
        if accepted.split(";", 1)[0].strip() == PROTOBUF:
            # Objects are written so, but no document.
            return HttpResponse(406, (("Cache-Control", "no-cache, private"),))
        media = JSON
        if any(one in accepted for one in openapi_v2_messages.ACCEPTED):
            media = openapi_v2_messages.MEDIA
        body, digest = self._page(server.registry, media)
        tag = f'"{digest}"'
        headers = (("Etag", tag), ("Vary", "Accept"), ("Cache-Control", "no-cache, private"))
        if request.headers.get("if-none-match") == tag:
            return HttpResponse(304, headers)
        return HttpResponse(
            200, (("Content-Type", media), *headers), b"" if request.method == "HEAD" else body
        )

    def _page(self, registry: ResourceRegistry, media: str) -> tuple[bytes, str]:
        """The document and its hash, made again when the served kinds have changed."""
        changes: int = getattr(registry, "changes", 0)
        if changes != self._changes:
            self._changes = changes
            self._made.clear()
            self._document = openapi_v2_document(registry, self._texts)
        if media not in self._made:
            encode: Callable[[Tree], bytes] = (
                msgspec.json.encode if media == JSON else openapi_v2_messages.openapi_v2_message
            )
            body = encode(self._document)
            self._made[media] = body, hashlib.sha512(body).hexdigest().upper()
        return self._made[media]
