"""Problems in user input: where, which value, what is allowed, and a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec

# Begin of `got` where a name is wrong and not a value: "an unknown field".
UNKNOWN = "an unknown "


class Problem(msgspec.Struct, frozen=True):
    """One mistake.

    path: location, such as `profiles[0].plugins.score.enabled[2].name`. got: the invalid value as
    written, "" when it is missing. wanted: what is allowed. hint: "did you mean ...".
    """

    path: str
    got: str
    wanted: str
    hint: str = ""

    def __str__(self) -> str:
        got = f"Invalid value: {self.got}: " if self.got else ""
        if self.got.startswith(UNKNOWN):
            got = f"Unknown {self.got.removeprefix(UNKNOWN)}: "
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}: {got}expected {self.wanted}{hint}"


class ConfigError(ValueError):
    """An invalid configuration, with every problem found."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        """source: name of the file, or of the origin of the text."""
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


class ContractError(RuntimeError):
    """A plugin broke the contract; the message names the plugin, where, the value and what is
    allowed."""


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """A hint with the closest known word, or ""; a word that differs only in case is always
    close."""
    names = list(known)
    for name in names:
        if name.lower() == got.lower():
            return f"did you mean {name!r}?"
    close = difflib.get_close_matches(got, names, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
