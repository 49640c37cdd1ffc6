"""`stowplan`: the command, its list of subcommands, and how errors look and exit.

Exit codes: 0 done, 1 the answer is no (unschedulable, differs), 2 bad input.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from stowplan._version import __version__

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("stowplan.cli.commands.run", "Schedule a live cluster."),
    "status": ("stowplan.cli.commands.status", "Say how a running scheduler is doing."),
    "extender": (
        "stowplan.cli.commands.extender",
        "Advise a kube-scheduler that cannot be replaced.",
    ),
    "simulate": (
        "stowplan.cli.commands.simulate",
        "Place a cluster's pending pods and say what happened.",
    ),
    "evaluate": (
        "stowplan.cli.commands.evaluate",
        "Answer scheduling questions in bulk, a line each.",
    ),
    "explain": ("stowplan.cli.commands.explain", "Say why a pod is where it is, or nowhere."),
    "demo": ("stowplan.cli.commands.demo", "Watch it at work on a small cluster: half a minute."),
    "up": ("stowplan.cli.commands.up", "Run a cluster that kubectl and schedulers can talk to."),
    "queues": ("stowplan.cli.commands.queues", "Print what each queue deserves, has and borrows."),
    "config": ("stowplan.cli.commands.config", "Check a configuration file."),
    "bench": ("stowplan.cli.commands.bench", "Measure how fast it is, beside kube-scheduler."),
    "plugin": ("stowplan.cli.commands.plugin", "Start a plugin of your own, and check it."),
    "parity": ("stowplan.cli.commands.parity", "List where Stowplan differs from the originals."),
}
"""Name -> (module, one line of help). A module is imported when its command is run, not before."""

INTERRUPTED = 130


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stowplan", message="%(prog)s %(version)s")
def cli() -> None:
    """Stowplan, a Kubernetes scheduler: decides, explains and replays."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; bad input ends in one clear line and exit code 2."""
    try:
        code = cli.main(args=arguments, prog_name="stowplan", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except click.Abort:
        click.echo("stowplan: stopped", err=True)
        sys.exit(INTERRUPTED)
    except Exception as problem:
        if not _is_for_the_user(problem):
            raise
        click.echo(f"stowplan: {problem}", err=True)
        sys.exit(2)


def _is_for_the_user(problem: Exception) -> bool:
    """True for the errors whose text is the whole message."""
    # Imported here: an error that reaches this place has loaded these modules already.
    from stowplan.framework.problems import ConfigError, ContractError
    from stowplan.inputs.input_error import InputError
    from stowplan.objects.encoding.json_codec import DecodeError
    from stowplan.objects.quantity import QuantityError

    return isinstance(
        problem, ConfigError | ContractError | DecodeError | QuantityError | InputError
    )
