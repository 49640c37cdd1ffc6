"""Field selectors as query parameters write them.

Source: apimachinery v0.36, fields/selector.go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from stowplan.apis.machinery.label_selector import SelectorParseError

_OPERATOR = re.compile("!=|==|=")
_COMMA = re.compile(r"\\.|,", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """field equals value, or does not."""

    field: str
    value: str
    equal: bool = True

    def matches(self, got: str) -> bool:
        """True when a field of the value `got` fulfils this term."""
        return (got == self.value) == self.equal


def parse_field_selector(text: str) -> tuple[FieldRequirement, ...]:
    """The terms of a field selector, all of which must hold. Raises SelectorError."""
    return tuple(_term(text, part) for part in sorted(_split(text)) if part)


def _split(text: str) -> list[str]:
    """Cut at commas that no backslash escapes."""
    parts, start = [], 0
    for found in _COMMA.finditer(text):
        if found[0] == ",":
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def _term(whole: str, part: str) -> FieldRequirement:
    found = _OPERATOR.search(part)
    if found is None:
        raise SelectorParseError(f"invalid selector: '{whole}'; can't understand '{part}'")
    return FieldRequirement(
        part[: found.start()], _unescaped(part[found.end() :]), found[0] != "!="
    )


def _unescaped(text: str) -> str:
    kept = []
    escaped = False
    for letter in text:
        if escaped:
            if letter not in "\\,=":
                raise SelectorParseError(
                    f"invalid field selector: invalid escape sequence: \\{letter}"
                )
            kept.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter in ",=":
            raise SelectorParseError(
                f"invalid field selector: unescaped character in value: {ord(letter)}"
            )
        else:
            kept.append(letter)
    if escaped:
        raise SelectorParseError("invalid field selector: invalid escape sequence: \\")
    return "".join(kept)
