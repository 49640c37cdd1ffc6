"""KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1): from its tree to a Configuration.

Differs: profiles must resolve to the same queueSort; the original requires equal text.

Source: kube-scheduler v1.36, kube-scheduler/config/v1, apis/config/v1 and apis/config/validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from stowplan.config.model import (
    ClientConnection,
    Configuration,
    Count,
    Extender,
    LeaderElection,
    Percentage,
    Setting,
)
from stowplan.config.plugin_args import PluginConfig, args_of
from stowplan.config.plugin_sets import PluginSets, resolve_points
from stowplan.config.strict_decoder import (
    INVALID,
    Problems,
    decode,
    default_of,
    fields_of,
    format_value,
)
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.runtime.registry import Registry
from stowplan.objects.pod import DEFAULT_SCHEDULER

KIND = "KubeSchedulerConfiguration"

REMOVED_FIELDS = ("healthzBindAddress", "metricsBindAddress")
"""Fields of versions before v1."""

S = TypeVar("S", bound=Setting)


class KubeSchedulerProfile(Setting, frozen=True):
    """A profile in a file."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    plugins: PluginSets = PluginSets()  # type: ignore[valid-type]
    plugin_config: tuple[PluginConfig, ...] = ()


class KubeSchedulerDocument(Setting, frozen=True):
    """The document in a file."""

    parallelism: Count = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Percentage | None = None
    pod_initial_backoff_seconds: Annotated[int, Meta(ge=1)] = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False


def read(
    tree: dict[str, Any],
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    problems: Problems,
) -> Configuration:
    """Read the configuration of a document's body; raises ConfigError with every mistake."""
    for name in REMOVED_FIELDS:
        if tree.get(name) is not None:
            problems.add(name, "a field of versions before v1", "no such field")
    body = {key: value for key, value in tree.items() if key not in REMOVED_FIELDS}
    written = decode(body, KubeSchedulerDocument, "", problems)
    if written is INVALID:
        raise problems.error(source)
    extenders = tuple(_with_zeros_defaulted(extender) for extender in written.extenders)
    election = _with_zeros_defaulted(written.leader_election)
    _check_settings(written, election, extenders, problems)
    profiles = _profiles(written, registry, defaults, problems)
    if problems.found:
        raise problems.error(source)
    contention = written.enable_contention_profiling
    return Configuration(
        source=source,
        profiles=profiles,
        parallelism=written.parallelism,
        leader_election=election,
        client_connection=_with_zeros_defaulted(written.client_connection),
        enable_profiling=written.enable_profiling,
        enable_contention_profiling=written.enable_profiling if contention is None else contention,
        percentage_of_nodes_to_score=written.percentage_of_nodes_to_score,
        pod_initial_backoff_seconds=written.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=written.pod_max_backoff_seconds,
        extenders=extenders,
        delay_cache_until_active=written.delay_cache_until_active,
    )


def _with_zeros_defaulted(setting: S) -> S:
    """The setting with defaults in place of empty strings, zeros and zero durations.

    As in the original these are the same as absent, except for switches.
    """
    empty = ("", 0, timedelta(0))
    filled = {
        field.name: default_of(field)
        for field in fields_of(type(setting)).values()
        if not isinstance(value := getattr(setting, field.name), bool) and value in empty
    }
    return msgspec.structs.replace(setting, **filled)


def _check_settings(
    written: KubeSchedulerDocument,
    election: LeaderElection,
    extenders: Sequence[Extender],
    problems: Problems,
) -> None:
    first, most = written.pod_initial_backoff_seconds, written.pod_max_backoff_seconds
    either = ("podInitialBackoffSeconds", "podMaxBackoffSeconds")
    if most < first and not any(problems.is_invalid(name) for name in either):
        wanted = f"at least podInitialBackoffSeconds ({first})"
        problems.add("podMaxBackoffSeconds", str(most), wanted)
    problems.extend(election.problems("leaderElection"))
    for i, extender in enumerate(extenders):
        problems.extend(extender.problems(f"extenders[{i}]"))
    check_extenders(extenders, problems)


