"""`stowplan backup`: copies of the data of an embedded cluster."""

from __future__ import annotations

from pathlib import Path

import click

from stowplan.cli.command import Command
from stowplan.cli.errors import CommandFailed, reported

EXAMPLES = """
# Back up a cluster while it runs
stowplan backup ./cluster cluster.backup

# Make a new data directory of the backup, and run it
stowplan backup --restore ./restored cluster.backup
"""


@click.command(name="backup", cls=Command, examples=EXAMPLES)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.argument("file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--restore", is_flag=True, help="Make the new data directory DIR of FILE.")
def command(directory: Path, file: Path, restore: bool) -> None:
    """Copy the objects of the data directory DIR of `stowplan up` to the new file FILE.

    The cluster may run meanwhile: the copy has a state that it was in, with every write that was
    acknowledged before. Tokens and certificates are not copied; a restored cluster makes new ones.
    """
    from stowplan.driver.storage import backup

    with reported(backup.BackupError, by=CommandFailed):
        if restore:
            version = backup.restore(file, directory)
            click.echo(f"{directory} restored at version {version}.")
        else:
            version = backup.back_up(directory, file)
            click.echo(f"{file} has version {version}.")
