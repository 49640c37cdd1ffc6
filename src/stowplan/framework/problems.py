"""Problems in what a user wrote: where, what was got, what is allowed, and a guess."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """One mistake.

    path: where, as `profiles[0].plugins.score.enabled[2].name`. got: the offending value as
    written, or "" when something is missing. wanted: what is allowed. hint: "did you mean ...".
    """

    path: str
    got: str
    wanted: str
    hint: str = ""

    def __str__(self) -> str:
        got = f"got {self.got}, " if self.got else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.path}: {got}wanted {self.wanted}{hint}"


class ConfigError(ValueError):
    """A configuration that cannot be used: every problem found, not only the first."""

    def __init__(self, source: str, problems: Iterable[Problem]) -> None:
        """source: the file, or what the text came from."""
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


class ContractError(RuntimeError):
    """A plugin broke the contract: names the plugin, where, what it gave and what was wanted."""


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """A hint that names the closest known word, or ""; case alone always counts as close."""
    names = list(known)
    for name in names:
        if name.lower() == got.lower():
            return f"did you mean {name!r}?"
    close = difflib.get_close_matches(got, names, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
