"""`stowplan replay`: a recording decided again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stowplan.cli import options, web_option
from stowplan.cli.command import Command, flag

EXAMPLES = """
# Restore the scheduler of a recording at its end, and 90 seconds after its start
stowplan replay run.rec
stowplan replay run.rec --until +90s

# Check that the recorded decisions are made again, byte for byte
stowplan replay run.rec --verify

# Look at any moment of it in a browser
stowplan replay run.rec --web

# Decide the same history with another configuration and show the differences
stowplan replay run.rec --config other.yaml
"""


@click.command(name="replay", cls=Command, examples=EXAMPLES)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@flag(
    "--until",
    metavar="TIME",
    default="",
    help="Stop at this time: an offset from the start of the recording such as +90s or +2h, or RFC "
    "3339.  [default: the end]",
)
@flag("--verify", is_flag=True, help="Compare every decision with the recorded one.")
@options.config
@options.plugin
@options.compat
@web_option.web
@options.output("table", "wide", "json", "yaml")
def command(
    file: Path,
    until: str,
    verify: bool,
    config_files: tuple[str, ...],
    plugin_files: tuple[str, ...],
    compat: str | None,
    web: str | None,
    output: str,
) -> None:
    """Decide a recording of --record again and show the scheduler's state.

    FILE.1, FILE.2 and so on are read with FILE. With --verify the exit code is 1 if a decision is
    not the recorded one. With --config the pods, nodes and objects of the recording come and go as
    recorded, once with its configuration and once with the other one; the exit code is 1 if a pod
    is placed elsewhere or not at all. With --web a page shows any moment of it. Plugin files of the
    recording are read where they were, unless --plugin names them; with --config, --plugin names
    those of the other configuration.
    """
    if verify and (until or config_files):
        raise click.UsageError("--verify cannot be used with --until or --config")
    if web is not None:
        if verify or until or config_files:
            raise click.UsageError("--web cannot be used with --verify, --until or --config")
        from stowplan.cli.runs.pages.recording_page import serve_recording

        serve_recording(web, file, plugin_files)
        return
    if compat and not config_files:
        raise click.UsageError("--compat needs --config")
    from stowplan.cli.runs.recordings.run_replay import ReplayArguments, run_replay

    given = ReplayArguments(file, until, verify, config_files, plugin_files, compat, output)
    sys.exit(run_replay(given))
