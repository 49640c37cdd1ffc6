"""From the choice of a node to the binding: Reserve, Permit, PreBind, Bind, and what may go wrong.

Source: kube-scheduler v1.36, schedule_one.go prepareForBindingCycle and bindingCycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Protocol

from stowplan.framework import Code, ContractError, CycleState, Framework, PermitWait
from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.framework.decider import Decision, PodClass
from stowplan.framework.status import Status, error
from stowplan.messages.events import BindDone, BindFailed, PodRead, PrepareDone, PrepareFailed
from stowplan.objects.duration import render
from stowplan.objects.extender import (
    EXTENDER,
    ExtenderBindingArgs,
    Question,
    Reply,
    Verb,
    bound,
)
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.queue.options import in_ns
from stowplan.scheduler.calls import Call, Calls
from stowplan.scheduler.context import Context
from stowplan.scheduler.deadlines import Deadlines
from stowplan.scheduler.failures import Failures
from stowplan.scheduler.journey import Journey, Stage
from stowplan.scheduler.preparing import Preparing
from stowplan.scheduler.works import Works

_ASKED = (Stage.BINDING, Stage.DOUBTFUL, Stage.BOUND)


class Companion(Protocol):
    """Who counts pods beside the cache: sessions."""

    def assumed(self, pod: Pod, node: str) -> None:
        """A pod takes its room on a node before the watch shows it."""

    def forgotten(self, uid: str) -> None:
        """It does not any more."""

    def delay(self, uid: str) -> int:
        """How long after a refusal a pod of sessions is read, in nanoseconds."""


class Bindings:
    """The pods between choice and confirmation, by uid."""

    def __init__(self, context: Context, failures: Failures, works: Works, calls: Calls) -> None:
        self._context = context
        self._failures = failures
        self._works = works
        self._calls = calls
        self.preparing = Preparing(context, works, self._bind, self._fail, self._fault)
        self._read_again = in_ns(context.options.read_again_s)
        self._journeys: dict[str, Journey] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self.companion: Companion | None = None

    def __len__(self) -> int:
        return len(self._journeys)

    def __iter__(self) -> Iterator[tuple[str, Journey]]:
        """Every uid with its journey, in the order in which nodes were chosen."""
        return iter(self._journeys.items())

    def __contains__(self, uid: str) -> bool:
        return uid in self._journeys

    def get(self, uid: str) -> Journey | None:
        """The journey of a pod, None for one that is on none."""
        return self._journeys.get(uid)

    # The way forward.

    def begin(self, entry: QueueEntry, decision: Decision, framework: Framework) -> None:
        """Assume the pod on its node and go as far as possible at once."""
        context, pod, node = self._context, entry.pod, decision.node_name
        uid = pod.uid
        context.cache.assume(pod, node)
        if self.companion is not None:
            self.companion.assumed(pod, node)
        if len(context.queue.nominator):
            context.queue.nominator.drop(uid)
        state = CycleState() if decision.state is None else decision.state
        journey = self._journeys[uid] = Journey(entry, node, framework, state, score=decision.score)
        try:
            if framework.goes_straight(state):
                self._activate(state)
                context.queue.done(uid)
                self._bind(uid, journey)
            else:
                self._reserve(uid, journey)
        except ContractError as fault:
            self._fault(uid, journey, fault)

    def begin_run(
        self,
        entries: list[QueueEntry],
        classes: list[PodClass],
        start: int,
        rows: list[int],
        scores: list[int],
    ) -> None:
        """As `begin`, for the pods from `start` on: the columns count them on these rows already,
        and no plugin has anything to do with them before Bind. scores: of those rows."""
        context = self._context
        names, journeys = context.cache.nodes.names, self._journeys
        done, bind = context.queue.in_flight.done, context.outbox.bind
        context.cache.note_assumed([entry.pod.uid for entry in entries[start : start + len(rows)]])
        for i, (row, score) in enumerate(zip(rows, scores, strict=True), start):
            entry, one = entries[i], classes[i]
            pod, node, framework = entry.pod, names[row], one.framework
            uid = pod.uid
            journeys[uid] = journey = Journey(entry, node, framework, one.state, score=score)
            if self.companion is not None:
                self.companion.assumed(pod, node)
            done(uid)
            if framework.sure_binder:
                journey.stage, journey.binder = Stage.BINDING, framework.sure_binder
                journey.awaits = (bind(pod, uid, node),)
                continue
            try:
                self._bind(uid, journey)
            except ContractError as fault:
                self._fault(uid, journey, fault)

    def _reserve(self, uid: str, journey: Journey) -> None:
        """The rest of the scheduling cycle, and the binding cycle after it."""
        framework, pod, node, state = journey.framework, journey.pod, journey.node, journey.state
        try:
            status = framework.run_reserve(pod, node, state)
            answer = framework.run_permit(pod, node, state) if status.is_success else status
        except ContractError as fault:
            answer = error(str(fault))
        waits: Mapping[str, PermitWait] = {}
        if not isinstance(answer, Status):
            waits = answer
        elif not answer.is_success:
            # Nobody has seen the room taken, so nobody is told that it is free.
            self._undo(uid, journey)
            self._failures.refused_on_node(journey.entry, answer)
            return
        self._activate(state)
        self._set_out(uid, journey, waits)

    def _set_out(self, uid: str, journey: Journey, waits: Mapping[str, PermitWait]) -> None:
        """The binding cycle begins: announce the node if it will take a while, and wait or go."""
        pod, node, state = journey.pod, journey.node, journey.state
        flight = journey.framework.run_pre_bind_pre_flight(pod, node, state)
        if not flight.is_success and not flight.is_skip:
            self._fail(uid, journey, flight)
            return
        if (waits or flight.is_success) and pod.status.nominated_node_name != node:
            self._context.outbox.patch_status(pod, node)
            journey.announced = True
        if waits:
            self._wait(uid, journey, waits)
        else:
            self._prepare(uid, journey)

    def _wait(self, uid: str, journey: Journey, waits: Mapping[str, PermitWait]) -> None:
        context = self._context
        journey.stage = Stage.WAITING
        pending = {plugin: in_ns(wait.timeout_s) for plugin, wait in waits.items()}
        waiting = context.shared.waiting.add(journey.pod, journey.node, context.now, pending)
        self._deadlines.set(uid, waiting.deadline)

    def settle(self) -> None:
        """Let the pods that were allowed or rejected at Permit go on."""
        waiting = self._context.shared.waiting
        while waiting.settled:
            for one in waiting.take_settled():
                uid = one.pod.uid
                self._deadlines.clear(uid)
                self._wait_ended(uid, self._journeys[uid], one.verdict)

    def _wait_ended(self, uid: str, journey: Journey, verdict: Status | None) -> None:
        assert verdict is not None
        if verdict.is_success:
            try:
                self._prepare(uid, journey)
            except ContractError as fault:
                self._fault(uid, journey, fault)
        elif verdict.is_rejected:
            self._fail(uid, journey, verdict, by_node=True)
        else:
            text = f"waiting on permit for pod: {verdict.message}"
            self._fail(uid, journey, error(text).by(verdict.plugin))

    def _prepare(self, uid: str, journey: Journey) -> None:
        """From here on no refusal parks the pod, so what happens elsewhere need not be kept."""
        self._context.queue.done(uid)
        journey.stage = Stage.PREPARING
        self.preparing.advance(uid, journey)

    def _bind(self, uid: str, journey: Journey) -> None:
        extender = self._context.extenders.binder_of(journey.pod)
        if extender is None:
            self._bind_by_plugin(uid, journey)
            return
        pod = journey.pod
        body = ExtenderBindingArgs(pod.name, pod.namespace, pod.metadata.uid, journey.node)
        question = Question(extender, Verb.BIND, body)
        journey.stage, journey.binder = Stage.BINDING, EXTENDER
        journey.awaits = (self._calls.ask(uid, question, self._extender_answered),)

    def _bind_by_plugin(self, uid: str, journey: Journey) -> None:
        framework, pod, node, state = journey.framework, journey.pod, journey.node, journey.state
        status = framework.run_bind(pod, node, state)
        if status.code is not Code.SUCCESS:
            text = status.message or "no Bind plugin took the pod"
            self._fail(uid, journey, error(text) if status.is_skip else status)
            return
        journey.stage = Stage.BINDING
        journey.binder = status.plugin
        binder = framework.members[status.plugin]
        if binder.performs:
            journey.awaits = (self._works.start(binder, "bind", pod, node, state),)
        else:
            journey.awaits = (self._context.outbox.bind(pod, uid, node),)

    # Outcomes.

    def prepare_done(self, event: PrepareDone) -> None:
        """A plugin has finished its work outside."""
        work = self._works.end(event.effect)
        if work is None:
            return
        uid = work.pod.uid
        journey = self._awaiting(uid, event.effect)
        if journey is None:
            return
        journey.awaits = tuple(number for number in journey.awaits if number != event.effect)
        if journey.stage is Stage.BINDING:
            self._bound(uid, journey)
            return
        try:
            self.preparing.advance(uid, journey)
        except ContractError as fault:
            self._fault(uid, journey, fault)

    def prepare_failed(self, event: PrepareFailed) -> None:
        """A plugin's work outside has failed; what is left of a binding is read."""
        self._work_failed(event.effect, event.reason)

    def _work_failed(self, effect: int, reason: str) -> None:
        work = self._works.end(effect)
        if work is None:
            return
        uid = work.pod.uid
        journey = self._awaiting(uid, effect)
        if journey is None:
            return
        if journey.stage is Stage.PREPARING:
            text = f'running PreBind plugin "{work.name}": {reason}'
            self._fail(uid, journey, error(text))
        else:
            self._doubt(uid, journey, f'running Bind plugin "{work.name}": {reason}')

    def bind_done(self, event: BindDone) -> None:
        """The API says that the pod is bound; the watch will confirm it."""
        journey = self._awaiting(event.uid, event.effect)
        if journey is not None and journey.stage is Stage.BINDING:
            self._bound(event.uid, journey)

    def bind_failed(self, event: BindFailed) -> None:
        """A definite refusal undoes all; after an ambiguous end the pod is read."""
        uid = event.uid
        journey = self._awaiting(uid, event.effect)
        if journey is None or journey.stage is not Stage.BINDING:
            return
        reason = event.reason or f"the API answered {event.code}"
        text = f'running Bind plugin "{journey.binder}": {reason}'
        if self.companion is not None and self._context.is_batch(journey.pod):
            self._doubt(uid, journey, text, after=self.companion.delay(uid))
        elif is_definite(event.code):
            self._fail(uid, journey, error(text))
        else:
            self._doubt(uid, journey, text)

    def _extender_answered(self, call: Call, reply: Reply) -> None:
        """An extender has bound the pod, or says that it has not, or says nothing.

        Differs: the original takes a failure for what it says, and puts the pod back unless the
        watch has shown it bound by then; of a bound one it tells users that it could not be.
        """
        uid = call.uid
        journey = self._awaiting(uid, call.effect)
        if journey is None or journey.stage is not Stage.BINDING:
            return
        fault = bound(call.question, reply)
        if fault is None:
            self._bound(uid, journey)
        elif not call.question.extender.ignorable:
            self._doubt(uid, journey, fault.text)
        else:
            try:
                self._bind_by_plugin(uid, journey)
            except ContractError as broken:
                self._fault(uid, journey, broken)

    def _doubt(self, uid: str, journey: Journey, text: str, *, after: int = 0) -> None:
        """Keep the room, and ask the API until it says. after: so many nanoseconds from now on."""
        journey.stage = Stage.DOUBTFUL
        journey.doubt = text
        journey.awaits = ()
        if after:
            self._deadlines.set(uid, self._context.now + after)
        else:
            self._read(uid, journey)

    def _read(self, uid: str, journey: Journey) -> None:
        effect = self._context.outbox.read(journey.pod)
        journey.awaits = journey.awaits or (effect,)
        self._deadlines.set(uid, self._context.now + self._read_again)

    def pod_read(self, event: PodRead) -> None:
        """What became of a binding of which nobody knew."""
        uid, pod = event.uid, event.pod
        journey = self._journeys.get(uid)
        if journey is None or journey.stage is not Stage.DOUBTFUL:
            return
        # Any read will do that was asked for since the doubt began.
        if not journey.awaits or event.effect < journey.awaits[0]:
            return
        self._deadlines.clear(uid)
        if pod is not None and pod.uid == uid and pod.node_name == journey.node:
            self._bound(uid, journey)
        else:
            # The watch, which alone counts, will say if it is gone or somewhere else.
            self._fail(uid, journey, error(journey.doubt))

    def _bound(self, uid: str, journey: Journey) -> None:
        """The API says that the pod is bound: from now on it should be confirmed soon."""
        journey.stage = Stage.BOUND
        journey.awaits = ()
        self._context.cache.expect(uid, self._context.now)
        self._arrived(journey)

    def _arrived(self, journey: Journey) -> None:
        """The pod is bound, as far as anybody says: tell the user and the plugins."""
        context, framework, state = self._context, journey.framework, journey.state
        pod, node = journey.pod, journey.node
        note = f"Successfully assigned {pod.key} to {node}"
        context.outbox.record(pod, "Normal", "Scheduled", "Binding", note)
        members = framework.at("postBind")
        if members:
            self._tell(journey, "FailedPostBind", framework.run_post_bind)
            for member in members:
                if member.performs and context.outbox.leads:
                    self._works.start(member, "postBind", pod, node, state)
        self._activate(state)

    # What the watch says.

    def confirmed(self, pod: Pod) -> bool:
        """The watch shows the pod bound: its journey, if any, ends there or elsewhere; False when
        it was on none."""
        uid = pod.uid
        journey = self._journeys.get(uid)
        if journey is None:
            return False
        if self._is_arrival(journey, pod):
            self._end(uid, journey)
            if journey.stage is not Stage.BOUND:
                self._arrived(journey)
            return True
        # Somebody else has bound it.
        self._undo(uid, journey)
        self._context.queue.done(uid)
        if pod.node_name != journey.node:
            # Differs: the original tells nobody of the room that was held in vain.
            self._room_made(journey)
        return True

    def _is_arrival(self, journey: Journey, pod: Pod) -> bool:
        """True when a pod that was on its way is seen where it was to go."""
        return journey.stage in _ASKED and pod.node_name == journey.node

    def gone(self, pod: Pod) -> Pod | None:
        """A pod is no more; returns it as it was placed if room was held for it."""
        uid = pod.uid
        journey = self._journeys.get(uid)
        if journey is None:
            return None
        held = self._context.cache.is_assumed(uid)
        if journey.stage is Stage.BOUND:
            self._end(uid, journey)
        elif self._is_arrival(journey, pod):
            self._end(uid, journey)
            self._arrived(journey)
        else:
            # Differs: the original tells users that a pod which waited at Permit is gone.
            self._undo(uid, journey)
            self._context.queue.done(uid)
        return journey.placed if held else None

    def leaving(self, pod: Pod) -> None:
        """The pod is being deleted, so the API will not bind it: its room is free at once."""
        uid = pod.uid
        journey = self._journeys[uid]
        if journey.stage is Stage.BOUND:
            return
        if journey.stage is Stage.WAITING:
            waiting = self._context.shared.waiting.get(uid)
            assert waiting is not None
            waiting.reject("", "removed")
        elif journey.stage is Stage.PREPARING:
            # Differs: the original lets the work outside go on until Bind fails.
            self._fail(uid, journey, error("the pod is being deleted"))
        elif self._forget(uid):
            self._room_made(journey)

    def preempt(self, uid: str, plugin: str) -> bool:
        """Stop a pod that is not bound yet to make room; False when it is too late for that."""
        journey = self._journeys.get(uid)
        if journey is None:
            return False
        if journey.stage is Stage.WAITING:
            waiting = self._context.shared.waiting.get(uid)
            return waiting is not None and waiting.preempt(plugin, "preempted")
        if journey.stage is Stage.PREPARING:
            busy = self.preparing.busy(journey)
            text = f'running PreBind plugin "{busy}": preempted by {plugin}'
            self._fail(uid, journey, error(text))
            return True
        return False

    def step_down(self) -> None:
        """Another leads from now on: let go of what is not bound, and read what may be.

        Effects of this term that have not been carried out will not be, so no outcome is waited
        for but that of reads.
        """
        for uid, journey in tuple(self._journeys.items()):
            if journey.stage is Stage.BINDING:
                self._hang_up(journey)
                self._doubt(uid, journey, "another scheduler leads")
            elif journey.stage in (Stage.WAITING, Stage.PREPARING):
                self._fail(uid, journey, error("another scheduler leads"))

    # What time brings.

    def serve_due(self) -> None:
        """End the waits and works that are over, ask again for reads that were not answered."""
        for uid in self._deadlines.due(self._context.now):
            journey = self._journeys[uid]
            if journey.stage is Stage.DOUBTFUL:
                self._read(uid, journey)
            else:
                self._wait_over(uid)
        self.preparing.serve_due()
        for effect in self._works.overdue():
            work = self._works.get(effect)
            # The end of one work may have cancelled others.
            if work is not None:
                self._context.outbox.cancel(work.pod.uid, effect)
                self._work_failed(effect, f"not done within {work.timeout_s:g} s")
        for uid in self._context.cache.expire(self._context.now):
            # The API said that it is bound and the watch did not: it counts as not bound.
            # Differs: the original, while it had a limit, lost sight of such a pod.
            text = "the watch has not confirmed the binding"
            self._fail(uid, self._journeys[uid], error(text))
        self.settle()

    def _wait_over(self, uid: str) -> None:
        """The time of some plugin that a pod waited for was over; it may have allowed the pod."""
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
        """When the next wait or work is over, None when there is none."""
        times = (
            self._deadlines.next(),
            self._works.next_deadline(),
            self.preparing.next_deadline(),
            self._context.cache.next_expiry(),
        )
        return min((at for at in times if at is not None), default=None)

    # Inside.

    def _awaiting(self, uid: str, effect: int) -> Journey | None:
        """The journey that waits for this outcome; None when that is history."""
        journey = self._journeys.get(uid)
        return journey if journey is not None and effect in journey.awaits else None

    def _fault(self, uid: str, journey: Journey, fault: ContractError) -> None:
        """Let a plugin's fault fail the attempt of this pod, and no more."""
        if self._journeys.get(uid) is not journey:
            raise fault
        self._fail(uid, journey, error(str(fault)))

    def _tell(
        self, journey: Journey, reason: str, walk: Callable[[Pod, str, CycleState], None]
    ) -> None:
        """Tell plugins what cannot be changed any more; a fault of theirs is told to users."""
        try:
            walk(journey.pod, journey.node, journey.state)
        except ContractError as fault:
            self._context.outbox.record(journey.pod, "Warning", reason, "Binding", str(fault))

    def _activate(self, state: CycleState) -> None:
        """Try at once the pods that the plugins of an attempt asked for."""
        if state.to_activate:
            pods = list(state.to_activate.values())
            state.to_activate.clear()
            self._context.queue.activate(pods, self._context.now)

    def _fail(self, uid: str, journey: Journey, status: Status, *, by_node: bool = False) -> None:
        """Undo, and put the pod back; by_node: refused as if the cluster had that node only.

        A refused pod must not come back because of the room that it gives up itself, so the
        others hear of that afterwards.
        """
        self._undo(uid, journey)
        if not status.is_rejected:
            self._room_made(journey)
        if by_node:
            self._failures.refused_on_node(journey.entry, status, announced=journey.announced)
        else:
            self._failures.failed(journey.entry, status, announced=journey.announced)
        if status.is_rejected:
            self._room_made(journey, but=uid)

    def _room_made(self, journey: Journey, but: str = "") -> None:
        """Pods that this one kept out are worth another attempt. but: a uid to leave out."""
        self._context.queue.move(
            ASSIGNED_POD_DELETE,
            journey.placed,
            None,
            self._context.now,
            (lambda pod: pod.uid != but) if but else None,
        )

    def _undo(self, uid: str, journey: Journey) -> None:
        """Stop the work outside, give back what was reserved and the room, end the journey."""
        self._hang_up(journey)
        self.preparing.stop(journey)
        self._tell(journey, "FailedUnreserve", journey.framework.run_unreserve)
        self._forget(uid)
        self._end(uid, journey)

    def _forget(self, uid: str) -> bool:
        """Give back the room on the node; False when none was held."""
        held = self._context.cache.forget(uid) is not None
        if self.companion is not None:
            self.companion.forgotten(uid)
        return held

    def _hang_up(self, journey: Journey) -> None:
        for number in journey.awaits:
            self._works.cancel(number)
            self._calls.cancel(number)

    def _end(self, uid: str, journey: Journey) -> None:
        if journey.stage is Stage.WAITING:
            self._context.shared.waiting.drop(uid)
        self._deadlines.clear(uid)
        del self._journeys[uid]


def is_definite(code: int) -> bool:
    """True for an HTTP status after which nothing has been done for certain."""
    return 400 <= code < 500 and code != 408
