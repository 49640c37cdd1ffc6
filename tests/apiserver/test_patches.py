"""JSON patch, merge patch and strategic merge patch, each on small documents."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.go_format import go_value
from stowplan.apiserver.patch.json_patch import check_operations, json_patched, merge_patched
from stowplan.apiserver.patch.patch_request import converter_error_text
from stowplan.apiserver.patch.strategic_merge import strategic_merge_patched
from tests.apiserver.plain import PlainSchema

Tree = dict[str, Any]


@pytest.mark.parametrize(
    ("operations", "outcome"),
    [
        ([{"op": "add", "path": "/a/b", "value": 1}], {"a": {"b": 1}, "l": [1, 2]}),
        ([{"op": "add", "path": "/l/1", "value": 9}], {"a": {}, "l": [1, 9, 2]}),
        ([{"op": "add", "path": "/l/-", "value": 9}], {"a": {}, "l": [1, 2, 9]}),
        ([{"op": "add", "path": "/l/-1", "value": 9}], {"a": {}, "l": [1, 2, 9]}),
        ([{"op": "remove", "path": "/l/-1"}], {"a": {}, "l": [1]}),
        ([{"op": "replace", "path": "/new", "value": 1}], {"a": {}, "l": [1, 2], "new": 1}),
        ([{"op": "copy", "from": "/l", "path": "/m"}], {"a": {}, "l": [1, 2], "m": [1, 2]}),
        ([{"op": "move", "from": "/l/0", "path": "/m"}], {"a": {}, "l": [2], "m": 1}),
        ([{"op": "add", "path": "/x~1y~0z", "value": 1}], {"a": {}, "l": [1, 2], "x/y~z": 1}),
        ([{"op": "test", "path": "/l/0", "value": 1}], {"a": {}, "l": [1, 2]}),
        ([{"op": "test", "path": "/nope", "value": None}], {"a": {}, "l": [1, 2]}),
        ([{"op": "test", "path": "", "value": {"a": {}, "l": [1, 2]}}], {"a": {}, "l": [1, 2]}),
        ([{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
        ([{"op": "copy", "from": "/nope", "path": "/x"}], {"a": {}, "l": [1, 2], "x": None}),
    ],
)
def test_json_patch(operations: list[Tree], outcome: Tree) -> None:
    assert json_patched({"a": {}, "l": [1, 2]}, operations) == outcome


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/l/0", "value": True},
        {"op": "test", "path": "/l/0", "value": 2},
        {"op": "remove", "path": "/nope"},
        {"op": "remove", "path": "/l/2"},
        {"op": "replace", "path": "/l/2", "value": 1},
        {"op": "add", "path": "/nope/x", "value": 1},
        {"op": "add", "path": "/l/x", "value": 1},
        {"op": "add", "path": "/l/3", "value": 1},
        {"op": "move", "from": "/nope", "path": "/x"},
        {"op": "test", "path": "", "value": {}},
        {"op": "replace", "path": "", "value": 1},
        {"op": "remove", "path": ""},
        {"op": "frob", "path": "/a"},
        {"path": "/a"},
        {"op": "add", "value": 1},
    ],
)
def test_json_patches_that_do_not_apply(operation: Tree) -> None:
    with pytest.raises(ApiError) as raised:
        json_patched({"a": {}, "l": [1, 2]}, [operation])
    assert (raised.value.code, raised.value.reason) == (422, "Invalid")


def test_too_many_operations_are_refused() -> None:
    with pytest.raises(ApiError) as raised:
        check_operations([{"op": "test", "path": "/a"}] * 10_001, True)
    assert raised.value.code == 413


def test_copies_of_copies_are_bounded() -> None:
    copies = [{"op": "copy", "from": "/a", "path": f"/a/{n}"} for n in range(40)]
    with pytest.raises(ApiError) as raised:
        json_patched({"a": {"text": "x" * 100}}, copies)
    assert raised.value.code == 422


def test_unknown_members_of_patch_operations_are_reported() -> None:
    assert check_operations([{"op": "add", "paht": "/a"}], True) == [
        'json patch unknown field "[0].paht"'
    ]


def test_merge_patch() -> None:
    old = {"b": {"x": 1, "y": 2}, "a": [1]}
    patch = {"b": {"x": None, "z": {"n": None, "m": 1}}, "a": [{"n": None}], "c": None}
    assert json.dumps(merge_patched(old, patch)) == json.dumps(
        {"a": [{}], "b": {"y": 2, "z": {"m": 1}}}
    )


def strategic(old: Tree, patch: Tree) -> Tree:
    """Lists called items merge by name, tags as a set; whole is replaced."""
    return strategic_merge_patched(copy.deepcopy(old), copy.deepcopy(patch), PlainSchema().shape)


ITEMS = [{"name": "a", "v": 1}, {"name": "b", "v": 2}, {"name": "c", "v": 3}]


@pytest.mark.parametrize(
    ("old", "patch", "outcome"),
    [
        ({"x": 1}, {"x": None, "y": {"z": None, "w": 1}}, {"y": {"w": 1}}),
        (
            {"items": ITEMS[:2]},
            {"items": [{"name": "b", "v": 9}, {"name": "d"}]},
            {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 9}, {"name": "d"}]},
        ),
        (
            {"items": ITEMS},
            {"items": [{"name": "c", "w": 1}, {"name": "a", "w": 1}]},
            {
                "items": [
                    {"name": "b", "v": 2},
                    {"name": "c", "v": 3, "w": 1},
                    {"name": "a", "v": 1, "w": 1},
                ]
            },
        ),
        (
            {"items": ITEMS},
            {"items": [{"name": "b", "$patch": "delete"}]},
            {"items": [ITEMS[0], ITEMS[2]]},
        ),
        (
            {"items": ITEMS},
            {"items": [{"$patch": "replace"}, {"name": "z"}]},
            {"items": [{"name": "z"}]},
        ),
        (
            {"items": ITEMS},
            {
                "$setElementOrder/items": [{"name": "c"}, {"name": "a"}],
                "items": [{"name": "a", "v": 7}],
            },
            {"items": [{"name": "b", "v": 2}, {"name": "c", "v": 3}, {"name": "a", "v": 7}]},
        ),
        ({"tags": ["a", "b"]}, {"tags": ["b", "c"]}, {"tags": ["a", "b", "c"]}),
        ({"tags": ["a", "b"]}, {"$deleteFromPrimitiveList/tags": ["a"]}, {"tags": ["b"]}),
        ({"whole": {"a": 1}}, {"whole": {"b": 1}}, {"whole": {"b": 1}}),
        ({"m": {"a": 1, "b": 2}}, {"m": {"$patch": "replace", "c": 3}}, {"m": {"c": 3}}),
        ({"m": {"a": 1}}, {"m": {"$patch": "delete"}}, {"m": {}}),
        (
            {"m": {"a": 1, "b": 2}},
            {"m": {"$retainKeys": ["a", "c"], "c": 3}},
            {"m": {"a": 1, "c": 3}},
        ),
        ({"list": [1, 2]}, {"list": [3]}, {"list": [3]}),
        ({"m": 1}, {"m": {"k": [{"$patch": "delete"}, {"n": 1}]}}, {"m": {"k": [{"n": 1}]}}),
    ],
)
def test_strategic_merge(old: Tree, patch: Tree, outcome: Tree) -> None:
    assert strategic(old, patch) == outcome


MIXED = "list element types are not identical: [[map[name:a]] [map[name:a] 1]]"


@pytest.mark.parametrize(
    ("old", "patch", "code", "text"),
    [
        ({}, {"$patch": "odd"}, 400, "unknown patch type: odd in map: map[$patch:odd]"),
        (
            {"items": ITEMS},
            {"items": [{"v": 1}]},
            400,
            "map: map[v:1] does not contain declared merge key: name",
        ),
        (
            {"m": {}},
            {"m": {"$retainKeys": ["a"], "b": 1}},
            400,
            "invalid patch format of retainKeys",
        ),
        (
            {"tags": []},
            {"$deleteFromPrimitiveList": []},
            400,
            "invalid patch format of primitive list",
        ),
        ({"items": [{"name": "a"}]}, {"items": [{"name": "a"}, 1]}, 400, MIXED),
        ({"items": ITEMS}, {"$setElementOrder/items": [1]}, 400, "value for key 0 is not a map"),
        (
            {"items": ITEMS},
            {"$setElementOrder/items": {}},
            400,
            "expected a []interface {}, but received a map[string]interface {}",
        ),
    ],
)
def test_strategic_merges_that_fail(old: Tree, patch: Tree, code: int, text: str) -> None:
    with pytest.raises(ApiError) as raised:
        strategic(old, patch)
    assert (raised.value.code, raised.value.message) == (code, text)


@pytest.mark.parametrize(
    ("decoder", "converter"),
    [
        (
            "json: cannot unmarshal string into Go struct field NodeSpec.spec.unschedulable of type"
            " bool",
            "unrecognized type: bool",
        ),
        (
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type"
            " []v1.Container",
            "cannot restore slice from string",
        ),
        (
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type"
            " map[string]string",
            "cannot restore map from int64",
        ),
        ("quantities must match", "quantities must match"),
    ],
)
def test_errors_of_the_other_decoder(decoder: str, converter: str) -> None:
    assert converter_error_text(decoder) == converter


def test_values_as_go_prints_them() -> None:
    value = {"b": [1, None, True], "a": {"x": "y z"}, "c": 1.5, "d": 1e21}
    assert go_value(value) == "map[a:map[x:y z] b:[1 <nil> true] c:1.5 d:1e+21]"
