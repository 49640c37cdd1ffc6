"""YAML bodies as JSON trees, with bounds on aliases.

The parser's events are read one by one, without recursion: depth, aliases and merge keys are
counted before values are built.

Differs: the original accepts 10000 levels and bounds aliases by a ratio; here `YAML_NODES_MAX` and
`DEPTH_MAX` bound the expanded body.
Source: sigs.k8s.io/yaml and its go-yaml, whose syntax errors are used where they are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import yaml

from stowplan.apis.machinery.errors import ApiError, go_quoted
from stowplan.apis.schema.json_parser import DEPTH_MAX, VALUES_MAX, check_extent

YAML_BODY_BYTES_MAX = 256 << 10
"""Parsing YAML takes about a second of processor time per MB."""
YAML_NODES_MAX = VALUES_MAX
"""Values in one body, aliases and merged keys counted as often as they are used."""
_WHOLE_MAX = 10**308
UNMARSHAL_ERRORS_PREFIX = "yaml: unmarshal errors:\n"
TOO_DEEP = "yaml: exceeded max depth of 10000"
EXCESSIVE_ALIASING = "yaml: document contains excessive aliasing"
_TAG = "tag:yaml.org,2002:"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_MERGE = f"{_TAG}merge"
_TIME = f"{_TAG}timestamp"
_FLAG = f"{_TAG}bool"
_SHORT_FLAGS = {"y": True, "Y": True, "n": False, "N": False}
"""Booleans of YAML 1.1 that PyYAML reads as texts."""
_TEXTS = frozenset({f"{_TAG}str", f"{_TAG}value"})


class YamlBodyError(ValueError):
    """A body that is not a tree with kind and apiVersion; the text says why."""


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The C parser, if PyYAML has it: ten times as fast."""


def read_yaml(raw: bytes, first: bool = False) -> tuple[Any, list[str]]:
    """The tree of a YAML body, and a text about duplicate keys.

    first: further documents are ignored. Raises YamlBodyError, and ApiError 413 for one that is
    too long.
    """
    if len(raw) > YAML_BODY_BYTES_MAX:
        text = f"Request entity too large: limit is {YAML_BODY_BYTES_MAX} for YAML, send JSON"
        raise ApiError(413, "RequestEntityTooLarge", text)
    try:
        reader = _YamlReader(raw, first)
        tree = reader.document()
    except yaml.MarkedYAMLError as error:
        problem = (error.problem or "").replace(" here", " in this context")
        raise YamlBodyError(f"yaml: {_line_text(error)}{problem}") from None
    except YamlBodyError:
        raise
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise YamlBodyError(f"yaml: {str(error).splitlines()[0]}") from None
    check_extent(tree)
    if not reader.repeated:
        return tree, []
    lines = "\n".join(f"  {line}" for line in reader.repeated)
    return tree, [UNMARSHAL_ERRORS_PREFIX + lines]


def _line_text(error: yaml.MarkedYAMLError) -> str:
    """The line of a syntax error; the original counts those of its parser from 0."""
    line = error.problem_mark.line if error.problem_mark else 0
    if isinstance(error, yaml.scanner.ScannerError):
        line += 1
    elif not line and error.context_mark:
        line = error.context_mark.line
    return f"line {line}: " if line else ""


class _YamlAnchorValue(NamedTuple):
    """The value of an anchor. size: values in it, itself included. height: 0 for a scalar."""

    tree: Any
    size: int
    height: int


class _YamlMapKey(NamedTuple):
    """A key of a map. merges: it is `<<`, written plainly."""

    text: str
    raw: str
    merges: bool


class _OpenCollection:
    """An open map or list. left: the budget when it was opened."""

    __slots__ = ("anchor", "height", "key", "left", "merged", "seen", "tree")

    def __init__(self, tree: Any, anchor: str | None, left: int) -> None:
        self.tree = tree
        self.anchor = anchor
        self.left = left
        self.height = 1
        self.key: _YamlMapKey | None = None
        self.seen: set[str] = set()
        self.merged: list[Any] = []


