"""Errors of the command line: their texts as kubectl words them, and their exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

INVALID_INPUT = 2
INTERRUPTED = 130
_EXTRA = re.compile(r"Got unexpected extra arguments? \((?P<words>.*)\)")


class CommandError(click.ClickException):
    """A command that cannot go on, because of its input; the text is the whole message."""

    exit_code = INVALID_INPUT


class CommandFailed(click.ClickException):
    """A command whose input is valid and that failed; exit code 1."""


def print_error(text: str) -> None:
    """The message on standard error, each of its lines with the prefix that kubectl writes."""
    for line in text.splitlines():
        click.echo(f"error: {line}", err=True)


def show_usage_error(problem: click.UsageError) -> None:
    """Print a usage error and where the usage is described."""
    print_error(_usage_text(problem))
    if problem.ctx is not None:
        click.echo(f"See '{problem.ctx.command_path} --help' for usage.", err=True)


def _usage_text(problem: click.UsageError) -> str:
    """Click's usage errors as kubectl words them."""
    extra = _EXTRA.fullmatch(problem.message)
    match problem:
        case click.NoSuchOption(option_name=name, possibilities=known):
            if not name.startswith("--"):
                return f"unknown shorthand flag: {name[1:]!r} in {name}"
            plain = [other.lstrip("-") for other in known or ()]
            return f"unknown flag: {name}{guess(name.lstrip('-'), plain, '--')}"
        case click.MissingParameter(param=click.Argument() as argument):
            return f"{_plain(argument)} is required"
        case click.MissingParameter(param=click.Option() as option):
            return f'required flag(s) "{max(option.opts, key=len).lstrip("-")}" not set'
        case click.BadOptionUsage(option_name=name) if "requires" in problem.message:
            return f"flag needs an argument: {name}"
        case click.BadParameter(param=click.Argument() as argument):
            return f"{_plain(argument)}: Invalid value: {problem.message}"
        case _ if problem.message == "Missing command.":
            return "COMMAND is required"
        case _ if extra:
            return f'unexpected argument "{extra["words"]}"'
    return problem.message


def _plain(argument: click.Argument) -> str:
    return argument.make_metavar(click.Context(click.Command(""))).strip("[].")


def invalid_argument(
    value: str, name: str, must: str, ctx: click.Context | None = None
) -> click.UsageError:
    """The error for a flag's value. must: what is allowed, as "must be ..."."""
    return click.UsageError(f'invalid argument "{value}" for "{name}" flag: {must}', ctx)


def guess(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A hint that names the known word closest to `name`, with a leading blank, or ""."""
    # Imported here: few command lines need it.
    import difflib

    close = difflib.get_close_matches(name, list(known), n=1)
    return f' (did you mean "{prefix}{close[0]}"?)' if close else ""


@contextmanager
def reported(
    *kinds: type[Exception], by: type[click.ClickException] = CommandError
) -> Iterator[None]:
    """Report exceptions of these kinds, whose text is the whole message, in one line."""
    try:
        yield
    except kinds as problem:
        raise by(str(problem)) from None
