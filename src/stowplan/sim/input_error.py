"""InputError: input that cannot be used, said in one line."""

from __future__ import annotations


class InputError(ValueError):
    """What a user gave cannot be used: the line says where, what was got and what was wanted."""

    def __init__(self, source: str, place: str, got: str, wanted: str) -> None:
        """source: the file. place: where in it, "" for the whole."""
        super().__init__(_line(source, place, f"got {got}, wanted {wanted}"))

    @classmethod
    def at(cls, source: str, place: str, problem: object) -> InputError:
        """The error for a `problem` whose own text says what was got and wanted."""
        error = cls(source, place, "", "")
        error.args = (_line(source, place, str(problem)),)
        return error


def _line(*parts: str) -> str:
    """The parts that say something, on one line."""
    said = ("; ".join(part.split("\n")) for part in parts if part)
    return ": ".join(said)