class _YamlReader:
    """Builds the tree of one document. repeated: a line for each duplicate key."""

    def __init__(self, raw: bytes, first: bool) -> None:
        self._loader = LOADER(raw)
        self._first = first
        self._left = YAML_NODES_MAX
        self._anchors: dict[str, _YamlAnchorValue] = {}
        self._open: list[_OpenCollection] = []
        self._tree: Any = None
        self.repeated: list[str] = []

    def document(self) -> Any:
        """The tree; None for an empty body. Raises YamlBodyError, yaml.YAMLError, ValueError."""
        started = False
        while True:
            event: Any = self._loader.get_event()
            if event is None or isinstance(event, yaml.StreamEndEvent):
                return self._tree
            if isinstance(event, yaml.DocumentStartEvent):
                if started and self._first:
                    return self._tree
                if started:
                    raise YamlBodyError("yaml: but found another document")
                started = True
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise YamlBodyError(EXCESSIVE_ALIASING)

    def _begin(self, event: Any) -> None:
        self._spend(1)
        if len(self._open) >= DEPTH_MAX:
            raise YamlBodyError(TOO_DEEP)
        within = self._open[-1] if self._open else None
        if within is not None and isinstance(within.tree, dict) and within.key is None:
            raise YamlBodyError(f"yaml: line {event.start_mark.line + 1}: invalid map key")
        self._anchors.pop(event.anchor, None)
        tree: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._open.append(_OpenCollection(tree, event.anchor, self._left + 1))

    def _end(self, event: Any) -> None:
        ended = self._open.pop()
        for one in ended.merged:
            # The map's own keys win; of several merged maps the first.
            for key, value in one.items():
                ended.tree.setdefault(key, value)
        done = _YamlAnchorValue(ended.tree, ended.left - self._left, ended.height)
        if ended.anchor is not None:
            self._anchors[ended.anchor] = done
        self._add(done, event)

    def _alias(self, event: Any) -> None:
        name = event.anchor
        found = self._anchors.get(name)
        if found is None:
            if any(one.anchor == name for one in self._open):
                raise YamlBodyError(f"yaml: anchor '{name}' value contains itself")
            raise YamlBodyError(f"yaml: unknown anchor '{name}' referenced")
        self._spend(found.size)
        if len(self._open) + found.height > DEPTH_MAX:
            raise YamlBodyError(TOO_DEEP)
        self._add(found._replace(tree=_copied(found.tree)), event)

    def _scalar(self, event: Any) -> None:
        self._spend(1)
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
            if event.implicit[0] and event.value in _SHORT_FLAGS:
                tag = _FLAG
        within = self._open[-1] if self._open else None
        if within is not None and isinstance(within.tree, dict) and within.key is None:
            value = event.value if tag == _MERGE else self._value(event, tag)
            within.key = _YamlMapKey(_key(value), event.value, tag == _MERGE)
            return
        done = _YamlAnchorValue(self._value(event, tag), 1, 0)
        if event.anchor is not None:
            self._anchors[event.anchor] = done
        self._add(done, event)

    def _value(self, event: Any, tag: str) -> Any:
        text = event.value
        if tag == _FLAG and text in _SHORT_FLAGS:
            return _SHORT_FLAGS[text]
        # Like the original, and unlike YAML 1.1, no sexagesimal numbers.
        if tag in _TEXTS or tag == _MERGE or (tag in _NUMBERS and ":" in text):
            return text
        value = self._constructed(yaml.ScalarNode(tag, text, event.start_mark, event.end_mark))
        if isinstance(value, int) and abs(value) > _WHOLE_MAX:
            raise YamlBodyError("yaml: a number is too large")
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if hasattr(value, "isoformat"):
            return str(value.isoformat()).replace("+00:00", "Z")
        return str(value)

    def _constructed(self, node: Any) -> Any:
        """The value that PyYAML constructs from a scalar."""
        try:
            return self._loader.construct_object(node)
        except (AttributeError, KeyError, ValueError):
            # It fails so for a tag that does not fit its text.
            if node.tag == _TIME:
                return node.value
            text = f"cannot decode {go_quoted(node.value)} as a {node.tag.removeprefix(_TAG)}"
            raise YamlBodyError(f"yaml: line {node.start_mark.line + 1}: {text}") from None

    def _add(self, done: _YamlAnchorValue, event: Any) -> None:
        """Add a finished value to the open map or list."""
        if not self._open:
            self._tree = done.tree
            return
        within = self._open[-1]
        within.height = max(within.height, done.height + 1)
        if isinstance(within.tree, list):
            within.tree.append(done.tree)
            return
        key, within.key = within.key, None
        if key is None:
            # An alias as a key.
            if isinstance(done.tree, dict | list):
                raise YamlBodyError(f"yaml: line {event.start_mark.line + 1}: invalid map key")
            within.key = _YamlMapKey(_key(done.tree), _key(done.tree), merges=False)
            return
        if key.raw in within.seen:
            line = event.start_mark.line + 1
            self.repeated.append(f"line {line}: key {go_quoted(key.raw)} already set in map")
        within.seen.add(key.raw)
        if key.merges:
            self._merge(within, done)
        else:
            within.tree[key.text] = done.tree

    def _merge(self, within: _OpenCollection, done: _YamlAnchorValue) -> None:
        maps = done.tree if isinstance(done.tree, list) else [done.tree]
        if not all(isinstance(one, dict) for one in maps):
            raise YamlBodyError("yaml: map merge requires map or sequence of maps as the value")
        within.merged += maps


def _copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copied(each) for key, each in tree.items()}
    if isinstance(tree, list):
        return [_copied(each) for each in tree]
    return tree


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def warning_lines(text: str) -> list[str]:
    """A strict text as warnings: one per line for YAML."""
    if not text.startswith(UNMARSHAL_ERRORS_PREFIX):
        return [text]
    return [line.strip() for line in text.removeprefix(UNMARSHAL_ERRORS_PREFIX).splitlines()]
