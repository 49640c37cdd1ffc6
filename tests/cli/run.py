"""Run the command line in this process, as a user would see it."""

from __future__ import annotations

import io
import math
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

import pytest

from stowplan.cli.main import main
from stowplan.cli.tables import progress


class Ran(NamedTuple):
    """The result of a command: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


class _Screen(io.StringIO):
    """Text, with the bytes below it that binary writers ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = _Below(self)


class _Below(io.BytesIO):
    def __init__(self, screen: io.StringIO) -> None:
        super().__init__()
        self._screen = screen

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._screen.write(data.decode())


def run(*arguments: str) -> Ran:
    """Run `stowplan ARGUMENTS`. No progress is reported: on a busy machine, and where another
    thread of this process compiles kernels, a short command takes seconds of processor time."""
    out, err = _Screen(), _Screen()
    silent = mock.patch.object(progress, "FIRST_S", math.inf)
    with silent, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(list(arguments))
    # Python ends with 0 where the code is None.
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def check_one_line(ran: Ran, *parts: str) -> None:
    """Check invalid input: exit code 2, no standard output, one line that has all the parts."""
    assert ran.code == 2, ran
    assert ran.out == "", ran
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    for part in parts:
        assert part in lines[0], (part, lines[0])
