"""Tokens of CEL expressions.

Source: cel-spec, doc/langdef.md (Syntax); cel-go v0.26, parser/gen/CEL.g4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stowplan.cel.syntax_tree import Issues
from stowplan.cel.values import Uint, read_digits

END = "<EOF>"
IDENTIFIER = "IDENTIFIER"
QUOTED_IDENTIFIER = "QUOTED_IDENTIFIER"
LITERAL = "LITERAL"
KEYWORDS = frozenset({"in", "true", "false", "null"})
RESERVED = frozenset({
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop",
    "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
"""Names that no identifier may have."""

_INT_MAX = 2**63 - 1
_UINT_MAX = 2**64 - 1
_PATTERN = re.compile(
    r"""
    (?P<blank>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>[rR]?[bB]?[rR]?(?:'''|\"\"\"|'|\"))
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<operator>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
_HALVES = frozenset("=&|")
_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_HEX_DIGITS = {"x": 2, "X": 2, "u": 4, "U": 8}


@dataclass(frozen=True, slots=True)
class Token:
    """kind: an operator, keyword or one of the names above. value: of a literal."""

    kind: str
    text: str
    offset: int
    value: Any = None

    @property
    def starts_expression(self) -> bool:
        """True where an expression may begin with this token."""
        return self.kind in _STARTS


_STARTS = frozenset({"[", "{", "(", ".", "-", "!", "true", "false", "null", LITERAL, IDENTIFIER})


def tokens_of(text: str, issues: Issues) -> list[Token]:
    """The tokens of a text, the last of which is END."""
    tokens: list[Token] = []
    place = 0
    while place < len(text):
        match = _PATTERN.match(text, place)
        if match is None:
            # Half of an operator is read up to the letter that does not continue it.
            end = place + (2 if text[place] in _HALVES else 1)
            place = _unreadable(text, place, end, issues)
            continue
        kind, found = match.lastgroup, match.group()
        end = match.end()
        if kind == "string":
            token, end = _string(text, place, found, issues)
            if token is not None:
                tokens.append(token)
        elif kind in ("int", "uint", "float"):
            tokens.append(Token(LITERAL, found, place, _number(kind, found, place, issues)))
        elif kind == "name":
            tokens.append(Token(found if found in KEYWORDS else IDENTIFIER, found, place))
        elif kind == "quoted":
            tokens.append(Token(QUOTED_IDENTIFIER, found[1:-1], place))
        elif kind == "operator":
            tokens.append(Token(found, found, place))
        place = end
    tokens.append(Token(END, END, len(text)))
    return tokens


def _unreadable(text: str, start: int, end: int, issues: Issues) -> int:
    """Report letters that are no token; returns where reading goes on."""
    formatted = text[start:end].replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    issues.report(start, f"Syntax error: token recognition error at: '{formatted}'")
    return min(end, len(text))


def _number(kind: str, text: str, offset: int, issues: Issues) -> Any:
    if kind == "float":
        return float(text)
    digits = text.rstrip("uU") if kind == "uint" else text
    number = int(digits, 16) if digits.startswith("0x") else read_digits(digits)
    if kind == "uint":
        if number > _UINT_MAX:
            issues.report(offset, "Syntax error: invalid uint literal")
            return Uint(0)
        return Uint(number)
    # One more than the highest int is read here, since a sign may stand before it.
    if number > _INT_MAX + 1:
        issues.report(offset, "Syntax error: invalid int literal")
        return 0
    return number


def _string(text: str, start: int, opening: str, issues: Issues) -> tuple[Token | None, int]:
    prefix = opening.rstrip("'\"").lower()
    quote = opening[len(prefix) :]
    raw, binary = "r" in prefix, "b" in prefix
    place = start + len(opening)
    while place < len(text) and not text.startswith(quote, place):
        if len(quote) == 1 and text[place] in "\r\n":
            break
        place += 2 if text[place] == "\\" and not raw else 1
    if not text.startswith(quote, place):
        return None, _unreadable(text, start, place + 1, issues)
    body = text[start + len(opening) : place]
    end = place + len(quote)
    value: Any = body if raw else _unescaped(body, binary, start, issues)
    if binary:
        value = value.encode("latin-1") if not raw and isinstance(value, str) else value
        value = value.encode() if isinstance(value, str) else value
    return Token(LITERAL, text[start:end], start, value), end


def _unescaped(body: str, binary: bool, offset: int, issues: Issues) -> Any:
    if "\\" not in body:
        return body.encode() if binary else body
    parts: list[str] = []
    place = 0
    while place < len(body):
        if body[place] != "\\":
            plain = body[place]
            parts.append(plain.encode().decode("latin-1") if binary else plain)
            place += 1
            continue
        letter = body[place + 1] if place + 1 < len(body) else ""
        if letter in _ESCAPES:
            parts.append(_ESCAPES[letter])
            place += 2
            continue
        n_digits = _HEX_DIGITS.get(letter)
        digits = body[place + 2 : place + 2 + n_digits] if n_digits else body[place + 1 : place + 4]
        base = 16 if n_digits else 8
        try:
            code = int(digits, base)
            parts.append(chr(code))
        except (ValueError, OverflowError):
            issues.report(offset, "Syntax error: invalid escape sequence")
            return b"" if binary else ""
        place += 2 + n_digits if n_digits else 4
    text = "".join(parts)
    return text.encode("latin-1", "replace") if binary else text
