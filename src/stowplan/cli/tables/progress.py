"""How far a simulation is: a bar on a terminal, elsewhere a line now and then on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from stowplan.simulation import kernel_cache
from stowplan.simulation.simulate import KERNEL_LOAD_MIN

FIRST_S, EVERY_S = 5.0, 10.0
"""Seconds of processor time until the first line, and between two: what a run writes should not
depend on what else the machine does."""


class Progress:
    """Takes what `simulate` calls back with."""

    def __init__(self, what: str, n_pods: int, bar: Bar | None) -> None:
        """what: is done, as in "placing". bar: None has lines written."""
        self._what = what
        self._n_pods = n_pods
        self._bar = bar
        self._task = None if bar is None else bar.add_task(what, total=n_pods)
        self._began = time.monotonic()
        self._due = time.process_time() + FIRST_S

    def show(self, done: int, n_pods: int) -> None:
        """Of a fill: so many pods have been tried."""
        self._report(self._what, done, "pods tried")

    def tick(self, done: int, waiting: int, now_s: float) -> None:
        """Of a replay: so many have been bound, so many wait, at a virtual time."""
        self._report(
            f"{self._what}, {format_virtual_time(now_s)}, {waiting} waiting", done, "pods bound"
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
def progress(what: str, n_pods: int) -> Iterator[Progress]:
    """Tell on standard error how far something is, for as long as it goes on. Kernels that it would
    use and that are not on disk are compiled beside it."""
    if n_pods >= KERNEL_LOAD_MIN:
        kernel_cache.BACKGROUND_COMPILATION.begin()
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(what, n_pods, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pods"),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        yield Progress(what, n_pods, bar)


def format_virtual_time(seconds: float) -> str:
    """Virtual time for people: days where there are any."""
    whole = int(seconds)
    days, rest = divmod(whole, 86_400)
    text = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"day {days} {text}" if days else text
