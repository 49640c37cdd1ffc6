"""Validation of values against the schema of a custom kind.

Rules in CEL (`x-kubernetes-validations`) are in `rules/`.

Source: kube-openapi, pkg/validation/validate; the texts of pkg/validation/errors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from stowplan.apis.machinery.errors import (
    TOO_MANY,
    TYPE_INVALID,
    Cause,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    value_text,
)
from stowplan.apiserver.crd import string_formats
from stowplan.apiserver.crd.regular_expressions import PatternError, schema_pattern
from stowplan.apiserver.crd.structural_schema import EMBEDDED
from stowplan.objects.encoding.tree import Tree

INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
NO_PATH = "<nil>"
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_FLOAT_MAX = 3.4028234663852886e38


class _MissingValue:
    """Stands for a missing old value."""


MISSING_VALUE = _MissingValue()


VALIDATION_STEPS_MAX = 300_000
"""Values visited in one validation; each alternative of a schema visits them again."""
_TOO_LONG = "Too many: the check against the schema takes too many steps"


class _ValidationStepsExceeded(Exception):
    """The validation has exceeded its steps."""


class ValueValidator:
    """One validation of a value. prefix: the path of the value in its object, "" for the object."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self._left = VALIDATION_STEPS_MAX
        self._words: dict[int, frozenset[str]] = {}

    def check(self, value: Any, schema: Tree, old: Any = MISSING_VALUE) -> list[Cause]:
        """Causes. old: the stored value; unchanged values are not validated."""
        try:
            causes, _ = self._check(value, schema, "", old)
        except _ValidationStepsExceeded:
            return [Cause(self._path(""), TOO_MANY, _TOO_LONG)]
        return causes

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise _ValidationStepsExceeded

    def _path(self, name: str) -> str:
        bare = name.removeprefix(".")
        if not self.prefix:
            return bare or NO_PATH
        return f"{self.prefix}.{bare}" if bare else self.prefix

    def _wrong(self, name: str, value: Any, text: str) -> Cause:
        return invalid(self._path(name), value, f"{name} in body {text}")

    def _wrong_type(self, name: str, wanted: str, got: str) -> Cause:
        text = f'{name} in body must be of type {wanted}: "{got}"'
        return Cause(self._path(name), TYPE_INVALID, f"Invalid value: {value_text(got)}: {text}")

    def _plain(self, text: str) -> Cause:
        return invalid(self.prefix or NO_PATH, "", text)

    def _check(self, value: Any, schema: Tree, name: str, old: Any) -> tuple[list[Cause], int]:
        """Causes, and how many checks applied (the best failed alternative is reported)."""
        self._spend(1)
        if not isinstance(old, _MissingValue) and value == old and type(value) is type(old):
            return [], 1
        causes = list(self._type(value, schema, name))
        matches = 2 + (not causes)
        if value is None:
            causes += self._enum(value, schema, name)
            return causes, matches
        for more, count in self._alternatives(value, schema, name, old):
            causes += more
            matches += count
        if isinstance(value, str):
            causes += self._text(value, schema, name)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            causes += self._number(value, schema, name)
        elif isinstance(value, list):
            causes += self._list(value, schema, name, old)
        causes += self._enum(value, schema, name)
        if isinstance(value, dict):
            causes += self._object(value, schema, name, old)
        return causes, matches

    def _type(self, value: Any, schema: Tree, name: str) -> Iterator[Cause]:
        wanted = types_of(schema)
        form = schema.get("format", "")
        form = (
            form
            if string_formats.is_known_format(wanted[0] if len(wanted) == 1 else "", form)
            else ""
        )
        if value is None:
            if wanted and not schema.get("nullable"):
                yield self._wrong_type(name, ",".join(wanted), "null")
            return
        if not wanted and not form:
            return
        got = type_of(value)
        own = {"integer": "int64", "number": "float64"}.get(got, "")
        whole = isinstance(value, float) and value.is_integer() and "integer" in wanted
        alike = whole or (got == "integer" and "number" in wanted)
        if got in wanted or alike:
            return
        text = isinstance(value, (str, list))
        if form and not text and own != form:
            yield self._wrong_type(name, form, own)
        elif not (form and text and not {"number", "integer"} & set(wanted)):
            yield self._wrong_type(name, ",".join(wanted), got)

    def _alternatives(
        self, value: Any, schema: Tree, name: str, old: Any
    ) -> Iterator[tuple[list[Cause], int]]:
        quoted = f'"{name}"'
        for key, text in (("anyOf", "at least"), ("oneOf", "only")):
            tried = [self._check(value, one, name, old) for one in schema.get(key) or ()]
            good = sum(not causes for causes, _ in tried)
            if not tried or good == 1 or (good and key == "anyOf"):
                continue
            message = f"{quoted} must validate {text} one schema ({key})"
            if key == "oneOf":
                found = f"Found {good} valid alternatives" if good else "Found none valid"
                message = f"{quoted} must validate one and only one schema ({key}). {found}"
            best = max(tried, key=lambda one: one[1]) if not good else ([], 0)
            yield [self._plain(message), *best[0]], best[1]
        tried = [self._check(value, one, name, old) for one in schema.get("allOf") or ()]
        bad = [causes for causes, _ in tried if causes]
        yield [cause for causes in bad for cause in causes], sum(one[1] for one in tried)
        if bad:
            tail = ". None validated" if len(bad) == len(tried) else ""
            yield [self._plain(f"{quoted} must validate all the schemas (allOf){tail}")], 0
        if "not" in schema and not self._check(value, schema["not"], name, old)[0]:
            yield [self._plain(f"{quoted} must not validate the schema (not)")], 0

    def _text(self, value: str, schema: Tree, name: str) -> Iterator[Cause]:
        most, least, pattern = (schema.get(k) for k in ("maxLength", "minLength", "pattern"))
        if most is not None and len(value) > most:
            yield too_long(self._path(name), most)
        elif least is not None and len(value) < least:
            yield self._wrong(name, value, f"should be at least {least} chars long")
        elif pattern and not _pattern_matches(pattern, value):
            yield self._wrong(name, value, f"should match '{pattern}'")
        form, kinds = schema.get("format", ""), types_of(schema)
        kind = kinds[0] if len(kinds) == 1 else ""
        text = kind in ("", "string") and string_formats.is_known_format(kind, form)
        if form and text and not string_formats.matches_format(form, value):
            yield self._wrong_type(name, form, value)

    def _number(self, value: float, schema: Tree, name: str) -> Iterator[Cause]:
        kinds = types_of(schema)
        kind = kinds[0] if len(kinds) == 1 else ""
        form = schema.get("format", "")
        form = form if form in string_formats.NUMBER_FORMATS.get(kind, ()) else ""
        if kind and not _in_range(value, kind, form):
            tail = f" with format {form}" if form else " (default format)"
            yield self._plain(f"Checked value must be of type {kind}{tail} in {name}")
        factor = schema.get("multipleOf")
        if factor is not None and not _is_multiple(value, factor):
            yield self._wrong(name, value, f"should be a multiple of {_go_bound(factor)}")
        for key, strict, over in (
            ("minimum", "exclusiveMinimum", "greater"),
            ("maximum", "exclusiveMaximum", "less"),
        ):
            bound = schema.get(key)
            if bound is None:
                continue
            excluded = bool(schema.get(strict))
            beyond = value < bound if over == "greater" else value > bound
            if beyond or (excluded and value == bound):
                than = "than" if excluded else "than or equal to"
                yield self._wrong(name, value, f"should be {over} {than} {_go_bound(bound)}")

    def _list(self, value: list[Any], schema: Tree, name: str, old: Any) -> Iterator[Cause]:
        items = schema.get("items")
        if items is not None:
            before = _items_by_key(old, schema)
            for at, one in enumerate(value):
                was = before.get(_key_of(one, schema), MISSING_VALUE) if before else MISSING_VALUE
                yield from self._check(one, items, f"{name}[{at}]", was)[0]
        least, most = schema.get("minItems"), schema.get("maxItems")
        if least is not None and len(value) < least:
            yield self._wrong(name, len(value), f"should have at least {least} items")
        if most is not None and len(value) > most:
            yield too_many(self._path(name), len(value), most)

    def _enum(self, value: Any, schema: Tree, name: str) -> Iterator[Cause]:
        allowed = schema.get("enum")
        if not allowed or (isinstance(value, str) and value in self._words_of(schema)):
            return
        self._spend(len(allowed))
        if not any(one == value and type(one) is type(value) for one in allowed):
            texts = [one if isinstance(one, str) else json.dumps(one) for one in allowed]
            yield not_supported(self._path(name), value, texts)

    def _words_of(self, schema: Tree) -> frozenset[str]:
        """The strings of a list in a schema."""
        known = self._words.get(id(schema))
        if known is None:
            known = frozenset(one for one in schema["enum"] if isinstance(one, str))
            self._words[id(schema)] = known
        return known

    def _object(self, value: Tree, schema: Tree, name: str, old: Any) -> Iterator[Cause]:
        least, most = schema.get("minProperties"), schema.get("maxProperties")
        if least is not None and len(value) < least:
            yield self._wrong(name, len(value), f"should have at least {least} properties")
        if most is not None and len(value) > most:
            yield too_many(self._path(name), len(value), most)
        properties: Tree = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        before = old if isinstance(old, dict) else {}
        for key, one in value.items():
            below = properties.get(key)
            if below is None:
                below = rest if isinstance(rest, dict) else None
                here = f"{name}.{key}"
            else:
                here = f"{name}.{key}" if name else key
            if below is not None:
                yield from self._check(one, below, here, before.get(key, MISSING_VALUE))[0]
        needed = schema.get("required") or ()
        self._spend(len(needed))
        for key in needed:
            if key not in value:
                yield required(self._path(f"{name}.{key}"))


