"""The table of expected starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.cli.tables.console import plain_table

if TYPE_CHECKING:
    from stowplan.forecast.expected_starts import (
        ExpectedJobStart,
        ExpectedStart,
        ExpectedStarts,
        StartInterval,
    )

NEVER = "never"


def print_expected_starts(found: ExpectedStarts, screen: Console, *, wide: bool = False) -> None:
    """A line per job, then why some do not start, and what was assumed. wide: a line per pod."""
    if not found.pods:
        screen.print("No pending pods.")
        return
    low, high = found.percentiles
    has_clock = bool(found.now)
    table = plain_table(
        "",
        *("NAMESPACE", "NAME", *(() if wide else ("PENDING",)), "START", f"{low}-{high}%"),
        *(() if wide else ("ALL STARTED",)),
        *(("AT",) if has_clock else ()),
        "RUN TIME",
        right=("PENDING",),
    )
    horizon = human_duration(found.horizon_s)
    calibration = found.calibration
    is_open = calibration is not None and calibration.latest_factor is None
    after = "open" if is_open else f"over {horizon}"
    lines = (
        [_pod(pod, horizon, after) for pod in found.pods]
        if wide
        else [_job(job, horizon, after) for job in found.jobs]
    )
    for line in lines:
        *cells, at, run_time = line
        table.add_row(*map(Text, (*cells, *((at,) if has_clock else ()), run_time)))
    screen.print(table)
    for text in _reasons(found):
        screen.print(Text(text), soft_wrap=True)
    draws = "1 simulation" if found.draws == 1 else f"{found.draws} simulations"
    as_of = f"As of {found.now}" if has_clock else "From now on (no object shows a time; see --now)"
    screen.print(Text(f"{as_of}, {draws}. Assumed:"), soft_wrap=True)
    for text in found.assumptions:
        screen.print(Text(f"- {text}"), soft_wrap=True)


def _job(job: ExpectedJobStart, horizon: str, after: str) -> list[str]:
    pending = f"{job.pending}/{job.pods}"
    late = NEVER if job.never else f"not in {horizon}"
    start = "started" if job.start is None else _median(job.start, late)
    between, at = "", ""
    if job.start is not None:
        between, at = _between(job.start, after), job.start.median_at
    complete = "" if job.complete is None else _median(job.complete, late)
    return [job.namespace, job.name, pending, start, between, complete, at, job.run_time]


def _pod(pod: ExpectedStart, horizon: str, after: str) -> list[str]:
    namespace, _, name = pod.pod.partition("/")
    if pod.start is None:
        return [namespace, name, pod.state.lower(), "", pod.at, pod.run_time]
    start, late = pod.start, NEVER if pod.never else f"not in {horizon}"
    between = _between(start, after)
    return [namespace, name, _median(start, late), between, start.median_at, pod.run_time]


def _median(start: StartInterval, late: str) -> str:
    """late: text for what starts in no simulation."""
    if start.is_late:
        return late
    if start.median_s is None:
        return f"in {start.probability:.0%} of cases"
    return _in(start.median_s)


def _between(start: StartInterval, after: str) -> str:
    """after: text for an interval without a latest start."""
    if start.is_late or start.earliest_s is None:
        return ""
    if start.earliest_s == start.latest_s:
        return _in(start.earliest_s)
    latest = after if start.latest_s is None else _in(start.latest_s)
    return f"{_in(start.earliest_s)} to {latest}"


def _in(seconds: float) -> str:
    return "now" if seconds < 1 else human_duration(seconds)


def _reasons(found: ExpectedStarts) -> list[str]:
    """A line per pod that is not pending, and per job that does not start."""
    words = {"Running": "is running since", "Finished": "has finished at"}
    lines = [
        f"pod {pod.pod} {words[pod.state]} {pod.at or 'an unknown time'}"
        for pod in found.pods
        if pod.start is None
    ]
    horizon = human_duration(found.horizon_s)
    for job in found.jobs:
        if job.never:
            lines.append(f"{job.name} never starts: {'; '.join(job.never)}")
        elif job.late:
            lines.append(f"{job.name} does not start in {horizon}: {'; '.join(job.late)}")
    return lines
