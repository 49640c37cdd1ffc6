"""Effect dispatcher: performs the effects of one scheduler and returns their outcomes.

Requests to the API server are left to subclasses; plugin I/O and extenders are simulated here.

Effects of one pod are applied in the order of their numbers, writes only while the scheduler leads.
With `delay` requests and replies have latency; with `inject` faults are injected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stowplan.framework.runtime.declarations import declaration_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect, is_write
from stowplan.messages.events import Event
from stowplan.messages.extender_api import (
    BOUND_BODY,
    ExtenderResponse,
    ExtenderVerb,
    timeout_response,
)
from stowplan.objects.encoding.duration import SECOND
from stowplan.scheduler.binding.plugin_io import PluginIO
from stowplan.simulation.cluster.cluster_api import CREATED, OK, ClusterApi

PERFORM_S = 1.0
"""Duration of a plugin's I/O, unless it declares `simulated_s`."""


FaultInjector = Callable[[Effect], "InjectedFault | None"]
"""Called before a request is sent; returns the fault to inject, or None."""


class InjectedFault:
    """Fault of one request.

    code: status that the caller gets, 0 for a timeout; None: no reply ever. done: the API executes
    the request nevertheless. late: it executes the request after this many nanoseconds. body: body
    of an extender's reply.
    """

    __slots__ = ("body", "code", "done", "late")

    def __init__(
        self, code: int | None, *, done: bool = False, late: int = 0, body: bytes = b""
    ) -> None:
        self.code = code
        self.done = done
        self.late = late
        self.body = body


class SimulatedReply(NamedTuple):
    """Reply of a simulated extender.

    reply: executes the call and returns the response. after: latency in nanoseconds; None: no reply
    ever.
    """

    reply: Callable[[], ExtenderResponse] | None
    after: int | None = 0


