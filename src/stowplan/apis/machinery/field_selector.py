"""Field selectors of query parameters.

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
    """`field=value` or `field!=value`."""

    field: str
    value: str
    equal: bool = True

    def matches(self, got: str) -> bool:
        """True if the value `got` of the field matches."""
        return (got == self.value) == self.equal


def parse_field_selector(text: str) -> tuple[FieldRequirement, ...]:
    """The requirements of a field selector, all of which must match. Raises SelectorParseError."""
    return tuple(_term(text, part) for part in sorted(_split(text)) if part)


def _split(text: str) -> list[str]:
    """Split at commas that are not escaped."""
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
