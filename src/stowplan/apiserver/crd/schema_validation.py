"""Validation of the schemas of definitions: structural, and supported parts of OpenAPI only.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema/validation.go and
pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported, required
from stowplan.apis.validation import field_checks
from stowplan.apiserver.crd import string_formats
from stowplan.apiserver.crd.regular_expressions import PatternError, schema_pattern
from stowplan.apiserver.crd.rules.definition_checks import rule_causes, rule_form_causes
from stowplan.apiserver.crd.rules.rule_validator import RuleValidator, rule_tree
from stowplan.apiserver.crd.structural_schema import (
    EMBEDDED,
    EMBEDDED_FIELDS,
    PRESERVE,
    prune_unknown,
)
from stowplan.apiserver.crd.value_validation import (
    INT_OR_STRING,
    LIST_TYPE,
    ValueValidator,
    types_of,
)
from stowplan.objects.encoding.tree import Tree

MAP_TYPE, MAP_KEYS = "x-kubernetes-map-type", "x-kubernetes-list-map-keys"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_BRANCHES = ("allOf", "anyOf", "oneOf")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength "
    "MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties "
    "ExternalDocs Example XPreserveUnknownFields XValidations"
)
_ROOT_KEYS = frozenset(
    {name[0].lower() + name[1:] for name in _ROOT_FIELDS.split()}
    | {PRESERVE, "x-kubernetes-validations"}
)


class _SchemaPosition(NamedTuple):
    """The position of a schema. no_defaults: why defaults are forbidden there."""

    path: str
    root: bool = False
    in_meta: bool = False
    no_defaults: str = ""


def schema_causes(schema: Tree, path: str, statuses: bool) -> list[Cause]:
    """Causes of the schema of a version. statuses: it has the status subresource."""
    here = f"{path}.openAPIV3Schema"
    causes = list(_root_causes(schema, here)) if statuses else []
    if schema.get("nullable"):
        causes.append(forbidden_field(f"{here}.nullable", "nullable cannot be true at the root"))
    if _has_reference(schema):
        # A reference cannot be resolved, so the structure is not checked.
        return [*causes, *_unsupported_causes(schema, _SchemaPosition(here, root=True))]
    structural = [
        *_structural_causes(schema, here, "root"),
        *_completeness_causes(schema, schema, here, here),
    ]
    if structural:
        causes += sorted(structural, key=lambda one: f"{one.field}: {one.message}")
        return [*causes, *_unsupported_causes(schema, _SchemaPosition(here, root=True))]
    defaults = list(_default_causes(schema, here))
    unsupported = list(_unsupported_causes(schema, _SchemaPosition(here, root=True)))
    rules = [] if defaults else rule_causes(schema, here, unsupported)
    return [*causes, *defaults, *unsupported, *rules]


def _has_reference(schema: Tree) -> bool:
    """True if a schema contains a `$ref`."""
    found: list[str] = []
    _walk(schema, lambda node: found.append(node.get("$ref") or ""))
    return any(found)


def _root_causes(schema: Tree, path: str) -> Iterator[Cause]:
    for key, value in schema.items():
        if key == "type":
            if value != "object":
                text = (
                    'only "object" is allowed as the type at the root of the schema if the status'
                    " subresource is enabled"
                )
                yield invalid(f"{path}.type", value, text)
                return
        elif value and key not in _ROOT_KEYS:
            text = (
                f"only [{_ROOT_FIELDS}] fields are allowed at the root of the schema if the status"
                " subresource is enabled"
            )
            yield invalid(path, schema, text)
            return


# Structural

_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _structural_causes(node: Tree, path: str, level: str) -> Iterator[Cause]:
    kind, items, rest = node.get("type", ""), node.get("items"), node.get("additionalProperties")
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _structural_causes(items, f"{path}.items", "item")
    for key, below in (node.get("properties") or {}).items():
        yield from _structural_causes(below, f"{path}.properties[{key}]", "field")
    if rest is not None and rest is not False:
        if level == "root":
            yield forbidden_field(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(rest, dict):
            yield from _structural_causes(rest, f"{path}.additionalProperties", "field")
    yield from _extension_causes(node, path)
    yield from _alternative_causes(node, path, True)
    yield from _type_causes(node, path, level)
    yield from _meta_field_causes(node, path, level)


def _extension_causes(node: Tree, path: str) -> Iterator[Cause]:
    if not node.get(INT_OR_STRING):
        return
    for name in (PRESERVE, EMBEDDED):
        if node.get(name):
            text = "must be false if x-kubernetes-int-or-string is true"
            yield invalid(f"{path}.{name}", True, text)


def _type_causes(node: Tree, path: str, level: str) -> Iterator[Cause]:
    kind = node.get("type", "")
    if node.get(EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        here = f"{path}.type"
        yield required(here, text) if not kind else invalid(here, kind, text)
    elif not kind and not node.get(INT_OR_STRING) and not node.get(PRESERVE):
        yield required(f"{path}.type", _EMPTY_TYPE[level])
    if node.get(EMBEDDED) and node.get("additionalProperties") is not None:
        text = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden_field(f"{path}.additionalProperties", text)
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _meta_field_causes(node: Tree, path: str, level: str) -> Iterator[Cause]:
    properties: Tree = node.get("properties") or {}
    whole = level == "root" or bool(node.get(EMBEDDED))
    for name in ("kind", "apiVersion"):
        kind = properties.get(name, {}).get("type", "")
        if name in properties and whole and kind != "string":
            yield invalid(f"{path}.properties[{name}].type", kind, "must be string")
    if "metadata" in properties:
        meta, here = properties["metadata"], f"{path}.properties[metadata]"
        if whole and meta.get("type", "") != "object":
            yield invalid(f"{here}.type", meta.get("type", ""), "must be object")
        if level == "root":
            named = set(meta.get("properties") or ()) <= {"name", "generateName"}
            extra = set(meta) - {"type", "default", "properties", "description", "title"}
            if not named or extra or meta.get("description") or meta.get("title"):
                text = (
                    "must not specify anything other than name and generateName, but metadata is"
                    " implicitly specified"
                )
                yield forbidden_field(here, text)
    if node.get(EMBEDDED) and not node.get(PRESERVE) and not properties:
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without"
            " x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", text)


def _alternative_causes(node: Tree, path: str, outer: bool) -> Iterator[Cause]:
    """allOf, anyOf, oneOf and not contain only value validation."""
    any_of, all_of = node.get("anyOf") or [], node.get("allOf") or []
    for at, one in enumerate(any_of if not outer or any_of != _INT_OR_STRING else ()):
        yield from _nested_causes(one, f"{path}.anyOf[{at}]")
    for at, one in enumerate(all_of):
        if outer and at == 0 and one.get("anyOf") == _INT_OR_STRING:
            one = {key: value for key, value in one.items() if key != "anyOf"}
        yield from _nested_causes(one, f"{path}.allOf[{at}]")
    for at, one in enumerate(node.get("oneOf") or ()):
        yield from _nested_causes(one, f"{path}.oneOf[{at}]")
    if node.get("not") is not None:
        yield from _nested_causes(node["not"], f"{path}.not")
    pattern = node.get("pattern")
    if pattern:
        try:
            schema_pattern(pattern)
        except PatternError as error:
            text = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            yield invalid(f"{path}.pattern", pattern, text)


def _nested_causes(node: Tree, path: str) -> Iterator[Cause]:
    yield from _alternative_causes(node, path, False)
    if isinstance(node.get("items"), dict):
        yield from _nested_causes(node["items"], f"{path}.items")
    for key, below in (node.get("properties") or {}).items():
        yield from _nested_causes(below, f"{path}.properties[{key}]")
    if node.get("type"):
        yield forbidden_field(f"{path}.type", "must be empty to be structural")
    for name in ("additionalProperties", "default"):
        if node.get(name) is not None:
            yield forbidden_field(f"{path}.{name}", "must be undefined to be structural")
    for name in ("title", "description"):
        if node.get(name):
            yield forbidden_field(f"{path}.{name}", "must be empty to be structural")
    for name in ("nullable", PRESERVE, EMBEDDED, INT_OR_STRING):
        if node.get(name):
            yield forbidden_field(f"{path}.{name}", "must be false to be structural")
    if node.get(MAP_KEYS):
        yield forbidden_field(f"{path}.{MAP_KEYS}", "must be empty to be structural")
    for name in (LIST_TYPE, MAP_TYPE):
        if node.get(name) is not None:
            yield forbidden_field(f"{path}.{name}", "must be undefined to be structural")
    if node.get("x-kubernetes-validations"):
        yield forbidden_field(f"{path}.x-kubernetes-validations", "must be empty to be structural")
    if "metadata" in (node.get("properties") or {}):
        text = "must not be specified in a nested context"
        yield forbidden_field(f"{path}.properties[metadata]", text)


def _completeness_causes(node: Tree, declared: Tree, where: str, path: str) -> Iterator[Cause]:
    """Fields of allOf, anyOf, oneOf and not are declared outside them."""
    branches = [(f"{path}.not", node["not"])] if node.get("not") is not None else []
    for key in _BRANCHES:
        branches += [(f"{path}.{key}[{at}]", one) for at, one in enumerate(node.get(key) or ())]
    for here, one in branches:
        yield from _completeness_causes_below(one, declared, where, here)


def _completeness_causes_below(
    node: Tree, declared: Tree, where: str, path: str
) -> Iterator[Cause]:
    yield from _completeness_causes(node, declared, where, path)
    if isinstance(node.get("items"), dict):
        items = declared.get("items")
        here, there = f"{where}.items", f"{path}.items"
        if items is None:
            yield required(here, f"because it is defined in {there}")
        else:
            yield from _completeness_causes_below(node["items"], items, here, there)
    for key, below in (node.get("properties") or {}).items():
        here, there = f"{where}.properties[{key}]", f"{path}.properties[{key}]"
        known = (declared.get("properties") or {}).get(key)
        if known is None:
            yield required(here, f"because it is defined in {there}")
        else:
            yield from _completeness_causes_below(below, known, here, there)


def _default_causes(node: Tree, path: str) -> Iterator[Cause]:
    """Defaults have no unknown fields and are valid."""
    default = node.get("default")
    if default is not None:
        unknown: list[str] = []
        prune_unknown(default, node, bool(node.get(EMBEDDED)), unknown)
        if unknown:
            yield invalid(f"{path}.default", default, "must not have unknown fields")
        wrong = ValueValidator(f"{path}.default").check(default, node)
        yield from wrong or _broken_by_default(default, node, f"{path}.default")
    for where, below in sub_schemas(node, path):
        yield from _default_causes(below, where)


def _broken_by_default(default: Any, node: Tree, path: str) -> list[Cause]:
    """Rules that a default breaks, as a value that stays or as a new one."""
    rules = rule_tree(node, False)
    if rules is None:
        return []
    for old in (default, None):
        validator = RuleValidator()
        validator.check(rules, default, old, path)
        if validator.causes:
            return validator.causes
    return []


def sub_schemas(node: Tree, path: str) -> Iterator[tuple[str, Tree]]:
    """The direct sub-schemas that declare fields, with their paths."""
    for key, below in (node.get("properties") or {}).items():
        yield f"{path}.properties[{key}]", below
    for name in ("additionalProperties", "items"):
        if isinstance(node.get(name), dict):
            yield f"{path}.{name}", node[name]


# Supported parts of OpenAPI


def _unsupported_causes(node: Tree, place: _SchemaPosition) -> Iterator[Cause]:
    yield from _standard_causes(node, place)
    path = place.path
    if node.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden_field(f"{path}.uniqueItems", text)
    rest = node.get("additionalProperties")
    if rest is not None and node.get("properties") and rest is not True:
        text = "additionalProperties and properties are mutual exclusive"
        yield forbidden_field(f"{path}.additionalProperties", text)
    if isinstance(rest, dict):
        reason = "inside additionalProperties applying to object metadata"
        why = reason if place.in_meta else place.no_defaults
        below = place._replace(path=f"{path}.additionalProperties", root=False, no_defaults=why)
        yield from _unsupported_causes(rest, below)
    for key, one in (node.get("properties") or {}).items():
        below = place._replace(path=f"{path}.properties[{key}]", root=False)
        if (place.root or node.get(EMBEDDED)) and key in EMBEDDED_FIELDS:
            below = below._replace(in_meta=True)
            if place.root:
                below = below._replace(no_defaults=f"in top-level {key}")
        yield from _unsupported_causes(one, below)
    if node.get("not") is not None:
        yield from _unsupported_causes(node["not"], place._replace(path=f"{path}.not", root=False))
    for key in _BRANCHES:
        for at, one in enumerate(node.get(key) or ()):
            yield from _unsupported_causes(
                one, place._replace(path=f"{path}.{key}[{at}]", root=False)
            )
    if isinstance(node.get("items"), dict):
        yield from _unsupported_causes(
            node["items"], place._replace(path=f"{path}.items", root=False)
        )
    yield from _kubernetes_causes(node, path)


def _standard_causes(node: Tree, place: _SchemaPosition) -> Iterator[Cause]:
    path, kind = place.path, node.get("type", "")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if node.get("default") is not None and place.no_defaults:
        yield forbidden_field(f"{path}.default", f"must not be set {place.no_defaults}")
    for name in _UNSUPPORTED:
        if node.get(name):
            yield forbidden_field(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        yield forbidden_field(f"{path}.type", text)
    if isinstance(node.get("items"), list):
        yield forbidden_field(f"{path}.items", "items must be a schema object and not an array")
    if place.in_meta and node.get(EMBEDDED):
        yield forbidden_field(f"{path}.{EMBEDDED}", "must not be used inside of resource meta")


def _kubernetes_causes(node: Tree, path: str) -> Iterator[Cause]:
    kind = node.get("type", "")
    if node.get(PRESERVE) is False:
        yield invalid(f"{path}.{PRESERVE}", False, "must be true or undefined")
    for name, wanted, values in (
        (MAP_TYPE, "object", ("atomic", "granular")),
        (LIST_TYPE, "array", ("atomic", "set", "map")),
    ):
        given = node.get(name)
        if given is None:
            continue
        if kind != wanted:
            text = f"must be {wanted} if {name} is specified"
            here = f"{path}.type"
            yield required(here, text) if not kind else invalid(here, kind, text)
        elif given == "set" and isinstance(node.get("items"), dict):
            yield from _set_item_causes(node["items"], f"{path}.items")
        yield from field_checks.one_of(given, values, f"{path}.{name}")
    yield from _list_key_causes(node, path)
    if node.get(LIST_TYPE) in ("set", "map") and isinstance(node.get("items"), dict):
        yield from _list_item_causes(node, path)
    yield from rule_form_causes(node, path)


def _set_item_causes(items: Tree, path: str) -> Iterator[Cause]:
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        yield invalid(f"{path}.{LIST_TYPE}", items[LIST_TYPE], text)
    elif items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        yield invalid(f"{path}.{MAP_TYPE}", items.get(LIST_TYPE), text)


def _list_key_causes(node: Tree, path: str) -> Iterator[Cause]:
    keys, given, items = node.get(MAP_KEYS) or [], node.get(LIST_TYPE), node.get("items")
    if keys and given != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        here = f"{path}.{LIST_TYPE}"
        yield required(here, text) if given is None else invalid(here, given, text)
    if given != "map":
        return
    if not keys:
        text = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.{MAP_KEYS}", text)
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), text)
        return
    properties: Tree = items.get("properties") or {}
    seen: set[str] = set()
    for key in keys:
        if key not in properties:
            text = "entries must all be names of item properties"
            yield invalid(f"{path}.{MAP_KEYS}", keys, text)
        elif properties[key].get("type") in ("array", "object"):
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", items["type"], text)
        if key in seen:
            yield invalid(f"{path}.{MAP_KEYS}", keys, "must not contain duplicate entries")
        seen.add(key)


def _list_item_causes(node: Tree, path: str) -> Iterator[Cause]:
    items, kind = node["items"], node[LIST_TYPE]
    if items.get("nullable"):
        text = f"cannot be nullable when x-kubernetes-list-type is {kind}"
        yield forbidden_field(f"{path}.items.nullable", text)
    if kind != "map":
        return
    needed = frozenset(items.get("required") or ())
    for key in node.get(MAP_KEYS) or ():
        one = (items.get("properties") or {}).get(key)
        if one is None:
            continue
        here = f"{path}.items.properties[{key}]"
        why = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in needed and one.get("default") is None:
            text = f"{why} must have a default or be a required property"
            yield required(f"{here}.default", text)
        if one.get("nullable"):
            yield forbidden_field(f"{here}.nullable", f"{why} cannot be nullable")


# Formats


def unknown_formats(spec: Tree) -> list[str]:
    """Unknown formats in the schemas of a definition."""
    found: list[str] = []
    for version in spec["versions"] or ():
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema:
            _walk(schema, lambda node: _note_format(node, found))
    return found


def _note_format(node: Tree, found: list[str]) -> None:
    form, kinds = node.get("format", ""), types_of(node)
    if form and not string_formats.is_known_format(kinds[0] if len(kinds) == 1 else "", form):
        found.append(form)


def _walk(node: Tree, visit: Callable[[Tree], None]) -> None:
    visit(node)
    for _, below in sub_schemas(node, ""):
        _walk(below, visit)
    for key in _BRANCHES:
        for one in node.get(key) or ():
            _walk(one, visit)
    if node.get("not") is not None:
        _walk(node["not"], visit)
