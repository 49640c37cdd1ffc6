"""Strict decoder from trees of dicts and lists to typed values: reports every mistake with its
path.

Types are given by type hints. A msgspec Struct is a mapping of its fields: an unknown field is a
mistake, also for Kubernetes objects, which ignore unknown fields when they come from the API. Null
is the same as absent, as in the API.

Decoding continues after a mistake. The default replaces an invalid value, so that later checks see
the rest; they call `Problems.is_invalid` before they report a value that the user did not write.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import types
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import timedelta
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from stowplan.framework.problems import ConfigError, Problem, did_you_mean
from stowplan.objects.encoding import duration
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

T = TypeVar("T")


class InvalidValue(Enum):
    """Type of `INVALID`."""

    INVALID = "invalid"


INVALID: Final = InvalidValue.INVALID
"""Stands for an invalid value, whose problem was added."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FORMATTED_MAX = 60
_BITS_MAX = 128
_UNIONS = (Union, types.UnionType)
_LISTS: dict[Any, Any] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: tuple}


class Problems:
    """Mistakes found so far, in order.

    A mistake makes its path invalid, except where the value is still usable, as beside an unknown
    field.
    """

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._invalid_paths: set[str] = set()

    def add(
        self, path: str, got: str, wanted: str, hint: str = "", *, invalidates: bool = True
    ) -> None:
        """Add a mistake."""
        self.found.append(Problem(path, got, wanted, hint))
        if invalidates:
            self._invalid_paths.add(path)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems of a later check, except those about invalid values."""
        for problem in problems:
            inside = any(_contains(path, problem.path) for path in self._invalid_paths)
            if not inside and not self.is_invalid(problem.path):
                self.found.append(problem)

    def is_invalid(self, path: str) -> bool:
        """True when a value at or below `path` is invalid."""
        return any(_contains(path, invalid) for invalid in self._invalid_paths)

    def error(self, source: str) -> ConfigError:
        """The exception with all mistakes."""
        return ConfigError(source, self.found)


def _contains(path: str, inner: str) -> bool:
    return inner == path or (inner.startswith(path) and inner[len(path)] in ".[")


def child_path(path: str, key: str) -> str:
    """Path of the entry `key` of the mapping at `path`."""
    if not _NAME.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def format_value(value: Any) -> str:
    """A value as error messages show it: short, and written as in the file."""
    if isinstance(value, str):
        text = repr(value)
        return text if len(text) <= _FORMATTED_MAX else f"{text[: _FORMATTED_MAX - 3]}..."
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, int) and value.bit_length() > _BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def format_alternatives(names: Iterable[str]) -> str:
    """Names as alternatives: 'a', 'b' or 'c'."""
    *others, last = [repr(name) for name in names]
    return f"{', '.join(others)} or {last}" if others else last


def mapping_of(tree: Any, path: str, known: Collection[str], problems: Problems) -> dict[str, Any]:
    """The fields of a mapping, {} for null. Anything else, and unknown fields, are problems; path:
    "" for the document."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        problems.add(path or "document", format_value(tree), "a mapping")
        return {}
    found = {str(key): value for key, value in tree.items()}
    for name in found:
        if name not in known:
            place = child_path(path, name) if path else name
            hint = did_you_mean(name, known)
            problems.add(place, "an unknown field", format_alternatives(known), hint)
    return found


def decode(
    tree: Any, kind: type[T], path: str, problems: Problems
) -> T | Literal[InvalidValue.INVALID]:
    """Decode `tree` as a value of type `kind`, or INVALID; adds problems.

    path: location of the tree, "" for the whole document.
    """
    value: T | Literal[InvalidValue.INVALID] = _StrictDecoder(problems).value(tree, kind, path)
    return value


