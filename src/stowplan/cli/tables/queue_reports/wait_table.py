"""What a job of a queue model waits for, as text."""

from __future__ import annotations

import math

from rich.console import Console
from rich.text import Text

from stowplan.apis.machinery.timestamps import human_duration
from stowplan.cli.tables.console import plain_table
from stowplan.forecast.queue_reports.audited_queue import amount_text
from stowplan.forecast.queue_reports.job_waits import JobWait

MOMENTS_LISTED = 5
_FIGURES = ("ASKED", "ALLOCATED", "QUOTA", "FAIR SHARE", "LIMIT")


def print_wait(wait: JobWait, screen: Console) -> None:
    """The queues with their bounds, what frees resources, and the expected start."""
    if wait.levels:
        columns = ("QUEUE", "RESOURCE", *_FIGURES, "EXCEEDS")
        table = plain_table("\nIts queue, and those above", *columns, right=_FIGURES)
        for one in wait.levels:
            bounds = (one.asked, one.allocated, one.quota, one.fair_share, one.limit)
            figures = [
                amount_text(one.resource, math.inf if amount is None else amount)
                for amount in bounds
            ]
            table.add_row(
                Text(one.queue), Text(one.resource), *figures, Text(", ".join(one.over) or "-")
            )
        screen.print(table)
    if wait.moments:
        at = ("AT",) if wait.now else ()
        table = plain_table("\nWhat frees resources", *at, "IN", "WHAT")
        for moment in wait.moments[:MOMENTS_LISTED]:
            when = (moment.at,) if wait.now else ()
            table.add_row(*when, human_duration(moment.after_s), Text(moment.text))
        screen.print(table)
        more = len(wait.moments) - MOMENTS_LISTED
        if more > 0:
            screen.print(Text(f"and {more} later", style="dim"))
    if wait.start_after_s is not None:
        start = f"{wait.start_at}, " if wait.start_at else ""
        text = f"Expected start: {start}in {human_duration(wait.start_after_s)}"
        screen.print(Text(f"{text}, if no more pods arrive (see stowplan eta)"))
    elif wait.start_note:
        screen.print(Text(f"Expected start: unknown; {wait.start_note}"))
