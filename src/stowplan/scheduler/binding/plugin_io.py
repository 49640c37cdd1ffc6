"""Works: what plugins are doing outside, asked for with Prepare and not over yet."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import CycleState
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines


class PluginIO(msgspec.Struct, frozen=True):
    """All that a plugin's `perform` is told: what the driver's `ctx` is made of."""

    plugin: Any
    name: str
    point: str
    pod: Pod
    node_name: str
    state: CycleState
    timeout_s: float


class PendingPluginIO:
    """The works under way, by the number of the effect that asked for them."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._plugin_io: dict[int, PluginIO] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._plugin_io)

    def get(self, effect: int) -> PluginIO | None:
        """The work of a number, None when it is over."""
        return self._plugin_io.get(effect)

    def start(
        self, member: RegisteredPlugin, point: str, pod: Pod, node_name: str, state: CycleState
    ) -> int:
        """Ask for a plugin's work; returns its number."""
        context = self._context
        declared = member.declaration.perform_timeout_s
        timeout_s = context.options.work_timeout_s if declared is None else float(declared)
        effect = context.outbox.prepare(member, point, pod, node_name, timeout_s)
        self._plugin_io[effect] = PluginIO(
            member.plugin, member.name, point, pod, node_name, state, timeout_s
        )
        self._deadlines.set(effect, context.now + seconds_to_ns(timeout_s))
        return effect

    def end(self, effect: int) -> PluginIO | None:
        """The work is over; None when it was before."""
        self._deadlines.clear(effect)
        return self._plugin_io.pop(effect, None)

    def cancel(self, effect: int) -> None:
        """Nobody waits for the work any more."""
        plugin_io = self.end(effect)
        if plugin_io is not None:
            self._context.outbox.cancel(plugin_io.pod.uid, effect)

    def overdue(self) -> list[int]:
        """The numbers of works whose time is up, the earliest first; to be cancelled."""
        return self._deadlines.due(self._context.now)

    def next_deadline(self) -> int | None:
        """When the next work's time is up."""
        return self._deadlines.next()
