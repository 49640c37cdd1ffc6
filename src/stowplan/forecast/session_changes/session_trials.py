"""What the searches for changes that let a session start a job have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stowplan.cycle.change import Change
from stowplan.simulation.session_runner import SessionRun

Outcome = Callable[[SessionRun], bool]
"""Whether a session has started what is explained."""


class JobChanges(NamedTuple):
    """The changes, cheapest first, and what the search left out."""

    changes: tuple[Change, ...]
    not_searched: tuple[str, ...]


def smallest(first: int, last: int, helps: Callable[[int], bool]) -> int | None:
    """The smallest number that helps, where larger ones help, too; None if the last does not."""
    if first > last or not helps(last):
        return None
    while first < last:
        middle = (first + last) // 2
        if helps(middle):
            last = middle
        else:
            first = middle + 1
    return first
