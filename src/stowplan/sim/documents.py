"""YAML or JSON text to documents: trees of dicts, lists and scalars that know where they stood.

Keys are texts and stand once in a mapping, dates stay text, nothing but plain data is made.
Neither deep nesting nor aliases within aliases can exhaust the machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import yaml

from stowplan.objects.quantity import INT64_MAX, INT64_MIN
from stowplan.sim.input_error import InputError

DEPTH_MAX = 100
ALIASED_MAX = 1_000_000
"""How many values the aliases of one document may stand for."""

_WANTED = "well-formed YAML or JSON"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_WANTED_NUMBER = "whole numbers within 64 bits"
# Fewer digits fit in any case.
_LONG = re.compile(r"[0-9]{19}")
_BETWEEN = re.compile(r"(?:\s|^---$)*", re.MULTILINE)


class Document(NamedTuple):
    """A document of a file. number: from 1. line: where it begins, 0 when nobody counted."""

    source: str
    number: int
    line: int
    tree: Any

    @property
    def place(self) -> str:
        """Where in the file it stands, as errors say it."""
        return f"document {self.number}" + (f", line {self.line}" if self.line else "")


def documents(data: bytes, source: str, form: str = "") -> Iterator[Document]:
    """The documents that hold anything, in order; raises InputError.

    form: `json`, `yaml` or `yml`; "" finds out.
    """
    text = decoded(data, source)
    if form == "json":
        return _of_json(text, source)
    if not text.lstrip().startswith("{"):
        return _of_yaml(text, source)
    try:
        return iter(list(_of_json(text, source)))
    except InputError:
        # A mapping in YAML's flow style begins like JSON.
        if form in ("yaml", "yml"):
            return _of_yaml(text, source)
        raise


def decoded(data: bytes, source: str) -> str:
    """The text of a file; raises InputError when it is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        got = f"the byte 0x{data[problem.start]:02x}"
        raise InputError(source, f"line {line}", got, "text in UTF-8") from None


# JSON.


def _of_json(text: str, source: str) -> Iterator[Document]:
    try:
        # One document is the rule, and read fast.
        trees = [msgspec.json.decode(text)] if text.strip() else []
    except msgspec.DecodeError:
        trees = list(_one_by_one(text, source))
    except RecursionError:
        raise _too_deep(source, "document") from None
    has_long = _LONG.search(text) is not None
    for number, tree in enumerate(trees, start=1):
        if has_long and _holds_too_long(tree):
            raise InputError(source, f"document {number}", "a longer number", _WANTED_NUMBER)
        if tree is not None:
            yield Document(source, number, 0, tree)


def _holds_too_long(tree: Any) -> bool:
    """True when a whole number somewhere in the tree does not fit int64."""
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


def _one_by_one(text: str, source: str) -> Iterator[Any]:
    """JSON documents one after the other, with or without a line `---` between them."""
    decoder = json.JSONDecoder()
    position = _past_blanks(text, 0)
    while position < len(text):
        try:
            tree, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as problem:
            place = f"line {problem.lineno}, column {problem.colno}"
            raise InputError(source, place, _after(text, problem.pos), "JSON") from None
        except RecursionError:
            raise _too_deep(source, "document") from None
        yield tree
        position = _past_blanks(text, end)


def _past_blanks(text: str, position: int) -> int:
    found = _BETWEEN.match(text, position)
    return found.end() if found else position


def _after(text: str, position: int) -> str:
    """What stands at a position, as an error shows it."""
    rest = text[position : position + 20].split("\n")[0]
    return repr(rest) if rest else "the end of the text" if position >= len(text) else "a new line"


def _too_deep(source: str, place: str) -> InputError:
    return InputError(source, place, "deeper nesting", f"at most {DEPTH_MAX} levels")


# YAML.


class _Malformed(Exception):
    """The text cannot be read on: where (a parser's mark), what it has there, what was wanted."""

    def __init__(self, mark: Any, got: str, wanted: str) -> None:
        super().__init__(got)
        self.mark = mark
        self.got = got
        self.wanted = wanted


def _of_yaml(text: str, source: str) -> Iterator[Document]:
    try:
        yield from _composed(text, source)
    except _Malformed as problem:
        raise InputError(source, _place(problem.mark), problem.got, problem.wanted) from None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        raise InputError(source, f"line {line}", str(problem.reason), "printable text") from None
    except yaml.MarkedYAMLError as problem:
        place = _place(problem.problem_mark)
        raise InputError(source, place, str(problem.problem), _WANTED) from None


def _composed(text: str, source: str) -> Iterator[Document]:
    events = yaml.parse(text, Loader=_LOADER)
    number = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            number += 1
            first: Any = next(events)
            tree = _Composer(events).node(first, 0)
            if tree is not None:
                yield Document(source, number, first.start_mark.line + 1, tree)


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"


