"""Rules of custom kinds: what they refuse, and which definitions are refused."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.machinery.errors import Cause
from stowplan.apiserver.crd.rules.correlation import Counterpart
from stowplan.apiserver.crd.rules.field_names import escaped_name
from stowplan.apiserver.crd.rules.rule_validator import RuleValidator, rule_tree
from stowplan.apiserver.crd.schema_validation import schema_causes

Tree = dict[str, Any]
INTEGER: Tree = {"type": "integer"}
TEXT: Tree = {"type": "string", "maxLength": 20}


def ruled(schema: Tree, *rules: str | Tree) -> Tree:
    """A schema with rules."""
    made = [{"rule": one} if isinstance(one, str) else one for one in rules]
    return {**schema, "x-kubernetes-validations": made}


def item(*rules: str | Tree) -> Tree:
    """An object with an integer v."""
    return ruled({"type": "object", "properties": {"v": INTEGER}}, *rules)


def reported(causes: list[Cause]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def broken(schema: Tree, value: Any, old: Any = None) -> tuple[list[str], list[str]]:
    """(causes, warnings) of a value at `x`."""
    tree = rule_tree(schema, False)
    assert tree is not None
    validator = RuleValidator()
    counterpart = None if old is None else Counterpart(value, old, schema)
    validator.check(tree, value, old, "x", counterpart)
    return reported(validator.causes), validator.warnings


KEYED: Tree = {
    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
    "items": ruled({"type": "object", "properties": {"k": TEXT, "v": INTEGER}},
                   "self.v >= oldSelf.v"),
}  # fmt: skip
CASES: list[tuple[Tree, Any, Any, list[str]]] = [
    (item("self.v > 0"), {"v": 1}, None, []),
    (item("self.v > 0"), {"v": 0}, None, ["x: Invalid value: failed rule: self.v > 0"]),
    (item("self.v > 0"), {}, None,
     ['x: Invalid value: "object": no such key: v evaluating rule: self.v > 0']),
    (item({"rule": "false", "reason": "FieldValueForbidden", "fieldPath": ".v", "message": "no"}),
     {"v": 1}, None, ["x.v: Forbidden: no"]),
    (item({"rule": "false", "reason": "FieldValueDuplicate"}), {}, None, ["x: Duplicate value"]),
    (ruled(INTEGER, {"rule": "false", "reason": "FieldValueDuplicate"}), 3, None,
     ["x: Duplicate value: 3"]),
    (item({"rule": "false", "messageExpression": "'v is ' + string(self.v)"}), {"v": 7}, None,
     ["x: Invalid value: v is 7"]),
    (item({"rule": "false", "messageExpression": "string(1 / self.v)", "message": " zero "}),
     {"v": 0}, None, ["x: Invalid value: zero"]),
    (item("self.v >= oldSelf.v"), {"v": 1}, None, []),
    (item("self.v >= oldSelf.v"), {"v": 1}, {"v": 2},
     ["x: Invalid value: failed rule: self.v >= oldSelf.v"]),
    (item({"rule": "oldSelf.hasValue()", "optionalOldSelf": True}), {"v": 1}, None,
     ["x: Invalid value: failed rule: oldSelf.hasValue()"]),
    (KEYED, [{"k": "b", "v": 1}, {"k": "a", "v": 1}], [{"k": "a", "v": 2}, {"k": "b", "v": 1}],
     ["x[1]: Invalid value: failed rule: self.v >= oldSelf.v"]),
    ({"type": "object", "additionalProperties": item("self.v > 0")}, {"k": {"v": 0}}, None,
     ["x[k]: Invalid value: failed rule: self.v > 0"]),
    (ruled({"x-kubernetes-int-or-string": True}, "self > 1"), "a", None,
     ['x: Invalid value: "": \'no such overload\': call arguments did not match a supported'
      " operator, function or macro signature for rule: self > 1"]),
    (ruled({"type": "array", "maxItems": 2000, "items": INTEGER},
           "self.all(a, self.all(b, a + b >= 0))"), [1] * 700, None,
     ["x: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further"
      " validation rules will be run due to call cost exceeds limit for rule:"
      " self.all(a, self.all(b, a + b >= 0))"]),
    (ruled({"type": "array", "x-kubernetes-list-type": "set", "items": INTEGER},
           "self == oldSelf"), [1, 2], [2, 1], []),
    (ruled({"type": "object", "properties": {"a-b": INTEGER, "if": INTEGER}},
           "self.a__dash__b == self.__if__"), {"a-b": 1, "if": 1}, None, []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "old", "wanted"), CASES)
def test_broken_rules(schema: Tree, value: Any, old: Any, wanted: list[str]) -> None:
    assert broken(schema, value, old) == (wanted, [])


def test_an_unchanged_part_that_breaks_a_rule_warns() -> None:
    schema = {"type": "object", "properties": {"a": item("self.v > 0"), "b": INTEGER}}
    changed = {"a": {"v": 0}, "b": 2}
    warned = "x.a: Invalid value: failed rule: self.v > 0"
    assert broken(schema, changed, {"a": {"v": 0}, "b": 1}) == ([], [warned])
    assert broken(schema, changed, {"a": {"v": 5}, "b": 1}) == ([warned], [])


def refused(node: Tree) -> list[str]:
    schema = {"type": "object", "properties": {"p": node}}
    start = "schema.openAPIV3Schema.properties[p]"
    return [text.replace(start, "p") for text in reported(schema_causes(schema, "schema", False))]


RULE = "p.x-kubernetes-validations[0]"
TOO_DEAR = (
    "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems,"
    " maxProperties, and maxLength where arrays, maps, and strings are declared)"
)
DEFINITIONS: list[tuple[Tree, list[str]]] = [
    (item("self.v > 0"), []),
    (item(""), [f"{RULE}.rule: Required value: rule is not specified"]),
    (item({"rule": "true", "message": " "}),
     [f'{RULE}.message: Invalid value: " ": must be non-empty if specified']),
    (item({"rule": "true", "reason": "Other"}),
     [f'{RULE}.reason: Unsupported value: "Other": supported values: "FieldValueDuplicate",'
      ' "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"']),
    (item({"rule": "true", "fieldPath": ".w"}),
     [f'{RULE}.fieldPath: Invalid value: ".w": must be a valid path']),
    (item({"rule": "true", "optionalOldSelf": True}),
     [f"{RULE}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in"
      " rule"]),
    ({"type": "array", "items": item("self == oldSelf")},
     ["p.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot"
      " be used on the uncorrelatable portion of the schema within p"]),
    (item({"rule": "true", "messageExpression": "string(self.v) + 'x'"}),
     [f"{RULE}.messageExpression: Forbidden: estimated messageExpression cost {TOO_DEAR}",
      f"{RULE}.messageExpression: Forbidden: contributed to estimated rule cost total exceeding"
      " cost limit for entire OpenAPIv3 schema",
      "schema.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for"
      f" entire OpenAPIv3 schema {TOO_DEAR}"]),
    ({"type": "integer", "default": 0, **ruled(INTEGER, "self > 0")},
     ["p.default: Invalid value: 0: failed rule: self > 0"]),
]  # fmt: skip


@pytest.mark.parametrize(("node", "wanted"), DEFINITIONS)
def test_refused_definitions(node: Tree, wanted: list[str]) -> None:
    assert refused(node) == wanted


def test_a_rule_that_does_not_compile_is_printed_whole() -> None:
    (text,) = refused(item("self.w > 0"))
    assert '{"Rule":"self.w \\u003e 0","Message":"","MessageExpression":"","Reason":null' in text
    assert "compilation failed: ERROR: <input>:1:5: undefined field 'w'" in text


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a", "a"), ("a-b", "a__dash__b"), ("a.b/c", "a__dot__b__slash__c"), ("in", "__in__"),
     ("a__b", "a__underscores__b"), ("1a", ""), ("a b", ""), ("", "")],
)  # fmt: skip
def test_names_of_fields(name: str, wanted: str) -> None:
    assert escaped_name(name) == wanted
