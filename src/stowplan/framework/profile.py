"""A profile: which plugins take part in deciding the pods of one scheduler name, and how."""

from __future__ import annotations

from typing import Any

import msgspec


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin at an extension point; weight counts for score only."""

    name: str
    weight: int = 1


class Profile(msgspec.Struct, frozen=True):
    """What a configuration says about one scheduler name, defaults and overrides resolved.

    points: extension point (configuration name) -> plugins in the order of their calls.
    args: plugin -> its decoded arguments. percentage_of_nodes_to_score: 0 means adaptive in the
    original; here every node is evaluated unless the user sets it (`evaluates_all`). aliases: name
    in this profile -> name in the registry, for plugins that it calls otherwise. asks_all: every
    filter is asked about a node, and a refusal carries the reasons of all. divisors: plugin -> what
    its 0 to 100 are divided by, truncated, before they are weighed: where other scores end at 10.
    """

    scheduler_name: str
    points: dict[str, tuple[PluginUse, ...]]
    args: dict[str, Any] = {}
    percentage_of_nodes_to_score: int | None = None
    aliases: dict[str, str] = {}
    checks_all_filters: bool = False
    divisors: dict[str, int] = {}

    def plugin_names(self) -> tuple[str, ...]:
        """Every plugin of the profile once, in order of first appearance."""
        return tuple(dict.fromkeys(use.name for uses in self.points.values() for use in uses))
