"""I/O of plugins (PreBind, Bind, PostBind) and extender calls, with a time limit and
cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from stowplan.driver.background_tasks import BackgroundTasks
from stowplan.driver.logs import log_keys
from stowplan.framework import CycleState
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding.plugin_io import PluginIO

log = logging.getLogger("stowplan.plugins")


class PluginIOContext(msgspec.Struct, frozen=True):
    """Argument of a plugin's `perform`. point: preBind, bind or postBind."""

    pod: Pod
    node_name: str
    state: CycleState
    point: str


class PluginIORunner:
    """Runs plugin I/O and extender calls. Each ends in one outcome event, or is cancelled."""

    def __init__(
        self, on_outcome: Callable[[Event], None], plugin_io: Callable[[int], PluginIO | None]
    ) -> None:
        """on_outcome: called with each outcome. plugin_io: returns the arguments of a Prepare
        effect, None if it was cancelled."""
        self._on_outcome = on_outcome
        self._work = plugin_io
        self._background: BackgroundTasks | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def start(self, tasks: BackgroundTasks) -> None:
        """Run what begins from now on as tasks of a group."""
        self._background = tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def prepare(self, effect: to_do.Prepare) -> None:
        """Start the I/O of a plugin."""
        plugin_io = self._work(effect.effect)
        if plugin_io is not None:
            self.begin(effect.effect, self._perform(effect, plugin_io))

    def begin(self, effect: int, doing: Coroutine[Any, Any, Event]) -> None:
        """Run a coroutine that returns an outcome event."""
        assert self._background is not None
        work = self._run_until_done(effect, doing)
        self._tasks[effect] = self._background.start(work, f"plugin I/O {effect}")

    def cancel(self, effect: int) -> None:
        """Cancel one: its outcome is not needed any more."""
        task = self._tasks.pop(effect, None)
        if task is not None:
            task.cancel()

    async def _run_until_done(self, effect: int, doing: Coroutine[Any, Any, Event]) -> None:
        outcome = await doing
        if self._tasks.pop(effect, None) is not None:
            self._on_outcome(outcome)

    async def _perform(self, effect: to_do.Prepare, plugin_io: PluginIO) -> Event:
        context = PluginIOContext(
            plugin_io.pod, plugin_io.node_name, plugin_io.state, plugin_io.point
        )
        try:
            await asyncio.wait_for(plugin_io.plugin.perform(context), effect.timeout_s)
        except TimeoutError:
            reason = f"{effect.plugin}: timed out after {effect.timeout_s:g}s"
            return happened.PrepareFailed(effect.effect, effect.uid, reason)
        # A third-party plugin may raise anything; that fails the pod's attempt only.
        except Exception as fault:  # noqa: BLE001
            keys = {"plugin": effect.plugin, "pod": plugin_io.pod.key, "err": repr(fault)}
            log_keys(log, logging.WARNING, "Plugin failed", **keys)
            reason = f"{effect.plugin}: {fault or type(fault).__name__}"
            return happened.PrepareFailed(effect.effect, effect.uid, reason)
        return happened.PrepareDone(effect.effect, effect.uid)
