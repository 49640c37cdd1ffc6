"""OpenAPI v3 as protobuf has what the JSON document has."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from stowplan.apis.protobuf.wire_format import read_fields
from stowplan.apiserver.discovery.openapi_messages import openapi_message
from stowplan.apiserver.discovery.openapi_v3 import openapi_document
from stowplan.apiserver.resource_registry import built_in_registry

Tree = dict[str, Any]


def message(data: Any) -> dict[int, list[Any]]:
    """The values of a message by the number of their field."""
    found: dict[int, list[Any]] = {}
    for number, payload in read_fields(data):
        found.setdefault(number, []).append(payload)
    return found


def pairs(messages: list[Any]) -> dict[str, Any]:
    """Named values by name."""
    read = [message(one) for one in messages]
    return {one[1][0].decode(): one[2][0] for one in read}


def extensions(messages: list[Any]) -> Tree:
    return {
        name: msgspec.json.decode(message(value)[2][0]) for name, value in pairs(messages).items()
    }


def schema(reference_or_schema: Any) -> Tree:
    """A schema as JSON has it; of those fields that the tests look at."""
    either = message(reference_or_schema)
    if 2 in either:
        return {"$ref": message(either[2][0])[1][0].decode()}
    found = message(either[1][0])
    made: Tree = extensions(found.get(36, []))
    for number, name in ((25, "type"), (34, "description"), (35, "format")):
        if number in found:
            made[name] = found[number][0].decode()
    if 23 in found:
        made["required"] = [one.decode() for one in found[23]]
    for number, name in ((26, "allOf"), (27, "oneOf"), (28, "anyOf")):
        if number in found:
            made[name] = [schema(one) for one in found[number]]
    if 30 in found:
        made["items"] = schema(message(found[30][0])[1][0])
    if 31 in found:
        properties = pairs(message(found[31][0])[1])
        made["properties"] = {name: schema(one) for name, one in properties.items()}
    if 32 in found:
        inner = message(found[32][0])
        made["additionalProperties"] = bool(inner[2][0]) if 2 in inner else schema(inner[1][0])
    if 33 in found:
        inner = message(found[33][0])
        texts = [one.decode() for one in inner.get(3, [])]
        flags = [bool(one) for one in inner.get(2, [])]
        numbers = [struct.unpack("<d", bytes(one))[0] for one in inner.get(1, [])]
        made["default"] = [*texts, *flags, *numbers][0]
    return made


def without_objects_as_defaults(tree: Any, *, names: bool = False) -> Any:
    """A tree without what the message has no place for. names: its keys are names of fields."""
    if isinstance(tree, list):
        return [without_objects_as_defaults(one) for one in tree]
    if not isinstance(tree, dict):
        return tree
    return {
        key: without_objects_as_defaults(one, names=key == "properties" and not names)
        for key, one in tree.items()
        if names or key != "default" or not isinstance(one, (dict, list))
    }


def test_every_schema_and_path_of_the_document_is_in_the_message() -> None:
    for group, version in (("", "v1"), ("apps", "v1"), ("apiextensions.k8s.io", "v1")):
        kinds = [
            one for one in built_in_registry().all() if (one.group, one.version) == (group, version)
        ]
        document = openapi_document(kinds)
        made = message(openapi_message(msgspec.json.encode(document)))
        assert made[1] == [document["openapi"].encode()]
        schemas = pairs(message(message(made[5][0])[1][0])[1])
        wanted = without_objects_as_defaults(document["components"]["schemas"], names=True)
        assert {name: schema(one) for name, one in schemas.items()} == wanted
        paths = pairs(message(made[4][0])[1])
        assert paths.keys() == document["paths"].keys()
        for name, path in paths.items():
            operations = message(path)
            for number, method in ((4, "get"), (5, "put"), (6, "post"), (10, "patch")):
                assert (number in operations) == (method in document["paths"][name])
            for operation in operations.get(10, []):
                found, known = message(operation), document["paths"][name]["patch"]
                assert found[5] == [known["operationId"].encode()]
                assert len(found[6]) == len(known["parameters"])
                assert extensions(found[13])["x-kubernetes-action"] == "patch"


def test_numbers_texts_and_flags() -> None:
    one = {"type": "object", "maximum": 2.5, "maxLength": 7, "nullable": True, "enum": ["a", 1]}
    document = {"components": {"schemas": {"S": {**one, "default": True, "x-a": {"b": [1]}}}}}
    made = message(openapi_message(msgspec.json.encode(document)))
    (found,) = pairs(message(message(made[5][0])[1][0])[1]).values()
    read = message(message(found)[1][0])
    assert struct.unpack("<d", bytes(read[11][0]))[0] == 2.5
    assert (read[15], read[1], read[25]) == ([7], [1], [b"object"])
    assert [bytes(message(value)[2][0]) for value in read[24]] == [b'"a"', b"1"]
    assert message(read[33][0])[2] == [1]
    assert extensions(read[36]) == {"x-a": {"b": [1]}}
