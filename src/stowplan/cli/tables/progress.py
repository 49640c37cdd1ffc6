"""Progress of a simulation: a bar on a terminal, elsewhere lines on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from stowplan.simulation import kernel_cache
from stowplan.simulation.simulate import KERNEL_LOAD_MIN

FIRST_S, EVERY_S = 5.0, 10.0
"""Seconds of processor time until the first line, and between two: the output does not depend on
the load of the machine."""


class Progress:
    """Receiver of the progress callbacks of `simulate`."""

    def __init__(self, action: str, n_pods: int, bar: Any) -> None:
        """action: as in "scheduling". bar: a `rich.progress.Progress`; None to write lines."""
        self._action = action
        self._n_pods = n_pods
        self._bar = bar
        self._task = None if bar is None else bar.add_task(action, total=n_pods)
        self._began = time.monotonic()
        self._due = time.process_time() + FIRST_S

    def show(self, done: int, n_pods: int) -> None:
        """Report a run without times. done: pods attempted."""
        self._report(self._action, done, "pods attempted")

    def tick(self, done: int, waiting: int, now_s: float) -> None:
        """Report a replay. done: pods bound. waiting: pods pending. now_s: virtual time."""
        self._report(
            f"{self._action}, {format_virtual_time(now_s)}, {waiting} pending", done, "pods bound"
        )

    def _report(self, text: str, done: int, unit: str) -> None:
        kernel_cache.BACKGROUND_COMPILATION.poll()
        total = max(self._n_pods, done)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text, completed=done, total=total)
            return
        worked = time.process_time()
        if worked >= self._due:
            self._due = worked + EVERY_S
            elapsed_s = time.monotonic() - self._began
            print(self._line(text, done, total, unit, elapsed_s), file=sys.stderr)

    def _line(self, text: str, done: int, total: int, unit: str, elapsed_s: float) -> str:
        line = f"{text}: {done:,} of {total:,} {unit}, {elapsed_s:.0f} s"
        if not done:
            return line
        return f"{line}, about {elapsed_s * (total - done) / done:.0f} s left"


@contextmanager
def progress(action: str, n_pods: int) -> Iterator[Progress]:
    """Report progress on standard error while the block runs. Kernels that are not on disk are
    compiled in the background."""
    if n_pods >= KERNEL_LOAD_MIN:
        kernel_cache.BACKGROUND_COMPILATION.begin()
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(action, n_pods, None)
        return
    # Imported here: slow to import, and not needed when the output is piped.
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pods"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        yield Progress(action, n_pods, bar)


def format_virtual_time(seconds: float) -> str:
    """Virtual time as text, with days where there are any."""
    whole = int(seconds)
    days, rest = divmod(whole, 86_400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"day {days} {text}" if days else text
