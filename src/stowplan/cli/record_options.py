"""The options `--record`: of every command that runs a scheduler."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import click

from stowplan.cli.command import flag, grouped

SIZE_MAX, KEPT = "256Mi", 4
"""The defaults of `stowplan.driver.storage.recording_writer`, which imports too much for a help
text."""
SIZE_BYTES_MIN = 64 * 1024

_UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}
_SIZE = re.compile(r"([0-9]{1,12})(Ki|Mi|Gi|k|M|G|)")


def _size_callback(ctx: click.Context, param: click.Parameter, value: str) -> int:
    """The bytes of an option that is a size."""
    found = _SIZE.fullmatch(value.strip())
    size = int(found[1]) * _UNITS[found[2]] if found else 0
    if size < SIZE_BYTES_MIN:
        text = "must be a size of at least 64Ki, such as 500k, 64Mi or 1Gi"
        raise click.BadParameter(text, ctx, param)
    return size


record_options = grouped(
    flag(
        "--record",
        "record_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Record the scheduler's events and decisions to this file, for `stowplan replay`. A "
        "file that is there becomes FILE.1.  [default: no recording]",
    ),
    flag(
        "--record-max-size",
        metavar="SIZE",
        default=SIZE_MAX,
        callback=_size_callback,
        help="Size at which the recording goes on in a new file.",
    ),
    flag(
        "--record-keep",
        metavar="N",
        type=click.IntRange(min=0),
        default=KEPT,
        help="Number of older files, FILE.1 to FILE.N, that are kept.",
    ),
)


recorded_moment = grouped(
    flag(
        "--record",
        "record_file",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Take the cluster from a recording of `stowplan run`, `up` or `simulate`.  [default: "
        "no recording]",
    ),
    flag(
        "--at",
        metavar="TIME",
        default="",
        help="Time in the recording: an offset from its start such as +90s, or RFC 3339.  "
        "[default: its end]",
    ),
)


class RecordRequest(NamedTuple):
    """A recording that was asked for. size_max: of a file, in bytes. kept: older files."""

    path: Path
    size_max: int
    kept: int

    @classmethod
    def take(cls, given: dict[str, Any]) -> RecordRequest | None:
        """The request of a command's options, which are taken out of `given`; None without one."""
        path = given.pop("record_file")
        size_max, kept = given.pop("record_max_size"), given.pop("record_keep")
        return None if path is None else cls(path, size_max, kept)
