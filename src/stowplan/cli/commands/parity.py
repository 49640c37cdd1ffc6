"""`stowplan parity`: the differences from the originals that comments in the code mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import click
import msgspec

from stowplan.cli import options
from stowplan.cli.command import Command
from stowplan.inputs.counts import count_of

EXAMPLES = """
# List differences and unproved parities
stowplan parity

# Print them as JSON
stowplan parity -o json
"""

PARITY_NOTE = re.compile(r"\b(?P<kind>Differs|Unproved): ?(?P<text>.*)")

QUOTED = re.compile(r"""(?<!\"\")["'`(|]\s*$""")
"""What precedes the word where a text only mentions it."""


class ParityNote(msgspec.Struct, frozen=True):
    """A marked comment. kind: Differs (deliberately) or Unproved."""

    kind: str
    module: str
    line: int
    text: str


def parity_notes_in(module: str, source: str) -> Iterator[ParityNote]:
    """The marked comments of a module, each with its paragraph."""
    lines = source.splitlines()
    for number, line in enumerate(lines, start=1):
        found = PARITY_NOTE.search(line)
        if found is None or QUOTED.search(line[: found.start()]):
            continue
        comment = line.lstrip().startswith("#")
        first, closed, _ = found["text"].partition('"""')
        rest = [] if closed else _continued(lines[number:], comment=comment)
        yield ParityNote(found["kind"], module, number, " ".join([first, *rest]).strip())


def _continued(lines: list[str], *, comment: bool) -> Iterator[str]:
    """The rest of a paragraph: of a comment, or of a docstring up to a blank line."""
    for line in lines:
        text = line.strip()
        if comment != text.startswith("#") or not text.strip("#") or PARITY_NOTE.search(text):
            return
        if '"""' in text:
            yield text.split('"""')[0]
            return
        yield text.lstrip("# ")


def parity_notes() -> list[ParityNote]:
    """Every marked comment of the installed package, by module and line."""
    return sorted(
        _walk(resources.files("stowplan"), "stowplan"), key=lambda note: (note.module, note.line)
    )


def _walk(folder: Traversable, name: str) -> Iterator[ParityNote]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{name}.{entry.name}")
        elif entry.name.endswith(".py"):
            module = f"{name}.{entry.name.removesuffix('.py')}".removesuffix(".__init__")
            yield from parity_notes_in(module, entry.read_text(encoding="utf-8"))


@click.command(name="parity", cls=Command, examples=EXAMPLES)
@options.output("table", "json", "yaml")
def command(output: str) -> None:
    """List every deliberate difference from the originals, and every parity not yet proved."""
    notes = parity_notes()
    if output in options.TREES:
        # Imported here, as the list itself needs no table.
        from stowplan.cli.tables.console import print_tree

        print_tree(notes, output)
        return
    for note in notes:
        click.echo(f"{note.kind}: {note.text}\n    {note.module}:{note.line}")
    differs = sum(note.kind == "Differs" for note in notes)
    click.echo(f"{count_of(differs, 'difference')}, {len(notes) - differs} unproved")
