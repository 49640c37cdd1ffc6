"""From a configuration, or none, to frameworks that can decide."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from stowplan import config
from stowplan.assembly.in_tree import DEFAULT_PLUGINS, registry
from stowplan.assembly.plugin_files import installed_plugins
from stowplan.cycle import CycleDecider
from stowplan.framework import FeatureGates, Framework, PluginUse, Profile, Registry
from stowplan.framework.runtime import frameworks
from stowplan.plugins.fit import NodeResourcesFit
from stowplan.queue import QueueOptions
from stowplan.scheduler.machine import Machine, MachineOptions


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
    for plugin in installed_plugins(_as_text(text)):
        if plugin not in given:
            full.register(plugin)
    for plugin in given:
        full.register(plugin)
    defaults = DEFAULT_PLUGINS + tuple(PluginUse(p.name, full[p.name].weight) for p in given)
    if text is None:
        return config.default(full, defaults), full
    return config.parse(text, source, full, defaults), full


def _as_text(text: str | bytes | None) -> str:
    if text is None:
        return ""
    return text if isinstance(text, str) else text.decode(errors="replace")


def frameworks_for(
    configuration: config.Configuration, full: Registry, gates: FeatureGates | None = None
) -> dict[str, Framework]:
    """A framework per scheduler name; raises ContractError."""
    profiles = {
        name: _leaving_to_extenders(profile, configuration.ignored_resources())
        for name, profile in configuration.profiles.items()
    }
    return frameworks(profiles, full, gates or FeatureGates())


def _leaving_to_extenders(profile: Profile, ignored: tuple[str, ...]) -> Profile:
    """The profile with NodeResourcesFit passing over the resources that extenders look after.

    They stand in for the configured ones, as in the original.
    """
    name = NodeResourcesFit.name
    if not ignored or name not in profile.plugin_names():
        return profile
    args = profile.args.get(name, NodeResourcesFit.Args())
    args = msgspec.structs.replace(args, ignored_resources=ignored)
    return msgspec.structs.replace(profile, args={**profile.args, name: args})


def machine_for(
    configuration: config.Configuration,
    full: Registry,
    gates: FeatureGates | None = None,
    dice: np.random.Generator | None = None,
) -> Machine:
    """A scheduler for a configuration; raises ContractError. dice: breaks ties."""
    queue = QueueOptions(
        initial_backoff_s=configuration.pod_initial_backoff_seconds,
        max_backoff_s=configuration.pod_max_backoff_seconds,
    )
    options = MachineOptions(queue=queue)
    return Machine(frameworks_for(configuration, full, gates), CycleDecider(), options, dice)
