"""Progress of an experiment: a bar on a terminal, elsewhere lines on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from stowplan.cli.tables.progress import format_virtual_time
from stowplan.inputs.counts import count_of

if TYPE_CHECKING:
    from stowplan.experiments.experiment_run import ExperimentProgress

LINES = 10
"""Lines of a whole experiment where the output is no terminal."""


def progress_text(report: ExperimentProgress, elapsed_s: float) -> str:
    """What is done and failed, and an estimate of the time that is left."""
    text = f"{report.n_done:,} of {count_of(report.n_to_run, 'run')}"
    if report.n_present:
        text = f"{text}, {report.n_present:,} there already"
    if report.n_failed:
        text = f"{text}, {report.n_failed:,} failed"
    n_left = report.n_to_run - report.n_done
    if report.n_done and n_left:
        text = f"{text}, about {format_virtual_time(elapsed_s * n_left / report.n_done)} left"
    return text


@contextmanager
def experiment_progress() -> Iterator[Callable[[ExperimentProgress], None]]:
    """Receives the progress of an experiment while the block runs."""
    console = Console(stderr=True)
    began = time.monotonic()
    if not console.is_terminal:
        yield lambda report: _write_line(report, time.monotonic() - began)
        return
    # Imported here: slow to import, and not needed when the output is piped.
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Without its thread, which would be there when workers are forked.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("starting")

        def show(report: ExperimentProgress) -> None:
            text = progress_text(report, time.monotonic() - began)
            bar.update(task, description=text, completed=report.n_done, total=report.n_to_run)
            bar.refresh()

        yield show


def _write_line(report: ExperimentProgress, elapsed_s: float) -> None:
    """A line for each tenth, and at the start where runs are there already."""
    tenth, before = (
        n * LINES // max(report.n_to_run, 1) for n in (report.n_done, report.n_done - 1)
    )
    is_start = report.n_done == 0 and report.n_present > 0
    if is_start or (report.n_done and tenth > before):
        print(progress_text(report, elapsed_s), file=sys.stderr)
