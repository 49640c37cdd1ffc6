"""YAML or JSON text to trees of dicts, lists and scalars; the mistakes name line and column.

A key may stand once in a mapping. Dates stay text, nothing but plain data is made, and neither
deep nesting nor aliases within aliases can exhaust the machine. JSON is read as the YAML that it
is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from stowplan.config.strict import Problems, at, shown

DEPTH_MAX = 100
NODES_MAX = 1_000_000
"""What a document may come to with its aliases written out."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TAG = "tag:yaml.org,2002:"
_NULL = ("", "~", "null", "Null", "NULL")
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


class _Malformed(Exception):
    """The text cannot be read on: where (a parser's mark), what it has there, what was wanted."""

    def __init__(self, mark: Any, got: str, wanted: str) -> None:
        super().__init__(got)
        self.mark = mark
        self.got = got
        self.wanted = wanted


def documents(text: str | bytes, problems: Problems) -> list[Any]:
    """The documents of `text` that hold anything; none when it cannot be parsed at all."""
    try:
        text = text.decode() if isinstance(text, bytes) else text
        # Refuses lone surrogates, which only one of PyYAML's two parsers would.
        text.encode()
        return _Composer(yaml.parse(text, Loader=_LOADER), problems).documents()
    except UnicodeError as error:
        where = f"character {error.start + 1}" if hasattr(error, "start") else "document"
        problems.add(where, "what is not UTF-8", "text in UTF-8")
    except _Malformed as error:
        problems.add(_place(error.mark), error.got, error.wanted)
    except yaml.reader.ReaderError as error:
        problems.add(f"character {error.position + 1}", error.reason, "printable text")
    except yaml.MarkedYAMLError as error:
        problems.add(_place(error.problem_mark), str(error.problem), "well-formed YAML or JSON")
    return []


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"


class _Composer:
    """Builds trees from parser events.

    PyYAML's own composer recurses without bound, which a nested text can use to crash the process.
    """

    def __init__(self, events: Iterator[Any], problems: Problems) -> None:
        self.events = events
        self.problems = problems
        self.anchors: dict[str, tuple[Any, int] | None] = {}
        self.n_nodes = 0

    def documents(self) -> list[Any]:
        found = []
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self.anchors = {}
                tree = self._node(next(self.events), "", 0)
                if tree is not None:
                    found.append(tree)
        return found

    def _node(self, event: Any, path: str, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise _Malformed(event.start_mark, "deeper nesting", f"at most {DEPTH_MAX} levels")
        before = self.n_nodes
        self._count(event, 1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor:
            self.anchors[event.anchor] = None
        tree: Any
        if isinstance(event, yaml.ScalarEvent):
            tree = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            tree = self._sequence(event, path, depth)
        else:
            tree = self._mapping(event, path, depth)
        if event.anchor:
            self.anchors[event.anchor] = (tree, self.n_nodes - before)
        return tree

    def _count(self, event: Any, nodes: int) -> None:
        self.n_nodes += nodes
        if self.n_nodes > NODES_MAX:
            raise _Malformed(event.start_mark, "what comes to more", f"at most {NODES_MAX} values")

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self.anchors:
            wanted = "an anchor that was defined before"
            raise _Malformed(event.start_mark, f"*{event.anchor}", wanted)
        target = self.anchors[event.anchor]
        if target is None:
            wanted = "a value that does not contain itself"
            raise _Malformed(event.start_mark, f"*{event.anchor}", wanted)
        tree, nodes = target
        self._count(event, nodes)
        return tree

    def _sequence(self, event: Any, path: str, depth: int) -> list[Any]:
        _check_tag(event, "seq")
        items: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self._node(event, f"{path}[{len(items)}]", depth + 1))
        return items

    def _mapping(self, event: Any, path: str, depth: int) -> dict[str, Any]:
        _check_tag(event, "map")
        tree: dict[str, Any] = {}
        lines: dict[str, int] = {}
        inherited: list[dict[str, Any]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _Malformed(event.start_mark, "a key that is no scalar", "a name")
            mark: Any = event.start_mark
            key, line = event.value, mark.line + 1
            value = self._node(following := next(self.events), at(path, key), depth + 1)
            if key == "<<" and event.implicit[0]:
                inherited += _merged(value, following)
            elif key in tree:
                got, hint = f"the key again in line {line}", f"first in line {lines[key]}"
                self.problems.add(at(path, key), got, "each key once", hint, spoils=False)
            else:
                tree[key], lines[key] = value, line
        for source in inherited:
            tree = tree | {k: v for k, v in source.items() if k not in tree}
        return tree


def _merged(value: Any, event: Any) -> list[dict[str, Any]]:
    """The mappings that a merge key names, the strongest first."""
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _Malformed(event.start_mark, f"<<: {shown(value)}", "a mapping or a list of them")
    return sources


def _check_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _TAG + kind):
        raise _Malformed(event.start_mark, f"the tag {event.tag!r}", "plain data without tags")


def _scalar(event: Any) -> Any:
    if event.tag is None:
        return _resolved(event.value) if event.implicit[0] else event.value
    if event.tag in ("!", f"{_TAG}str"):
        return event.value
    value = _resolved(event.value)
    if event.tag != _TAG + _tag_of(value):
        raise _Malformed(event.start_mark, f"the tag {event.tag!r}", "plain data without tags")
    return value


def _tag_of(value: Any) -> str:
    return {type(None): "null", bool: "bool", int: "int", float: "float"}.get(type(value), "str")


def _resolved(text: str) -> Any:
    """What an unquoted scalar is, as Kubernetes' YAML reader has it, except for dates."""
    if text in _NULL:
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


def _whole(text: str) -> int | str:
    digits = text.lstrip("+-").replace("_", "")
    base = _BASES.get(digits[:2], 8 if digits.startswith("0") and digits != "0" else 10)
    digits = digits[2:] if digits[:2] in _BASES else digits
    value = int(digits, base) if digits else 0
    return -value if text.startswith("-") else value
