"""`stowplan evaluate`: recorded scheduling cases in, one line of answer out for each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stowplan.cli import options
from stowplan.cli.command import Command, flag
from stowplan.cli.errors import print_error

if TYPE_CHECKING:
    from stowplan.framework.feature_gates import FeatureGates

FORMATS = (
    "attempt",
    "gpushare",
    "legacy",
    "order",
    "podgroups",
    "queue",
    "queues",
    "sequence",
    "session",
)
"""The keys of `stowplan.conformance.evaluate.FORMATS`, which imports all that decides."""

INVALID_LISTED = 10
"""Invalid lines that are reported one by one; the others are counted."""

EXAMPLES = """
# Evaluate scheduling attempts
stowplan evaluate cases.jsonl

# Evaluate sessions as kube-batch v0.5 decides them, from standard input
zcat sessions.jsonl.gz | stowplan evaluate --as session --compat kube-batch-0.5 -

# Evaluate pod group scripts, with the defects of kube-scheduler 1.36
stowplan evaluate --as podgroups --compat kube-scheduler-1.36 groups.jsonl.gz

# Evaluate sessions of Volcano's queues, with its defects
stowplan evaluate --as queues --compat volcano-1.15 volcano.jsonl.gz

# Evaluate admission of Kueue
stowplan evaluate --as queues --compat kueue kueue.jsonl.gz
"""


@click.command(name="evaluate", cls=Command, examples=EXAMPLES)
@flag("--as", "form", type=click.Choice(FORMATS), default="attempt", help="Format of a line.")
@options.plugin
@flag(
    "--compat",
    "compats",
    multiple=True,
    type=click.Choice(options.ALL_COMPAT_NAMES),
    help="Reproduce the decisions of this version, including its defects. Repeatable: each applies "
    "to the cases of its scheduler.",
)
@options.feature_gates
@click.argument("file", metavar="FILE.jsonl[.gz]", type=click.Path(allow_dash=True))
def command(
    form: str,
    plugin_files: tuple[str, ...],
    compats: tuple[str, ...],
    feature_gates: FeatureGates | None,
    file: str,
) -> None:
    """Evaluate recorded scheduling cases.

    Each line of FILE (- for standard input) is a case: a cluster, a pending pod and optionally a
    configuration. Each line of output is `{"id": ..., "result": {...}}`. A case that cannot be
    evaluated has the outcome `error`; the others are evaluated all the same. Exit code 2 if a line
    is not a valid case. Gates that a case sets itself take precedence over --feature-gates.
    """
    from stowplan.conformance.evaluate import INVALID, compat_for, encoded, evaluate
    from stowplan.inputs.files import read_lines

    compat = compat_for(form, compats)
    stdout = sys.stdout.buffer
    source = str(Path(file))
    n_invalid = 0
    for answer in evaluate(
        read_lines(file),
        form=form,
        source=source,
        plugins=plugin_files,
        compat=compat,
        feature_gates=feature_gates,
    ):
        stdout.write(encoded(answer))
        if answer["result"].get("reason") == INVALID:
            n_invalid += 1
            if n_invalid <= INVALID_LISTED:
                print_error(answer["result"]["message"])
    stdout.flush()
    if n_invalid > INVALID_LISTED:
        from stowplan.inputs.counts import count_of

        print_error(f"{source}: {count_of(n_invalid - INVALID_LISTED, 'more invalid line')}")
    sys.exit(2 if n_invalid else 0)
