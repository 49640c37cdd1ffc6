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
    original; here every node is evaluated unless the user sets it (`evaluates_all`).
    """

    scheduler_name: str
    points: dict[str, tuple[PluginUse, ...]]
    args: dict[str, Any] = {}
    percentage_of_nodes_to_score: int | None = None

    def plugin_names(self) -> tuple[str, ...]:
        """Every plugin of the profile once, in order of first appearance."""
        return tuple(dict.fromkeys(use.name for uses in self.points.values() for use in uses))
