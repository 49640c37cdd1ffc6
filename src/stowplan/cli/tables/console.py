"""Where commands print: as wide as the terminal, or as wide as it takes where there is none."""

from __future__ import annotations

import shutil
import sys
from typing import IO, Any, cast

from rich.console import Console

WIDTH_NO_TERMINAL = 10_000
"""Nobody sees line ends in a file or a pipe, and a wrapped line is one that grep misses."""


class _TrimmedStdout:
    """Standard output without the blanks with which tables are padded on the right."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        # What does not end its line may go on.
        *whole, last = text.split("\n")
        return sys.stdout.write("".join(f"{line.rstrip(' ')}\n" for line in whole) + last)

    def flush(self) -> None:
        sys.stdout.flush()


def stdout_console() -> Console:
    """Standard output."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        if console.is_dumb_terminal:
            # Taken for 80 columns wide, whatever it is, unless both are set.
            console.width, console.height = shutil.get_terminal_size()
        return console
    file = cast(IO[str], cast(Any, _TrimmedStdout()))
    return Console(highlight=False, width=WIDTH_NO_TERMINAL, file=file)
