"""Plugins as users name them: classes, decorated functions, or files that define some."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.framework import ContractError, is_rule, plugin_of

PluginSource = Callable[..., Any] | str | Path
"""A plugin class, a function under `@score`, `@filter` or `@priority`, a policy or an action of
sessions, or a file with such."""


def plugin_classes(plugins: Iterable[PluginSource] | str | Path) -> tuple[type[Any], ...]:
    """The plugin classes behind what is named, in that order; raises ContractError."""
    found: list[type[Any]] = []
    for plugin in [plugins] if isinstance(plugins, str | Path) else plugins:
        if isinstance(plugin, str | Path):
            found += plugins_of_file(str(plugin))
        elif isinstance(plugin, type) or is_rule(plugin):
            found.append(plugin_of(plugin))
        else:
            got = getattr(plugin, "__name__", repr(plugin))
            wanted = "a plugin class, or a function under @score, @filter or @priority"
            raise ContractError(f"plugins: got {got}, wanted {wanted}")
    return tuple(found)
