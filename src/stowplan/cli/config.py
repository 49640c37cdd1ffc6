"""`stowplan config`: is this configuration right, and what does it come to?"""

from __future__ import annotations

import json

import click
import yaml

from stowplan import config
from stowplan.assembly import configuration_of
from stowplan.cli import options
from stowplan.sim.files import read_text
from stowplan.sim.plugins import plugin_classes


@click.group(name="config")
def command() -> None:
    """Check configuration files."""


@command.command()
@options.plugin
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="How to print the effective configuration.",
)
@click.argument("file", metavar="FILE")
def check(file: str, plugin_files: tuple[str, ...], output: str) -> None:
    """Print what FILE comes to with all defaults filled in, or every mistake in it.

    A mistake is a line: where, what was got, what is allowed, and a guess at what was meant.
    """
    configuration, _ = configuration_of(read_text(file), file, plugin_classes(plugin_files))
    tree = config.effective(configuration)
    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        click.echo(yaml.safe_dump(tree, sort_keys=False), nl=False)
