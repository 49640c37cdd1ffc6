"""Commands and flags as kubectl has them: examples after the options, and its error texts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

from stowplan.cli.errors import guess, invalid_argument

PROGRAM = "stowplan"
KUBECTL_PROGRAM = "kubectl stowplan"
"""How usage lines call the program when kubectl has started it."""

COMPLETE_VARIABLE = "_STOWPLAN_COMPLETE"
"""Environment variable by which a completion script asks for candidates."""

_GROUP_FLAGS = f"{__name__}.namespace_flags"
"""Key of `click.Context.meta`: namespace flags before the name of a subcommand."""

_REPORTED = f"{__name__}.no_effect_reported"
"""Key of `click.Context.meta`: whether the warning of flags without effect was printed."""


class Flag(click.Option):
    """An option that shows its default and reports invalid values in kubectl's words."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        settings.setdefault("show_default", bool(settings.get("default")))
        super().__init__(*names, **settings)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            raise
        except click.BadParameter as problem:
            given = ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
            names = ", ".join(sorted(self.opts, key=len))
            has_text = problem.message.startswith("must ")
            must = problem.message if has_text else _must(self.type)
            raise invalid_argument(given, names, must, ctx) from None


def _must(kind: click.ParamType[Any]) -> str:
    """What a value of this type must be."""
    match kind:
        case click.Choice(choices=choices):
            return f"must be one of: {', '.join(choices)}"
        case click.IntRange(min=low, max=high) | click.FloatRange(min=low, max=high):
            noun = "an integer" if isinstance(kind, click.IntRange) else "a number"
            if high is None:
                return f"must be {noun} greater than or equal to {low}"
            return f"must be {noun} between {low} and {high}, inclusive"
        case click.Path(dir_okay=False):
            return "must be a file"
        case click.Path(file_okay=False):
            return "must be a directory"
    return "must be a number" if kind is click.FLOAT else f"must be of type {kind.name}"


def flag(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """The decorator that gives a command an option."""
    return click.option(*names, cls=Flag, **settings)


def command_line(arguments: Sequence[str] | None) -> str:
    """The command as one would type it. arguments: without the program; None: not known."""
    return "" if arguments is None else shlex.join([PROGRAM, *arguments])


def grouped(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The decorator that gives a command several options, in this order."""

    def give(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return give


def _namespace_flags(callback: Callable[..., None]) -> list[click.Option]:
    """The flags -n and -A, which no help shows, with what is called for each that is given."""
    settings: dict[str, Any] = {"expose_value": False, "hidden": True, "callback": callback}
    return [
        Flag(["-n", "--namespace"], metavar="NAMESPACE", help="Namespace.", **settings),
        Flag(["-A", "--all-namespaces"], is_flag=True, help="All namespaces.", **settings),
    ]


def _report_no_effect(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing and not ctx.meta.get(_REPORTED):
        ctx.meta[_REPORTED] = True
        takes_namespace = any("-n" in one.opts and not one.hidden for one in _options(ctx))
        flags = "-A has" if takes_namespace else "-n and -A have"
        click.echo(f'Warning: {flags} no effect on "{ctx.command_path}"', err=True)


def _options(ctx: click.Context) -> list[click.Option]:
    return [one for one in ctx.command.params if isinstance(one, click.Option)]


class Command(click.Command):
    """A command whose help ends with examples.

    It accepts -n and -A, as every command of kubectl does; where it declares no such option, they
    have no effect and a warning says so. examples: shell commands, each with a comment before it.
    """

    def __init__(self, *args: Any, examples: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        declared = {name for parameter in self.params for name in parameter.opts}
        for option in _namespace_flags(_report_no_effect):
            if not declared & set(option.opts):
                self.params.append(option)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.BadOptionUsage as problem:
            # Click's parser leaves it out.
            problem.ctx = problem.ctx or ctx
            raise


def write_examples(examples: str, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The section of examples, with the name by which the program was called."""
    if not examples:
        return
    program = ctx.find_root().info_name or PROGRAM
    with formatter.section("Examples"):
        for line in examples.strip().splitlines():
            if line.startswith(PROGRAM):
                line = program + line.removeprefix(PROGRAM)
            formatter.write(f"{'':>{formatter.current_indent}}{line}\n" if line else "\n")


def _keep_for_subcommand(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        words = [param.opts[-1]] if value is True else [param.opts[-1], value]
        ctx.meta.setdefault(_GROUP_FLAGS, []).extend(words)


class Group(click.Group):
    """A command of subcommands that guesses which one a misspelt name means.

    As with kubectl, -n and -A may stand before the name of the subcommand, too.
    """

    command_class = Command

    def __init__(self, *args: Any, examples: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        self.params.extend(_namespace_flags(_keep_for_subcommand))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.examples, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            hint = guess(name, self.list_commands(ctx))
            raise click.UsageError(f'unknown command "{name}" for "{ctx.command_path}"{hint}', ctx)
        found, command, rest = super().resolve_command(ctx, args)
        return found, command, [*ctx.meta.pop(_GROUP_FLAGS, ()), *rest]


class LazyGroup(Group):
    """A group that lists its commands without importing them.

    commands_at: name -> module, and one line of help. A module is imported when its command is run.
    """

    def __init__(
        self, *args: Any, commands_at: dict[str, tuple[str, str]], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._commands_at = commands_at

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._commands_at:
            return None
        command: click.Command = import_module(self._commands_at[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._commands_at.items()])
