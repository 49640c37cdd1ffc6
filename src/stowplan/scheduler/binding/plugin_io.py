"""Pending plugin I/O: Prepare effects without an outcome yet."""

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
    """Arguments of a plugin's `perform`; the driver builds `ctx` from them."""

    plugin: Any
    name: str
    point: str
    pod: Pod
    node_name: str
    state: CycleState
    timeout_s: float


class PendingPluginIO:
    """Plugin I/O in progress, by effect number."""

    def __init__(self, context: SchedulerContext) -> None:
        self._context = context
        self._plugin_io: dict[int, PluginIO] = {}
        self._deadlines: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._plugin_io)

    def get(self, effect: int) -> PluginIO | None:
        """Return the I/O with this effect number, or None if it has ended."""
        return self._plugin_io.get(effect)

    def start(
        self, member: RegisteredPlugin, point: str, pod: Pod, node_name: str, state: CycleState
    ) -> int:
        """Request plugin I/O; returns the effect number."""
        context = self._context
        usual = context.options.work_timeout_s
        timeout_s = float(getattr(member.plugin, "perform_timeout_s", usual))
        effect = context.outbox.prepare(member, point, pod, node_name, timeout_s)
        self._plugin_io[effect] = PluginIO(
            member.plugin, member.name, point, pod, node_name, state, timeout_s
        )
        self._deadlines.set(effect, context.now + seconds_to_ns(timeout_s))
        return effect

    def end(self, effect: int) -> PluginIO | None:
        """Remove ended I/O; returns None if it was removed before."""
        self._deadlines.clear(effect)
        return self._plugin_io.pop(effect, None)

    def cancel(self, effect: int) -> None:
        """Cancel I/O whose result is no longer needed."""
        plugin_io = self.end(effect)
        if plugin_io is not None:
            self._context.outbox.cancel(plugin_io.pod.uid, effect)

    def overdue(self) -> list[int]:
        """Effect numbers of timed-out I/O, earliest first; the caller cancels them."""
        return self._deadlines.due(self._context.now)

    def next_deadline(self) -> int | None:
        """The next time at which plugin I/O times out; None if there is none."""
        return self._deadlines.next()
