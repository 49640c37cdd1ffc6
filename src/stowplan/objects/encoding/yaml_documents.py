"""YAML or JSON text to documents: trees of dicts, lists and scalars, with their locations.

Keys are strings and unique in a mapping, dates stay strings, and only plain data is created.
Nesting depth and expanded aliases are bounded.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import yaml

from stowplan.objects.quantity import INT64_MAX, INT64_MIN

DEPTH_MAX = 100
"""Maximum nesting depth, with aliases expanded."""
ALIASED_MAX = 1_000_000
"""Maximum number of values that the aliases of one document expand to."""

_WANTED_DEPTH = f"at most {DEPTH_MAX} levels"
_WANTED_NUMBER = "whole numbers within 64 bits"


class DocumentError(ValueError):
    """A text that cannot be parsed: location, what was found and what is expected."""

    def __init__(self, place: str, got: str, wanted: str) -> None:
        super().__init__(f"{place}: Invalid value: {got}: expected {wanted}")
        self.place = place
        self.got = got
        self.wanted = wanted


class UnprintableCharacter(DocumentError):
    """A character that YAML does not allow. position: index in the text."""

    def __init__(self, place: str, got: str, position: int) -> None:
        super().__init__(place, got, "printable text")
        self.position = position


class InvalidMergeKey(DocumentError):
    """A merge key whose value is not a mapping. value: its value."""

    def __init__(self, place: str, value: Any) -> None:
        super().__init__(place, "another value for <<", "a mapping or a list of them")
        self.value = value


class Document(NamedTuple):
    """A document of a text. number: from 1. line: of its first line, 0 if unknown."""

    number: int
    line: int
    tree: Any

    @property
    def place(self) -> str:
        """Location in the text, for errors."""
        return f"document {self.number}" + (f", line {self.line}" if self.line else "")


class DuplicateKey(NamedTuple):
    """A repeated key of a mapping. path: keys and indices down to it. Lines: from 1."""

    path: tuple[str | int, ...]
    line: int
    column: int
    first_line: int


def reject_duplicate_key(repeated: DuplicateKey) -> None:
    """Stop parsing at a repeated key; raises DocumentError."""
    place = f"line {repeated.line}, column {repeated.column}"
    raise DocumentError(place, f"the key {repeated.path[-1]!r} again", "each key once")


def parse_documents(text: str, form: str = "") -> Iterator[Document]:
    """The non-empty documents, in order; raises DocumentError, also during iteration.

    form: `json`, `yaml` or `yml`; "" detects it.
    """
    if form == "json":
        return parse_json_documents(text)
    if not text.lstrip().startswith("{"):
        return parse_yaml_documents(text)
    try:
        return iter(list(parse_json_documents(text)))
    except DocumentError:
        # A mapping in YAML's flow style starts like JSON.
        if form in ("yaml", "yml"):
            return parse_yaml_documents(text)
        raise


# JSON.

# Fewer digits always fit.
_LONG = re.compile(r"[0-9]{19}")
_BETWEEN = re.compile(r"(?:\s|^---$)*", re.MULTILINE)


def parse_json_documents(text: str) -> Iterator[Document]:
    """The JSON documents of a text that are not null; raises DocumentError."""
    try:
        # Usually there is one document, which is parsed fast.
        trees = [msgspec.json.decode(text)] if text.strip() else []
    except msgspec.DecodeError:
        trees = list(_one_by_one(text))
    except RecursionError:
        raise DocumentError("document", "deeper nesting", _WANTED_DEPTH) from None
    has_long = _LONG.search(text) is not None
    for number, tree in enumerate(trees, start=1):
        if has_long and _holds_too_long(tree):
            raise DocumentError(f"document {number}", "a longer number", _WANTED_NUMBER)
        if tree is not None:
            yield Document(number, 0, tree)


def _holds_too_long(tree: Any) -> bool:
    """True when an integer in the tree does not fit int64."""
    left = [tree]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            return True
    return False


def _one_by_one(text: str) -> Iterator[Any]:
    """Consecutive JSON documents, with or without a line `---` between them."""
    decoder = json.JSONDecoder()
    position = _past_blanks(text, 0)
    while position < len(text):
        try:
            tree, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as problem:
            place = f"line {problem.lineno}, column {problem.colno}"
            raise DocumentError(place, _after(text, problem.pos), "JSON") from None
        except RecursionError:
            raise DocumentError("document", "deeper nesting", _WANTED_DEPTH) from None
        yield tree
        position = _past_blanks(text, end)


def _past_blanks(text: str, position: int) -> int:
    found = _BETWEEN.match(text, position)
    return found.end() if found else position


def _after(text: str, position: int) -> str:
    """The text at a position, for errors."""
    rest = text[position : position + 20].split("\n")[0]
    return repr(rest) if rest else "the end of the text" if position >= len(text) else "a new line"


# YAML.

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TEXT_TAGS = ("!", f"{_TAG}str")


def parse_yaml_documents(
    text: str,
    *,
    repeated: Callable[[DuplicateKey], None] = reject_duplicate_key,
    values_max: int = sys.maxsize,
    long_numbers: bool = False,
) -> Iterator[Document]:
    """The YAML documents of a text that are not null, parsed during iteration; raises
    DocumentError.

    repeated: called for each repeated key; the first one is kept. values_max: maximum number of
    values with aliases expanded. long_numbers: accept integers beyond 64 bits.
    """
    composer = _Composer(yaml.parse(text, Loader=_LOADER), repeated, values_max, long_numbers)
    try:
        yield from composer.documents()
    except yaml.reader.ReaderError as problem:
        position = _character(text, problem.position)
        line = text.count("\n", 0, position) + 1
        raise UnprintableCharacter(f"line {line}", str(problem.reason), position) from None
    except yaml.MarkedYAMLError as problem:
        place = _place(problem.problem_mark)
        raise DocumentError(place, str(problem.problem), "well-formed YAML or JSON") from None


def _character(text: str, position: int) -> int:
    """The index of the character at which a parser stopped: libyaml counts bytes."""
    if _LOADER is yaml.SafeLoader:
        return position
    return len(text.encode()[:position].decode(errors="ignore"))


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"


class _AnchoredTree(NamedTuple):
    """The value of an alias. n_values: number of values in it, itself included.

    height: levels of lists and mappings below it, -1 for a scalar.
    """

    tree: Any
    n_values: int
    height: int


class _Composer:
    """Builds trees from parser events.

    PyYAML's constructor is several times slower and recurses without bound.
    """

    def __init__(
        self,
        events: Iterator[Any],
        repeated: Callable[[DuplicateKey], None],
        values_max: int,
        long_numbers: bool,
    ) -> None:
        self.events = events
        self.repeated = repeated
        self.values_max = values_max
        self.long_numbers = long_numbers
        self.n_values = 0
        self.n_aliased = 0
        # None while the value is being built.
        self.anchors: dict[str, _AnchoredTree | None] = {}
        # Key or index at each open level, and the maximum depth in it.
        self.trail: list[str | int] = [""] * (DEPTH_MAX + 1)
        self.deepest = 0

    def documents(self) -> Iterator[Document]:
        number = 0
        for event in self.events:
            if type(event) is yaml.DocumentStartEvent:
                number += 1
                self.anchors, self.n_aliased = {}, 0
                first: Any = next(self.events)
                tree = self._node(first, 0)
                if tree is not None:
                    yield Document(number, first.start_mark.line + 1, tree)

    def _node(self, event: Any, depth: int) -> Any:
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(event, depth)
        self.n_values += 1
        if self.n_values > self.values_max:
            raise self._too_many(event)
        if event.anchor:
            return self._anchored(event, depth)
        return self._scalar(event) if kind is yaml.ScalarEvent else self._container(event, depth)

    def _container(self, event: Any, depth: int) -> Any:
        if depth > self.deepest:
            self._reach(event, depth)
        if type(event) is yaml.SequenceStartEvent:
            return self._sequence(event, depth)
        return self._mapping(event, depth)

    def _reach(self, event: Any, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise DocumentError(_place(event.start_mark), "deeper nesting", _WANTED_DEPTH)
        self.deepest = max(self.deepest, depth)

    def _too_many(self, event: Any) -> DocumentError:
        wanted = f"at most {self.values_max} values"
        return DocumentError(_place(event.start_mark), "a document that expands to more", wanted)

    def _anchored(self, event: Any, depth: int) -> Any:
        anchor: str = event.anchor
        self.anchors[anchor] = None
        if type(event) is yaml.ScalarEvent:
            tree = self._scalar(event)
            self.anchors[anchor] = _AnchoredTree(tree, 1, -1)
            return tree
        self._reach(event, depth)
        n_before, outer = self.n_values - 1, self.deepest
        self.deepest = depth
        tree = self._container(event, depth)
        self.anchors[anchor] = _AnchoredTree(tree, self.n_values - n_before, self.deepest - depth)
        self.deepest = max(self.deepest, outer)
        return tree

    def _alias(self, event: Any, depth: int) -> Any:
        place = _place(event.start_mark)
        if event.anchor not in self.anchors:
            raise DocumentError(place, f"*{event.anchor}", "an anchor that was defined before")
        target = self.anchors[event.anchor]
        if target is None:
            raise DocumentError(place, f"*{event.anchor}", "a value that does not contain itself")
        self.n_values += target.n_values
        if self.n_values > self.values_max:
            raise self._too_many(event)
        self.n_aliased += target.n_values
        if self.n_aliased > ALIASED_MAX:
            wanted = f"at most {ALIASED_MAX} values by alias"
            raise DocumentError(place, "a document that expands to more", wanted)
        self._reach(event, depth + target.height)
        return target.tree

    def _sequence(self, event: Any, depth: int) -> list[Any]:
        _check_tag(event, "seq")
        items: list[Any] = []
        for event in self.events:
            if type(event) is yaml.SequenceEndEvent:
                break
            self.trail[depth] = len(items)
            items.append(self._node(event, depth + 1))
        return items

    def _mapping(self, event: Any, depth: int) -> dict[str, Any]:
        _check_tag(event, "map")
        tree: dict[str, Any] = {}
        marks: dict[str, Any] = {}
        inherited: list[dict[str, Any]] = []
        for event in self.events:
            if type(event) is yaml.MappingEndEvent:
                break
            if type(event) is not yaml.ScalarEvent:
                raise DocumentError(_place(event.start_mark), "a key that is no scalar", "a name")
            key = event.value
            self.trail[depth] = key
            following = next(self.events)
            value = self._node(following, depth + 1)
            if key == "<<" and event.implicit[0]:
                inherited += _merged(value, following)
            elif key in tree:
                mark: Any = event.start_mark
                path, first_line = (*self.trail[:depth], key), marks[key].line + 1
                self.repeated(DuplicateKey(path, mark.line + 1, mark.column + 1, first_line))
            else:
                tree[key] = value
                marks[key] = event.start_mark
        for source in inherited:
            tree = tree | {key: value for key, value in source.items() if key not in tree}
        return tree

    def _scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if not event.implicit[0] if tag is None else tag in _TEXT_TAGS:
            return text
        value = _resolved(text) if len(text) <= _RESOLVED_MAX else text
        if tag is not None and tag != _TAG + _TAG_OF.get(type(value), "str"):
            wanted = "plain data without tags"
            raise DocumentError(_place(event.start_mark), f"the tag {tag!r}", wanted)
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX and not self.long_numbers:
            raise DocumentError(_place(event.start_mark), "a longer number", _WANTED_NUMBER)
        return value


def _merged(value: Any, event: Any) -> list[dict[str, Any]]:
    """The mappings of a merge key, the highest precedence first."""
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise InvalidMergeKey(_place(event.start_mark), value)
    return sources


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _TAG + kind):
        wanted = "plain data without tags"
        raise DocumentError(_place(event.start_mark), f"the tag {event.tag!r}", wanted)


# Scalars of YAML.

_TAG_OF = {type(None): "null", bool: "bool", int: "int", float: "float"}
_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {
    spelling: word in ("true", "yes", "on")
    for word in ("true", "yes", "on", "false", "no", "off")
    for spelling in (word, word.capitalize(), word.upper())
}
_INT = re.compile(r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_ODD_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_RESOLVED_MAX = 100
"""Longer strings are never numbers."""
_BASES = {"0b": 2, "0o": 8, "0x": 16}


@lru_cache(maxsize=1 << 14)
def _resolved(text: str) -> Any:
    """The value of an unquoted scalar, as in Kubernetes' YAML parser, except that dates are
    strings."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return _parse_int(text)
    if _FLOAT.fullmatch(text):
        # A number that is too large is a string, such as a hash: kubectl writes 07e17038 unquoted.
        return number if math.isfinite(number := float(text)) else text
    return float(text.replace(".", "", 1)) if _ODD_FLOAT.fullmatch(text) else text


def _parse_int(text: str) -> int:
    digits = text.lstrip("+-").replace("_", "")
    base = _BASES.get(digits[:2], 8 if digits.startswith("0") and digits != "0" else 10)
    digits = digits[2:] if digits[:2] in _BASES else digits
    value = int(digits, base) if digits else 0
    return -value if text.startswith("-") else value