def check_extenders(extenders: Sequence[Extender], problems: Problems) -> None:
    """Add a problem for everything that several extenders may not all have."""
    binders = [i for i, extender in enumerate(extenders) if extender.bind_verb]
    for i in binders[1:]:
        got = format_value(extenders[i].bind_verb)
        hint = f"extenders[{binders[0]}] binds already"
        problems.add(f"extenders[{i}].bindVerb", got, "one extender that binds", hint)
    first: dict[str, str] = {}
    for i, extender in enumerate(extenders):
        for j, resource in enumerate(extender.managed_resources):
            path = f"extenders[{i}].managedResources[{j}]"
            if resource.name and resource.name in first:
                got = f"{resource.name!r} again"
                hint = f"first at {first[resource.name]}"
                problems.add(f"{path}.name", got, "each resource once", hint)
            first.setdefault(resource.name, path)


# Profiles.


def _profiles(
    written: KubeSchedulerDocument,
    registry: Registry,
    defaults: Sequence[PluginUse],
    problems: Problems,
) -> dict[str, Profile]:
    listed = written.profiles or (KubeSchedulerProfile(),)
    names = _names(listed, problems)
    profiles = []
    for i, item in enumerate(listed):
        path = f"profiles[{i}]"
        points = resolve_points(item.plugins, defaults, registry, f"{path}.plugins", problems)
        _check_points(points, registry, f"{path}.plugins", problems)
        profile = Profile(names[i], points)
        args = args_of(
            item.plugin_config, profile.plugin_names(), registry, f"{path}.pluginConfig", problems
        )
        percentage = item.percentage_of_nodes_to_score
        if percentage is None:
            percentage = written.percentage_of_nodes_to_score
        profiles.append(Profile(names[i], points, args, percentage))
    _check_same_queue_sort(profiles, problems)
    return {profile.scheduler_name: profile for profile in profiles}


def _names(listed: Sequence[KubeSchedulerProfile], problems: Problems) -> list[str]:
    """The scheduler names; every profile needs one unless it is the only profile."""
    names: list[str] = []
    first: dict[str, int] = {}
    for i, item in enumerate(listed):
        path = f"profiles[{i}].schedulerName"
        name = item.scheduler_name
        if name is None and len(listed) == 1:
            name = DEFAULT_SCHEDULER
        names.append(name or "")
        if problems.is_invalid(path):
            continue
        if not name:
            got = "" if name is None else format_value(name)
            problems.add(path, got, "a name, as each of several profiles needs its own")
        elif name in first:
            got = f"{name!r} again"
            hint = f"first at profiles[{first[name]}]"
            problems.add(path, got, "a name of its own for each profile", hint)
        else:
            first[name] = i
    return names


def _check_points(
    points: dict[str, tuple[PluginUse, ...]], registry: Registry, path: str, problems: Problems
) -> None:
    if problems.is_invalid(path):
        return
    sorts = [use.name for use in points["queueSort"]]
    if len(sorts) != 1:
        hint = "disable the others in queueSort.disabled" if sorts else ""
        wanted = f"exactly one of {_plugins_of_point('queueSort', registry)}"
        problems.add(f"{path}.queueSort", ", ".join(sorts) or "no plugin", wanted, hint)
    if not points["bind"]:
        wanted = f"at least one of {_plugins_of_point('bind', registry)}"
        problems.add(f"{path}.bind", "no plugin", wanted)


def _plugins_of_point(point: str, registry: Registry) -> str:
    return ", ".join(entry.name for entry in registry.values() if point in entry.points)


def _check_same_queue_sort(profiles: Sequence[Profile], problems: Problems) -> None:
    """All profiles share one queue, so they must have the same queue sort and arguments."""
    sound = [i for i in range(len(profiles)) if not problems.is_invalid(f"profiles[{i}]")]
    for i in sound[1:]:
        first, profile = profiles[sound[0]], profiles[i]
        name, got = (p.points["queueSort"][0].name for p in (first, profile))
        if got != name:
            path, wanted = (
                f"profiles[{i}].plugins.queueSort",
                f"{name!r}, as in profiles[{sound[0]}]",
            )
            problems.add(path, format_value(got), wanted)
        elif profile.args[name] != first.args[name]:
            path, wanted = f"profiles[{i}].pluginConfig", f"the same as in profiles[{sound[0]}]"
            problems.add(path, f"other arguments of {name!r}", wanted)
