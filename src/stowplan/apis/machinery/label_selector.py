"""Label selectors of query parameters, with the original's parse errors.

Source: apimachinery v0.36, labels/selector.go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from stowplan.apis.machinery.errors import aggregated, value_text
from stowplan.apis.machinery.names import label_value_problems, qualified_name_problems
from stowplan.apis.machinery.strconv import NumError, parse_int

SPECIAL_CHARACTERS = frozenset("=!(),<>")
WHITESPACE = frozenset(" \t\r\n")
TOKEN_KINDS = {
    ")": "close",
    ",": "comma",
    "!": "not",
    "==": "operator",
    "=": "operator",
    ">": "operator",
    "<": "operator",
    "in": "in",
    "notin": "notin",
    "!=": "operator",
    "(": "open",
}
OPERATORS = "in, notin, =, ==, !=, gt, lt"


class SelectorParseError(ValueError):
    """The text is the one of the response."""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One requirement. operator: exists, absent, in, notin, >, <. `=` is in, `!=` is notin.

    values: sorted, for binary search.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """True if `labels` match."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and self._has(value)
            case "notin":
                return value is None or not self._has(value)
            case "exists":
                return value is not None
            case "absent":
                return value is None
        left = int64_or_none(value) if value is not None else None
        right = int64_or_none(self.values[0])
        if left is None or right is None:
            return False
        return left > right if self.operator == ">" else left < right

    def _has(self, value: str) -> bool:
        at = bisect_left(self.values, value)
        return at < len(self.values) and self.values[at] == value


def int64_or_none(text: str) -> int | None:
    """The int64 that Go reads from `text`, or None."""
    try:
        return parse_int(text)
    except NumError:
        return None


Token = tuple[str, str]


def selector_tokens(text: str) -> list[Token]:
    """The tokens of a selector: kind and text; ("end", "") last."""
    found: list[Token] = []
    at = 0
    while at < len(text):
        if text[at] in WHITESPACE:
            at += 1
        elif text[at] in SPECIAL_CHARACTERS:
            token, at = _symbol(text, at)
            found.append(token)
        else:
            start = at
            while (
                at < len(text) and text[at] not in SPECIAL_CHARACTERS and text[at] not in WHITESPACE
            ):
                at += 1
            word = text[start:at]
            found.append((TOKEN_KINDS.get(word, "word"), word))
    found.append(("end", ""))
    return found


def _symbol(text: str, start: int) -> tuple[Token, int]:
    """The longest operator that begins at `start`, and where the next token begins."""
    best: Token | None = None
    at = start
    while at < len(text) and text[at] in SPECIAL_CHARACTERS:
        at += 1
        symbol = text[start:at]
        if symbol in TOKEN_KINDS:
            best = (TOKEN_KINDS[symbol], symbol)
        elif best is not None:
            return best, at - 1
    return best or ("error", f"error expected: keyword found '{text[start:at]}'"), at


class _Parser:
    def __init__(self, text: str) -> None:
        self.items = selector_tokens(text)
        self.at = 0

    def peek(self) -> Token:
        kind, spelling = self.items[self.at]
        # `in` and `notin` are identifiers except in the place of an operator.
        return ("word" if kind in ("in", "notin") else kind), spelling

    def take(self) -> Token:
        token = self.peek()
        self.at = min(self.at + 1, len(self.items) - 1)
        return token

    def selector(self) -> list[LabelRequirement]:
        terms: list[LabelRequirement] = []
        while True:
            kind, spelling = self.peek()
            if kind == "end":
                return terms
            if kind not in ("word", "not"):
                raise SelectorParseError(
                    f"found '{spelling}', expected: !, identifier, or 'end of string'"
                )
            try:
                terms.append(self.requirement())
            except SelectorParseError as error:
                raise SelectorParseError(f"unable to parse requirement: {error}") from None
            kind, spelling = self.take()
            if kind == "end":
                return terms
            if kind != "comma":
                raise SelectorParseError(f"found '{spelling}', expected: ',' or 'end of string'")
            kind, spelling = self.peek()
            if kind not in ("word", "not"):
                raise SelectorParseError(f"found '{spelling}', expected: identifier after ','")

    def requirement(self) -> LabelRequirement:
        kind, key = self.take()
        absent = kind == "not"
        if absent:
            kind, key = self.take()
        if kind != "word":
            raise SelectorParseError(f"found '{key}', expected: identifier")
        problems = qualified_name_problems(key)
        if problems:
            # The original names no field here.
            raise SelectorParseError(
                f"<nil>: Invalid value: {value_text(key)}: {'; '.join(problems)}"
            )
        following = self.peek()[0]
        if absent:
            return LabelRequirement(key, "absent")
        if following in ("end", "comma"):
            return LabelRequirement(key, "exists")
        return self.comparison(key)

    def comparison(self, key: str) -> LabelRequirement:
        kind, spelling = self.items[self.at]
        self.at = min(self.at + 1, len(self.items) - 1)
        if kind in ("in", "notin"):
            return _checked(key, kind, self.values())
        if kind != "operator":
            raise SelectorParseError(f"found '{spelling}', expected: {OPERATORS}")
        value = self.exact()
        if spelling in (">", "<"):
            return _checked(key, spelling, [value])
        return _checked(key, "notin" if spelling == "!=" else "in", [value])

    def values(self) -> list[str]:
        kind, spelling = self.take()
        if kind != "open":
            raise SelectorParseError(f"found '{spelling}' expected: '('")
        kind, spelling = self.peek()
        if kind == "close":
            self.take()
            return [""]
        if kind not in ("word", "comma"):
            raise SelectorParseError(f"found '{spelling}', expected: ',', ')' or identifier")
        found = self.listed()
        if self.take()[0] != "close":
            raise SelectorParseError(f"found '{spelling}', expected: ')'")
        return sorted(found)

    def listed(self) -> set[str]:
        found: set[str] = set()
        while True:
            kind, spelling = self.take()
            following, next_spelling = self.peek()
            if kind == "word":
                found.add(spelling)
                if following == "close":
                    return found
                if following != "comma":
                    raise SelectorParseError(f"found '{next_spelling}', expected: ',' or ')'")
            elif kind == "comma":
                if not found or following in ("close", "comma"):
                    found.add("")
                if following == "close":
                    return found
            else:
                raise SelectorParseError(f"found '{spelling}', expected: ',', or identifier")

    def exact(self) -> str:
        if self.peek()[0] in ("end", "comma"):
            return ""
        kind, spelling = self.take()
        if kind != "word":
            raise SelectorParseError(f"found '{spelling}', expected: identifier")
        return spelling


def _checked(key: str, operator: str, values: list[str]) -> LabelRequirement:
    found = []
    if operator in (">", "<") and int64_or_none(values[0]) is None:
        text = "for 'Gt', 'Lt' operators, the value must be an integer"
        found.append(f"values[0]: Invalid value: {value_text(values[0])}: {text}")
    for at, value in enumerate(values):
        problems = label_value_problems(value)
        if problems:
            found.append(
                f"values[{at}][{key}]: Invalid value: {value_text(value)}: {'; '.join(problems)}"
            )
    if found:
        raise SelectorParseError(aggregated(found))
    return LabelRequirement(key, operator, tuple(values))


def parse_label_selector(text: str) -> tuple[LabelRequirement, ...]:
    """The requirements of a label selector, all of which must match. Raises SelectorParseError."""
    return tuple(_Parser(text).selector())
