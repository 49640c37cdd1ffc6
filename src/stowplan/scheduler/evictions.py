"""Preemption under way: victims asked to go, and the pods that wait for it.

The pod that preempts is gated until the last of its victims is going. The last one is asked only
when the others are done, so that its going wakes the pod when all the room is there.

Source: kube-scheduler v1.36, framework/preemption/executor.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stowplan.columns import PodInfo
from stowplan.messages.effects import Evict, PatchStatus
from stowplan.messages.events import EvictDone, EvictFailed
from stowplan.objects.pod import Pod
from stowplan.scheduler.binding import Bindings
from stowplan.scheduler.context import Context
from stowplan.scheduler.failures import Failures


class Preemption(msgspec.Struct):
    """One pod's victims. asked: effect id -> uid of a victim whose eviction is under way."""

    preemptor: Pod
    last: Pod
    asked: dict[int, str]
    last_is_asked: bool = False


class Evictions:
    """The preemptions under way, by the uid of the pod that preempts."""

    def __init__(self, context: Context, bindings: Bindings, failures: Failures) -> None:
        self._context = context
        self._bindings = bindings
        self._failures = failures
        self._running: dict[str, Preemption] = {}

    def start(self, preemptor: Pod, node_name: str, victims: Sequence[PodInfo]) -> None:
        """Make room on a node: clear lower nominations there and let the victims go."""
        self._clear_lower(preemptor, node_name)
        going: list[Pod] = []
        for info in victims:
            pod = self._context.known.get(info.pod.key, info.pod)
            if self._bindings.preempt(info.uid):
                self._tell(pod, preemptor, node_name, " (in kube-scheduler memory).")
            elif pod.metadata.deletion_timestamp is None:
                going.append(pod)
                self._tell(pod, preemptor, node_name, "")
        if not going:
            return
        *others, last = going
        preemption = Preemption(preemptor, last, {})
        self._running[preemptor.uid] = preemption
        self._context.shared.preempting.add(preemptor.uid)
        for victim in others:
            self._ask(preemption, victim)
        if not others:
            self._ask_last(preemption)

    def done(self, event: EvictDone) -> None:
        """The API took the deletion of a victim."""
        for preemption in tuple(self._running.values()):
            if preemption.asked.pop(event.effect, None) is None:
                continue
            if not preemption.asked and not preemption.last_is_asked:
                self._ask_last(preemption)
            elif preemption.last_is_asked and not preemption.asked:
                self._finish(preemption)

    def failed(self, event: EvictFailed) -> None:
        """The API did not: a victim that is gone is as good as evicted, else try again soon."""
        if event.code == 404:
            self.done(EvictDone(event.effect, event.uid))
            return
        for preemption in tuple(self._running.values()):
            if event.effect in preemption.asked:
                self._finish(preemption)
                pod = self._context.known.get(preemption.preemptor.key)
                if pod is not None and not pod.node_name:
                    self._context.queue.activate([pod], self._context.now)

    def victim_gone(self, uid: str) -> None:
        """A pod is no more; where it was the last victim, the pod that preempts may come."""
        for preemption in tuple(self._running.values()):
            if preemption.last.uid == uid or preemption.preemptor.uid == uid:
                self._finish(preemption)

    def victim_leaving(self, uid: str) -> None:
        """A pod has begun to end; that is enough to let the pod that preempts try."""
        self.victim_gone(uid)

    def _clear_lower(self, preemptor: Pod, node_name: str) -> None:
        context = self._context
        nominator = context.queue.nominator
        for info in nominator.on(node_name):
            if info.pod.priority < preemptor.priority:
                nominator.drop(info.uid)
                pod = context.known.get(info.pod.key, info.pod)
                context.emit(
                    PatchStatus(
                        context.next_id(),
                        context.term,
                        pod.uid,
                        pod.namespace,
                        pod.name,
                        nominated_node="",
                    )
                )

    def _tell(self, victim: Pod, preemptor: Pod, node_name: str, suffix: str) -> None:
        note = f"Preempted by pod {preemptor.uid} on node {node_name}{suffix}"
        self._failures.tell(victim, "Normal", "Preempted", "Preempting", note)

    def _ask(self, preemption: Preemption, victim: Pod) -> None:
        context = self._context
        effect = context.next_id()
        preemption.asked[effect] = victim.uid
        scheduler = preemption.preemptor.spec.scheduler_name
        context.emit(
            Evict(
                effect,
                context.term,
                victim.uid,
                victim.namespace,
                victim.name,
                preemption.preemptor.uid,
                f"{scheduler}: preempting to accommodate a higher priority pod",
            )
        )

    def _ask_last(self, preemption: Preemption) -> None:
        preemption.last_is_asked = True
        self._ask(preemption, preemption.last)

    def _finish(self, preemption: Preemption) -> None:
        self._running.pop(preemption.preemptor.uid, None)
        self._context.shared.preempting.discard(preemption.preemptor.uid)
