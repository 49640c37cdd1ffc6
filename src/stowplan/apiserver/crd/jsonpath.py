"""JSONPath as printer columns and selectable fields use it: `.spec.a`, `.list[0].b`, filters.

Differs: unions and order comparisons are not supported. A path that visits more than
`VALUES_MAX` values (`....` visits values more than once) has no result.
Source: client-go v0.36, util/jsonpath, as far as definitions of custom kinds need it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from stowplan.apis.machinery.strconv import parse_int
from stowplan.objects.encoding.tree import Tree

PathStep = Callable[[Any], Iterator[Any]]

VALUES_MAX = 10_000

# Possessive: no backtracking, so no text takes long to be rejected.
_STEP = re.compile(
    r"""\.(?P<name>(?:\\.|[^.\[\]\\])++)
    |\[\s*+'(?P<quoted>[^']*+)'\s*+\]
    |\[\s*+(?P<index>-?\d{1,18})\s*+\]
    |\[\s*+(?P<from>(?:-?\d{1,18})?+):(?P<to>(?:-?\d{1,18})?+)(?::(?P<stride>\d{0,18}))?+\s*+\]
    |(?P<all>\[\s*+\*\s*+\])
    |(?P<deep>\.(?=\.))
    |(?P<same>\.(?=\[))
    |\[\?\(\s*+@(?P<left>[^=!<>)\s]*+)\s*+(?P<op>==|!=)?+\s*+
        (?P<right>"[^"]*+"(?=\s*+\))|'[^']*+'(?=\s*+\))|[^)]*+)\s*+\)\]""",
    re.VERBOSE,
)


class JsonPath:
    """A parsed path; an invalid one has no result.

    Definitions with an invalid path are accepted, as by the original.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_readable = True
        self._steps: list[PathStep] = []
        at = 0
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                if text[at:] == ".":
                    self._steps = self._steps or [_no_values]
                    return
                self.is_readable = False
                self._steps = [_no_values]
                return
            self._steps.append(_step(found))
            at = found.end()

    def find(self, obj: Tree) -> list[Any]:
        """All values at the path."""
        values: list[Any] = [obj]
        left = VALUES_MAX
        for step in self._steps:
            following = chain.from_iterable(map(step, values))
            values = list(islice(following, left))
            left -= len(values)
            if left <= 0:
                return []
        return values


def _step(found: re.Match[str]) -> PathStep:
    if found["name"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", found["name"]))
    if found["quoted"] is not None:
        return _field(found["quoted"])
    if found["index"] is not None:
        return _item(parse_int(found["index"]))
    if found["from"] is not None:
        return _slice(*map(_whole, (found["from"], found["to"], found["stride"])))
    if found["all"] is not None:
        return _all_items
    if found["deep"] is not None:
        return _descendants
    if found["same"] is not None:
        return _same_value
    return _filter(found["left"], found["op"] or "", (found["right"] or "").rstrip())


def _field(name: str) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _item(index: int) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _slice(start: int | None, end: int | None, stride: int | None) -> PathStep:
    """A part of a list, which must be within it; None: from its begin, to its end, by one."""

    def step(value: Any) -> Iterator[Any]:
        if not isinstance(value, list):
            return
        size, first, last = len(value), start or 0, end
        first += size if first < 0 else 0
        last = size if last is None else last
        last += size if last < 0 else 0
        if 0 <= first < last <= size and stride != 0:
            yield from value[first : last : stride or 1]

    return step


def _whole(text: str | None) -> int | None:
    return parse_int(text) if text else None


def _all_items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _same_value(value: Any) -> Iterator[Any]:
    yield value


def _no_values(value: Any) -> Iterator[Any]:
    yield from ()


def _descendants(value: Any) -> Iterator[Any]:
    """The value and all values in it."""
    yield value
    for each in _all_items(value):
        yield from _descendants(each)


def _filter(left: str, operator: str, right: str) -> PathStep:
    below = JsonPath(left) if left else None
    wanted = _literal(right) if operator else None

    def step(value: Any) -> Iterator[Any]:
        for one in value if isinstance(value, list) else ():
            got = below.find(one) if below is not None else [one]
            if not operator:
                good = bool(got)
            else:
                good = bool(got) and (got[0] == wanted) == (operator == "==")
            if good:
                yield one

    return step


def _literal(text: str) -> Any:
    if text[:1] in "\"'" and text:
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def column_text(value: Any) -> str:
    """A value as a text column prints it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "<nil>"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(math.trunc(value))
    if isinstance(value, (dict, list)):
        return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return str(value)
