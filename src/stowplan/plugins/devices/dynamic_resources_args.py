"""Arguments of DynamicResources.

Source: kube-scheduler v1.36, apis/config/types_pluginargs.go (DynamicResourcesArgs).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from stowplan.framework import Problem
from stowplan.plugins.args_base import PluginArgs


class DynamicResourcesArgs(PluginArgs, frozen=True):
    """filter_timeout: limit of the device search per node, 0 for none; it counts steps of the
    search, not time. binding_timeout: limit until devices are ready."""

    filter_timeout: timedelta = timedelta(seconds=10)
    binding_timeout: timedelta = timedelta(seconds=600)

    def problems(self, path: str) -> Iterator[Problem]:
        """Timeouts that are too short."""
        for name, length, least_s in (
            ("filterTimeout", self.filter_timeout, 0),
            ("bindingTimeout", self.binding_timeout, 1),
        ):
            if length.total_seconds() < least_s:
                got = f"{length.total_seconds():g}s"
                yield Problem(f"{path}.{name}", got, f"{least_s}s or more")
