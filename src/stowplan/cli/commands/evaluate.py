"""`stowplan evaluate`: a file of questions in, a line of answer each out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from stowplan.cli import options

FORMATS = ("attempt", "legacy", "order", "queue", "sequence", "session")
"""The keys of `stowplan.conformance.evaluate.FORMATS`, which imports all that decides."""

INVALID_SHOWN = 10
"""So many invalid lines are named one by one."""


@click.command(name="evaluate")
@click.option(
    "--as",
    "form",
    type=click.Choice(FORMATS),
    default="attempt",
    show_default=True,
    help="What a line of the file is.",
)
@options.plugin
@click.option(
    "--compat",
    type=click.Choice(options.COMPAT_NAMES),
    help="For sessions: decide as this scheduler does, its defects included.",
)
@click.argument("file", metavar="FILE.jsonl[.gz]")
def command(form: str, plugin_files: tuple[str, ...], compat: str | None, file: str) -> None:
    """Answer scheduling questions in bulk.

    Each line of FILE (- for standard input) is a case: a cluster, a pending pod and, if need be, a
    configuration. Each line printed is `{"id": ..., "result": {...}}`. A case that cannot be
    answered has an outcome `error`, and the others are answered all the same. Exit code 2 when a
    line was no valid case.
    """
    from stowplan.conformance.evaluate import INVALID, encoded, evaluate
    from stowplan.inputs.files import read_lines

    stdout = sys.stdout.buffer
    source = str(Path(file))
    n_invalid = 0
    for answer in evaluate(
        read_lines(file), form=form, source=source, plugins=plugin_files, compat=compat or ""
    ):
        stdout.write(encoded(answer))
        if answer["result"].get("reason") == INVALID:
            n_invalid += 1
            if n_invalid <= INVALID_SHOWN:
                click.echo(f"stowplan: {answer['result']['message']}", err=True)
    stdout.flush()
    if n_invalid > INVALID_SHOWN:
        click.echo(f"stowplan: {source}: {n_invalid - INVALID_SHOWN} more invalid lines", err=True)
    sys.exit(2 if n_invalid else 0)
