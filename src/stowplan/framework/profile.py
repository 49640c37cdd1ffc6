"""A profile: the plugins of one scheduler name, and their settings."""

from __future__ import annotations

from typing import Any

import msgspec


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin at an extension point; weight is used for score only."""

    name: str
    weight: int = 1


class Profile(msgspec.Struct, frozen=True):
    """Configuration of one scheduler name, with defaults and overrides resolved.

    points: extension point (configuration name) -> plugins in call order. args: plugin -> decoded
    arguments. percentage_of_nodes_to_score: 0 means adaptive in the original; here every node is
    evaluated unless the user sets it (`evaluates_all`). aliases: name in this profile -> name in
    the registry. checks_all_filters: every filter is called for a node, and a rejection has all
    reasons. divisors: plugin -> divisor of its normalized scores, truncated, before weighting: for
    scores that end at 10.
    """

    scheduler_name: str
    points: dict[str, tuple[PluginUse, ...]]
    args: dict[str, Any] = {}
    percentage_of_nodes_to_score: int | None = None
    aliases: dict[str, str] = {}
    checks_all_filters: bool = False
    divisors: dict[str, int] = {}

    def plugin_names(self) -> tuple[str, ...]:
        """All plugins of the profile once, in order of first appearance."""
        return tuple(dict.fromkeys(use.name for uses in self.points.values() for use in uses))
