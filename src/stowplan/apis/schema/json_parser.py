"""JSON parser: plain trees, duplicate keys, and Go's syntax errors.

Source: sigs.k8s.io/json and encoding/json of Go 1.25, as recorded.
"""

from __future__ import annotations

import json
import math
import re
from itertools import repeat
from typing import Any

import msgspec

from stowplan.apis.machinery.errors import ApiError, go_quoted

_ESCAPED = {"\n": "'\\n'", "\r": "'\\r'", "\t": "'\\t'", "'": "'\\''", "\\": "'\\\\'"}
_STRICT_MAX = 100
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DIGITS_SAFE = 308
"""Integers of at most so many digits have an exact float64."""
_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
_MANY_DIGITS = b"0" * (_DIGITS_SAFE + 1)
DEPTH_MAX = 200
"""Maximum nesting of a body. Differs: the original accepts 10000 levels."""


LONG_BYTES = 64 << 10
"""Bodies and objects up to this length in bytes are not counted."""
VALUES_MAX = 200_000
"""Values in one body or object. Differs: the original bounds only the bytes."""
PATH_MAX = 4096
"""Longest path of a field, in characters."""
_SCANNED_MAX = 256 << 10
_LONG_TEXT_ERROR = "invalid character in a long text"


class InvalidJson(ValueError):
    """The text is Go's: `unexpected end of JSON input`, `invalid character ...`."""


class _KeyValuePairs(list[tuple[str, Any]]):
    """An object with all its keys, duplicates included."""


def parse_json(raw: bytes) -> tuple[Any, list[str]]:
    """The tree and the texts of duplicate keys in order; raises InvalidJson.

    Of duplicate keys the last value counts. Numbers become int or float.
    """
    long_numbers = _MANY_DIGITS in raw.translate(_ZEROS)
    try:
        tree = _parse_safely(raw) if long_numbers else msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        tree = _parse_slowly(raw, error)
    if raw.count(b"{") + raw.count(b"[") > DEPTH_MAX and is_deeper(tree, DEPTH_MAX):
        raise InvalidJson("exceeded max depth")
    if len(raw) > LONG_BYTES:
        check_extent(tree)
    return tree, [] if _has_all_keys(tree, raw) else duplicate_fields(raw)


def check_extent(tree: Any) -> None:
    """Raises ApiError 413 for a tree of too many values or too long paths."""
    left = VALUES_MAX
    waiting = [(tree, 0)] if isinstance(tree, dict | list) else []
    while waiting:
        node, length = waiting.pop()
        left -= len(node)
        if left < 0:
            raise _too_large(f"limit is {VALUES_MAX} values")
        for key, each in node.items() if isinstance(node, dict) else zip(repeat(""), node):
            here = length + len(key) + 1
            if here > PATH_MAX:
                raise _too_large(f"limit is {PATH_MAX} characters in the path of a field")
            if isinstance(each, dict | list):
                waiting.append((each, here))


