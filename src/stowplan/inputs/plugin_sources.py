"""Plugins as users name them: classes, decorated functions, or files that define them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.framework import ContractError, is_rule, plugin_of

PluginSource = Callable[..., Any] | str | Path
"""A plugin class, a function decorated with `@score`, `@filter` or `@priority`, a session plugin or
action, or a file that defines them."""


def plugin_classes(plugins: Iterable[PluginSource] | str | Path) -> tuple[type[Any], ...]:
    """The plugin classes of sources, in their order; raises ContractError."""
    found: list[type[Any]] = []
    for plugin in [plugins] if isinstance(plugins, str | Path) else plugins:
        if isinstance(plugin, str | Path):
            found += plugins_of_file(str(plugin))
        elif isinstance(plugin, type) or is_rule(plugin):
            found.append(plugin_of(plugin))
        else:
            got = getattr(plugin, "__name__", repr(plugin))
            expected = "a plugin class, or a function decorated with @score, @filter or @priority"
            raise ContractError(f"plugins: Invalid value: {got}: expected {expected}")
    return tuple(found)
