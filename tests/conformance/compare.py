"""Comparison of an answer with a recorded one, field by field, by the rules of FORMAT.md."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ONE_IN_FIRST = 3
"""One in so many recorded lines is answered in `make test` by the fastest way."""
ONE_IN_AGAIN = 8
"""One in so many by a further way."""
ONE_IN = 12
"""One in so many by the slowest walk."""
SHARES = pytest.mark.parametrize(
    "one_in",
    [
        pytest.param(ONE_IN_AGAIN, id="sample"),
        pytest.param(1, id="all", marks=pytest.mark.soak),
    ],
)
WALKS = pytest.mark.parametrize(
    ("columns", "one_in"),
    [
        pytest.param(True, ONE_IN_FIRST, id="columns-sample"),
        pytest.param(False, ONE_IN, id="scalar-sample"),
        pytest.param(True, 1, id="columns", marks=pytest.mark.soak),
        pytest.param(False, 1, id="scalar", marks=pytest.mark.soak),
    ],
)

FIRST = pytest.mark.parametrize(
    "one_in",
    [
        pytest.param(ONE_IN_FIRST, id="sample"),
        pytest.param(1, id="all", marks=pytest.mark.soak),
    ],
)
"""Where there is one way only."""

SETS = {
    "deallocatedOneOf",
    "reasons",
    "skipped",
    "selected",
    "best",
    "nominatedNodes",
    "unschedulablePlugins",
    "nodeNames",
}


def recorded(path: Path, one_in: int = 1) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each line of a file of recorded answers: the line itself and its expected block.

    one_in: of so many lines one, always the same and the first among them.
    """
    with gzip.open(path, "rb") as lines:
        for number, line in enumerate(lines):
            if number == 0 or zlib.crc32(line) % one_in == 0:
                yield line, json.loads(line)["expected"]


def differences(want: Any, got: Any, path: str = "") -> Iterator[str]:
    """Differences of two values; none when they are equal."""
    if want == got:
        return
    name = path.rsplit(".", 1)[-1]
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            if key not in got:
                yield f"{path}.{key}: missing, want {want[key]!r}"
            elif key not in want:
                yield f"{path}.{key}: not wanted, got {got[key]!r}"
            else:
                yield from differences(want[key], got[key], f"{path}.{key}")
    elif name in SETS and isinstance(want, list) and isinstance(got, list):
        if sorted(want) != sorted(got):
            yield f"{path}: want {sorted(want)}, got {sorted(got)}"
    else:
        yield f"{path}: want {want!r}, got {got!r}"


def attempt_differences(want: dict[str, Any], got: dict[str, Any]) -> list[str]:
    """Differences between answers to one attempt; any of `messages` is accepted."""
    want, got = dict(want), dict(got)
    found = []
    if "messages" in want:
        allowed = want.pop("messages")
        want.pop("message", None)
        got.pop("messages", None)
        if got.pop("message", None) not in allowed:
            found.append(".message: none of the possible texts")
    return found + list(differences(want, got))
