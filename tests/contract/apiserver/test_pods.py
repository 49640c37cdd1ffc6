"""What the recorded server has answered with is canonical: decoded, it comes out as it went in."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from stowplan.apis.machinery.resource import Resource
from stowplan.apis.schema import KindSchema
from stowplan.apis.schema.struct_types import UnknownFields
from stowplan.apiserver.resource_registry import built_in_registry
from tests.contract.apiserver.replay import scenarios

Tree = dict[str, Any]
GROUPS = ("core", "objects", "scheduling", "watch", "auth", "crd")
TIMES = "2026-09-21T14:13:20Z"


def _answers(group: str) -> Iterator[Tree]:
    for scenario in scenarios(group):
        for exchange in scenario["exchanges"]:
            body = exchange.get("response", {}).get("body")
            if isinstance(body, dict) and exchange["response"]["status"] < 300:
                yield from _objects(body)


def _objects(body: Tree) -> Iterator[Tree]:
    kind, version = body.get("kind"), body.get("apiVersion")
    if isinstance(kind, str) and kind.endswith("List") and isinstance(body.get("items"), list):
        for one in body["items"]:
            yield {**one, "kind": kind.removesuffix("List"), "apiVersion": version}
    elif isinstance(kind, str) and isinstance(body.get("metadata"), dict):
        yield body


def _timed(value: Any) -> Any:
    """Symbols of times stand for times."""
    if isinstance(value, dict):
        return {key: _timed(one) for key, one in value.items() if key != "managedFields"}
    if isinstance(value, list):
        return [_timed(one) for one in value]
    if isinstance(value, str) and value.startswith("<time"):
        return TIMES
    return value


@cache
def _resource(version: str, kind: str) -> Resource | None:
    group, _, bare = version.rpartition("/")
    return built_in_registry().by_kind(group, bare, kind)


def _changed(obj: Tree) -> list[str]:
    """What decoding makes of an object that is canonical already; nothing, if all is well."""
    resource = _resource(obj["apiVersion"], obj["kind"])
    if resource is None:
        return []
    given = _timed(obj)
    made, texts = resource.schema.decode(copy.deepcopy(given), (), "Strict")
    name = f"{obj['kind']} {obj['metadata'].get('name')}"
    differs = [] if made == given else [f"{name}: {_first_difference(made, given)}"]
    return [*differs, *(f"{name}: {text}" for text in texts)]


def _first_difference(made: Any, given: Any, path: str = "") -> str:
    if isinstance(made, dict) and isinstance(given, dict):
        for key in {**made, **given}:
            if made.get(key, "-") != given.get(key, "-"):
                return _first_difference(made.get(key, "-"), given.get(key, "-"), f"{path}.{key}")
    if isinstance(made, list) and isinstance(given, list) and len(made) == len(given):
        for at, (one, other) in enumerate(zip(made, given, strict=True)):
            if one != other:
                return _first_difference(one, other, f"{path}[{at}]")
    return f"{path}: {made!r}, not {given!r}"


@pytest.mark.parametrize("group", GROUPS)
def test_canonical_objects_stay_as_they_are(group: str) -> None:
    answers = list(_answers(group))
    differences = {line for obj in answers for line in _changed(obj)}
    assert len(answers) > 10
    assert sorted(differences) == []


def test_a_decoder_that_loses_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = KindSchema.decode

    def forgetful(self: KindSchema, tree: Tree, *rest: Any) -> tuple[Tree, list[str]]:
        made, texts = decode(self, tree, *rest)
        made.get("metadata", {}).pop("labels", None)
        return made, texts

    monkeypatch.setattr(KindSchema, "decode", forgetful)
    assert any("labels" in line for obj in _answers("core") for line in _changed(obj))


def test_decoding_a_pod_takes_no_sink_for_known_fields() -> None:
    schema = built_in_registry().by_path("pods")
    assert schema is not None
    assert isinstance(schema.schema, KindSchema)
    sink = UnknownFields()
    schema.schema.struct.decode({"metadata": {"name": "p"}, "spec": {"containers": []}}, None, sink)
    assert not sink.texts
