"""`stowplan parity`: where Stowplan differs from the originals, as the code itself says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable

import click
import msgspec

from stowplan.cli import options

PARITY_NOTE = re.compile(r"\b(?P<kind>Differs|Unproved): ?(?P<text>.*)")

QUOTED = re.compile(r"""(?<!\"\")["'`(|]\s*$""")
"""What stands before the word where it is only spoken of, and no mark."""


class ParityNote(msgspec.Struct, frozen=True):
    """A place where the code confesses. kind: Differs (on purpose) or Unproved."""

    kind: str
    module: str
    line: int
    text: str


def parity_notes_in(module: str, source: str) -> Iterator[ParityNote]:
    """The marks in a module's text, each with the sentence that follows it."""
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
    """Every mark of the installed package, by module and line."""
    return sorted(_walk(resources.files("stowplan"), "stowplan"), key=lambda m: (m.module, m.line))


def _walk(folder: Traversable, name: str) -> Iterator[ParityNote]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{name}.{entry.name}")
        elif entry.name.endswith(".py"):
            module = f"{name}.{entry.name.removesuffix('.py')}".removesuffix(".__init__")
            yield from parity_notes_in(module, entry.read_text(encoding="utf-8"))


@click.command(name="parity")
@options.output
def command(output: str) -> None:
    """List every deliberate difference from the originals, and every parity not yet proved."""
    marks = parity_notes()
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(mark) for mark in marks], indent=2))
        return
    for mark in marks:
        click.echo(f"{mark.kind}: {mark.text}\n    {mark.module}:{mark.line}")
    differs = sum(mark.kind == "Differs" for mark in marks)
    click.echo(f"{differs} differences, {len(marks) - differs} unproved")