class _Composer:
    """Builds the tree of one document from parser events.

    PyYAML's own constructor is several times slower and recurses without bound.
    """

    def __init__(self, events: Iterator[Any]) -> None:
        self.events = events
        self.n_nodes = 0
        self.n_aliased = 0
        # Anchor -> value and how many values it holds; None while it is being built.
        self.anchors: dict[str, tuple[Any, int] | None] = {}

    def node(self, event: Any, depth: int) -> Any:
        self.n_nodes += 1
        kind = type(event)
        if kind is yaml.ScalarEvent and not event.anchor:
            return _scalar(event)
        if depth > DEPTH_MAX:
            raise _Malformed(event.start_mark, "deeper nesting", f"at most {DEPTH_MAX} levels")
        if kind is yaml.AliasEvent:
            return self._alias(event)
        before = self.n_nodes
        if event.anchor:
            self.anchors[event.anchor] = None
        tree: Any
        if kind is yaml.ScalarEvent:
            tree = _scalar(event)
        elif kind is yaml.SequenceStartEvent:
            tree = self._sequence(event, depth)
        else:
            tree = self._mapping(event, depth)
        if event.anchor:
            self.anchors[event.anchor] = (tree, self.n_nodes - before + 1)
        return tree

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            wanted = "an anchor that was defined before"
            raise _Malformed(event.start_mark, f"*{event.anchor}", wanted)
        target = self.anchors[event.anchor]
        if target is None:
            wanted = "a value that does not contain itself"
            raise _Malformed(event.start_mark, f"*{event.anchor}", wanted)
        tree, n_nodes = target
        self.n_nodes += n_nodes
        self.n_aliased += n_nodes
        if self.n_aliased > ALIASED_MAX:
            wanted = f"at most {ALIASED_MAX} values by alias"
            raise _Malformed(event.start_mark, "what comes to more", wanted)
        return tree

    def _sequence(self, event: Any, depth: int) -> list[Any]:
        _check_tag(event, "seq")
        items: list[Any] = []
        for event in self.events:
            if type(event) is yaml.SequenceEndEvent:
                break
            items.append(self.node(event, depth + 1))
        return items

    def _mapping(self, event: Any, depth: int) -> dict[str, Any]:
        _check_tag(event, "map")
        tree: dict[str, Any] = {}
        inherited: list[dict[str, Any]] = []
        for event in self.events:
            if type(event) is yaml.MappingEndEvent:
                break
            if type(event) is not yaml.ScalarEvent:
                raise _Malformed(event.start_mark, "a key that is no scalar", "a name")
            key = event.value
            following = next(self.events)
            value = self.node(following, depth + 1)
            if key == "<<" and event.implicit[0]:
                inherited += _merged(value, following)
            elif key in tree:
                raise _Malformed(event.start_mark, f"the key {key!r} again", "each key once")
            else:
                tree[key] = value
        for source in inherited:
            tree = source | tree
        return tree


def _merged(value: Any, event: Any) -> list[dict[str, Any]]:
    """The mappings that a merge key names, the strongest first."""
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _Malformed(event.start_mark, "another value for <<", "a mapping or a list of them")
    return sources


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _TAG + kind):
        raise _Malformed(event.start_mark, f"the tag {event.tag!r}", "plain data without tags")


def _scalar(event: Any) -> Any:
    tag = event.tag
    if tag is None:
        value = _resolved(event.value) if event.implicit[0] else event.value
        if type(value) is int and not INT64_MIN <= value <= INT64_MAX:
            raise _Malformed(event.start_mark, "a longer number", _WANTED_NUMBER)
        return value
    if tag in ("!", f"{_TAG}str"):
        return event.value
    value = _resolved(event.value)
    if tag != _TAG + _TAG_OF.get(type(value), "str"):
        raise _Malformed(event.start_mark, f"the tag {tag!r}", "plain data without tags")
    return value


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
_NUMBER_LENGTH_MAX = 100
_BASES = {"0b": 2, "0o": 8, "0x": 16}


@lru_cache(maxsize=1 << 14)
def _resolved(text: str) -> Any:
    """What an unquoted scalar is, as Kubernetes' YAML reader has it, except that dates are text.

    `stowplan.config.document` reads scalars by the same rule; a test compares the two.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if len(text) > _NUMBER_LENGTH_MAX:
        return text
    if _INT.fullmatch(text):
        return _whole(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "", 1)) if _ODD_FLOAT.fullmatch(text) else text


def _whole(text: str) -> int:
    digits = text.lstrip("+-").replace("_", "")
    base = _BASES.get(digits[:2], 8 if digits.startswith("0") and digits != "0" else 10)
    digits = digits[2:] if digits[:2] in _BASES else digits
    value = int(digits, base) if digits else 0
    return -value if text.startswith("-") else value
