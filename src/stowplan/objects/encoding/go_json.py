"""JSON decoding as in Go: keys in any case, only the first value, Go's error texts.

The target type is described with `GoString`, `GoInt64`, `GoSlice`, `GoMap`, `GoStruct` and
`GoObject`; null leaves a value unset, None here. The first error counts: syntax errors come before
type errors.

Differs: text that is JSON here and not in Go is no error (too deep nesting). Unproved: the fields
of a GoObject are not checked.

Source: Go 1.24, encoding/json Decoder.Decode.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from stowplan.objects.quantity import INT64_MAX


class GoDecodeError(msgspec.Struct, frozen=True):
    """The error of a text that cannot be decoded."""

    text: str


class GoType(msgspec.Struct, frozen=True):
    """Base of the types. name: in Go."""

    name: str


class GoString(GoType, frozen=True):
    """A string."""

    name: str = "string"


class GoInt64(GoType, frozen=True):
    """A 64-bit integer."""

    name: str = "int64"


class GoSlice(GoType, frozen=True):
    """A list of values of one type."""

    of: GoType


class GoMap(GoType, frozen=True):
    """A map from strings to values of one type."""

    of: GoType


class GoStruct(GoType, frozen=True):
    """A struct; its name is `package.Name`.

    Keys match in any case, unknown keys are ignored. Decoded as a dict with the keys that are
    present.
    """

    of: Mapping[str, GoType]


class GoObject(GoType, frozen=True):
    """An object, kept undecoded."""


_DIGITS_MAX = len(str(-INT64_MAX))


class NumberLiteral(str):
    """A number, as text."""


def read(body: bytes, kind: GoType) -> Any | GoDecodeError:
    """Decode the first JSON value of a body, or return the error."""
    text = body.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip(" \t\r\n"))
    if start == len(text):
        return GoDecodeError("EOF")
    try:
        tree, _ = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return GoDecodeError(SyntaxScanner(body).fault())
    if "\\ud" in text.lower():
        tree = _replace_surrogates(tree)
    reading = _GoDecoder()
    value = reading.value(tree, kind)
    return GoDecodeError(reading.fault) if reading.fault else value


def _replace_surrogates(tree: Any) -> Any:
    """A copy with lone surrogates replaced, which cannot be encoded."""
    if isinstance(tree, NumberLiteral):
        return tree
    if isinstance(tree, str):
        return tree.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(tree, dict):
        return {_replace_surrogates(key): _replace_surrogates(value) for key, value in tree.items()}
    return [_replace_surrogates(value) for value in tree] if isinstance(tree, list) else tree


def number_of(number: NumberLiteral) -> int | float:
    """The number of a literal."""
    return float(number) if set(number) & set(".eE") else int(number)


def with_plain_numbers(tree: Any) -> Any:
    """A copy with NumberLiterals as numbers."""
    if isinstance(tree, NumberLiteral):
        return number_of(tree)
    if isinstance(tree, dict):
        return {key: with_plain_numbers(value) for key, value in tree.items()}
    return [with_plain_numbers(value) for value in tree] if isinstance(tree, list) else tree


def _refused(constant: str) -> None:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(
    parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=_refused
)


class _GoDecoder:
    """Decodes one text. fault: the first type error, "" without one."""

    def __init__(self) -> None:
        self.fault = ""
        self._struct = ""
        self._path: list[str] = []

    def value(self, tree: Any, kind: GoType) -> Any:
        if tree is None:
            return None
        if isinstance(kind, GoInt64):
            return self._whole(tree, kind)
        if isinstance(kind, GoString):
            if isinstance(tree, str) and not isinstance(tree, NumberLiteral):
                return tree
        elif isinstance(kind, GoSlice):
            if isinstance(tree, list):
                return [self.value(one, kind.of) for one in tree]
        elif isinstance(tree, dict):
            if isinstance(kind, GoMap):
                return {key: self.value(one, kind.of) for key, one in tree.items()}
            return (
                self._fields(tree, kind) if isinstance(kind, GoStruct) else with_plain_numbers(tree)
            )
        return self._wrong(_json_type(tree), kind)

    def _whole(self, tree: Any, kind: GoType) -> int | None:
        if not isinstance(tree, NumberLiteral):
            self._wrong(_json_type(tree), kind)
            return None
        is_short = len(tree) <= _DIGITS_MAX and not set(tree) & set(".eE")
        if not is_short or not -INT64_MAX - 1 <= int(tree) <= INT64_MAX:
            self._wrong(f"number {tree}", kind)
            return None
        return int(tree)

    def _fields(self, tree: dict[str, Any], kind: GoStruct) -> dict[str, Any]:
        found: dict[str, Any] = {}
        names = {name.lower(): name for name in kind.of}
        for key, value in tree.items():
            name = key if key in kind.of else names.get(key.lower())
            if name is None:
                continue
            outer, self._struct = self._struct, kind.name.rpartition(".")[2]
            self._path.append(name)
            found[name] = self.value(value, kind.of[name])
            self._path.pop()
            self._struct = outer
        return found

    def _wrong(self, got: str, kind: GoType) -> None:
        if self.fault:
            return
        where = "Go value"
        if self._struct:
            where = f"Go struct field {'.'.join((self._struct, *self._path))}"
        self.fault = f"json: cannot unmarshal {got} into {where} of type {kind.name}"


def _json_type(tree: Any) -> str:
    if isinstance(tree, NumberLiteral):
        return "number"
    if isinstance(tree, bool):
        return "bool"
    if isinstance(tree, str):
        return "string"
    return "array" if isinstance(tree, list) else "object"


class _SyntaxFault(Exception):
    """A syntax error at a position."""


class SyntaxScanner:
    """Scans invalid JSON up to its first syntax error."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def fault(self) -> str:
        """The syntax error, in Go's words."""
        try:
            self._value()
        except _SyntaxFault as bad:
            return str(bad)
        except RecursionError:
            pass
        return "exceeded max depth"

    def _next(self) -> int:
        if self._at == len(self._body):
            raise _SyntaxFault("unexpected EOF")
        self._at += 1
        return self._body[self._at - 1]

    def _solid(self) -> int:
        """The next byte that is no whitespace."""
        while (byte := self._next()) in b" \t\r\n":
            pass
        return byte

    def _peek(self) -> int:
        """The next byte, 0 at the end, where a number may end."""
        return self._body[self._at] if self._at < len(self._body) else 0

    def _bad(self, byte: int, context: str) -> _SyntaxFault:
        return _SyntaxFault(f"invalid character {quote_byte(byte)} {context}")

    def _value(self) -> None:
        self._value_at(self._solid())

    def _value_at(self, byte: int) -> None:
        if byte == ord("{"):
            self._object()
        elif byte == ord("["):
            self._array()
        elif byte == ord('"'):
            self._string()
        elif byte in b"-0123456789":
            self._number(byte)
        elif byte in b"tfn":
            self._literal({"t": "true", "f": "false", "n": "null"}[chr(byte)])
        else:
            raise self._bad(byte, "looking for beginning of value")

    def _object(self) -> None:
        byte = self._solid()
        if byte == ord("}"):
            return
        while True:
            if byte != ord('"'):
                raise self._bad(byte, "looking for beginning of object key string")
            self._string()
            if (byte := self._solid()) != ord(":"):
                raise self._bad(byte, "after object key")
            self._value()
            byte = self._solid()
            if byte == ord("}"):
                return
            if byte != ord(","):
                raise self._bad(byte, "after object key:value pair")
            byte = self._solid()

    def _array(self) -> None:
        byte = self._solid()
        if byte == ord("]"):
            return
        while True:
            self._value_at(byte)
            byte = self._solid()
            if byte == ord("]"):
                return
            if byte != ord(","):
                raise self._bad(byte, "after array element")
            byte = self._solid()

    def _string(self) -> None:
        while (byte := self._next()) != ord('"'):
            if byte < 0x20:
                raise self._bad(byte, "in string literal")
            if byte != ord("\\"):
                continue
            byte = self._next()
            if byte == ord("u"):
                for _ in range(4):
                    if (byte := self._next()) not in b"0123456789abcdefABCDEF":
                        raise self._bad(byte, "in \\u hexadecimal character escape")
            elif byte not in b'bfnrt\\/"':
                raise self._bad(byte, "in string escape code")

    def _number(self, byte: int) -> None:
        if byte == ord("-") and (byte := self._next()) not in b"0123456789":
            raise self._bad(byte, "in numeric literal")
        if byte != ord("0"):
            self._digits()
        if self._peek() == ord("."):
            self._at += 1
            self._some_digits(self._next(), "after decimal point in numeric literal")
        if self._peek() in b"eE":
            self._at += 1
            byte = self._next()
            byte = self._next() if byte in b"+-" else byte
            self._some_digits(byte, "in exponent of numeric literal")

    def _some_digits(self, byte: int, context: str) -> None:
        if byte not in b"0123456789":
            raise self._bad(byte, context)
        self._digits()

    def _digits(self) -> None:
        while self._peek() in b"0123456789":
            self._at += 1

    def _literal(self, word: str) -> None:
        for letter in word[1:]:
            if (byte := self._next()) != ord(letter):
                raise self._bad(byte, f"in literal {word} (expecting '{letter}')")


_ESCAPES = {7: "a", 8: "b", 12: "f", 10: "n", 13: "r", 9: "t", 11: "v", 92: "\\", 39: "'"}


def quote_byte(byte: int) -> str:
    """A byte as Go prints it: its character in single quotes."""
    if byte in _ESCAPES:
        return f"'\\{_ESCAPES[byte]}'"
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'"
    is_printable = byte < 0x80 or (byte > 0xA0 and byte != 0xAD)
    return f"'{chr(byte)}'" if is_printable else f"'\\u{byte:04x}'"
