"""`stowplan config`: is this configuration right, and what does it come to?"""

from __future__ import annotations

import json

import click

from stowplan.cli import options


@click.group(name="config")
def command() -> None:
    """Check configuration files."""


@command.command()
@options.plugin
@options.compat
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="How to print the effective configuration.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def check(
    files: tuple[str, ...], plugin_files: tuple[str, ...], compat: str | None, output: str
) -> None:
    """Print what FILE comes to with all defaults filled in, or every mistake in it.

    A mistake is a line: where, what was got, what is allowed, and a guess at what was meant. Of
    several files one has profiles and one actions and tiers; they are printed as one. Switches of
    a tier's plugins are on where none is printed.
    """
    import yaml

    from stowplan import config
    from stowplan.cli.tables.configuration_warnings import warn_of_ineffective_settings
    from stowplan.simulation.scheduler_configuration import read_deciders

    configuration = warn_of_ineffective_settings(
        read_deciders(files, plugin_files, compat or "")
    ).configuration
    tree = config.effective(configuration)
    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        click.echo(yaml.safe_dump(tree, sort_keys=False), nl=False)
