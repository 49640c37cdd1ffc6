"""Build frameworks and schedulers from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np

from stowplan import config
from stowplan.assembly.extenders import extenders_of
from stowplan.assembly.in_tree import default_plugins, registry
from stowplan.assembly.plugin_files import installed_plugins, is_batch_part
from stowplan.cycle import CycleDecider
from stowplan.cycle.engine.kernel_loading import EngineMode
from stowplan.framework import (
    ConfigError,
    FeatureGates,
    Framework,
    PluginUse,
    Profile,
    Registry,
    plugin_of,
)
from stowplan.framework.deciders.session_decider import SessionDecider
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.runtime.framework_building import build_frameworks
from stowplan.framework.runtime.timed_framework import TimedFramework
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.lanes.profile_swap import RereadProfiles
from stowplan.scheduler.lanes.session_lane import SessionLaneFactory
from stowplan.scheduler.timed_scheduler import TimedScheduler


def configuration_of(
    text: str | bytes | None,
    source: str,
    plugins: Iterable[Callable[..., Any]] = (),
    gates: FeatureGates | None = None,
) -> tuple[config.Configuration, Registry]:
    """Read a configuration (None: the default one) and build its registry.

    Plugins passed separately run at all their extension points after the default plugins, as if the
    default configuration listed them; `disabled` turns them off like any other. Plugins of
    installed distributions may be named and run only if named. gates: switch on default plugins.
    Raises ConfigError and ContractError.
    """
    full, defaults = registered(plugins, decoded(text or ""), gates)
    if text is None:
        return config.default(full, defaults), full
    return config.parse(text, source, full, defaults), full


def registered(
    plugins: Iterable[Callable[..., Any]] = (), text: str = "", gates: FeatureGates | None = None
) -> tuple[Registry, tuple[PluginUse, ...]]:
    """The registry with additional plugins, and the default plugin list with them at its end.

    plugins: classes and decorated functions. text: of a configuration; plugins of installed
    distributions that it names are registered too. gates: switch on default plugins. Raises
    ContractError.
    """
    given = tuple(plugin_of(plugin) for plugin in plugins if not is_batch_part(plugin))
    full = registry()
    for plugin in installed_plugins(text):
        if plugin not in given and not is_batch_part(plugin):
            full.register(plugin)
    for plugin in given:
        full.register(plugin)
    return full, default_plugins(gates) + tuple(
        PluginUse(p.name, full[p.name].weight) for p in given
    )


def decoded(text: str | bytes) -> str:
    """A configuration as text; what is not UTF-8 is replaced, as only names are searched for."""
    return text if isinstance(text, str) else text.decode(errors="replace")


def frameworks_for(
    configuration: config.Configuration,
    full: Registry,
    gates: FeatureGates | None = None,
    metrics: Metrics | None = None,
    in_use: Mapping[str, Framework] | None = None,
) -> dict[str, Framework]:
    """Build a framework per scheduler name; raises ContractError. metrics: receives plugin
    durations; None disables timing. in_use: see `build_frameworks`."""
    profiles = {
        name: _with_ignored_resources(profile, full, configuration.ignored_resources())
        for name, profile in configuration.profiles.items()
    }
    made = Framework if metrics is None else partial(TimedFramework, metrics=metrics)
    return build_frameworks(profiles, full, gates or FeatureGates(), made, in_use)


def _with_ignored_resources(profile: Profile, full: Registry, ignored: tuple[str, ...]) -> Profile:
    """The profile with the resources that extenders manage in the arguments of the plugins that
    declare `takes_ignored_resources`; they replace the configured ones, as in kube-scheduler."""
    if not ignored:
        return profile
    args = dict(profile.args)
    for name in profile.plugin_names():
        entry = full[profile.aliases.get(name, name)]
        if entry.declaration.takes_ignored_resources:
            given = args.get(name, entry.args())
            args[name] = msgspec.structs.replace(given, ignored_resources=ignored)
    return msgspec.structs.replace(profile, args=args)


def scheduler_for(
    configuration: config.Configuration,
    full: Registry,
    gates: FeatureGates | None = None,
    rng: np.random.Generator | None = None,
    options: SchedulerOptions | None = None,
    engine: str = EngineMode.AUTO.value,
    sessions: Callable[[HandleState], SessionDecider] | None = None,
    metrics: Metrics | None = None,
    reread: RereadProfiles | None = None,
) -> Scheduler:
    """Build a scheduler for a configuration.

    rng: breaks ties. metrics: see `frameworks_for`. engine: "auto" uses compiled kernels once
    compiling pays off, "compiled" from the first pod on, "walk" never; the decisions are the same.
    options: backoff durations set here override the configuration's. sessions: builds the session
    decider. reread: for profiles of a changed configuration; None keeps those of the start. Raises
    ContractError, and ConfigError if options are out of range.
    """
    chosen = options or SchedulerOptions()
    problems = list(chosen.problems("options"))
    if problems:
        raise ConfigError("scheduler_for", problems)
    chosen = filled_options(chosen, configuration)
    decider = CycleDecider(EngineMode(engine))
    built = frameworks_for(configuration, full, gates, metrics)
    lanes: list[SessionLaneFactory] = []
    if sessions is not None:
        shared = next((one.shared for one in built.values()), HandleState())
        lanes.append(SessionLaneFactory(sessions(shared)))
    made = Scheduler if metrics is None else partial(TimedScheduler, metrics)
    return made(built, decider, chosen, rng, extenders_of(configuration), lanes, reread)


def filled_options(
    options: SchedulerOptions, configuration: config.Configuration
) -> SchedulerOptions:
    """The options, with unset durations taken from the configuration."""
    queue = options.queue
    initial_s, max_s = queue.initial_backoff_s, queue.max_backoff_s
    if initial_s is None:
        initial_s = configuration.pod_initial_backoff_seconds
    if max_s is None:
        max_s = configuration.pod_max_backoff_seconds
    queue = msgspec.structs.replace(queue, initial_backoff_s=initial_s, max_backoff_s=max_s)
    return msgspec.structs.replace(options, queue=queue)
