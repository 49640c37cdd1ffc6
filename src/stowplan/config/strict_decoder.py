"""A strict walker between trees of dicts and lists and typed values: every mistake, with its path.

It is led by type hints. A msgspec Struct is a mapping of its fields: a field that it does not have
is a mistake, also for Kubernetes objects, which ignore such fields when they come from the API. A
null counts as absent, as in the API.

A mistake does not end the walk. What cannot be read is replaced by its default, so that the checks
that come after the walk still see the rest; they ask `Problems.spoilt` before they blame a value
that the user did not write.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
import types
from collections.abc import Iterable, Mapping, Sequence, Set
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
    """The type of `INVALID`."""

    BAD = "bad"


INVALID: Final = InvalidValue.BAD
"""What stands for a value that could not be read; its problem is on record."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_FORMATTED_MAX = 60
_BITS_MAX = 128
_UNIONS = (Union, types.UnionType)
_LISTS: dict[Any, Any] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: tuple}


class Problems:
    """The mistakes found so far, in the order in which they were found.

    A mistake spoils its path unless the value there is intact all the same, as it is beside an
    unknown field.
    """

    def __init__(self) -> None:
        self.found: list[Problem] = []
        self._spoilt: set[str] = set()

    def add(self, path: str, got: str, wanted: str, hint: str = "", *, spoils: bool = True) -> None:
        """Put a mistake on record."""
        self.found.append(Problem(path, got, wanted, hint))
        if spoils:
            self._spoilt.add(path)

    def extend(self, problems: Iterable[Problem]) -> None:
        """Put on record what a later check says, unless it is about values that are spoilt."""
        for problem in problems:
            inside = any(_contains(path, problem.path) for path in self._spoilt)
            if not inside and not self.is_invalid(problem.path):
                self.found.append(problem)

    def is_invalid(self, path: str) -> bool:
        """True when something at `path` or inside of it could not be used."""
        return any(_contains(path, is_invalid) for is_invalid in self._spoilt)

    def error(self, source: str) -> ConfigError:
        """The exception that carries all mistakes."""
        return ConfigError(source, self.found)


def _contains(path: str, inner: str) -> bool:
    return inner == path or (inner.startswith(path) and inner[len(path)] in ".[")


def child_path(path: str, key: str) -> str:
    """The path of the entry `key` of the mapping at `path`."""
    if not _NAME.fullmatch(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


def format_value(value: Any) -> str:
    """A value as a complaint prints it: short, and in the spelling of the file."""
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
    """The names as an alternative: 'a', 'b' or 'c'."""
    *others, last = [repr(name) for name in names]
    return f"{', '.join(others)} or {last}" if others else last


def decode(
    tree: Any, kind: type[T], path: str, problems: Problems
) -> T | Literal[InvalidValue.BAD]:
    """The value of type `kind` that `tree` holds, or BAD; mistakes are added to `problems`.

    path: where the tree stands, "" for the whole document.
    """
    value: T | Literal[InvalidValue.BAD] = _StrictDecoder(problems).value(tree, kind, path)
    return value


class _StrictDecoder:
    """One walk, down a tree and a type at the same time."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def value(self, tree: Any, hint: Any, path: str) -> Any:
        """What `tree` is when read as `hint`, or BAD."""
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
        """Null if allowed; the one other type with its own complaints; or the first that fits."""
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
            # A stand-in keeps the places of the items that follow.
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
            # What __post_init__ refuses, by msgspec's own convention.
            self.problems.add(path, format_value(tree), str(error))
            return INVALID

    def _unknown(self, key: str, fields: Iterable[str], path: str) -> None:
        known = list(fields)
        wanted = ", ".join(known) or "no fields"
        hint = did_you_mean(key, known)
        self.problems.add(child_path(path, key), "an unknown field", wanted, hint, spoils=False)


@lru_cache(maxsize=1 << 10)
def fields_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a Struct by the names that files use."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def describe_type(hint: Any) -> str:
    """What a file has to hold for a value of this type."""
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
    """A default value of a Struct type, BAD if it has none."""
    if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return INVALID
    return INVALID if any(f.required for f in fields_of(hint).values()) else hint()


# Scalars. A reader raises Unfit, or another ValueError whose text is what was wanted.


class ScalarMismatch(ValueError):
    """A scalar of another type or range; the text is what was wanted."""


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
    """A hint for scalars that are right but for quotes or a unit, else ""."""
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
    said = " and ".join(f"{words} {limit}" for words, limit in limits if limit is not None)
    if mark.ge is not None and mark.le is not None:
        said = f"{mark.ge} to {mark.le}"
    return f"{describe_type(base)}, {said}" if said else describe_type(base)


# The way back.


def encode(value: Any) -> Any:
    """The tree of dicts, lists and scalars that `decode` reads as `value`; absent is left out."""
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
    """The default of a Struct's field; msgspec.NODEFAULT if it is required."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default