def _too_large(what: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {what}")


def is_deeper(tree: Any, depth: int) -> bool:
    """True if objects and lists are nested deeper than `depth`."""
    if not isinstance(tree, dict | list):
        return False
    if depth == 0:
        return True
    for each in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(each, dict | list) and is_deeper(each, depth - 1):
            return True
    return False


def _has_all_keys(tree: Any, raw: bytes) -> bool:
    """True if there is no duplicate key: the encoded tree has as many quotes as the text.

    A duplicate key gives the text two more than the tree. Quotes within strings are in both forms,
    unless they are written as numbers.
    """
    # A search for one character is faster than one for two.
    if b"\\" in raw and b"\\u" in raw:
        return False
    return raw.count(b'"') == msgspec.json.encode(tree).count(b'"')


def _parse_slowly(raw: bytes, error: Exception) -> Any:
    """Parse text that is not UTF-8, which Go accepts; else raises InvalidJson."""
    if isinstance(error, RecursionError):
        raise InvalidJson("exceeded max depth") from None
    if len(raw) > _SCANNED_MAX and "malformed" in str(error) and "surrogate" not in str(error):
        raise InvalidJson(_LONG_TEXT_ERROR) from None
    return _parse_safely(raw)


def _parse_safely(raw: bytes) -> Any:
    """Parse large numbers and lone surrogates as Go does; raises InvalidJson."""
    text = raw.decode("utf-8", errors="replace")
    try:
        tree = json.loads(
            text, parse_constant=_reject_constant, parse_int=_parse_int, parse_float=_parse_float
        )
        return _replace_lone_surrogates(tree)
    except json.JSONDecodeError:
        raise InvalidJson(syntax_error_message(text)) from None
    except RecursionError:
        raise InvalidJson("exceeded max depth") from None


def _parse_int(text: str) -> int:
    """An integer; raises InvalidJson for one out of the range of float64."""
    if len(text) > _DIGITS_SAFE:
        _parse_float(text)
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidJson(f"json: cannot unmarshal number {text} into Go value of type float64")
    return value


def _replace_lone_surrogates(tree: Any) -> Any:
    """Replace lone surrogates by U+FFFD, as Go does."""
    if isinstance(tree, str):
        return _LONE_SURROGATE.sub("\ufffd", tree)
    if isinstance(tree, list):
        return [_replace_lone_surrogates(each) for each in tree]
    if isinstance(tree, dict):
        return {_replace_lone_surrogates(k): _replace_lone_surrogates(v) for k, v in tree.items()}
    return tree


def _reject_constant(name: str) -> Any:
    raise json.JSONDecodeError("constant", name, 0)


def duplicate_fields(raw: bytes) -> list[str]:
    """`duplicate field "metadata.name"` for every key that an object has twice."""
    found: list[bool] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        tree = dict(items)
        if len(tree) != len(items):
            found.append(True)
        return tree

    text = raw.decode("utf-8", errors="replace")
    texts: dict[str, None] = {}
    try:
        json.loads(text, object_pairs_hook=pairs)
        if not found:
            return []
        _collect_duplicates(json.loads(text, object_pairs_hook=_KeyValuePairs), None, texts)
    except RecursionError:
        # The value of the first of two equal keys is not in the tree.
        raise InvalidJson("exceeded max depth") from None
    return list(texts)


_Path = tuple[Any, str] | None
"""The location of a value: the path before its last step, and that step."""


def _collect_duplicates(tree: Any, path: _Path, texts: dict[str, None]) -> None:
    if isinstance(tree, _KeyValuePairs):
        seen: set[str] = set()
        for key, value in tree:
            key = _LONE_SURROGATE.sub("\ufffd", key)
            below = (path, f".{key}")
            if key in seen and len(texts) < _STRICT_MAX:
                texts[f'duplicate field "{_format_path(below)}"'] = None
            seen.add(key)
            _collect_duplicates(value, below, texts)
    elif isinstance(tree, list):
        for at, value in enumerate(tree):
            _collect_duplicates(value, (path, f"[{at}]"), texts)


def _format_path(path: _Path) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps)).removeprefix(".")[:PATH_MAX]


def syntax_error_message(text: str) -> str:
    """The error of Go's scanner for text that is not JSON."""
    if len(text) > _SCANNED_MAX:
        # For Go's error the whole text is scanned again, character by character.
        return _LONG_TEXT_ERROR
    try:
        at = _JsonScanner(text).first_error()
    except RecursionError:
        return "exceeded max depth"
    if at is None or at[0] >= len(text):
        return "unexpected end of JSON input"
    return f"invalid character {_quote_character(text[at[0]])} {at[1]}"


def _quote_character(character: str) -> str:
    if character == '"':
        return "'\"'"
    if character in _ESCAPED:
        return _ESCAPED[character]
    # The same escapes as Go's %q has, but between other quotes.
    return f"'{go_quoted(character)[1:-1]}'"


