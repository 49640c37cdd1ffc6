"""Which plugins run at which extension point, and in what order.

A profile lists plugins per extension point and, under multiPoint, for every point that they
implement. Its lists are merged into the default multiPoint list:

- A default plugin that is listed again keeps its place and takes the new weight; others follow
  the defaults. `disabled` takes defaults away ("*" all), and listing a plugin in both moves it to
  the end.
- At one point come first the plugins listed there that multiPoint would also bring, in the order
  of the point; then the rest of multiPoint; then the rest of the point. A plugin disabled at the
  point does not come from multiPoint, so listing it there as well moves it to the end; with "*"
  nothing comes from multiPoint.
- The weight given at the point wins over multiPoint's. None, or 0, is 1.

Source: kube-scheduler v1.36, apis/config/v1/default_plugins.go and framework/runtime.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from stowplan.config.model import INT32_MAX, Setting
from stowplan.config.strict_decoder import Problems, format_value
from stowplan.framework.extension_points import EXTENSION_POINTS
from stowplan.framework.problems import did_you_mean
from stowplan.framework.profile import PluginUse
from stowplan.framework.runtime.registry import Registry, RegistryEntry

ALL = "*"
MULTI_POINT = "multiPoint"
WEIGHTED_POINTS = ("score", "placementScore")

REMOVED = {
    "AzureDiskLimits": "NodeVolumeLimits in its place",
    "CinderLimits": "NodeVolumeLimits in its place",
    "EBSLimits": "NodeVolumeLimits in its place",
    "GCEPDLimits": "NodeVolumeLimits in its place",
    "NodeLabel": "NodeAffinity with addedAffinity in its place",
    "NodePreferAvoidPods": "taints on the nodes and TaintToleration in its place",
    "NodeResourcesLeastAllocated": "NodeResourcesFit with scoringStrategy in its place",
    "NodeResourcesMostAllocated": "NodeResourcesFit with scoringStrategy in its place",
    "RequestedToCapacityRatio": "NodeResourcesFit with scoringStrategy in its place",
    "SelectorSpread": "PodTopologySpread in its place",
    "ServiceAffinity": "InterPodAffinity in its place",
}
"""Plugins removed from Kubernetes -> their replacement."""

POD_GROUP_PLUGINS = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
"""Plugins that run where feature gates switch them on."""

NEAR_NAMES = 3
"""Maximum number of similar names listed for an unknown one."""

Int32 = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]


class PluginEntry(Setting, frozen=True):
    """A plugin in a list."""

    name: str = ""
    weight: Int32 | None = None


class PluginSet(Setting, frozen=True):
    """Lists of one extension point."""

    enabled: tuple[PluginEntry, ...] = ()
    disabled: tuple[PluginEntry, ...] = ()


PluginSets = msgspec.defstruct(
    "PluginSets",
    [(p, PluginSet, PluginSet()) for p in (MULTI_POINT, *EXTENSION_POINTS)],
    frozen=True,
)
"""Lists of all extension points; fields are named as in files."""


class ResolvedPluginSet(msgspec.Struct, frozen=True):
    """Lists of one extension point, without mistakes."""

    enabled: tuple[PluginUse, ...] = ()
    disabled: frozenset[str] = frozenset()


def resolve_points(
    sets: Any, defaults: Sequence[PluginUse], registry: Registry, path: str, problems: Problems
) -> dict[str, tuple[PluginUse, ...]]:
    """Extension point -> plugins in call order, for a profile's PluginSets.

    Invalid entries become problems and are left out.
    """
    check = _PluginSetCheck(registry, problems)
    multi = merge_plugins(
        defaults, check.wanted(getattr(sets, MULTI_POINT), f"{path}.{MULTI_POINT}")
    )
    points = {}
    for point in EXTENSION_POINTS:
        wanted = check.wanted(getattr(sets, point), f"{path}.{point}", point)
        uses = expand_multi_point(
            [use for use in multi if point in registry[use.name].points], wanted
        )
        points[point] = tuple(u if point in WEIGHTED_POINTS else PluginUse(u.name) for u in uses)
    return points


def merge_plugins(defaults: Sequence[PluginUse], wanted: ResolvedPluginSet) -> list[PluginUse]:
    """The default list merged with that of a profile."""
    kept = [] if ALL in wanted.disabled else [u for u in defaults if u.name not in wanted.disabled]
    given = {use.name: use for use in wanted.enabled}
    in_place = {use.name for use in kept}
    return [given.get(use.name, use) for use in kept] + [
        use for use in wanted.enabled if use.name not in in_place
    ]


def expand_multi_point(multi: Sequence[PluginUse], wanted: ResolvedPluginSet) -> list[PluginUse]:
    """The list of one extension point: its own plugins and those from multiPoint."""
    if ALL in wanted.disabled:
        return list(wanted.enabled)
    brought = {use.name: use for use in multi if use.name not in wanted.disabled}
    own = {use.name for use in wanted.enabled}
    return [
        *(use for use in wanted.enabled if use.name in brought),
        *(use for use in brought.values() if use.name not in own),
        *(use for use in wanted.enabled if use.name not in brought),
    ]


def find_plugin(
    name: str, registry: Registry, path: str, problems: Problems
) -> RegistryEntry | None:
    """The registered plugin of a name; None, with a problem, when there is none."""
    if name in registry:
        return registry[name]
    if name in REMOVED:
        problems.add(path, f"{name!r}, which Kubernetes has removed", REMOVED[name])
    elif not name:
        problems.add(path, "", "the name of a plugin")
    elif name == ALL:
        problems.add(path, format_value(name), "the name of a plugin", "only `disabled` takes '*'")
    else:
        problems.add(
            path,
            format_value(name),
            _plugin_suggestions(name, registry),
            did_you_mean(name, registry),
        )
    return None


def _plugin_suggestions(name: str, registry: Registry) -> str:
    """Suggestions for an unknown name: similar names, and those of loaded plugins."""
    near = difflib.get_close_matches(name, registry, n=NEAR_NAMES)
    loaded = [entry.name for entry in registry.third_party()]
    parts = ["the name of a registered plugin"]
    if near:
        parts.append(f"near it: {', '.join(near)}")
    parts.append(f"loaded from files and packages: {', '.join(loaded) or 'none'}")
    return "; ".join(parts)


class _PluginSetCheck:
    """Resolves lists of a file to lists that can be merged; adds problems."""

    def __init__(self, registry: Registry, problems: Problems) -> None:
        self.registry = registry
        self.problems = problems

    def wanted(self, written: PluginSet, path: str, point: str = "") -> ResolvedPluginSet:
        """The lists of `point`, or of multiPoint when empty."""
        return ResolvedPluginSet(
            enabled=tuple(self._enabled(written.enabled, f"{path}.enabled", point)),
            disabled=frozenset(self._disabled(written.disabled, f"{path}.disabled")),
        )

    def _enabled(
        self, entries: Sequence[PluginEntry], path: str, point: str
    ) -> Iterator[PluginUse]:
        first: dict[str, int] = {}
        for i, written in enumerate(entries):
            where = f"{path}[{i}].name"
            if self.problems.is_invalid(f"{path}[{i}]"):
                continue
            entry = find_plugin(written.name, self.registry, where, self.problems)
            if entry is None:
                continue
            if written.name in first:
                hint = f"first at {path}[{first[written.name]}]"
                self.problems.add(where, f"{written.name!r} again", "each plugin once", hint)
            elif point and point not in entry.points:
                self._misplaced(entry, point, where)
            else:
                first[written.name] = i
                yield PluginUse(written.name, written.weight or _default_weight(entry))

    def _misplaced(self, entry: RegistryEntry, point: str, path: str) -> None:
        able = ", ".join(e.name for e in self.registry.values() if point in e.points)
        got = f"{entry.name!r}, which has nothing to do at {point}"
        hint = f"it takes part in {', '.join(entry.points)}"
        self.problems.add(path, got, able or "no plugin", hint)

    def _disabled(self, entries: Sequence[PluginEntry], path: str) -> Iterator[str]:
        # A plugin that does not run at this point may be disabled, for files that serve several
        # versions. Differs: the original lets `disabled` name plugins that do not exist, so that a
        # misspelt name passes.
        never_run = {ALL, *REMOVED, *POD_GROUP_PLUGINS}
        for i, written in enumerate(entries):
            where = f"{path}[{i}].name"
            if self.problems.is_invalid(f"{path}[{i}]"):
                continue
            if written.name in never_run or find_plugin(
                written.name, self.registry, where, self.problems
            ):
                yield written.name


def _default_weight(entry: RegistryEntry) -> int:
    # The original has no default weight per plugin: in-tree plugins weigh 1 unless the default list
    # or a file sets it.
    return 1 if entry.in_tree else entry.weight
