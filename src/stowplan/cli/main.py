"""`stowplan` and `kubectl stowplan`: the list of commands, and how errors look and exit.

Exit codes: 0 done, 1 the answer is no (unschedulable, differs), 2 bad input.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from stowplan._version import __version__
from stowplan.cli.command import COMPLETE_VARIABLE, KUBECTL_PROGRAM, PROGRAM, LazyGroup
from stowplan.cli.errors import INTERRUPTED, INVALID_INPUT, print_error, show_usage_error
from stowplan.driver.gc_settings import freeze_at_exit

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("stowplan.cli.commands.run", "Run the scheduler against a live cluster."),
    "status": ("stowplan.cli.commands.status", "Show the status of a running scheduler."),
    "top": (
        "stowplan.cli.commands.terminal.top_command",
        "Watch a running scheduler in the terminal.",
    ),
    "diagnose": (
        "stowplan.cli.commands.recordings.diagnose_command",
        "Find repeated preemption, starving queues and long pending pods.",
    ),
    "extender": (
        "stowplan.cli.commands.extender",
        "Serve a profile as a scheduler extender of kube-scheduler.",
    ),
    "simulate": (
        "stowplan.cli.commands.simulate",
        "Schedule a cluster's pending pods in memory, or replay a workload.",
    ),
    "import": (
        "stowplan.cli.commands.imports.import_command",
        "Simulate a cluster of another scheduler by its own configuration.",
    ),
    "experiment": (
        "stowplan.cli.commands.experiments.experiment_command",
        "Run workloads x policies x seeds, and compare the policies.",
    ),
    "replay": (
        "stowplan.cli.commands.recordings.replay_command",
        "Restore, verify or change the decisions of a recording.",
    ),
    "evaluate": (
        "stowplan.cli.commands.evaluate",
        "Evaluate recorded scheduling cases, one per line.",
    ),
    "report": (
        "stowplan.cli.commands.report",
        "Write a run or an experiment as one HTML file.",
    ),
    "explain": (
        "stowplan.cli.commands.explain",
        "Explain why a pod is placed where it is, or why it is pending.",
    ),
    "what-if": (
        "stowplan.cli.commands.forecasts.what_if",
        "Show what changes of a cluster would do.",
    ),
    "preempt-preview": (
        "stowplan.cli.commands.forecasts.preempt_preview",
        "Show who would be evicted for a pod.",
    ),
    "eta": ("stowplan.cli.commands.forecasts.eta", "Forecast when pending pods and jobs start."),
    "capacity": (
        "stowplan.cli.commands.forecasts.capacity",
        "Show how many more pods fit, the fewest nodes, and nodes to empty.",
    ),
    "demo": ("stowplan.cli.commands.demo", "Run a demonstration on a small embedded cluster."),
    "up": ("stowplan.cli.commands.up", "Run an embedded cluster for kubectl and other clients."),
    "backup": (
        "stowplan.cli.commands.storage.backup_command",
        "Back up or restore the data of an embedded cluster.",
    ),
    "queues": (
        "stowplan.cli.commands.queues",
        "Display the deserved, allocated and pending resources of queues.",
    ),
    "config": ("stowplan.cli.commands.config", "Validate configuration files."),
    "bench": ("stowplan.cli.commands.bench", "Measure scheduling throughput and latency."),
    "plugin": ("stowplan.cli.commands.plugin", "List, describe, create and check plugins."),
    "parity": (
        "stowplan.cli.commands.parity",
        "List the differences from kube-scheduler and kube-batch.",
    ),
    "completion": ("stowplan.cli.commands.completion", "Print the completion script of a shell."),
}
"""Name -> module, and one line of help."""

EXAMPLES = """
# Schedule a generated workload: 5,000 pods on 1,000 nodes
stowplan simulate

# Explain why a pod of a manifest is pending
stowplan explain pod/web -f cluster.yaml

# Run an embedded cluster with five nodes, for kubectl
stowplan up --node-count 5

# Schedule a live cluster: see first what would be decided
stowplan run --dry-run
"""


@click.group(
    cls=LazyGroup,
    commands_at=COMMANDS,
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="stowplan", message="%(prog)s %(version)s")
def cli() -> None:
    """Stowplan, a Kubernetes scheduler: runs, explains and replays scheduling decisions."""


def kubectl_main(arguments: list[str] | None = None) -> None:
    """The entry point of `kubectl-stowplan`, which kubectl runs for `kubectl stowplan`."""
    main(arguments, KUBECTL_PROGRAM)


def main(arguments: list[str] | None = None, program: str = PROGRAM) -> None:
    """Run the command line; bad input ends in a clear message and exit code 2."""
    freeze_at_exit()
    sys.exit(_exit_code(arguments, program))


def _exit_code(arguments: list[str] | None, program: str) -> int:
    try:
        code: Any = cli.main(
            args=arguments,
            prog_name=program,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
            # As typed: reports have the command of their run.
            obj=sys.argv[1:] if arguments is None else arguments,
        )
    except click.UsageError as problem:
        show_usage_error(problem)
        return problem.exit_code
    except click.ClickException as problem:
        print_error(problem.message)
        return problem.exit_code
    except click.Abort:
        print_error("interrupted")
        return INTERRUPTED
    except Exception as problem:
        if not _is_for_the_user(problem):
            raise
        print_error(str(problem))
        return INVALID_INPUT
    return code if isinstance(code, int) else 0


def _is_for_the_user(problem: Exception) -> bool:
    """True for the errors whose text is the whole message."""
    # Imported here: an error of these modules means that they are loaded already.
    from stowplan.framework.problems import ConfigError, ContractError
    from stowplan.inputs.input_error import InputError
    from stowplan.objects.encoding.json_codec import DecodeError
    from stowplan.objects.quantity import QuantityError

    return isinstance(
        problem, ConfigError | ContractError | DecodeError | QuantityError | InputError
    )
