"""What a simulation notes about its out-of-tree plugins: suspicious answers, and failures.

A scheduler goes on after a plugin that raised: it refuses the pod, tries it again, and the last
message of a pod does not tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from stowplan.framework import ContractError
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.insight.pod_placement import frameworks_of
from stowplan.messages.effects import Effect, RecordEvent
from stowplan.scheduler.scheduler import Scheduler

Call = Callable[..., Any]

_BROKEN = re.compile(r"\[?(?:plugin|priority) '[^']*': ")
"""Beginning of ContractErrors of `framework`: `plugin_calls`, `registered_plugin` and
`prioritize_nodes`."""


class PluginWatch:
    """warnings: of sampled checks. failure: how a plugin first broke its contract, "" if none did.
    n_members: out-of-tree plugins of all profiles."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.warnings: list[str] = []
        self.failure = ""
        frameworks = frameworks_of(scheduler).values()
        members = [m for one in frameworks for m in one.members.values() if not m.in_tree]
        self.n_members = len(members)
        if not members:
            return
        # Imported here: slow to import, and few simulations have out-of-tree plugins.
        from stowplan.simulation.plugin_sampling import PluginSampler

        self.warnings = PluginSampler(frameworks).warnings
        for member in members:
            self._record_failures(member)

    def observe(self, effects: Iterable[Effect]) -> None:
        """Note failures that only Events tell: of hints, functions, and arrays of a wrong shape."""
        if not self.n_members or self.failure:
            return
        for effect in effects:
            if isinstance(effect, RecordEvent) and _BROKEN.match(effect.note):
                self.failure = effect.note
                return

    def _record_failures(self, member: RegisteredPlugin) -> None:
        for method, call in list(member.calls.items()):
            if call is not None:
                member.calls[method] = self._recorded(call)

    def _recorded(self, call: Call) -> Call:
        def recorded(*values: Any) -> Any:
            try:
                return call(*values)
            except ContractError as fault:
                self.failure = self.failure or str(fault)
                raise

        return recorded
