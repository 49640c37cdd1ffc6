"""Simulated dispatcher: performs the effects of one scheduler on a simulated cluster.

Effects of one pod are applied in the order of their numbers, writes only while the scheduler leads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.client.binding.binding_times import BindingTimes
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.scheduler.binding.plugin_io import PluginIO
from stowplan.simulation.cluster.cluster_api import CREATED, OK
from stowplan.simulation.cluster.effect_dispatcher import EffectDispatcher
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster


class SimulatedDispatcher(EffectDispatcher):
    """Performs requests as calls of a `SimulatedCluster`."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        plugin_io: Callable[[int], PluginIO | None],
    ) -> None:
        super().__init__(cluster, plugin_io)
        self._simulated = cluster
        self._binding_times = BindingTimes()

    def _api_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        return {
            to_do.Bind: self._bind,
            to_do.ReadPod: self._read,
            to_do.PatchStatus: self._patch,
            to_do.PatchGroup: self._patch,
            to_do.AnnotateGroup: self._patch,
            to_do.PatchQueue: self._patch,
            to_do.Evict: self._evict,
            to_do.Write: self._write,
        }

    def _bind(self, effect: to_do.Bind) -> None:
        def request() -> int:
            now = self._simulated.event_queue.now
            notes = self._binding_times.annotations(effect, now)
            code = self._simulated.bind(key, effect.uid, effect.node, notes)
            self.on_result(effect, code)
            return code

        key = f"{effect.namespace}/{effect.name}"
        code = self._send_request(effect, request)
        if code == CREATED:
            self._answer(happened.BindDone(effect.effect, effect.uid))
        elif code is not None:
            self._answer(happened.BindFailed(effect.effect, effect.uid, code))

    def _read(self, effect: to_do.ReadPod) -> None:
        code = self._send_request(effect, lambda: OK)
        # A read without a reply needs no outcome.
        if code == OK:
            pod = self._simulated.pods.get(f"{effect.namespace}/{effect.name}")
            self._answer(happened.PodRead(effect.effect, effect.uid, pod))

    def _patch(
        self,
        effect: to_do.PatchStatus | to_do.PatchGroup | to_do.AnnotateGroup | to_do.PatchQueue,
    ) -> None:
        patches: dict[type[Any], Callable[[Any], int]] = {
            to_do.PatchStatus: self._simulated.patch_status,
            to_do.PatchGroup: self._simulated.patch_group,
            to_do.AnnotateGroup: self._simulated.annotate_group,
            to_do.PatchQueue: self._simulated.patch_queue,
        }
        patch = patches[type(effect)]
        code = self._send_request(effect, lambda: patch(effect))
        if code is not None and code != OK:
            self._answer(happened.PatchFailed(effect.effect, effect.uid, code))

    def _evict(self, effect: to_do.Evict) -> None:
        def request() -> int:
            code = self._simulated.evict(key, effect.uid)
            self.on_result(effect, code)
            return code

        key = f"{effect.namespace}/{effect.name}"
        code = self._send_request(effect, request)
        if code == OK:
            self._answer(happened.EvictDone(effect.effect, effect.uid))
        elif code is not None:
            self._answer(happened.EvictFailed(effect.effect, effect.uid, code))

    def _write(self, effect: to_do.Write) -> None:
        version = ""

        def request() -> int:
            nonlocal version
            code, version = self._simulated.write(effect.value, effect.patch)
            return code

        code = self._send_request(effect, request)
        if code == OK:
            self._answer(happened.WriteDone(effect.effect, effect.uid, version))
        elif code is not None:
            self._answer(happened.WriteFailed(effect.effect, effect.uid, code))
