"""Pending plugin I/O: Prepare effects without an outcome yet."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import CycleState
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod
from stowplan.scheduler.pending_effects import PendingEffects


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
