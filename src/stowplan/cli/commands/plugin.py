"""`stowplan plugin`: list, describe, create and check plugins."""

from __future__ import annotations

import sys

import click

from stowplan.cli import options
from stowplan.cli.command import Group, flag

GROUP_EXAMPLES = """
# List the plugins that a configuration can name
stowplan plugin list

# Print the declaration and the documentation of a plugin
stowplan plugin describe TaintToleration

# Create a plugin and its test
stowplan plugin new near_data

# Check that the plugins of a file keep the contract
stowplan plugin check near_data.py
"""
LIST_EXAMPLES = """
# List the plugins that a configuration can name
stowplan plugin list

# Include those of a file, and show their modules
stowplan plugin list --plugin near_data.py -o wide
"""
DESCRIBE_EXAMPLES = """
# Print the declaration and the documentation of an in-tree plugin
stowplan plugin describe TaintToleration

# Print those of a plugin of a file, as YAML
stowplan plugin describe near_data --plugin near_data.py -o yaml
"""
CHECK_EXAMPLES = """
# Check the plugins of a file
stowplan plugin check near_data.py

# Check them with the arguments that a configuration has for them
stowplan plugin check near_data.py --config scheduler.yaml -o json
"""
NEW_EXAMPLES = """
# Create near_data.py and test_near_data.py: a function that scores nodes
stowplan plugin new near_data

# Create a class with arguments, a filter, and column forms
stowplan plugin new near_data --class
"""


@click.group(name="plugin", cls=Group, examples=GROUP_EXAMPLES)
def command() -> None:
    """List, describe, create and check plugins."""


@command.command(name="list", examples=LIST_EXAMPLES)
@options.plugin
@options.output("table", "wide", "json", "yaml", "name")
def list_command(plugin_files: tuple[str, ...], output: str) -> None:
    """List the plugins that a configuration can name.

    Those are the in-tree plugins of profiles and of sessions, the actions of sessions, plugins of
    installed packages (entry points in the group stowplan.plugins), and those of --plugin.
    """
    from stowplan.cli.runs.plugin_list import list_plugins

    list_plugins(plugin_files, output)


@command.command(examples=DESCRIBE_EXAMPLES)
@options.plugin
@options.output("table", "json", "yaml")
@click.argument("name", metavar="NAME")
def describe(name: str, plugin_files: tuple[str, ...], output: str) -> None:
    """Print the declaration and the documentation of the plugin NAME.

    NAME is an in-tree plugin, a plugin of an installed package, or one of --plugin.
    """
    from stowplan.cli.runs.plugin_list import print_plugin

    print_plugin(name, plugin_files, output)


@command.command(examples=CHECK_EXAMPLES)
@options.config
@options.output("table", "json", "yaml")
@click.argument("file", metavar="FILE.py", type=click.Path(dir_okay=False))
def check(file: str, config_files: tuple[str, ...], output: str) -> None:
    """Check that the plugins of FILE keep the contract of `stowplan.framework`.

    Declarations and signatures are checked first. Each plugin is then called alone on clusters from
    a seeded generator, with the arguments that --config has for it. Exit code 1 if a check fails, 2
    if FILE cannot be loaded.
    """
    from stowplan.cli.runs.plugin_check import run_check

    sys.exit(run_check(file, config_files, output))


@command.command(examples=NEW_EXAMPLES)
@flag("--class", "as_class", is_flag=True, help="Create a class with arguments, not a function.")
@click.argument("name", metavar="NAME")
def new(name: str, as_class: bool) -> None:
    """Create NAME.py, a plugin to start from, and test_NAME.py in the working directory.

    Existing files are not overwritten.
    """
    from stowplan.cli.runs.plugin_templates import write_plugin

    write_plugin(name, as_class=as_class)
