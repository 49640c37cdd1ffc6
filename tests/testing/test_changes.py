"""Which field has changed: the path and both values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stowplan.objects.encoding.object_difference import field_change
from stowplan.testing import draw, pod
from stowplan.testing.object_changes import ObjectSnapshot


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({"a": 1}, {"a": 2}, "a was 1, is 2"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1] was 2, is 3"),
        ({"a": [1]}, {"a": [1, 2]}, "a was [1], is [1, 2]"),
        ({}, {"labels": {"x": "y"}}, "labels.x was nothing, is 'y'"),
        ({"labels": {"x": "y"}}, {}, "labels.x was 'y', is nothing"),
        ({"labels": {"a/b": "1"}}, {"labels": {"a/b": "2"}}, "labels['a/b'] was '1', is '2'"),
        ({"a": "nothing"}, {}, "a was 'nothing', is nothing"),
    ],
)
def test_the_field_is_named(before: Any, after: Any, field: str) -> None:
    assert field_change(json.dumps(before).encode(), json.dumps(after).encode()) == field


def test_objects_come_before_the_table() -> None:
    table = draw("node\nn1").table
    asked = pod("web", labels={"app": "web"})
    kept = ObjectSnapshot([asked], table)
    assert kept.change() == ""
    table.pod_count[:] += 1
    assert kept.change().startswith("the node table: pod count: ")
    asked.labels["app"] = "db"
    assert kept.change() == "pod 'default/web': metadata.labels.app was 'web', is 'db'"
