"""What `stowplan replay` does: restore, verify, or decide with another configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console

from stowplan.cli.errors import reported
from stowplan.cli.options import TREES
from stowplan.cli.runs.recording import opened
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console
from stowplan.driver.gc_settings import paused_collector
from stowplan.forecast.recorded_history import (
    Verification,
    restore,
    summary_of,
    verify,
)
from stowplan.inputs.counts import count_of
from stowplan.recording.frames import RecordingError


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
        if given.verify:
            return _print_verification(verify(recording, given.plugin_files), given.output)
        until = recording.time(given.until) if given.until else None
        state = summary_of(restore(recording, until, given.plugin_files), recording)
    if given.output in TREES:
        print_tree(state, given.output)
    else:
        _print_state(state, stdout_console())
    return 0


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
