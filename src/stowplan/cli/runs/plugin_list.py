"""What `stowplan plugin list` and `describe` do: find plugins and print their declarations."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
import msgspec
from rich.text import Text

from stowplan.assembly.build import registered
from stowplan.assembly.in_tree import DEFAULT_PLUGINS, IN_TREE
from stowplan.assembly.plugin_files import (
    ENTRY_POINTS,
    batch_parts,
    installed_plugins,
    is_batch_part,
)
from stowplan.assembly.sessions.session_config import ACTIONS, SESSION_PLUGINS
from stowplan.batch.session import SessionAction
from stowplan.cli.errors import CommandError, guess
from stowplan.cli.options import TREES
from stowplan.cli.tables.console import plain_table, print_tree, stdout_console
from stowplan.cli.tables.plugin_descriptions import (
    PluginDescription,
    SessionPluginDescription,
    as_table,
    describe_plugin,
    describe_session_plugin,
    session_table,
)
from stowplan.framework.extension_points import points_of
from stowplan.inputs.plugin_sources import plugin_classes

PROFILE, SESSION, ACTION = "profile", "session", "action"


class ListedPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin. type: profile, session or action. weight: in the default profile, 0 for none."""

    name: str
    type: str
    extension_points: tuple[str, ...]
    default: bool
    weight: int
    module: str


def list_plugins(plugin_files: tuple[str, ...], output: str) -> None:
    """Print the in-tree plugins, the installed ones, and those of files."""
    names = {entry.name for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    others = (*installed_plugins(" ".join(sorted(names))), *plugin_classes(plugin_files))
    listed = [
        *_listed(IN_TREE.values()),
        *_listed(SESSION_PLUGINS.values()),
        *_listed(ACTIONS.values()),
        *_listed(others),
    ]
    if output in TREES:
        print_tree(listed, output)
    elif output == "name":
        for one in listed:
            click.echo(one.name)
    else:
        _print(listed, wide=output == "wide")


def print_plugin(name: str, plugin_files: tuple[str, ...], output: str) -> None:
    """Print the description of a plugin; raises CommandError where there is none of the name."""
    given = plugin_classes(plugin_files)
    registry, _ = registered(given, name)
    actions, session_plugins = batch_parts(given, name)
    actions, session_plugins = ACTIONS | actions, SESSION_PLUGINS | session_plugins
    description: PluginDescription | SessionPluginDescription
    if name in registry:
        description = describe_plugin(registry[name])
        text = as_table(description)
    elif name in session_plugins or name in actions:
        kind = SESSION if name in session_plugins else ACTION
        plugin = session_plugins.get(name) or actions[name]
        description = describe_session_plugin(plugin, kind)
        text = session_table(description)
    else:
        known = (*registry, *session_plugins, *actions)
        raise CommandError(f'plugin "{name}" not found{guess(name, known)}')
    if output in TREES:
        print_tree(description, output)
    else:
        click.echo(text, nl=False)


def _listed(plugins: Iterable[Callable[..., Any]]) -> Iterator[ListedPlugin]:
    weights = {use.name: use.weight for use in DEFAULT_PLUGINS}
    for plugin in plugins:
        assert isinstance(plugin, type)
        name = str(getattr(plugin, "name", plugin.__name__))
        is_session = is_batch_part(plugin)
        points = () if is_session else points_of(plugin)
        kind = PROFILE
        if is_session:
            kind = ACTION if issubclass(plugin, SessionAction) else SESSION
        weight = weights.get(name, 0) if "score" in points else 0
        default = not is_session and name in weights
        yield ListedPlugin(name, kind, points, default, weight, plugin.__module__)


def _print(listed: list[ListedPlugin], *, wide: bool) -> None:
    columns = ["NAME", "TYPE", "DEFAULT", "WEIGHT", "EXTENSION POINTS"] + ["MODULE"] * wide
    table = plain_table("", *columns, right=("WEIGHT",))
    for one in listed:
        cells = [one.name, one.type, str(one.default).lower(), str(one.weight or "-")]
        cells += [",".join(one.extension_points) or "-"] + [one.module] * wide
        table.add_row(*map(Text, cells))
    stdout_console().print(table)