def types_of(schema: Tree) -> tuple[str, ...]:
    """The types that a schema allows; empty: any."""
    if schema.get(INT_OR_STRING):
        return ("integer", "string")
    kind = schema.get("type")
    return (kind,) if kind else ()


def type_of(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _pattern_matches(pattern: str, value: str) -> bool:
    """True if a pattern matches a text; an invalid pattern matches every text."""
    try:
        return schema_pattern(pattern).found_in(value)
    except PatternError:
        return True


def list_causes(value: Any, schema: Tree, path: str = "") -> Iterator[Cause]:
    """Causes of duplicate items in lists of type set or map, and of embedded objects."""
    if isinstance(value, dict):
        if schema.get(EMBEDDED):
            for name in ("apiVersion", "kind"):
                if name not in value:
                    yield required(f"{path}.{name}" if path else name)
        properties: Tree = schema.get("properties") or {}
        rest = schema.get("additionalProperties")
        for key, one in value.items():
            if key in properties:
                yield from list_causes(one, properties[key], f"{path}.{key}" if path else key)
            elif isinstance(rest, dict):
                yield from list_causes(one, rest, f"{path}[{key}]")
    elif isinstance(value, list):
        kind = schema.get(LIST_TYPE)
        if kind in ("set", "map"):
            yield from _duplicate_causes(value, schema, path)
        for at, one in enumerate(value):
            yield from list_causes(one, schema.get("items") or {}, f"{path}[{at}]")


def _duplicate_causes(value: list[Any], schema: Tree, path: str) -> Iterator[Cause]:
    maps = schema[LIST_TYPE] == "map"
    if maps:
        for at, one in enumerate(value):
            if one is not None and not isinstance(one, dict):
                text = "must be an object for an array of list-type map"
                yield invalid(f"{path}[{at}]", one, text)
                return
    seen: dict[str, int] = {}
    for at, one in enumerate(value):
        key = _keys_of(one, schema) if maps else one
        packed = json.dumps(key, sort_keys=True)
        seen[packed] = seen.get(packed, 0) + 1
        if seen[packed] == 2:
            yield duplicate(f"{path}[{at}]", key)


def _keys_of(one: Any, schema: Tree) -> Tree:
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return {name: one[name] for name in names if isinstance(one, dict) and name in one}


def _key_of(one: Any, schema: Tree) -> str:
    return json.dumps(_keys_of(one, schema), sort_keys=True)


def _items_by_key(old: Any, schema: Tree) -> dict[str, Any]:
    """The items of the old list of type map, by key."""
    if schema.get(LIST_TYPE) != "map" or not isinstance(old, list):
        return {}
    return {_key_of(one, schema): one for one in old}


def _in_range(value: float, kind: str, form: str) -> bool:
    if kind == "integer":
        if not float(value).is_integer():
            return False
        low, high = _RANGES.get(form, _RANGES["int64"])
        return low <= value <= high
    return form != "float" or abs(value) <= _FLOAT_MAX


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0:
        return True
    quotient = value / factor
    return math.isclose(quotient, round(quotient), rel_tol=0.0, abs_tol=1e-12)


def _go_bound(number: float) -> str:
    """A bound as Go prints it."""
    if float(number).is_integer() and abs(number) < 1e21:
        return str(math.trunc(number))
    return repr(float(number))
