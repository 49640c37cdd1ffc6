"""InputError: invalid input, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stowplan._deprecated import deprecated_keywords

_LITERAL = re.compile(
    r"""['"\[{*+-]|\d|(true|false|null|nan|inf)\b|an? (empty )?(list|mapping)\b"""
)


class InputError(ValueError):
    """Invalid input of a user: one line with the file, the place, the value and what is expected.

    Several mistakes in manifests are a line each.
    """

    @deprecated_keywords(wanted="expected")
    def __init__(self, source: str, place: str, got: str, expected: str) -> None:
        """source: the file. place: where in it, "" for the whole file."""
        super().__init__(_line(source, place, mismatch(got, expected)))

    @classmethod
    def of(cls, lines: Iterable[str]) -> InputError:
        """The error for several mistakes, a line each."""
        error = cls("", "", "", "")
        error.args = ("\n".join(lines),)
        return error

    @classmethod
    def at(cls, source: str, place: str, problem: object) -> InputError:
        """The error for a `problem` whose text is complete."""
        error = cls(source, place, "", "")
        error.args = (_line(source, place, str(problem)),)
        return error


def mismatch(got: str, expected: str) -> str:
    """`Invalid value: 5: expected a string`, as the API server words it.

    got: a value as written, a description such as `no such file or directory`, or "" for a missing
    value.
    """
    if not got:
        return f"Required value: expected {expected}"
    prefix = "Invalid value: " if _LITERAL.match(got) else ""
    return f"{prefix}{got}: expected {expected}"


def check_word(name: str, got: str, known: Iterable[str]) -> None:
    """Raise InputError unless an option has one of the known values."""
    if got not in known:
        raise InputError(name, "", repr(got), f"one of {', '.join(known)}")


def _line(*parts: str) -> str:
    """The non-empty parts, on one line."""
    return ": ".join("; ".join(part.split("\n")) for part in parts if part)