class _StrictDecoder:
    """Walks a tree and a type together."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def value(self, tree: Any, hint: Any, path: str) -> Any:
        """`tree` decoded as `hint`, or INVALID."""
        origin = get_origin(hint)
        if origin is Annotated:
            base, *marks = get_args(hint)
            return self._bounded(tree, base, marks, path)
        if hint is Any or hint is object:
            return tree
        if origin in _UNIONS:
            return self._union(tree, get_args(hint), path)
        if origin is Literal:
            return self._choice(tree, get_args(hint), path)
        if origin in _LISTS or hint in _LISTS:
            return self._items(tree, hint, path)
        if origin in (dict, Mapping) or hint is dict:
            return self._mapping(tree, get_args(hint) or (str, Any), path)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self._struct(tree, hint, path)
        if isinstance(hint, type) and issubclass(hint, Enum):
            chosen = self._choice(tree, tuple(member.value for member in hint), path)
            return chosen if chosen is INVALID else hint(chosen)
        return self._scalar(tree, hint, path)

    def _scalar(self, tree: Any, hint: Any, path: str) -> Any:
        reader = _SCALARS.get(hint)
        try:
            return msgspec.convert(tree, hint) if reader is None else reader(tree)
        except msgspec.ValidationError as error:
            self.problems.add(path, format_value(tree), f"a valid {_title(hint)}", str(error))
        except ValueError as error:
            self.problems.add(path, format_value(tree), str(error), _quoting_hint(tree, hint))
        return INVALID

    def _bounded(self, tree: Any, base: Any, marks: Sequence[Any], path: str) -> Any:
        value = self.value(tree, base, path)
        if value is INVALID:
            return INVALID
        for mark in marks:
            if isinstance(mark, msgspec.Meta) and not _admits(mark, value):
                self.problems.add(path, format_value(tree), _bounds(mark, base))
                return INVALID
        return value

    def _union(self, tree: Any, hints: Sequence[Any], path: str) -> Any:
        """None if allowed; the only other type with its own problems; or the first type that
        matches."""
        others = [hint for hint in hints if hint is not type(None)]
        if tree is None and len(others) < len(hints):
            return None
        if len(others) == 1:
            return self.value(tree, others[0], path)
        for hint in others:
            attempt = _StrictDecoder(Problems())
            value = attempt.value(tree, hint, path)
            if not attempt.problems.found:
                return value
        wanted = " or ".join(dict.fromkeys(describe_type(hint) for hint in others))
        self.problems.add(path, format_value(tree), wanted)
        return INVALID

    def _choice(self, tree: Any, choices: Sequence[Any], path: str) -> Any:
        for choice in choices:
            if type(choice) is type(tree) and choice == tree:
                return choice
        names = [str(choice) for choice in choices]
        hint = did_you_mean(tree, names) if isinstance(tree, str) else ""
        self.problems.add(path, format_value(tree), format_alternatives(names), hint)
        return INVALID

    def _items(self, tree: Any, hint: Any, path: str) -> Any:
        if not isinstance(tree, list | tuple):
            self.problems.add(path, format_value(tree), describe_type(hint), _listed(tree))
            return INVALID
        if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
            return self._scalar(tree, hint, path)
        item_hint = next(iter(get_args(hint)), Any)
        items = []
        for i, item in enumerate(tree):
            value = self.value(item, item_hint, f"{path}[{i}]")
            # A default instance keeps the positions of the following items.
            value = _default_instance(item_hint) if value is INVALID else value
            if value is not INVALID:
                items.append(value)
        return _LISTS[get_origin(hint) or hint](items)

    def _mapping(self, tree: Any, hints: Sequence[Any], path: str) -> Any:
        if not isinstance(tree, dict):
            self.problems.add(path, format_value(tree), "a mapping")
            return INVALID
        entries = {
            self.value(key, hints[0], child_path(path, key)): self.value(
                value, hints[1], child_path(path, key)
            )
            for key, value in tree.items()
        }
        return {k: v for k, v in entries.items() if k is not INVALID and v is not INVALID}

    def _struct(self, tree: Any, kind: type[msgspec.Struct], path: str) -> Any:
        fields = fields_of(kind)
        if not isinstance(tree, dict):
            self.problems.add(path, format_value(tree), describe_type(kind))
            return INVALID
        values: dict[str, Any] = {}
        for key, entry in tree.items():
            if key not in fields:
                self._unknown(key, fields, path)
            elif entry is not None:
                value = self.value(entry, fields[key].type, child_path(path, key))
                if value is not INVALID:
                    values[fields[key].name] = value
        missing = [f for f in fields.values() if f.required and f.name not in values]
        for field in missing:
            if not self.problems.is_invalid(child_path(path, field.encode_name)):
                self.problems.add(
                    child_path(path, field.encode_name), "", describe_type(field.type)
                )
        return INVALID if missing else self._built(kind, values, tree, path)

    def _built(
        self, kind: type[msgspec.Struct], values: dict[str, Any], tree: Any, path: str
    ) -> Any:
        try:
            return kind(**values)
        except (TypeError, ValueError) as error:
            # Errors of __post_init__, by msgspec's convention.
            self.problems.add(path, format_value(tree), str(error))
            return INVALID

    def _unknown(self, key: str, fields: Iterable[str], path: str) -> None:
        known = list(fields)
        wanted = ", ".join(known) or "no fields"
        hint = did_you_mean(key, known)
        self.problems.add(
            child_path(path, key), "an unknown field", wanted, hint, invalidates=False
        )


@lru_cache(maxsize=1 << 10)
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Fields of a Struct by their names in files."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def describe_type(hint: Any) -> str:
    """Description of the values of a type, for messages."""
    origin = get_origin(hint)
    if origin is Annotated:
        base, *marks = get_args(hint)
        bounds = [_bounds(mark, base) for mark in marks if isinstance(mark, msgspec.Meta)]
        return bounds[0] if bounds else describe_type(base)
    if origin in _UNIONS:
        known = [h for h in get_args(hint) if h is not type(None)]
        return " or ".join(dict.fromkeys(describe_type(h) for h in known))
    if origin is Literal:
        return format_alternatives(str(choice) for choice in get_args(hint))
    if origin in _LISTS or hint in _LISTS:
        return "a list"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return f"a mapping of {', '.join(fields_of(hint))}" if fields_of(hint) else "a mapping"
    return _TITLES.get(hint, "a mapping" if origin in (dict, Mapping) else f"a {_title(hint)}")


def _title(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint))


def _default_instance(hint: Any) -> Any:
    """A default instance of a Struct type, INVALID if it has none."""
    if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return INVALID
    return INVALID if any(f.required for f in fields_of(hint).values()) else hint()


# Scalars. A reader raises ScalarMismatch, or another ValueError with the text of what is expected.


class ScalarMismatch(ValueError):
    """A scalar of another type or range; the text is what is expected."""


def _bool(tree: Any) -> bool:
    if isinstance(tree, bool):
        return tree
    raise ScalarMismatch(_TITLES[bool])


def _int(tree: Any) -> int:
    if isinstance(tree, float) and tree.is_integer():
        tree = int(tree)
    if isinstance(tree, bool) or not isinstance(tree, int):
        raise ScalarMismatch(_TITLES[int])
    if not INT64_MIN <= tree <= INT64_MAX:
        raise ScalarMismatch("a whole number of 64 bits")
    return tree


def _float(tree: Any) -> float:
    if isinstance(tree, bool) or not isinstance(tree, int | float):
        raise ScalarMismatch(_TITLES[float])
    if not abs(tree) <= sys.float_info.max:
        raise ScalarMismatch("a finite number")
    return float(tree)


def _str(tree: Any) -> str:
    if isinstance(tree, str):
        return tree
    raise ScalarMismatch(_TITLES[str])


def _bytes(tree: Any) -> bytes:
    try:
        return base64.b64decode(_str(tree), validate=True)
    except (binascii.Error, ValueError):
        raise ScalarMismatch(_TITLES[bytes]) from None


def _duration(tree: Any) -> timedelta:
    if isinstance(tree, str):
        return duration.parse(tree)
    raise ScalarMismatch(duration.WANTED)


def _none(tree: Any) -> None:
    if tree is not None:
        raise ScalarMismatch("null")


_SCALARS: dict[Any, Any] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    timedelta: _duration,
    type(None): _none,
}

_TITLES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    bytes: "base64 text",
    timedelta: duration.WANTED,
}


def _quoting_hint(tree: Any, hint: Any) -> str:
    """A hint for scalars that only lack or have quotes or a unit, else ""."""
    plain = isinstance(tree, bool | int | float)
    if hint is str and plain:
        return f'put it in quotes: "{format_value(tree)}"'
    if hint is timedelta and plain and not isinstance(tree, bool):
        return f"did you mean {f'{tree}s'!r}?"
    numeric = hint in (int, float) and isinstance(tree, str) and _NUMERIC.fullmatch(tree)
    if numeric or (hint is bool and tree in ("true", "false")):
        return "write it without quotes"
    return ""


_NUMERIC = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def _listed(tree: Any) -> str:
    return "put a dash before it" if isinstance(tree, str | dict) and tree else ""


# Bounds.


def _admits(mark: msgspec.Meta, value: Any) -> bool:
    length = len(value) if hasattr(value, "__len__") else 0
    return not (
        (mark.ge is not None and value < mark.ge)
        or (mark.gt is not None and value <= mark.gt)
        or (mark.le is not None and value > mark.le)
        or (mark.lt is not None and value >= mark.lt)
        or (mark.multiple_of is not None and value % mark.multiple_of)
        or (mark.min_length is not None and length < mark.min_length)
        or (mark.max_length is not None and length > mark.max_length)
        or (mark.pattern is not None and not re.search(mark.pattern, value))
    )


def _bounds(mark: msgspec.Meta, base: Any) -> str:
    limits = [
        ("at least", mark.ge),
        ("more than", mark.gt),
        ("at most", mark.le),
        ("less than", mark.lt),
        ("a multiple of", mark.multiple_of),
        ("at least this long:", mark.min_length),
        ("at most this long:", mark.max_length),
        ("like", mark.pattern),
    ]
    bounds = " and ".join(f"{words} {limit}" for words, limit in limits if limit is not None)
    if mark.ge is not None and mark.le is not None:
        bounds = f"{mark.ge} to {mark.le}"
    return f"{describe_type(base)}, {bounds}" if bounds else describe_type(base)


# Encoding.


def encode(value: Any) -> Any:
    """The tree that `decode` reads as `value`; absent values are left out."""
    if isinstance(value, Enum):
        return encode(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, timedelta):
        return duration.render(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, Mapping):
        return {encode(key): encode(entry) for key, entry in value.items()}
    if isinstance(value, Set):
        return sorted(encode(item) for item in value)
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return msgspec.to_builtins(value)


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    without_defaults = value.__struct_config__.omit_defaults
    tree = {}
    for name, field in fields_of(type(value)).items():
        entry = getattr(value, field.name)
        if entry is None or (without_defaults and entry == default_of(field)):
            continue
        tree[name] = encode(entry)
    return tree


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Default of a Struct's field; msgspec.NODEFAULT if it is required."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
