"""OpenAPI v2: every kind has its schema, references end somewhere, and protobuf says the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from stowplan.apis.protobuf.wire_format import read_fields
from stowplan.apiserver.discovery.openapi_v2 import openapi_v2_document
from stowplan.apiserver.discovery.openapi_v2_messages import ACCEPTED, openapi_v2_message
from stowplan.apiserver.resource_registry import built_in_registry
from tests.apiserver.whole_server import WholeServer

Tree = dict[str, Any]
GVK = "x-kubernetes-group-version-kind"
PRIMITIVES = {"string", "number", "integer", "boolean"}


def references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            yield tree["$ref"]
        for one in tree.values():
            yield from references(one)
    elif isinstance(tree, list):
        for one in tree:
            yield from references(one)


def problems(name: str, schema: Tree) -> Iterator[str]:
    """What a reader of Go's clients would not accept."""
    kind = schema.get("type")
    if "$ref" in schema:
        if kind or "properties" in schema:
            yield f"{name}: a reference with more"
        return
    if kind == "array" and "items" not in schema:
        yield f"{name}: an array of nothing"
    if kind not in {None, "object", "array", *PRIMITIVES}:
        yield f"{name}: {kind}"
    for key, one in (schema.get("properties") or {}).items():
        yield from problems(f"{name}.{key}", one)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from problems(f"{name}.{key}", schema[key])


def test_every_kind_has_its_schema() -> None:
    registry = built_in_registry()
    document = openapi_v2_document(registry)
    found = {
        (one["group"], one["version"], one["kind"])
        for schema in document["definitions"].values()
        for one in schema.get(GVK, ())
    }
    assert {(one.group, one.version, one.kind) for one in registry.all()} <= found
    ends = {f"#/definitions/{name}" for name in document["definitions"]}
    assert set(references(document)) <= ends
    listed = document["definitions"].items()
    assert [text for name, one in listed for text in problems(name, one)] == []
    pod = document["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["containers"]["x-kubernetes-patch-merge-key"] == "name"
    surge = document["definitions"]["io.k8s.api.apps.v1.RollingUpdateDeployment"]["properties"]
    assert (surge["maxSurge"]["type"], surge["maxSurge"]["format"]) == ("string", "int-or-string")


def message(data: Any) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, payload in read_fields(data):
        found.setdefault(number, []).append(payload)
    return found


def pairs(messages: list[Any]) -> dict[str, Any]:
    read = [message(one) for one in messages]
    return {one[1][0].decode(): one[2][0] for one in read}


def schema(data: Any) -> Tree:
    """A schema as JSON has it; of those fields that are compared."""
    found = message(data)
    made: Tree = {
        key: msgspec.json.decode(message(value)[2][0])
        for key, value in pairs(found.get(31, [])).items()
    }
    for number, name in ((1, "$ref"), (2, "format"), (4, "description")):
        if number in found:
            made[name] = found[number][0].decode()
    if 19 in found:
        made["required"] = [one.decode() for one in found[19]]
    if 21 in found:
        inner = message(found[21][0])
        made["additionalProperties"] = bool(inner[2][0]) if 2 in inner else schema(inner[1][0])
    if 22 in found:
        made["type"] = message(found[22][0])[1][0].decode()
    if 23 in found:
        made["items"] = schema(message(found[23][0])[1][0])
    if 25 in found:
        properties = pairs(message(found[25][0])[1])
        made["properties"] = {name: schema(one) for name, one in properties.items()}
    return made


def test_the_message_has_what_the_document_has() -> None:
    document = openapi_v2_document(built_in_registry())
    made = message(openapi_v2_message(document))
    assert made[1] == [b"2.0"]
    definitions = pairs(message(made[9][0])[1])
    assert {name: schema(one) for name, one in definitions.items()} == document["definitions"]
    paths = pairs(message(made[8][0])[2])
    assert paths.keys() == document["paths"].keys()
    for name, path in paths.items():
        operations = message(path)
        for number, method in ((2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")):
            assert (number in operations) == (method in document["paths"][name])
        for operation in operations.get(4, []):
            found, known = message(operation), document["paths"][name]["post"]
            assert found[5] == [known["operationId"].encode()]
            (body,) = (one for one in found[8] if 1 in message(message(one)[1][0]))
            parameter = message(message(message(body)[1][0])[1][0])
            assert (parameter[2], parameter[3]) == ([b"body"], [b"body"])


def test_the_page_follows_the_served_kinds() -> None:
    server = WholeServer()
    before = json.loads(server.answer("GET", "/openapi/v2"))
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    fields = {"size": {"type": "integer", "nullable": True, "default": 3}}
    structure = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True}
    version["schema"] = {"openAPIV3Schema": structure}
    spec = {"group": "a.example", "scope": "Namespaced", "names": names, "versions": [version]}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, _ = server.send(
        "POST", definitions, {"metadata": {"name": "things.a.example"}, "spec": spec}
    )
    assert status == 201
    after = json.loads(server.answer("GET", "/openapi/v2"))
    assert "example.a.v1.Thing" in after["definitions"].keys() - before["definitions"].keys()
    thing = after["definitions"]["example.a.v1.Thing"]["properties"]["spec"]
    assert thing["properties"]["size"] == {"type": "integer"}
    raw = server.answer("GET", "/openapi/v2", accept=ACCEPTED[0])
    assert ("Content-Type", ACCEPTED[1]) in server.headers
    assert "example.a.v1.Thing" in pairs(message(message(raw)[9][0])[1])
