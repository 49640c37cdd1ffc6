"""Plugins as users name them: classes, or files that define some."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stowplan.assembly.plugin_files import plugins_of_file


def plugin_classes(
    plugins: Iterable[type[Any] | str | Path] | str | Path,
) -> tuple[type[Any], ...]:
    """The classes, files replaced by the plugins that they define; raises ContractError."""
    found: list[type[Any]] = []
    for plugin in [plugins] if isinstance(plugins, str | Path) else plugins:
        found += [plugin] if isinstance(plugin, type) else plugins_of_file(str(plugin))
    return tuple(found)