class _JsonScanner:
    """Finds the first character that Go's scanner rejects, and its name of the context."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def first_error(self) -> tuple[int, str] | None:
        """(index, place) of the first wrong character; None if the text ends too early."""
        wrong = self._value("looking for beginning of value")
        if wrong is not None:
            return wrong
        self._blank()
        if self.at < len(self.text):
            return self.at, "after top-level value"
        return None

    def _blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def _peek(self) -> str:
        self._blank()
        return self.text[self.at] if self.at < len(self.text) else ""

    def _end(self) -> tuple[int, str]:
        return len(self.text), ""

    def _value(self, place: str) -> tuple[int, str] | None:
        start = self._peek()
        if not start:
            return self._end()
        if start == "{":
            return self._object()
        if start == "[":
            return self._array()
        if start == '"':
            return self._string()
        if start == "-" or start.isdigit():
            return self._number()
        for word in ("true", "false", "null"):
            if start == word[0]:
                return self._word(word)
        return self.at, place

    def _word(self, word: str) -> tuple[int, str] | None:
        for offset, wanted in enumerate(word):
            if self.at >= len(self.text):
                return self._end()
            if self.text[self.at] != wanted:
                return self.at, f"in literal {word} (expecting '{word[offset]}')"
            self.at += 1
        return None

    def _number(self) -> tuple[int, str] | None:
        if self.text[self.at] == "-":
            self.at += 1
            if self.at >= len(self.text):
                return self._end()
            if not self.text[self.at].isdigit():
                return self.at, "in numeric literal"
        if self.text[self.at] == "0":
            self.at += 1
        else:
            self._digits()
        if self.text[self.at : self.at + 1] == ".":
            self.at += 1
            if not self._digits():
                return self.at, "after decimal point in numeric literal"
        if self.text[self.at : self.at + 1] in ("e", "E"):
            self.at += 1
            if self.text[self.at : self.at + 1] in ("+", "-"):
                self.at += 1
            if not self._digits():
                return self.at, "in exponent of numeric literal"
        return None

    def _digits(self) -> int:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in "0123456789":
            self.at += 1
        return self.at - start

    def _string(self) -> tuple[int, str] | None:
        self.at += 1
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == '"':
                self.at += 1
                return None
            if ord(character) < 32:
                return self.at, "in string literal"
            if character == "\\":
                wrong = self._escape()
                if wrong is not None:
                    return wrong
            self.at += 1
        return self._end()

    def _escape(self) -> tuple[int, str] | None:
        self.at += 1
        letter = self.text[self.at : self.at + 1]
        if letter and letter not in '"\\/bfnrtu':
            return self.at, "in string escape code"
        if letter == "u":
            for _ in range(4):
                self.at += 1
                digit = self.text[self.at : self.at + 1]
                if digit and digit not in "0123456789abcdefABCDEF":
                    return self.at, "in \\u hexadecimal character escape"
        return None

    def _object(self) -> tuple[int, str] | None:
        self.at += 1
        if self._peek() == "}":
            self.at += 1
            return None
        while True:
            if not self._peek():
                return self._end()
            if self._peek() != '"':
                return self.at, "looking for beginning of object key string"
            if (wrong := self._string()) is not None:
                return wrong
            if self._peek() != ":":
                return self.at, "after object key"
            self.at += 1
            if (wrong := self._value("looking for beginning of value")) is not None:
                return wrong
            if self._peek() == "}":
                self.at += 1
                return None
            if self._peek() != ",":
                return self.at, "after object key:value pair"
            self.at += 1

    def _array(self) -> tuple[int, str] | None:
        self.at += 1
        if self._peek() == "]":
            self.at += 1
            return None
        while True:
            if (wrong := self._value("looking for beginning of value")) is not None:
                return wrong
            if self._peek() == "]":
                self.at += 1
                return None
            if self._peek() != ",":
                return self.at, "after array element"
            self.at += 1
