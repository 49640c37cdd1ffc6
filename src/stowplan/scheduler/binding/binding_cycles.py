"""Binding cycles: Reserve, Permit, PreBind and Bind after a node is chosen, and their failures.

Source: kube-scheduler v1.36, schedule_one.go prepareForBindingCycle and bindingCycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

from stowplan.framework import Code, ContractError, CycleState, Framework, PermitWait
from stowplan.framework.deciders.decider import Decision, PodClass
from stowplan.framework.deciders.lane import PodAssumed, PodForgotten
from stowplan.framework.status import Status, error, unschedulable
from stowplan.messages.events import (
    Allowed,
    BindFailed,
    PodRead,
    PrepareDone,
    Rejected,
)
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
from stowplan.objects.timing.due_times import DueHeap
from stowplan.queue import PodRecord
from stowplan.queue.options import seconds_to_ns
from stowplan.queue.pod_record import NO_BINDING, BindingCycle
from stowplan.scheduler.binding.plugin_io import PendingPluginIO
from stowplan.scheduler.binding.prebind import PreBindRunner
from stowplan.scheduler.context import SchedulerContext, placed_on
from stowplan.scheduler.extenders.extender_calls import ExtenderCall, PendingExtenderCalls
from stowplan.scheduler.failure_handler import FailureHandler
from stowplan.scheduler.outbox import NO_ANNOTATIONS
from stowplan.scheduler.pods.transitions import (
    ASSUMED,
    BIND_UNKNOWN,
    BINDING,
    BOUND,
    DELETED,
    PREBINDING,
    WAITING_ON_PERMIT,
    PodEvent,
)

_BIND_SENT = (ASSUMED, BINDING, BIND_UNKNOWN)


class BindingCycles:
    """Binding cycles in progress.

    A pod is in the index from the choice of its node until the binding is confirmed. Every failure
    ends the same way: Unreserve in reverse order, the assumed pod forgotten, other pods notified of
    the released resources, the pod requeued.
    """

    def __init__(
        self,
        context: SchedulerContext,
        failures: FailureHandler,
        plugin_io: PendingPluginIO,
        calls: PendingExtenderCalls,
    ) -> None:
        self._context = context
        self._table = context.table
        self._failure_handler = failures
        self._plugin_io = plugin_io
        self._extender_calls = calls
        self.prebind = PreBindRunner(context, plugin_io, self._bind, self._fail, self._fault)
        self._read_again = seconds_to_ns(context.options.read_again_s)
        # In the order in which nodes were chosen.
        self._records: dict[str, PodRecord] = {}
        self._deadlines: DueHeap[str, int] = DueHeap()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[tuple[str, PodRecord]]:
        """Iterate over (uid, record) in the order in which nodes were chosen."""
        return iter(self._records.items())

    def __contains__(self, uid: str) -> bool:
        return uid in self._records

    def get(self, uid: str) -> PodRecord | None:
        """Return the record of a pod in a binding cycle, or None."""
        return self._records.get(uid)

    # Stages.

    def begin(self, record: PodRecord, decision: Decision, framework: Framework) -> None:
        """Assume the pod on its node and run its binding cycle until it has to wait."""
        pod, node = record.pod, decision.node_name
        self._context.cache.assume(pod, node)
        if self._context.pod_groups is not None:
            self._context.pod_groups.assume(pod, node)
        state = CycleState() if decision.state is None else decision.state
        self._start(record, BindingCycle(node, framework, state, decision.score))

    def begin_placed(self, record: PodRecord, cycle: BindingCycle) -> None:
        """Like `begin`, for a pod that a kernel has placed: the columns count it already, and
        Reserve plugins for which kernels reserve have what they need in the state of the cycle."""
        self._context.cache.note_assumed((record.uid,))
        self._start(record, cycle)

    def _start(self, record: PodRecord, cycle: BindingCycle) -> None:
        context, pod, uid = self._context, record.pod, record.uid
        framework, state = cycle.attempt
        context.lanes.notify(PodAssumed(pod, cycle.node))
        if len(context.queue.nominator):
            context.end_nomination(pod, uid, cycle.node)
        self._records[uid] = record
        record.binding, record.state = cycle, PREBINDING
        try:
            is_member = context.pod_groups is not None and pod.spec.scheduling_group is not None
            if not is_member and framework.binds_directly(state):
                self._context.activate(state.to_activate)
                context.queue.done(uid)
                self._bind(record)
            else:
                self._reserve(record)
        except ContractError as fault:
            self._fault(record, fault)

    def begin_run(
        self,
        entries: list[PodRecord],
        classes: list[PodClass],
        start: int,
        rows: list[int],
        scores: Sequence[int | None],
        annotations: Mapping[int, dict[str, str]],
    ) -> None:
        """Like `begin`, for the pods from index `start` that a kernel has placed: the columns
        count them already, no plugin acts before Bind, and Bind is the API server's. scores: of the
        chosen rows, None where they were not scored. annotations: by index, what bindings carry."""
        context, names = self._context, self._context.cache.nodes.names
        run = entries[start : start + len(rows)]
        pods = [record.pod for record in run]
        uids = [pod.metadata.uid or pod.key for pod in pods]
        nodes = [names[row] for row in rows]
        context.cache.note_assumed(uids)
        if len(context.queue.nominator):
            for pod, uid, node in zip(pods, uids, nodes, strict=True):
                context.end_nomination(pod, uid, node)
        self._records.update(zip(uids, run, strict=True))
        for lane in context.lanes.listeners(PodAssumed):
            for pod, node in zip(pods, nodes, strict=True):
                lane.on_outcome(PodAssumed(pod, node))
        context.queue.in_flight.done_all(uids)
        places = range(start, start + len(rows)) if annotations else ()
        notes = [annotations.get(place, NO_ANNOTATIONS) for place in places]
        numbers = context.outbox.bind_all(pods, uids, nodes, notes)
        placed = zip(run, classes[start : start + len(rows)], nodes, scores, numbers, strict=True)
        for record, one, node, score, number in placed:
            record.binding = BindingCycle(node, one.framework, one.state, score, (number,))
            record.state = BINDING

    def _reserve(self, record: PodRecord) -> None:
        """Run Reserve and Permit, then start the binding cycle."""
        (framework, state), pod, node = record.binding.attempt, record.pod, record.binding.node
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
            self._undo(record)
            self._failure_handler.refused_on_node(record, answer)
            return
        self._context.activate(state.to_activate)
        self._start_binding_cycle(record, waits)

    def _start_binding_cycle(self, record: PodRecord, waits: Mapping[str, PermitWait]) -> None:
        """Set nominatedNodeName if binding may take long, then wait at Permit or run PreBind."""
        (framework, state), pod, node = record.binding.attempt, record.pod, record.binding.node
        pre_flight = framework.run_pre_bind_pre_flight(pod, node, state)
        if not pre_flight.is_success and not pre_flight.is_skip:
            self._fail(record, pre_flight)
            return
        announces = framework.gates.nominated_node_name_for_expectation
        if (
            announces
            and (waits or pre_flight.is_success)
            and pod.status.nominated_node_name != node
        ):
            self._context.outbox.patch_status(pod, node)
            record.binding.announced = True
        if waits:
            self._wait(record, waits)
        else:
            self._prepare(record)

    def _wait(self, record: PodRecord, waits: Mapping[str, PermitWait]) -> None:
        context = self._context
        record.state = WAITING_ON_PERMIT
        pending = {plugin: seconds_to_ns(wait.timeout_s) for plugin, wait in waits.items()}
        waiting = context.shared.waiting.add(record.pod, record.binding.node, context.now, pending)
        self._deadlines.set(record.uid, waiting.deadline)

    def apply_plugin_requests(self) -> None:
        """Apply requests of plugins: settle Permit waits and activate pods."""
        shared = self._context.shared
        if shared.has_pending_requests:
            self.settle_permit_waits()
            self._context.activate(shared.to_activate)

    def settle_permit_waits(self) -> None:
        """Continue the pods that Permit plugins allowed or rejected."""
        waiting = self._context.shared.waiting
        while waiting.settled:
            for one in waiting.take_settled():
                uid = one.pod.uid
                self._deadlines.clear(uid)
                assert one.verdict is not None
                self._table.transition(self._records[uid], PodEvent.PERMIT_SETTLED, one.verdict)

    def permit_settled(self, record: PodRecord, verdict: Status) -> None:
        """All Permit plugins allowed the pod, or one rejected it."""
        if verdict.is_success:
            try:
                self._prepare(record)
            except ContractError as fault:
                self._fault(record, fault)
        elif verdict.is_rejected:
            self._fail(record, verdict, by_node=True)
        else:
            text = f"waiting on permit for pod: {verdict.message}"
            self._fail(record, error(text).by(verdict.plugin))

    def _prepare(self, record: PodRecord) -> None:
        """Start PreBind. A failure from here on requeues with backoff, so in-flight events are no
        longer recorded."""
        self._context.queue.done(record.uid)
        record.state = PREBINDING
        self.prebind.advance(record)

    def _bind(self, record: PodRecord) -> None:
        extender = self._context.extenders.binder_of(record.pod)
        if extender is None:
            self._bind_by_plugin(record)
            return
        pod = record.pod
        body = ExtenderBindingArgs(pod.name, pod.namespace, pod.metadata.uid, record.binding.node)
        question = ExtenderRequest(extender, ExtenderVerb.BIND, body)
        record.state, record.binding.binder = BINDING, EXTENDER
        record.binding.awaits = (self._extender_calls.ask(record.uid, question),)

    def _bind_by_plugin(self, record: PodRecord) -> None:
        (framework, state), pod, node = record.binding.attempt, record.pod, record.binding.node
        status = framework.run_bind(pod, node, state)
        if status.code is not Code.SUCCESS:
            text = status.message or "no Bind plugin took the pod"
            self._fail(record, error(text) if status.is_skip else status)
            return
        record.state = BINDING
        record.binding.binder = status.plugin
        binder = framework.members[status.plugin]
        if binder.does_io:
            record.binding.awaits = (self._plugin_io.start(binder, "bind", pod, node, state),)
        else:
            notes, times = state.binding_annotations, state.binding_times
            before = state.binding_lock, state.binding_cards, state.binding_request
            bind = self._context.outbox.bind(pod, record.uid, node, notes, times, *before)
            record.binding.awaits = (bind,)

    # Outcomes.

    def allow(self, record: PodRecord, event: Allowed) -> None:
        """A Permit plugin, or the driver on its behalf, allowed the pod."""
        self._context.shared.waiting.of(record.uid).allow(event.plugin)

    def reject(self, record: PodRecord, event: Rejected) -> None:
        """A Permit plugin rejected the pod."""
        self._context.shared.waiting.of(record.uid).reject(event.plugin, event.reason)

    def prebind_io_done(self, record: PodRecord, event: PrepareDone) -> None:
        """A PreBind plugin's I/O has finished."""
        cycle = record.binding
        cycle.awaits = tuple(number for number in cycle.awaits if number != event.effect)
        try:
            self.prebind.advance(record)
        except ContractError as fault:
            self._fault(record, fault)

    def prebind_failed(self, record: PodRecord, status: Status) -> None:
        """A PreBind plugin's I/O or change has failed, or has timed out."""
        self._fail(record, status)

    def bind_io_failed(self, record: PodRecord, status: Status) -> None:
        """A Bind plugin's I/O has failed; the pod is read to learn the outcome."""
        self._outcome_unknown(record, status.message)

    def bind_refused(self, record: PodRecord, event: BindFailed) -> None:
        """Roll back after a definite refusal; after an ambiguous failure, read the pod."""
        reason = event.reason or f"the API server returned {event.code}"
        binder = record.binding.binder or record.binding.attempt[0].unconditional_binder
        text = f'running Bind plugin "{binder}": {reason}'
        lane = self._context.lanes.of(record.pod)
        delay = None if lane is None else lane.read_delay(event.uid)
        if delay is not None:
            self._outcome_unknown(record, text, after=delay)
        elif event.is_definite:
            self._fail(record, error(text))
        else:
            self._outcome_unknown(record, text)

    def extender_replied(
        self, record: PodRecord, answer: tuple[ExtenderCall, ExtenderResponse]
    ) -> None:
        """Handle the response to an extender's bind call.

        Differs: the original treats any failure as a failed binding and requeues the pod unless the
        watch has already shown it bound; for a pod that was bound after all it records a failure
        event.
        """
        call, reply = answer
        if call.effect not in record.binding.awaits:
            return
        fault = read_binding_result(call.question, reply)
        if fault is None:
            self.bind_accepted(record)
        elif not call.question.extender.ignorable:
            self._outcome_unknown(record, fault.text)
        else:
            try:
                self._bind_by_plugin(record)
            except ContractError as broken:
                self._fault(record, broken)

    def _outcome_unknown(self, record: PodRecord, text: str, *, after: int = 0) -> None:
        """Keep the resources assumed and read the pod until the outcome is known. after: delay of
        the first read, in nanoseconds."""
        record.state = BIND_UNKNOWN
        record.binding.unknown_reason = text
        record.binding.awaits = ()
        if after:
            self._deadlines.set(record.uid, self._context.now + after)
        else:
            self.read(record)

    def read(self, record: PodRecord, _: object = None) -> None:
        """Read the pod, again if the last read was not answered."""
        effect = self._context.outbox.read(record.pod)
        record.binding.awaits = record.binding.awaits or (effect,)
        self._deadlines.set(record.uid, self._context.now + self._read_again)

    def settle(self, record: PodRecord, event: PodRead) -> None:
        """Settle a binding with unknown outcome from the pod as read; any read requested since the
        outcome became unknown will do."""
        uid, pod = event.uid, event.pod
        if not record.binding.awaits or event.effect < record.binding.awaits[0]:
            return
        self._deadlines.clear(uid)
        if pod is not None and pod.uid == uid and pod.node_name == record.binding.node:
            self.bind_accepted(record)
        else:
            # Only the watch is authoritative; it reports whether the pod was deleted or bound
            # elsewhere.
            self._fail(record, error(record.binding.unknown_reason))

    def bind_accepted(self, record: PodRecord, _: object = None) -> None:
        """The API server reports the pod as bound; start the confirmation deadline."""
        record.state = ASSUMED
        record.binding.awaits = ()
        self._context.cache.expect(record.uid, self._context.now)
        self._record_bound(record)

    def _record_bound(self, record: PodRecord) -> None:
        """The binding is known to have happened: record the event and run PostBind."""
        context, pod, node = self._context, record.pod, record.binding.node
        framework, state = record.binding.attempt
        note = f"Successfully assigned {pod.key} to {node}"
        context.outbox.record(pod, "Normal", "Scheduled", "Binding", note)
        members = framework.at("postBind")
        if members:
            self._run_notification(record, "FailedPostBind", framework.run_post_bind)
            for member in members:
                if member.does_io and context.outbox.leads:
                    self._plugin_io.start(member, "postBind", pod, node, state)
        self._context.activate(state.to_activate)

    # Watch events.

    def pod_bound(self, record: PodRecord, pod: Pod) -> None:
        """End the binding cycle of a pod that the watch shows as bound, to this node or another."""
        uid, node = pod.uid, record.binding.node
        if record.state in _BIND_SENT and pod.node_name == node:
            self._end(uid, record)
            if record.state is not ASSUMED:
                self._record_bound(record)
            self._table.drop(uid, BOUND)
            return
        # Another client bound it.
        self._undo(record)
        self._context.queue.done(uid)
        self._table.drop(uid, BOUND)
        if pod.node_name != node:
            # Differs: the original sends no event for the resources that were held without effect.
            self._context.resources_released(record.pod, node)

    def pod_deleted(self, record: PodRecord, pod: Pod) -> Pod | None:
        """End the binding cycle of a deleted pod; returns the placed pod if it held resources."""
        uid, node = record.uid, record.binding.node
        held = self._context.cache.is_assumed(uid)
        if record.state is ASSUMED:
            self._end(uid, record)
        elif record.state in _BIND_SENT and pod.node_name == node:
            self._end(uid, record)
            self._record_bound(record)
        else:
            # Differs: the original records an event for a deleted pod that waited at Permit.
            if record.state is WAITING_ON_PERMIT and self._context.has_defects:
                self._failure_handler.report_deleted(record.pod, unschedulable("removed"))
            self._undo(record)
            self._context.queue.done(uid)
        self._table.drop(uid, DELETED)
        return placed_on(record.pod, node) if held else None

    # A pod that is being deleted: the API server will not bind it, so its resources are released at
    # once.

    def reject_terminating(self, record: PodRecord, _: object) -> None:
        """It waits at Permit."""
        self._context.shared.waiting.of(record.uid).reject("", "removed")

    def prebind_terminating(self, record: PodRecord, _: object) -> None:
        """Differs: the original does not cancel plugin I/O; it runs until Bind fails."""
        self._fail(record, error("the pod is being deleted"))

    def release_terminating(self, record: PodRecord, _: object) -> None:
        """Its bind was sent; the outcome ends the binding cycle."""
        if self._forget(record.uid):
            self._context.resources_released(record.pod, record.binding.node)

    # Preemption and leadership.

    def preempt(self, uid: str, plugin: str) -> bool:
        """Reject a pod that is not bound yet, to free its resources; False if its bind was already
        sent."""
        record = self._records.get(uid)
        if record is None:
            return False
        return bool(self._table.transition(record, PodEvent.PREEMPTED, plugin))

    def preempt_waiting(self, record: PodRecord, plugin: str) -> bool:
        """Preempt a pod that waits at Permit; False if it was settled before."""
        return self._context.shared.waiting.of(record.uid).preempt(plugin, "preempted")

    def preempt_prebinding(self, record: PodRecord, plugin: str) -> bool:
        """Preempt a pod whose PreBind plugins are busy."""
        pending_plugin = self.prebind.pending_plugin(record)
        text = f'running PreBind plugin "{pending_plugin}": preempted by {plugin}'
        self._fail(record, error(text))
        return True

    def step_down(self) -> None:
        """Leadership lost.

        Effects of this term that have not been performed never will be, so only reads still have an
        outcome to wait for.
        """
        for record in tuple(self._records.values()):
            self._table.transition(record, PodEvent.LEADER_LOST)

    def leader_lost(self, record: PodRecord, _: object) -> None:
        """Roll back a binding cycle whose bind was not sent."""
        self._fail(record, error("another scheduler leads"))

    def leader_lost_with_bind_sent(self, record: PodRecord, _: object) -> None:
        """Read a pod whose bind was sent."""
        self._cancel_pending(record)
        self._outcome_unknown(record, "another scheduler leads")

    # Deadlines.

    def serve_due(self) -> None:
        """End Permit waits and plugin I/O that timed out and repeat unanswered reads."""
        for uid in self._deadlines.due(self._context.now):
            record = self._records[uid]
            is_read = record.state is BIND_UNKNOWN
            self._table.transition(
                record, PodEvent.READ_DUE if is_read else PodEvent.PERMIT_TIMED_OUT
            )
        self.prebind.serve_due()
        for effect in self._plugin_io.overdue():
            plugin_io = self._plugin_io.get(effect)
            # Ending one may have cancelled others.
            if plugin_io is not None:
                self._context.outbox.cancel(plugin_io.uid, effect)
                self._plugin_io.failed(effect, f"not done within {plugin_io.timeout_s:g} s")
        for uid in self._context.cache.expire(self._context.now):
            self._table.transition(self._records[uid], PodEvent.ASSUMPTION_EXPIRED)
        self.settle_permit_waits()

    def assumption_expired(self, record: PodRecord, _: object) -> None:
        """The API server reported the pod as bound and the watch never did: it counts as not bound.

        Differs: the original, while it had such a limit, lost track of the pod.
        """
        self._fail(record, error("the watch has not confirmed the binding"))

    def permit_timed_out(self, record: PodRecord, _: object) -> None:
        """A Permit plugin's timeout expired; another plugin may already have settled the pod."""
        waiting = self._context.shared.waiting.of(record.uid)
        plugin = waiting.late(self._context.now)
        if plugin:
            waited = render(timedelta(microseconds=waiting.pending[plugin] // 1000))
            text = f"rejected due to timeout after waiting {waited} at plugin {plugin}"
            waiting.reject(plugin, text)
        else:
            self._deadlines.set(record.uid, waiting.deadline)

    def next_deadline(self) -> int | None:
        """The next time at which a wait, a read or plugin I/O times out; None if there is none."""
        earliest = self._deadlines.next_at()
        for at in (
            self._plugin_io.next_deadline(),
            self.prebind.next_deadline(),
            self._context.cache.next_expiry(),
        ):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    # Inside.

    def _fault(self, record: PodRecord, fault: ContractError) -> None:
        """Fail this pod's attempt because a plugin broke its contract."""
        if record.uid not in self._records:
            raise fault
        self._fail(record, error(str(fault)))

    def _run_notification(
        self, record: PodRecord, reason: str, walk: Callable[[Pod, str, CycleState], None]
    ) -> None:
        """Run notification points, whose failures change nothing; report a contract error."""
        try:
            walk(record.pod, record.binding.node, record.binding.attempt[1])
        except ContractError as fault:
            self._context.outbox.record(record.pod, "Warning", reason, "Binding", str(fault))

    def _fail(self, record: PodRecord, status: Status, *, by_node: bool = False) -> None:
        """Roll back and requeue the pod. by_node: report the refusal as if the cluster had only
        that node.

        Other pods are notified of the released resources only after the pod is requeued, so that it
        is not woken by its own release.
        """
        node, announced = record.binding.node, record.binding.announced
        self._undo(record)
        if not status.is_rejected:
            self._context.resources_released(record.pod, node)
        if by_node:
            self._failure_handler.refused_on_node(record, status, announced=announced)
        else:
            self._failure_handler.failed(record, status, announced=announced)
        if status.is_rejected:
            self._context.resources_released(record.pod, node, but=record.uid)

    def _undo(self, record: PodRecord) -> None:
        """Cancel I/O, run Unreserve, forget the assumed pod and end the binding cycle."""
        uid = record.uid
        self._cancel_pending(record)
        self.prebind.stop(record)
        self._run_notification(record, "FailedUnreserve", record.binding.attempt[0].run_unreserve)
        self._forget(uid)
        self._end(uid, record)
        record.binding = NO_BINDING

    def _forget(self, uid: str) -> bool:
        """Forget the assumed pod; False if it was not assumed."""
        held = self._context.cache.forget(uid)
        if held is not None and self._context.pod_groups is not None:
            self._context.pod_groups.forget(held.pod)
        self._context.lanes.notify(PodForgotten(uid))
        return held is not None

    def _cancel_pending(self, record: PodRecord) -> None:
        for number in record.binding.awaits:
            self._plugin_io.cancel(number)
            self._extender_calls.cancel(number)

    def _end(self, uid: str, record: PodRecord) -> None:
        if record.state is WAITING_ON_PERMIT:
            self._context.shared.waiting.drop(uid)
        self._deadlines.clear(uid)
        del self._records[uid]
