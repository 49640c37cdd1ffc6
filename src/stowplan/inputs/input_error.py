"""InputError: input that cannot be used, said in one line."""

from __future__ import annotations

from collections.abc import Iterable


class InputError(ValueError):
    """What a user gave cannot be used: a line says where, what was got and what was wanted.

    Several mistakes in manifests are a line each.
    """

    def __init__(self, source: str, place: str, got: str, wanted: str) -> None:
        """source: the file. place: where in it, "" for the whole."""
        super().__init__(_line(source, place, f"got {got}, wanted {wanted}"))

    @classmethod
    def of(cls, lines: Iterable[str]) -> InputError:
        """The error for several mistakes, a line each."""
        error = cls("", "", "", "")
        error.args = ("\n".join(lines),)
        return error

    @classmethod
    def at(cls, source: str, place: str, problem: object) -> InputError:
        """The error for a `problem` whose own text says what was got and wanted."""
        error = cls(source, place, "", "")
        error.args = (_line(source, place, str(problem)),)
        return error


def check_word(name: str, got: str, known: Iterable[str]) -> None:
    """Raise InputError unless an option has one of the words that it may have."""
    if got not in known:
        raise InputError(name, "", repr(got), f"one of {', '.join(known)}")


def _line(*parts: str) -> str:
    """The parts that say something, on one line."""
    said = ("; ".join(part.split("\n")) for part in parts if part)
    return ": ".join(said)
