"""Client dispatcher: effects of a scheduler as requests of the production client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.client.api_calls import ApiCalls, ApiCallSteps, RequestTime, RetryPause
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.client.timestamps import rfc3339_micros, rfc3339_seconds
from stowplan.messages import effects as to_do
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.scheduler.binding.plugin_io import PluginIO
from stowplan.simulation.api_cluster.api_cluster import ApiCluster
from stowplan.simulation.cluster.effect_dispatcher import EffectDispatcher

_REQUESTS = (
    to_do.Bind,
    to_do.ReadPod,
    to_do.PatchStatus,
    to_do.PatchGroup,
    to_do.AnnotateGroup,
    to_do.PatchQueue,
    to_do.Evict,
    to_do.Write,
)
"""Effects that the client performs at the API server."""


class ClientDispatcher(EffectDispatcher):
    """Performs effects with `ApiCalls` on the function-call transport.

    Plugin I/O and extenders are simulated as for the in-memory cluster.
    """

    def __init__(
        self,
        cluster: ApiCluster,
        plugin_io: Callable[[int], PluginIO | None],
    ) -> None:
        super().__init__(cluster, plugin_io)
        self._api_cluster = cluster
        self._transport = cluster.transport
        self._calls = ApiCalls(EventCorrelator("stowplan"), self._request_time)

    def _api_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        return dict.fromkeys(_REQUESTS, self._request)

    def _request(self, effect: Effect) -> None:
        self._resume(effect, self._calls.steps(effect), None)

    def _resume(self, effect: Effect, steps: ApiCallSteps, reply: ApiResponse | None) -> None:
        """Send the requests of an effect; its outcome is an event, if something waits for it."""
        last = reply
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as ended:
                outcome: Event | None = ended.value
                break
            if isinstance(step, RetryPause):
                pause = round(step.seconds * SECOND)
                self.cluster.event_queue.after(pause, self._resume, effect, steps, None)
                return
            reply = last = self._reply_to(effect, step)
            if reply is None:
                # No reply ever: the caller waits until its own time limit.
                return
        if isinstance(effect, to_do.Bind | to_do.Evict) and last is not None:
            self.on_result(effect, last.status)
        if outcome is not None:
            self._answer(outcome)

    def _reply_to(self, effect: Effect, request: ApiRequest) -> ApiResponse | None:
        """The reply that the caller gets, faults included; None for no reply ever."""
        fault = None if self.inject is None else self.inject(effect)
        if fault is None:
            return self._transport.send(request)
        if fault.late:
            self.cluster.event_queue.after(fault.late, self._send_late, request)
        elif fault.done:
            self._transport.send(request)
        if fault.code is None:
            return None
        return ApiResponse(fault.code, fault="" if fault.code else "no reply")

    def _send_late(self, request: ApiRequest) -> None:
        self._transport.send(request)

    def _request_time(self) -> RequestTime:
        now = self.cluster.event_queue.now
        wall_ns = round(self._api_cluster.now_s * SECOND)
        return RequestTime(now, wall_ns, rfc3339_seconds(wall_ns), rfc3339_micros(wall_ns))
