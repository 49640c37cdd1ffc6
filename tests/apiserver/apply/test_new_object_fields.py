"""The fields of new objects as bytes are those that the plain walk finds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apiserver.apply import typed_comparison
from stowplan.apiserver.apply.field_types import FieldType
from stowplan.apiserver.apply.managed_fields import _rules_of_new
from stowplan.apiserver.apply.typed_comparison import NewObjectFields
from stowplan.apiserver.resource_registry import built_in_registry
from tests.property.wrong import assert_caught
from tests.soak import examples

REGISTRY = built_in_registry()
LABELS = st.dictionaries(st.sampled_from(("a", "b", 'q"', "é", "m/n")), st.sampled_from(("", "x")))
OWNERS = st.lists(st.sampled_from([{"uid": "u", "name": "n"}, {"uid": "v", "controller": True}]))
META = st.fixed_dictionaries(
    {"name": st.just("o")},
    optional={
        "labels": LABELS, "annotations": LABELS, "ownerReferences": OWNERS,
        "finalizers": st.lists(st.sampled_from(("a/b", "c/d")), unique=True),
        "generateName": st.just("o-"), "uid": st.just("u"),
    },
)  # fmt: skip
PARTS: dict[str, Any] = {
    "spec": st.fixed_dictionaries({}, optional={
        "replicas": st.integers(0, 2), "nodeSelector": LABELS, "hostNetwork": st.booleans(),
        "containers": st.lists(st.fixed_dictionaries(
            {"name": st.sampled_from("cd")}, optional={"image": st.just("i")},
        ), max_size=2), "securityContext": st.just({}),
    }),
    "status": st.just({"phase": "Running"}),
    "data": LABELS,
    "immutable": st.booleans(),
    "secrets": st.lists(st.just({"name": "s"})),
}  # fmt: skip
OBJECTS = st.fixed_dictionaries({"kind": st.just("K"), "metadata": META}, optional=PARTS)
KINDS = st.sampled_from((
    ("", "v1", "pods"), ("", "v1", "configmaps"), ("apps", "v1", "deployments"),
    ("", "v1", "serviceaccounts"),
))  # fmt: skip


def compare(asked: list[tuple[tuple[str, str, str], Any]]) -> None:
    """One after the other, since what is found is kept."""
    new = NewObjectFields()
    for kind, obj in asked:
        resource = REGISTRY.find(*kind)
        assert resource is not None
        rules = _rules_of_new(resource)
        # In the order in which it is found.
        assert new.text(obj, *rules) == msgspec.json.encode(NewObjectFields().fields(obj, *rules))


ASKED = st.lists(st.tuples(KINDS, OBJECTS), max_size=4)


@settings(max_examples=examples(200), deadline=None)
@given(ASKED)
def test_fields_as_bytes_are_those_of_the_walk(
    asked: list[tuple[tuple[str, str, str], Any]],
) -> None:
    compare(asked)


def test_maps_that_are_taken_for_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: maps of as many texts have the same fields."""
    found: dict[tuple[FieldType, int], bytes] = {}

    def careless(self: NewObjectFields, value: Any, kind: FieldType) -> bytes:
        key = kind, len(value) if isinstance(value, dict) else -1
        if key not in found:
            found[key] = msgspec.json.encode(typed_comparison.all_fields(value, kind))
        return found[key]

    monkeypatch.setattr(NewObjectFields, "_map_text", careless)
    assert_caught(compare, ASKED)


def test_parts_that_are_taken_for_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: what was found for a part counts for others of its kind."""
    node = NewObjectFields._node
    found: dict[FieldType, Any] = {}

    def careless(self: NewObjectFields, value: Any, empty: Any, kind: FieldType | None) -> Any:
        if kind is None or not isinstance(value, dict):
            return node(self, value, empty, kind)
        return found.setdefault(kind, node(self, value, empty, kind))

    def property_of(asked: list[tuple[tuple[str, str, str], Any]]) -> None:
        found.clear()
        new = NewObjectFields()
        for kind, obj in asked:
            resource = REGISTRY.find(*kind)
            assert resource is not None
            rules = _rules_of_new(resource)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(NewObjectFields, "_node", node)
                plain = NewObjectFields().fields(obj, *rules)
            assert new.text(obj, *rules) == msgspec.json.encode(plain)

    monkeypatch.setattr(NewObjectFields, "_node", careless)
    assert_caught(property_of, ASKED)
