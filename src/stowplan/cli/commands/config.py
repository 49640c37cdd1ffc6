"""`stowplan config`: validation of configuration files."""

from __future__ import annotations

import click

from stowplan.cli import options
from stowplan.cli.command import Group

GROUP_EXAMPLES = """
# Validate a scheduler configuration and print it with all defaults
stowplan config check scheduler.yaml
"""
EXAMPLES = """
# Validate a KubeSchedulerConfiguration and print it with all defaults
stowplan config check scheduler.yaml

# Validate profiles, and the actions and tiers of sessions, as they are used together
stowplan config check scheduler.yaml kube-batch-conf.yaml -o json

# Validate the configuration of Kueue, KAI-Scheduler or Volcano
stowplan config check kueue.yaml

# Validate a configuration that names out-of-tree plugins
stowplan config check scheduler.yaml --plugin my_rule.py
"""


@click.group(name="config", cls=Group, examples=GROUP_EXAMPLES)
def command() -> None:
    """Validate configuration files."""


@command.command(examples=EXAMPLES)
@options.plugin
@options.compat
@options.output("yaml", "json")
@click.argument(
    "files", metavar="FILE...", type=click.Path(allow_dash=True), nargs=-1, required=True
)
def check(
    files: tuple[str, ...], plugin_files: tuple[str, ...], compat: str | None, output: str
) -> None:
    """Validate FILEs and print the effective configuration, with all defaults.

    Every error is reported, one per line: field, value, what is allowed, and a suggestion. Of
    several files one has profiles and one has actions and tiers; they are printed as one, after
    that of Kueue where there is one: as two documents, with -o json as a list of both. The enable
    switches of a tier's plugins are true where none is printed.
    """
    from stowplan import config
    from stowplan.cli.runs.scheduler_config import read_command_deciders
    from stowplan.cli.tables.console import print_tree, print_trees

    deciders = read_command_deciders(files, plugin_files, compat, admits=True)
    if deciders.kueue is None:
        print_tree(config.effective(deciders.configuration), output)
        return
    # Kueue's file is one of its own beside profiles; alone, there are none to print.
    from stowplan.assembly.sessions.kueue_settings import kueue_tree

    trees = [kueue_tree(deciders.kueue)]
    if deciders.files:
        trees.append(config.effective(deciders.configuration))
    print_trees(trees, output)
