"""Sets of completion indexes as an Indexed Job writes them: `1,3-5,7`.

Source: kube-controller-manager v1.36, pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.apis.machinery.strconv import uint_or_none


def parse_indexes(text: str, completions: int) -> set[int]:
    """The indexes in `text` below `completions`; invalid parts are skipped."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        low, high = uint_or_none(first), uint_or_none(last or first)
        if low is not None and high is not None:
            found.update(range(low, min(high, completions - 1) + 1))
    return {index for index in found if index < completions}


def format_indexes(indexes: Iterable[int]) -> str:
    """Text of a set of indexes: runs of three or more with a dash, two with a comma."""
    parts: list[str] = []
    run: list[int] = []
    for index in sorted(set(indexes)):
        if run and index != run[-1] + 1:
            parts.append(_format_range(run))
            run = []
        run.append(index)
    if run:
        parts.append(_format_range(run))
    return ",".join(parts)


def _format_range(run: list[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    return f"{run[0]}{',' if len(run) == 2 else '-'}{run[-1]}"


def pending_indexes(done: set[int], count: int, completions: int) -> list[int]:
    """The first `count` indexes below `completions` that are not in `done`."""
    free: list[int] = []
    for index in range(completions):
        if len(free) >= count:
            break
        if index not in done:
            free.append(index)
    return free
