"""From a configuration, or none, to frameworks that can decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan import config
from stowplan.assembly.in_tree import DEFAULT_PLUGINS, registry
from stowplan.assembly.plugin_files import installed_plugins
from stowplan.framework import FeatureGates, Framework, PluginUse, Registry
from stowplan.framework.runtime import frameworks


def configuration_of(
    text: str | bytes | None, source: str, plugins: Iterable[type[Any]] = ()
) -> tuple[config.Configuration, Registry]:
    """The configuration that `text` holds (None: the default one) and the registry for it.

    Plugin classes given beside it take part wherever they can, after the default ones, as if
    the default configuration named them; `disabled` turns them off like any other. Plugins of
    installed distributions may be named and take part only then. Raises ConfigError and
    ContractError.
    """
    given = tuple(plugins)
    full = registry()
    for plugin in installed_plugins():
        if plugin not in given:
            full.register(plugin)
    for plugin in given:
        full.register(plugin)
    defaults = DEFAULT_PLUGINS + tuple(PluginUse(p.name, full[p.name].weight) for p in given)
    if text is None:
        return config.default(full, defaults), full
    return config.parse(text, source, full, defaults), full


def frameworks_for(
    configuration: config.Configuration, full: Registry, gates: FeatureGates | None = None
) -> dict[str, Framework]:
    """A framework per scheduler name; raises ContractError."""
    return frameworks(configuration.profiles, full, gates or FeatureGates())
