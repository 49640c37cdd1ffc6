"""Output of commands: tables as wide as the terminal, and JSON, YAML or names for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any, cast

import click
import msgspec
from rich.console import Console
from rich.table import Table

WIDTH_NO_TERMINAL = 10_000
"""Columns where output is a file or a pipe: grep does not find text across wrapped lines."""


class _TrimmedStdout:
    """Standard output without the blanks that pad the last column of tables."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        # A line that has not ended yet may continue in the next call.
        *whole, last = text.split("\n")
        return sys.stdout.write("".join(f"{line.rstrip(' ')}\n" for line in whole) + last)

    def flush(self) -> None:
        sys.stdout.flush()


def stdout_console() -> Console:
    """The console that writes to standard output."""
    if sys.stdout.isatty():
        console = Console(highlight=False)
        if console.is_dumb_terminal:
            # Rich assumes 80 columns for a dumb terminal unless both are set.
            console.width, console.height = shutil.get_terminal_size()
        return console
    file = cast(IO[str], cast(Any, _TrimmedStdout()))
    return Console(highlight=False, width=WIDTH_NO_TERMINAL, file=file)


def plain_table(title: str, *columns: str, right: Iterable[str] = ()) -> Table:
    """A table without lines, as kubectl prints them. right: columns of figures."""
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    figures = set(right)
    for column in columns:
        is_figure = column in figures
        table.add_column(
            column, justify="right" if is_figure else "left", overflow="fold", no_wrap=is_figure
        )
    return table


def examples(names: list[str], n_listed: int) -> str:
    """The first names, and how many more there are."""
    more = len(names) - n_listed
    return ", ".join(names[:n_listed]) + (f" and {more:,} more" if more > 0 else "")


def print_tree(value: Any, output: str) -> None:
    """Print a value, which may be of structs, as JSON or YAML."""
    click.echo(tree_text(msgspec.to_builtins(value), output), nl=False)


def print_trees(values: Sequence[Any], output: str) -> None:
    """Print values as documents of YAML, or as one of JSON: a list, or the only one."""
    if output == "json":
        print_tree(values[0] if len(values) == 1 else list(values), output)
        return
    for number, value in enumerate(values):
        if number:
            click.echo("---")
        print_tree(value, output)


def tree_text(tree: Any, output: str) -> str:
    """A tree as JSON or YAML, with a line end."""
    if output == "json":
        return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
    import yaml

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(tree, Dumper=dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text


def print_names(kind: str, names: Iterable[str]) -> None:
    """Print a line `KIND/NAME` for each object, as kubectl does with -o name."""
    for name in names:
        click.echo(f"{kind}/{name}")
