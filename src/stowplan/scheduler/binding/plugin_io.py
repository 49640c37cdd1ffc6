"""Pending plugin I/O: Prepare effects without an outcome yet."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import CycleState
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.status import error
from stowplan.messages.events import PrepareDone
from stowplan.objects.pod import Pod
from stowplan.scheduler.pending_effects import PendingEffects
from stowplan.scheduler.pods.transitions import PodEvent


class PluginIO(msgspec.Struct, frozen=True):
    """Arguments of a plugin's `perform`; the driver builds `ctx` from them."""

    plugin: Any
    name: str
    point: str
    pod: Pod
    node_name: str
    state: CycleState
    timeout_s: float

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return self.pod.uid


class PendingPluginIO(PendingEffects[PluginIO]):
    """Plugin I/O in progress, by effect number."""

    def start(
        self, member: RegisteredPlugin, point: str, pod: Pod, node_name: str, state: CycleState
    ) -> int:
        """Request plugin I/O; returns the effect number."""
        context = self._context
        declared = member.declaration.perform_timeout_s
        timeout_s = context.options.work_timeout_s if declared is None else float(declared)
        effect = context.outbox.prepare(member, point, pod, node_name, timeout_s)
        plugin_io = PluginIO(member.plugin, member.name, point, pod, node_name, state, timeout_s)
        self.add(effect, plugin_io, timeout_s)
        return effect

    def done(self, event: PrepareDone) -> None:
        """A plugin's I/O has finished; an outcome of PostBind concerns no record."""
        if self.end(event.effect) is not None:
            self._context.table.outcome(PodEvent.PREPARE_DONE, event)

    def failed(self, effect: int, reason: str) -> None:
        """A plugin's I/O has failed."""
        plugin_io = self.end(effect)
        record = None if plugin_io is None else self._context.table.records.get(plugin_io.uid)
        if plugin_io is not None and record is not None and effect in record.binding.awaits:
            point = "PreBind" if plugin_io.point == "preBind" else "Bind"
            status = error(f'running {point} plugin "{plugin_io.name}": {reason}')
            self._context.table.transition(record, PodEvent.PREPARE_FAILED, status)
