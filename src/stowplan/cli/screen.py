"""Where commands print: as wide as the terminal, or as wide as it takes where there is none."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_UNSEEN = 400
"""Nobody sees line ends in a file or a pipe, and a wrapped line is one that grep misses."""


def screen() -> Console:
    """Standard output."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_UNSEEN)
