"""Binding cycles: Reserve, Permit, PreBind and Bind after a node is chosen, and their failures.

Source: kube-scheduler v1.36, schedule_one.go prepareForBindingCycle and bindingCycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Protocol

from stowplan.framework import Code, ContractError, CycleState, Framework, PermitWait
from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.framework.deciders.decider import Decision, PodClass
from stowplan.framework.status import Status, error
from stowplan.messages.events import BindDone, BindFailed, PodRead, PrepareDone, PrepareFailed
from stowplan.messages.extender_api import (
    EXTENDER,
    ExtenderBindingArgs,
    ExtenderRequest,
    ExtenderResponse,
    ExtenderVerb,
    read_binding_result,
)
from stowplan.objects.encoding.duration import render
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.binding.binding_cycle import BindingCycle, BindingStage
from stowplan.scheduler.binding.plugin_io import PendingPluginIO
from stowplan.scheduler.binding.prebind import PreBindRunner
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines
from stowplan.scheduler.extenders.extender_calls import ExtenderCall, PendingExtenderCalls
from stowplan.scheduler.failure_handler import FailureHandler

_BIND_SENT = (BindingStage.BINDING, BindingStage.BIND_UNKNOWN, BindingStage.BOUND)


class AssumedPodListener(Protocol):
    """Listener that tracks assumed pods beside the cache; implemented by the session decider."""

    def assumed(self, pod: Pod, node: str) -> None:
        """The pod is assumed on the node; the watch has not confirmed it yet."""

    def forgotten(self, uid: str) -> None:
        """The pod is no longer assumed."""

    def delay(self, uid: str) -> int:
        """Delay before a session pod whose bind was refused is read again, in nanoseconds."""


class BindingCycles:
    """Binding cycles in progress, by pod uid."""

    def __init__(
        self,
        context: SchedulerContext,
        failures: FailureHandler,
        plugin_io: PendingPluginIO,
        calls: PendingExtenderCalls,
    ) -> None:
        self._context = context
        self._failure_handler = failures
        self._plugin_io = plugin_io
        self._extender_calls = calls
        self.prebind = PreBindRunner(context, plugin_io, self._bind, self._fail, self._fault)
        self._read_again = seconds_to_ns(context.options.read_again_s)
        self._binding_cycles: dict[str, BindingCycle] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self.assumed_pod_listener: AssumedPodListener | None = None

    def __len__(self) -> int:
        return len(self._binding_cycles)

    def __iter__(self) -> Iterator[tuple[str, BindingCycle]]:
        """Iterate over (uid, binding cycle) in the order in which nodes were chosen."""
        return iter(self._binding_cycles.items())

    def __contains__(self, uid: str) -> bool:
        return uid in self._binding_cycles

    def get(self, uid: str) -> BindingCycle | None:
        """Return the pod's binding cycle, or None."""
        return self._binding_cycles.get(uid)

    # Stages.

    def begin(self, entry: QueueEntry, decision: Decision, framework: Framework) -> None:
        """Assume the pod on its node and run its binding cycle until it has to wait."""
        context, pod, node = self._context, entry.pod, decision.node_name
        uid = pod.uid
        context.cache.assume(pod, node)
        if self.assumed_pod_listener is not None:
            self.assumed_pod_listener.assumed(pod, node)
        if len(context.queue.nominator):
            context.queue.nominator.drop(uid)
        state = CycleState() if decision.state is None else decision.state
        cycle = self._binding_cycles[uid] = BindingCycle(
            entry, node, framework, state, score=decision.score
        )
        try:
            if framework.binds_directly(state):
                self._context.activate(state.to_activate)
                context.queue.done(uid)
                self._bind(uid, cycle)
            else:
                self._reserve(uid, cycle)
        except ContractError as fault:
            self._fault(uid, cycle, fault)

    def begin_run(
        self,
        entries: list[QueueEntry],
        classes: list[PodClass],
        start: int,
        rows: list[int],
        scores: list[int],
    ) -> None:
        """Like `begin`, for the pods from index `start` that a kernel has placed: the columns
        already count them on `rows`, and no plugin acts on them before Bind. scores: of the chosen
        rows."""
        context = self._context
        names, cycles = context.cache.nodes.names, self._binding_cycles
        done, bind = context.queue.in_flight.done, context.outbox.bind
        context.cache.note_assumed([entry.pod.uid for entry in entries[start : start + len(rows)]])
        for i, (row, score) in enumerate(zip(rows, scores, strict=True), start):
            entry, one = entries[i], classes[i]
            pod, node, framework = entry.pod, names[row], one.framework
            uid = pod.uid
            cycles[uid] = cycle = BindingCycle(entry, node, framework, one.state, score=score)
            if self.assumed_pod_listener is not None:
                self.assumed_pod_listener.assumed(pod, node)
            done(uid)
            if framework.unconditional_binder:
                cycle.stage = BindingStage.BINDING
                cycle.binder = framework.unconditional_binder
                cycle.awaits = (bind(pod, uid, node),)
                continue
            try:
                self._bind(uid, cycle)
            except ContractError as fault:
                self._fault(uid, cycle, fault)

    def _reserve(self, uid: str, cycle: BindingCycle) -> None:
        """Run Reserve and Permit, then start the binding cycle."""
        framework, pod, node, state = cycle.framework, cycle.pod, cycle.node, cycle.state
        try:
            status = framework.run_reserve(pod, node, state)
            answer = framework.run_permit(pod, node, state) if status.is_success else status
        except ContractError as fault:
            answer = error(str(fault))
        waits: Mapping[str, PermitWait] = {}
        if not isinstance(answer, Status):
            waits = answer
        elif not answer.is_success:
            # No event was sent when the resources were taken, so none is sent when they are
            # released.
            self._undo(uid, cycle)
            self._failure_handler.refused_on_node(cycle.entry, answer)
            return
        self._context.activate(state.to_activate)
        self._start_binding_cycle(uid, cycle, waits)

    def _start_binding_cycle(
        self, uid: str, cycle: BindingCycle, waits: Mapping[str, PermitWait]
    ) -> None:
        """Set nominatedNodeName if binding may take long, then wait at Permit or run PreBind."""
        pod, node, state = cycle.pod, cycle.node, cycle.state
        pre_flight = cycle.framework.run_pre_bind_pre_flight(pod, node, state)
        if not pre_flight.is_success and not pre_flight.is_skip:
            self._fail(uid, cycle, pre_flight)
            return
        if (waits or pre_flight.is_success) and pod.status.nominated_node_name != node:
            self._context.outbox.patch_status(pod, node)
            cycle.announced = True
        if waits:
            self._wait(uid, cycle, waits)
        else:
            self._prepare(uid, cycle)

    def _wait(self, uid: str, cycle: BindingCycle, waits: Mapping[str, PermitWait]) -> None:
        context = self._context
        cycle.stage = BindingStage.WAITING
        pending = {plugin: seconds_to_ns(wait.timeout_s) for plugin, wait in waits.items()}
        waiting = context.shared.waiting.add(cycle.pod, cycle.node, context.now, pending)
        self._deadlines.set(uid, waiting.deadline)

    def settle_permit_waits(self) -> None:
        """Continue the pods that Permit plugins allowed or rejected."""
        waiting = self._context.shared.waiting
        while waiting.settled:
            for one in waiting.take_settled():
                uid = one.pod.uid
                self._deadlines.clear(uid)
                self._wait_ended(uid, self._binding_cycles[uid], one.verdict)

    def _wait_ended(self, uid: str, cycle: BindingCycle, verdict: Status | None) -> None:
        assert verdict is not None
        if verdict.is_success:
            try:
                self._prepare(uid, cycle)
            except ContractError as fault:
                self._fault(uid, cycle, fault)
        elif verdict.is_rejected:
            self._fail(uid, cycle, verdict, by_node=True)
        else:
            text = f"waiting on permit for pod: {verdict.message}"
            self._fail(uid, cycle, error(text).by(verdict.plugin))

    def _prepare(self, uid: str, cycle: BindingCycle) -> None:
        """Start PreBind. A failure from here on requeues with backoff, so in-flight events are no
        longer recorded."""
        self._context.queue.done(uid)
        cycle.stage = BindingStage.PREBIND
        self.prebind.advance(uid, cycle)

    def _bind(self, uid: str, cycle: BindingCycle) -> None:
        extender = self._context.extenders.binder_of(cycle.pod)
        if extender is None:
            self._bind_by_plugin(uid, cycle)
            return
        pod = cycle.pod
        body = ExtenderBindingArgs(pod.name, pod.namespace, pod.metadata.uid, cycle.node)
        question = ExtenderRequest(extender, ExtenderVerb.BIND, body)
        cycle.stage, cycle.binder = BindingStage.BINDING, EXTENDER
        cycle.awaits = (self._extender_calls.ask(uid, question, self._extender_answered),)

    def _bind_by_plugin(self, uid: str, cycle: BindingCycle) -> None:
        framework, pod, node, state = cycle.framework, cycle.pod, cycle.node, cycle.state
        status = framework.run_bind(pod, node, state)
        if status.code is not Code.SUCCESS:
            text = status.message or "no Bind plugin took the pod"
            self._fail(uid, cycle, error(text) if status.is_skip else status)
            return
        cycle.stage = BindingStage.BINDING
        cycle.binder = status.plugin
        binder = framework.members[status.plugin]
        if binder.does_io:
            cycle.awaits = (self._plugin_io.start(binder, "bind", pod, node, state),)
        else:
            cycle.awaits = (self._context.outbox.bind(pod, uid, node),)

    # Outcomes.

    def prepare_done(self, event: PrepareDone) -> None:
        """A plugin's I/O has finished."""
        plugin_io = self._plugin_io.end(event.effect)
        if plugin_io is None:
            return
        uid = plugin_io.pod.uid
        cycle = self._awaiting(uid, event.effect)
        if cycle is None:
            return
        cycle.awaits = tuple(number for number in cycle.awaits if number != event.effect)
        if cycle.stage is BindingStage.BINDING:
            self._bind_accepted(uid, cycle)
            return
        try:
            self.prebind.advance(uid, cycle)
        except ContractError as fault:
            self._fault(uid, cycle, fault)

    def prepare_failed(self, event: PrepareFailed) -> None:
        """A plugin's I/O has failed; if it was Bind, the pod is read to learn the outcome."""
        self._plugin_io_failed(event.effect, event.reason)

    def _plugin_io_failed(self, effect: int, reason: str) -> None:
        plugin_io = self._plugin_io.end(effect)
        if plugin_io is None:
            return
        uid = plugin_io.pod.uid
        cycle = self._awaiting(uid, effect)
        if cycle is None:
            return
        if cycle.stage is BindingStage.PREBIND:
            text = f'running PreBind plugin "{plugin_io.name}": {reason}'
            self._fail(uid, cycle, error(text))
        else:
            self._outcome_unknown(uid, cycle, f'running Bind plugin "{plugin_io.name}": {reason}')

    def bind_done(self, event: BindDone) -> None:
        """The API server accepted the binding; the watch confirms it later."""
        cycle = self._awaiting(event.uid, event.effect)
        if cycle is not None and cycle.stage is BindingStage.BINDING:
            self._bind_accepted(event.uid, cycle)

    def bind_failed(self, event: BindFailed) -> None:
        """Roll back after a definite refusal; after an ambiguous failure, read the pod."""
        uid = event.uid
        cycle = self._awaiting(uid, event.effect)
        if cycle is None or cycle.stage is not BindingStage.BINDING:
            return
        reason = event.reason or f"the API server returned {event.code}"
        text = f'running Bind plugin "{cycle.binder}": {reason}'
        if self.assumed_pod_listener is not None and self._context.is_session_pod(cycle.pod):
            self._outcome_unknown(uid, cycle, text, after=self.assumed_pod_listener.delay(uid))
        elif is_definite_failure(event.code):
            self._fail(uid, cycle, error(text))
        else:
            self._outcome_unknown(uid, cycle, text)

    def _extender_answered(self, call: ExtenderCall, reply: ExtenderResponse) -> None:
        """Handle the response to an extender's bind call.

        Differs: the original treats any failure as a failed binding and requeues the pod unless the
        watch has already shown it bound; for a pod that was bound after all it records a failure
        event.
        """
        uid = call.uid
        cycle = self._awaiting(uid, call.effect)
        if cycle is None or cycle.stage is not BindingStage.BINDING:
            return
        fault = read_binding_result(call.question, reply)
        if fault is None:
            self._bind_accepted(uid, cycle)
        elif not call.question.extender.ignorable:
            self._outcome_unknown(uid, cycle, fault.text)
        else:
            try:
                self._bind_by_plugin(uid, cycle)
            except ContractError as broken:
                self._fault(uid, cycle, broken)

    def _outcome_unknown(self, uid: str, cycle: BindingCycle, text: str, *, after: int = 0) -> None:
        """Keep the resources assumed and read the pod until the outcome is known. after: delay of
        the first read, in nanoseconds."""
        cycle.stage = BindingStage.BIND_UNKNOWN
        cycle.unknown_reason = text
        cycle.awaits = ()
        if after:
            self._deadlines.set(uid, self._context.now + after)
        else:
            self._read(uid, cycle)

    def _read(self, uid: str, cycle: BindingCycle) -> None:
        effect = self._context.outbox.read(cycle.pod)
        cycle.awaits = cycle.awaits or (effect,)
        self._deadlines.set(uid, self._context.now + self._read_again)

    def pod_read(self, event: PodRead) -> None:
        """Settle a binding with unknown outcome from the pod as read."""
        uid, pod = event.uid, event.pod
        cycle = self._binding_cycles.get(uid)
        if cycle is None or cycle.stage is not BindingStage.BIND_UNKNOWN:
            return
        # Any read requested since the outcome became unknown will do.
        if not cycle.awaits or event.effect < cycle.awaits[0]:
            return
        self._deadlines.clear(uid)
        if pod is not None and pod.uid == uid and pod.node_name == cycle.node:
            self._bind_accepted(uid, cycle)
        else:
            # Only the watch is authoritative; it reports whether the pod was deleted or bound
            # elsewhere.
            self._fail(uid, cycle, error(cycle.unknown_reason))

    def _bind_accepted(self, uid: str, cycle: BindingCycle) -> None:
        """The API server reports the pod as bound; start the confirmation deadline."""
        cycle.stage = BindingStage.BOUND
        cycle.awaits = ()
        self._context.cache.expect(uid, self._context.now)
        self._record_bound(cycle)

    def _record_bound(self, cycle: BindingCycle) -> None:
        """The binding is known to have happened: record the event and run PostBind."""
        context, framework, state = self._context, cycle.framework, cycle.state
        pod, node = cycle.pod, cycle.node
        note = f"Successfully assigned {pod.key} to {node}"
        context.outbox.record(pod, "Normal", "Scheduled", "Binding", note)
        members = framework.at("postBind")
        if members:
            self._run_notification(cycle, "FailedPostBind", framework.run_post_bind)
            for member in members:
                if member.does_io and context.outbox.leads:
                    self._plugin_io.start(member, "postBind", pod, node, state)
        self._context.activate(state.to_activate)

    # Watch events.

    def pod_bound(self, pod: Pod) -> bool:
        """End the binding cycle of a pod that the watch shows as bound, to this node or another.
        Returns False if the pod had no binding cycle."""
        uid = pod.uid
        cycle = self._binding_cycles.get(uid)
        if cycle is None:
            return False
        if self._is_expected_binding(cycle, pod):
            self._end(uid, cycle)
            if cycle.stage is not BindingStage.BOUND:
                self._record_bound(cycle)
            return True
        # Another client bound it.
        self._undo(uid, cycle)
        self._context.queue.done(uid)
        if pod.node_name != cycle.node:
            # Differs: the original sends no event for the resources that were held without effect.
            self._requeue_after_release(cycle)
        return True

    def _is_expected_binding(self, cycle: BindingCycle, pod: Pod) -> bool:
        """True if the watch shows the pod bound to the node that its binding cycle chose."""
        return cycle.stage in _BIND_SENT and pod.node_name == cycle.node

    def pod_deleted(self, pod: Pod) -> Pod | None:
        """End the binding cycle of a deleted pod; returns the placed pod if it held resources."""
        uid = pod.uid
        cycle = self._binding_cycles.get(uid)
        if cycle is None:
            return None
        held = self._context.cache.is_assumed(uid)
        if cycle.stage is BindingStage.BOUND:
            self._end(uid, cycle)
        elif self._is_expected_binding(cycle, pod):
            self._end(uid, cycle)
            self._record_bound(cycle)
        else:
            # Differs: the original records an event for a deleted pod that waited at Permit.
            self._undo(uid, cycle)
            self._context.queue.done(uid)
        return cycle.placed if held else None

    def pod_terminating(self, pod: Pod) -> None:
        """The pod is being deleted, so the API server will not bind it: release its resources at
        once."""
        uid = pod.uid
        cycle = self._binding_cycles[uid]
        if cycle.stage is BindingStage.BOUND:
            return
        if cycle.stage is BindingStage.WAITING:
            waiting = self._context.shared.waiting.get(uid)
            assert waiting is not None
            waiting.reject("", "removed")
        elif cycle.stage is BindingStage.PREBIND:
            # Differs: the original does not cancel plugin I/O; it runs until Bind fails.
            self._fail(uid, cycle, error("the pod is being deleted"))
        elif self._forget(uid):
            self._requeue_after_release(cycle)

    def preempt(self, uid: str, plugin: str) -> bool:
        """Reject a pod that is not bound yet, to free its resources; False if its bind was already
        sent."""
        cycle = self._binding_cycles.get(uid)
        if cycle is None:
            return False
        if cycle.stage is BindingStage.WAITING:
            waiting = self._context.shared.waiting.get(uid)
            return waiting is not None and waiting.preempt(plugin, "preempted")
        if cycle.stage is BindingStage.PREBIND:
            pending_plugin = self.prebind.pending_plugin(cycle)
            text = f'running PreBind plugin "{pending_plugin}": preempted by {plugin}'
            self._fail(uid, cycle, error(text))
            return True
        return False

    def step_down(self) -> None:
        """Leadership lost: roll back cycles whose bind was not sent and read the pods of the
        others.

        Effects of this term that have not been performed never will be, so only reads still have an
        outcome to wait for.
        """
        for uid, cycle in tuple(self._binding_cycles.items()):
            if cycle.stage is BindingStage.BINDING:
                self._cancel_pending(cycle)
                self._outcome_unknown(uid, cycle, "another scheduler leads")
            elif cycle.stage in (BindingStage.WAITING, BindingStage.PREBIND):
                self._fail(uid, cycle, error("another scheduler leads"))

    # Deadlines.

    def serve_due(self) -> None:
        """End Permit waits and plugin I/O that timed out and repeat unanswered reads."""
        for uid in self._deadlines.due(self._context.now):
            cycle = self._binding_cycles[uid]
            if cycle.stage is BindingStage.BIND_UNKNOWN:
                self._read(uid, cycle)
            else:
                self._permit_timed_out(uid)
        self.prebind.serve_due()
        for effect in self._plugin_io.overdue():
            plugin_io = self._plugin_io.get(effect)
            # Ending one may have cancelled others.
            if plugin_io is not None:
                self._context.outbox.cancel(plugin_io.pod.uid, effect)
                self._plugin_io_failed(effect, f"not done within {plugin_io.timeout_s:g} s")
        for uid in self._context.cache.expire(self._context.now):
            # The API server reported the pod as bound and the watch never did: count it as not
            # bound. Differs: the original, while it had such a limit, lost track of the pod.
            text = "the watch has not confirmed the binding"
            self._fail(uid, self._binding_cycles[uid], error(text))
        self.settle_permit_waits()

    def _permit_timed_out(self, uid: str) -> None:
        """A Permit plugin's timeout expired; another plugin may already have settled the pod."""
        waiting = self._context.shared.waiting.get(uid)
        assert waiting is not None
        plugin = waiting.late(self._context.now)
        if plugin:
            waited = render(timedelta(microseconds=waiting.pending[plugin] // 1000))
            text = f"rejected due to timeout after waiting {waited} at plugin {plugin}"
            waiting.reject(plugin, text)
        else:
            self._deadlines.set(uid, waiting.deadline)

    def next_deadline(self) -> int | None:
        """The next time at which a wait, a read or plugin I/O times out; None if there is none."""
        times = (
            self._deadlines.next(),
            self._plugin_io.next_deadline(),
            self.prebind.next_deadline(),
            self._context.cache.next_expiry(),
        )
        return min((at for at in times if at is not None), default=None)

    # Inside.

    def _awaiting(self, uid: str, effect: int) -> BindingCycle | None:
        """Return the binding cycle that waits for this effect; None if it no longer does."""
        cycle = self._binding_cycles.get(uid)
        return cycle if cycle is not None and effect in cycle.awaits else None

    def _fault(self, uid: str, cycle: BindingCycle, fault: ContractError) -> None:
        """Fail this pod's attempt because a plugin broke its contract."""
        if self._binding_cycles.get(uid) is not cycle:
            raise fault
        self._fail(uid, cycle, error(str(fault)))

    def _run_notification(
        self, cycle: BindingCycle, reason: str, walk: Callable[[Pod, str, CycleState], None]
    ) -> None:
        """Run notification points, whose failures change nothing; report a contract error."""
        try:
            walk(cycle.pod, cycle.node, cycle.state)
        except ContractError as fault:
            self._context.outbox.record(cycle.pod, "Warning", reason, "Binding", str(fault))

    def _fail(
        self, uid: str, cycle: BindingCycle, status: Status, *, by_node: bool = False
    ) -> None:
        """Roll back and requeue the pod. by_node: report the refusal as if the cluster had only
        that node.

        Other pods are notified of the released resources only after the pod is requeued, so that it
        is not woken by its own release.
        """
        self._undo(uid, cycle)
        if not status.is_rejected:
            self._requeue_after_release(cycle)
        if by_node:
            self._failure_handler.refused_on_node(cycle.entry, status, announced=cycle.announced)
        else:
            self._failure_handler.failed(cycle.entry, status, announced=cycle.announced)
        if status.is_rejected:
            self._requeue_after_release(cycle, but=uid)

    def _requeue_after_release(self, cycle: BindingCycle, but: str = "") -> None:
        """Notify the queue of the released resources. but: uid of a pod to leave out."""
        self._context.queue.move(
            ASSIGNED_POD_DELETE,
            cycle.placed,
            None,
            self._context.now,
            (lambda pod: pod.uid != but) if but else None,
        )

    def _undo(self, uid: str, cycle: BindingCycle) -> None:
        """Cancel I/O, run Unreserve, forget the assumed pod and end the binding cycle."""
        self._cancel_pending(cycle)
        self.prebind.stop(cycle)
        self._run_notification(cycle, "FailedUnreserve", cycle.framework.run_unreserve)
        self._forget(uid)
        self._end(uid, cycle)

    def _forget(self, uid: str) -> bool:
        """Forget the assumed pod; False if it was not assumed."""
        held = self._context.cache.forget(uid) is not None
        if self.assumed_pod_listener is not None:
            self.assumed_pod_listener.forgotten(uid)
        return held

    def _cancel_pending(self, cycle: BindingCycle) -> None:
        for number in cycle.awaits:
            self._plugin_io.cancel(number)
            self._extender_calls.cancel(number)

    def _end(self, uid: str, cycle: BindingCycle) -> None:
        if cycle.stage is BindingStage.WAITING:
            self._context.shared.waiting.drop(uid)
        self._deadlines.clear(uid)
        del self._binding_cycles[uid]


def is_definite_failure(code: int) -> bool:
    """True for an HTTP status after which the write certainly did not happen."""
    return 400 <= code < 500 and code != 408
