"""What `stowplan replay` does: restore, verify, or decide with another configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.text import Text

from stowplan.cli.errors import reported
from stowplan.cli.options import TREES
from stowplan.cli.runs.recordings.record_and_open import opened
from stowplan.cli.runs.scheduler_config import read_command_deciders
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.other_configuration import (
    EARLIER,
    LATER,
    MOVED,
    PLACED,
    UNPLACED,
    ConfigurationComparison,
    compare_configuration,
)
from stowplan.forecast.recorded_history import (
    Verification,
    restore,
    summary_of,
    verify,
)
from stowplan.inputs.counts import count_of
from stowplan.recording.frames import RecordingError
from stowplan.recording.recording_files import Recording

LISTED = 10


class ReplayArguments(NamedTuple):
    """The options of the command, by their names."""

    file: Path
    until: str
    verify: bool
    config_files: tuple[str, ...]
    plugin_files: tuple[str, ...]
    compat: str | None
    output: str


def run_replay(given: ReplayArguments) -> int:
    """Replay and print; the exit code."""
    recording = opened(given.file)
    with reported(RecordingError), paused_collector():
        if given.config_files:
            if given.until:
                raise click.UsageError("--until cannot be used with --config")
            return _run_other(recording, given)
        if given.verify:
            return _print_verification(verify(recording, given.plugin_files), given.output)
        until = recording.time(given.until) if given.until else None
        state = summary_of(restore(recording, until, given.plugin_files), recording)
    if given.output in TREES:
        print_tree(state, given.output)
    else:
        _print_state(state, stdout_console())
    return 0


def _run_other(recording: Recording, given: ReplayArguments) -> int:
    """Decide with another configuration, and print the differences; 1 if there are any."""
    other = read_command_deciders(given.config_files, given.plugin_files, given.compat)
    found = compare_configuration(recording, other)
    for note in found.notes:
        click.echo(f"Note: {note}", err=True)
    if given.output in TREES:
        print_tree(found, given.output)
    else:
        _print_comparison(found, stdout_console(), wide=given.output == "wide")
    counts = found.counts
    return 1 if counts[MOVED] or counts[UNPLACED] else 0


def _print_comparison(found: ConfigurationComparison, console: Console, *, wide: bool) -> None:
    counts, (own, other) = found.counts, found.evictions
    console.print(
        f"{count_of(found.pods, 'pod')}: {counts[MOVED]:,} on another node, {counts[UNPLACED]:,} "
        f"unplaced that were placed, {counts[PLACED]:,} placed that were not, {counts[EARLIER]:,} "
        f"earlier, {counts[LATER]:,} later; evictions {own:,} -> {other:,}"
    )
    listed = found.differences if wide else found.differences[:LISTED]
    if not listed:
        return
    table = plain_table(
        "", "POD", "CHANGE", "NODE", "OTHER", "SECONDS", "REASON", right=("SECONDS",)
    )
    for one in listed:
        row = (one.node, one.other, f"{one.seconds:+g}", Text(one.reason))
        table.add_row(one.pod, one.change, *row)
    console.print(table)
    more = len(found.differences) - len(listed)
    if more:
        console.print(f"and {more:,} more: -o wide lists all")


def _print_verification(found: Verification, output: str) -> int:
    if output in TREES:
        print_tree(found, output)
        return 0 if found.is_equal else 1
    calls = f"{count_of(found.n_calls, 'call')}, {count_of(found.n_effects, 'effect')}"
    divergence = found.divergence
    if divergence is not None:
        click.echo(f"differs at call {divergence.call:,}, time {divergence.now:,} ns")
        for name, effects in (("recorded", divergence.recorded), ("decided", divergence.decided)):
            click.echo(f"  {name}: {effects[0] if effects else 'nothing'}")
    elif found.is_exact:
        click.echo(f"same decisions: {calls}, {found.n_bytes:,} bytes compared")
    else:
        text = "from a snapshot, so bindings are compared and not bytes"
        moved = f"{found.n_moved:,} of {count_of(found.n_bound, 'binding')} to another node"
        click.echo(f"{calls} {text}: {moved}")
    return 0 if found.is_equal else 1


def _print_state(state: dict[str, Any], console: Console) -> None:
    recording = state["recording"]
    offset = f"+{state['offsetSeconds']:g}s"
    files = "" if recording["files"] == 1 else f" and {recording['files'] - 1} older"
    console.print(f"{recording['file']}{files}: recorded by stowplan {recording['command']}")
    exact = "" if recording["exact"] else ", from a snapshot"
    console.print(f"{state['time']} ({offset}), {count_of(state['calls'], 'call')}{exact}")
    bound = f"{count_of(state['bound'], 'pod')} bound, {state['assumed']} assumed"
    console.print(f"{count_of(state['nodes'], 'node')}; {bound}")
    table = plain_table("", "PENDING", "PODS", right=("PODS",))
    for name, count in state["pending"].items():
        table.add_row(name, str(count))
    console.print(table)
