"""From the choice of a node to the binding: Reserve, Permit, PreBind, Bind, and what may go wrong.

A pod that was given a node is in one of these stages, each with what ends it:

    waiting      at Permit, for plugins to allow it    all allow; one rejects; a deadline passes
    preparing    a plugin works outside before Bind    PrepareDone, PrepareFailed; a deadline
    binding      the API has been asked to bind        BindDone, BindFailed, the watch
    doubtful     nobody knows what became of it        PodRead, the watch
    bound        the API said yes                      the watch

Whatever fails ends the same way: Unreserve in reverse order, the assumption forgotten, the pods it
kept out tried again, the pod back to the queue.

Source: kube-scheduler v1.36, schedule_one.go bindingCycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from stowplan.framework import CycleState, Framework
from stowplan.framework.clusterevents import ASSIGNED_POD_DELETE
from stowplan.framework.decider import Decision
from stowplan.framework.shared import WaitingPod
from stowplan.framework.status import Status, error
from stowplan.messages.effects import Bind, PatchStatus, Prepare, ReadPod
from stowplan.messages.events import BindDone, BindFailed, PodRead, PrepareDone, PrepareFailed
from stowplan.objects.pod import Pod
from stowplan.queue import QueueEntry
from stowplan.queue.entry import SECOND
from stowplan.scheduler.context import Context
from stowplan.scheduler.failures import Failures

NEVER = float("inf")
PREPARE_TIMEOUT_S = 600.0
_AMBIGUOUS_CODES = frozenset({0, 408, 429})


class Stage(Enum):
    """Where a pod with a node is."""

    WAITING = "waiting"
    PREPARING = "preparing"
    BINDING = "binding"
    DOUBTFUL = "doubtful"
    BOUND = "bound"


class Journey(msgspec.Struct):
    """A pod on its way to a node. effect: the id of the effect whose outcome it waits for.

    todo: plugins that still have work outside before the pod is bound. deadline: of that work.
    """

    entry: QueueEntry
    pod: Pod
    node: str
    framework: Framework
    state: CycleState
    stage: Stage = Stage.WAITING
    effect: int = 0
    todo: list[str] = []
    deadline: float = NEVER


class Bindings:
    """The pods between choice and confirmation, by uid."""

    def __init__(self, context: Context, failures: Failures) -> None:
        self._context = context
        self._failures = failures
        self._journeys: dict[str, Journey] = {}

    def __len__(self) -> int:
        return len(self._journeys)

    def stage_of(self, uid: str) -> Stage | None:
        """The stage of a pod, None when it is on no journey."""
        journey = self._journeys.get(uid)
        return None if journey is None else journey.stage

    # The way forward.

    def begin(self, entry: QueueEntry, decision: Decision, framework: Framework) -> None:
        """Assume the pod on its node and go as far as possible at once."""
        context, pod = self._context, entry.pod
        context.cache.assume(pod, decision.node_name, context.now)
        context.queue.nominator.drop(pod.uid)
        state = decision.state or CycleState()
        journey = Journey(entry, pod, decision.node_name, framework, state)
        self._journeys[pod.uid] = journey
        status = framework.run_reserve(pod, journey.node, state)
        if not status.is_success:
            self._give_up(journey, status, on_node=True)
            return
        answer = framework.run_permit(pod, journey.node, state)
        if isinstance(answer, Status):
            if answer.is_success:
                self._prepare(journey)
            else:
                self._give_up(journey, answer, on_node=True)
            return
        deadlines = {
            plugin: context.now + round(wait.timeout_s * SECOND) for plugin, wait in answer.items()
        }
        context.shared.waiting.add(WaitingPod(pod, journey.node, deadlines))
        self._announce(journey)

    def settle(self) -> None:
        """Let pods that were allowed or rejected at Permit go on, and end waits that are over."""
        waiting = self._context.shared.waiting
        for pod in waiting:
            late = [p for p, deadline in pod.deadlines.items() if deadline <= self._context.now]
            if pod.verdict is None and late:
                # The text names no duration: it is the plugin's to know how long it asked for.
                pod.reject(late[0], f"rejected due to timeout at plugin {late[0]}")
            if pod.verdict is None:
                continue
            waiting.drop(pod.pod.uid)
            journey = self._journeys[pod.pod.uid]
            if pod.verdict.is_success:
                self._prepare(journey)
            else:
                self._give_up(journey, pod.verdict, on_node=True)
        for journey in self._overdue():
            self._give_up(journey, error(f"plugin {journey.todo[0]!r} did not finish in time"))

    def _prepare(self, journey: Journey) -> None:
        """PreBind: what plugins do at once, then what they do outside, one after the other."""
        self._context.queue.done(journey.entry.uid)
        status = journey.framework.run_pre_bind(journey.pod, journey.node, journey.state)
        if not status.is_success:
            self._give_up(journey, status)
            return
        journey.todo = [m.name for m in journey.framework.performers("preBind", journey.state)]
        if journey.todo:
            self._announce(journey)
        self._next(journey)

    def _next(self, journey: Journey) -> None:
        """The next piece of work outside, or the binding."""
        context = self._context
        if not journey.todo:
            journey.deadline = NEVER
            self._bind(journey)
            return
        plugin = journey.framework.members[journey.todo[0]].plugin
        timeout_s = float(getattr(plugin, "perform_timeout_s", PREPARE_TIMEOUT_S))
        journey.stage = Stage.PREPARING
        journey.effect = context.next_id()
        journey.deadline = context.now + round(timeout_s * SECOND)
        context.emit(
            Prepare(
                journey.effect,
                context.term,
                journey.entry.uid,
                journey.todo[0],
                "preBind",
                journey.node,
                timeout_s,
            )
        )

    def _bind(self, journey: Journey) -> None:
        context, pod = self._context, journey.pod
        status = journey.framework.run_bind(pod, journey.node, journey.state)
        if not status.is_success:
            self._give_up(journey, status)
            return
        journey.stage = Stage.BINDING
        journey.effect = context.next_id()
        context.emit(
            Bind(journey.effect, context.term, pod.uid, pod.namespace, pod.name, journey.node)
        )

    def _announce(self, journey: Journey) -> None:
        """Tell others (an autoscaler) where the pod will go, when that takes a while."""
        context, pod = self._context, journey.pod
        if pod.status.nominated_node_name != journey.node:
            context.emit(
                PatchStatus(
                    context.next_id(),
                    context.term,
                    pod.uid,
                    pod.namespace,
                    pod.name,
                    nominated_node=journey.node,
                )
            )

    # Outcomes.

    def prepare_done(self, event: PrepareDone) -> None:
        """A plugin has finished its work outside."""
        journey = self._expecting(event.uid, event.effect, Stage.PREPARING)
        if journey is not None:
            journey.todo.pop(0)
            self._next(journey)

    def prepare_failed(self, event: PrepareFailed) -> None:
        """A plugin's work outside has failed."""
        journey = self._expecting(event.uid, event.effect, Stage.PREPARING)
        if journey is not None:
            text = f'running PreBind plugin "{journey.todo[0]}": {event.reason}'
            self._give_up(journey, error(text))

    def bind_done(self, event: BindDone) -> None:
        """The API says that the pod is bound; the watch will confirm it."""
        journey = self._expecting(event.uid, event.effect, Stage.BINDING)
        if journey is not None:
            self._arrived(journey)
            journey.stage = Stage.BOUND

    def bind_failed(self, event: BindFailed) -> None:
        """A definite refusal undoes all; after an ambiguous end the pod is read."""
        journey = self._expecting(event.uid, event.effect, Stage.BINDING)
        if journey is None:
            return
        if event.code in _AMBIGUOUS_CODES or event.code >= 500:
            journey.stage = Stage.DOUBTFUL
            journey.effect = self._context.next_id()
            pod = journey.pod
            self._context.emit(ReadPod(journey.effect, pod.uid, pod.namespace, pod.name))
            return
        text = event.reason or f"the API answered {event.code}"
        self._give_up(journey, error(f"binding rejected: {text}"))

    def pod_read(self, event: PodRead) -> None:
        """What became of a binding of which nobody knew."""
        journey = self._expecting(event.uid, event.effect, Stage.DOUBTFUL)
        if journey is None:
            return
        pod = event.pod
        if pod is None or pod.uid != journey.pod.uid:
            self._forget(journey)
        elif pod.node_name == journey.node:
            self._arrived(journey)
            journey.stage = Stage.BOUND
        else:
            self._give_up(journey, error("binding did not take effect"))

    # What the watch says.

    def confirmed(self, pod: Pod) -> None:
        """The watch shows the pod bound: the journey ends, there or elsewhere."""
        journey = self._journeys.get(pod.uid)
        if journey is None:
            return
        if pod.node_name != journey.node:
            journey.framework.run_unreserve(journey.pod, journey.node, journey.state)
        elif journey.stage is not Stage.BOUND:
            self._arrived(journey)
        self._end(journey)

    def pod_gone(self, uid: str) -> None:
        """The pod was deleted: whatever was held for it is free."""
        journey = self._journeys.get(uid)
        if journey is not None:
            journey.framework.run_unreserve(journey.pod, journey.node, journey.state)
            self._end(journey)

    def pod_leaving(self, pod: Pod) -> None:
        """The pod is being deleted: one that waits is rejected, others run into the API's no."""
        waiting = self._context.shared.waiting.get(pod.uid)
        if waiting is not None:
            waiting.reject("", "removed")

    def expired(self, uid: str) -> None:
        """The assumption has expired unconfirmed: the pod counts as not bound."""
        journey = self._journeys.get(uid)
        if journey is not None:
            self._give_up(journey, error("the binding was not confirmed in time"))

    def preempt(self, uid: str) -> bool:
        """Stop a pod that is not bound yet to make room; False when it is too late for that."""
        journey = self._journeys.get(uid)
        if journey is None or journey.stage not in (Stage.WAITING, Stage.PREPARING):
            return False
        self._give_up(journey, error("preempted"))
        return True

    # Inside.

    def next_deadline(self) -> float:
        """When the next wait or piece of work is over; infinity when there is none."""
        waits = [d for pod in self._context.shared.waiting for d in pod.deadlines.values()]
        work = [j.deadline for j in self._journeys.values() if j.deadline != NEVER]
        return min([*waits, *work], default=NEVER)

    def _overdue(self) -> Iterator[Journey]:
        now = self._context.now
        return iter([j for j in self._journeys.values() if j.deadline <= now])

    def _expecting(self, uid: str, effect: int, stage: Stage) -> Journey | None:
        """The journey that waits for this outcome; None when that is history."""
        journey = self._journeys.get(uid)
        if journey is None or journey.effect != effect or journey.stage is not stage:
            return None
        return journey

    def _arrived(self, journey: Journey) -> None:
        """The pod is bound, as far as anybody says: tell the plugins and the user."""
        journey.framework.run_post_bind(journey.pod, journey.node, journey.state)
        pod = journey.pod
        note = f"Successfully assigned {pod.key} to {journey.node}"
        self._failures.tell(pod, "Normal", "Scheduled", "Binding", note)

    def _give_up(self, journey: Journey, status: Status, *, on_node: bool = False) -> None:
        """Undo and put the pod back; on_node: a refusal counts as one of the node."""
        self._forget(journey)
        if on_node or not status.is_rejected:
            self._failures.refused_on_node(journey.entry, status)
        else:
            # After Permit a refusal is an error: the pod is tried again after backoff.
            self._failures.refused_on_node(journey.entry, error(status.message))

    def _forget(self, journey: Journey) -> None:
        """Give back what the pod held and try those that it kept out."""
        context = self._context
        journey.framework.run_unreserve(journey.pod, journey.node, journey.state)
        context.cache.forget(journey.entry.uid)
        self._end(journey)
        uid = journey.entry.uid
        context.queue.move(
            ASSIGNED_POD_DELETE, journey.pod, None, context.now, lambda pod: pod.uid != uid
        )

    def _end(self, journey: Journey) -> None:
        uid = journey.entry.uid
        self._context.shared.waiting.drop(uid)
        self._context.queue.done(uid)
        del self._journeys[uid]
