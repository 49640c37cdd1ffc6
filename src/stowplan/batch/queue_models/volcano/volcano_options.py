"""What a Volcano scheduler configuration says: actions, tiers of plugins, arguments of actions.

Source: volcano master of 2026-08-20, pkg/scheduler/conf/scheduler_conf.go, framework/arguments.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stowplan.batch.queue_models.volcano.volcano_defects import ALL_DEFECTS
from stowplan.objects.encoding import duration

Arguments = Mapping[str, Any]


class VolcanoPluginOption(msgspec.Struct, frozen=True):
    """A plugin of a tier. enabled: switches that are on."""

    name: str
    enabled: frozenset[str]
    arguments: Arguments = {}


class VolcanoOptions(msgspec.Struct, frozen=True):
    """A configuration. arguments: action -> its arguments.

    mends: defects of the original that do not occur; see `volcano_defects`.
    """

    actions: tuple[str, ...]
    tiers: tuple[tuple[VolcanoPluginOption, ...], ...]
    arguments: Mapping[str, Arguments] = {}
    mends: frozenset[str] = ALL_DEFECTS

    def argument(self, action: str) -> Arguments:
        """Arguments of an action."""
        return self.arguments.get(action, {})

    def option(self, plugin: str) -> VolcanoPluginOption | None:
        """The first entry of a plugin."""
        entries = (entry for tier in self.tiers for entry in tier)
        return next((entry for entry in entries if entry.name == plugin), None)

    def is_hierarchical(self, plugin: str) -> bool:
        """True if the plugin's switch enableHierarchy is on."""
        option = self.option(plugin)
        return option is not None and "enableHierarchy" in option.enabled


def integer(arguments: Arguments, key: str, default: int) -> int:
    """An argument; the default for one that is absent or no integer."""
    found = arguments.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def number(arguments: Arguments, key: str, default: float) -> float:
    """An argument; the default for one that is absent or no number."""
    found = arguments.get(key)
    return (
        float(found) if isinstance(found, int | float) and not isinstance(found, bool) else default
    )


def boolean(arguments: Arguments, key: str, *, default: bool) -> bool:
    """An argument; the default for one that is absent or no boolean."""
    found = arguments.get(key)
    if isinstance(found, str):
        if found in ("1", "t", "T", "TRUE", "true", "True"):
            return True
        return False if found in ("0", "f", "F", "FALSE", "false", "False") else default
    return found if isinstance(found, bool) else default


def text(arguments: Arguments, key: str, default: str = "") -> str:
    """An argument; the default for one that is absent or no text."""
    found = arguments.get(key)
    return found if isinstance(found, str) else default


def duration_s(arguments: Arguments, key: str, default: float) -> float:
    """An argument such as `5m` in seconds; the default for one that is absent or invalid."""
    try:
        return duration.parse(text(arguments, key)).total_seconds()
    except ValueError:
        return default


def resource_weights(arguments: Arguments, prefix: str) -> dict[str, int]:
    """Weights by resource: cpu, memory, and those that `PREFIX.resources` lists; default 1."""
    weights: dict[str, int] = {}
    for name in text(arguments, f"{prefix}.resources").split(","):
        if name.strip():
            key = f"{prefix}.resources.{name.strip()}"
            weights[name.strip()] = _not_negative(integer(arguments, key, 1))
    for name in ("cpu", "memory"):
        weights[name] = _not_negative(integer(arguments, f"{prefix}.{name}", 1))
    return weights


def _not_negative(weight: int) -> int:
    return 1 if weight < 0 else weight