class EffectDispatcher:
    """Dispatcher of one scheduler.

    answer: receives outcomes. plugin_io: the plugin I/O behind a Prepare, None when it was
    cancelled. may_write: whether the scheduler leads in the term of an effect. delay: latency of
    requests and replies. extender: answers in place of all extenders. inject: the fault of a
    request. on_sent: called with every write that is sent. on_result: called with every binding and
    eviction and its status, including bindings by extenders.
    """

    def __init__(
        self,
        cluster: ClusterApi,
        plugin_io: Callable[[int], PluginIO | None],
    ) -> None:
        self.cluster = cluster
        self.answer: Callable[[Event], None] = _no_receiver
        self.plugin_io = plugin_io
        self.delay: Callable[[], int] | None = None
        self.inject: FaultInjector | None = None
        self.extender: Callable[[to_do.CallExtender], SimulatedReply] = _no_extender
        self.may_write: Callable[[Effect], bool] | None = None
        self.on_sent: Callable[[Effect], None] = _nothing
        self.on_result: Callable[[Effect, int], None] = _ignore_result
        self.is_open = True
        self._bind_delay = round(cluster.pace.bind_s * SECOND)
        self._busy_until: dict[str, int] = {}
        self._cancelled: set[int] = set()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            to_do.Prepare: self._prepare,
            to_do.CallExtender: self._call_extender,
            **self._api_handlers(),
        }

    def _api_handlers(self) -> dict[type[Any], Callable[[Any], None]]:
        """What performs the effects that are requests to the API server, by kind of effect."""
        raise NotImplementedError

    def close(self) -> None:
        """Send no more requests, deliver no more outcomes."""
        self.is_open = False

    def take(self, effect: Effect) -> None:
        """Apply an effect; Wake and RecordEvent are handled elsewhere."""
        if isinstance(effect, to_do.Cancel):
            self._cancelled.add(effect.prepare)
            return
        event_queue = self.cluster.event_queue
        uid = effect.uid  # type: ignore[union-attr]
        at = event_queue.now
        if self.delay is not None:
            at = max(at + self.delay(), self._busy_until.get(uid, 0))
            self._busy_until[uid] = at
        elif isinstance(effect, to_do.Bind):
            at += self._bind_delay
        event_queue.at(at, self._send, effect)

    def _send(self, effect: Effect) -> None:
        uid = effect.uid  # type: ignore[union-attr]
        if self._busy_until.get(uid) == self.cluster.event_queue.now:
            # Keeps the table small: later requests do not need the entry.
            del self._busy_until[uid]
        if not self.is_open or effect.effect in self._cancelled:
            return
        if is_write(effect):
            if self.may_write is not None and not self.may_write(effect):
                return
            self.on_sent(effect)
        self._handlers[type(effect)](effect)

    # Effects by kind.

    def _send_request(self, effect: Any, request: Callable[[], int]) -> int | None:
        """The status that the caller gets; None for no reply."""
        injected_fault = None if self.inject is None else self.inject(effect)
        if injected_fault is None:
            return request()
        if injected_fault.late:
            self.cluster.event_queue.after(injected_fault.late, _late, request)
        elif injected_fault.done:
            request()
        return injected_fault.code

    def _call_extender(self, effect: to_do.CallExtender) -> None:
        injected_fault = None if self.inject is None else self.inject(effect)
        simulated = self.extender(effect)

        def reply() -> ExtenderResponse:
            found = _no_answer() if simulated.reply is None else simulated.reply()
            if effect.question.verb is ExtenderVerb.BIND and (found.code, found.body) == (
                OK,
                BOUND_BODY,
            ):
                self.on_result(effect, CREATED)
            return found

        if injected_fault is not None:
            self._inject_fault(effect, injected_fault, reply)
            return
        after, timeout = simulated.after, round(effect.timeout_s * SECOND)
        if after is not None:
            if after <= timeout:
                self._when(after, self._deliver_reply, effect, reply)
                return
            # The extender executes the call after the caller has given up.
            self.cluster.event_queue.after(after, _discard_reply, reply)
        late = timeout_response(effect.question)
        self._when(timeout, self._deliver_reply, effect, lambda: late)

    def _inject_fault(
        self,
        effect: to_do.CallExtender,
        injected_fault: InjectedFault,
        reply: Callable[[], ExtenderResponse],
    ) -> None:
        if injected_fault.late:
            self.cluster.event_queue.after(injected_fault.late, _discard_reply, reply)
        elif injected_fault.done:
            reply()
        if injected_fault.code is not None:
            response = ExtenderResponse(
                injected_fault.code, injected_fault.body, "" if injected_fault.code else "EOF"
            )
            self._deliver_reply(effect, lambda: response)

    def _when(self, after: int, act: Callable[..., None], *given: Any) -> None:
        if after:
            self.cluster.event_queue.after(after, act, *given)
        else:
            act(*given)

    def _deliver_reply(
        self, effect: to_do.CallExtender, reply: Callable[[], ExtenderResponse]
    ) -> None:
        response = reply()
        if effect.effect in self._cancelled:
            return
        if response.code:
            event: Event = happened.ExtenderReplied(
                effect.effect, effect.uid, response.code, response.body
            )
        else:
            event = happened.ExtenderFailed(effect.effect, effect.uid, response.reason)
        self._answer(event)

    def _prepare(self, effect: to_do.Prepare) -> None:
        plugin_io = self.plugin_io(effect.effect)
        if plugin_io is None:
            return
        code = self._send_request(effect, lambda: OK)
        if code is None:
            return
        declared_s = declaration_of(plugin_io.plugin).simulated_s
        takes = round((PERFORM_S if declared_s is None else declared_s) * SECOND)
        self.cluster.event_queue.after(takes, self._prepared, effect, code)

    def _prepared(self, effect: to_do.Prepare, code: int) -> None:
        plugin_io = self.plugin_io(effect.effect)
        if effect.effect in self._cancelled or plugin_io is None:
            return
        if code != OK:
            failure = f"{effect.plugin}: the request failed with status {code}"
            self._answer(happened.PrepareFailed(effect.effect, effect.uid, failure))
            return
        if effect.point == "bind":
            # A plugin that performs Bind calls the API itself.
            self.cluster.bind(plugin_io.pod.key, plugin_io.pod.uid, plugin_io.node_name)
        self._answer(happened.PrepareDone(effect.effect, effect.uid))

    def _answer(self, event: Event) -> None:
        if self.delay is None:
            self.answer(event)
        else:
            self.cluster.event_queue.after(self.delay(), self._arrive, event)

    def _arrive(self, event: Event) -> None:
        if self.is_open:
            self.answer(event)


def _late(request: Callable[[], int]) -> None:
    request()


def _discard_reply(reply: Callable[[], ExtenderResponse]) -> None:
    reply()


def _no_answer() -> ExtenderResponse:
    return ExtenderResponse(reason="EOF")


def _no_extender(effect: to_do.CallExtender) -> SimulatedReply:
    return SimulatedReply(_no_answer)


def _no_receiver(event: Event) -> None:
    """Default of `answer`: nothing waits for outcomes."""


def _nothing(effect: Effect) -> None:
    """Default of `on_sent`: does nothing."""


def _ignore_result(effect: Effect, code: int) -> None:
    """Default of `on_result`: does nothing."""
