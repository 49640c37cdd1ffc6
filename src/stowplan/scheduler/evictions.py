"""Preemptions in progress: evictions of victims, and the pods that wait for them.

The preemptor is gated until the last of its victims is terminating. The last victim is evicted only
after the evictions of the others have an outcome, so that its deletion wakes the preemptor once all
resources are free. A victim that is not bound yet is rejected in memory instead.

Source: kube-scheduler v1.36, framework/preemption/executor.go.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stowplan.columns import PodInfo
from stowplan.messages.events import EvictDone, EvictFailed
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.scheduler.binding.binding_cycles import BindingCycles
from stowplan.scheduler.context import SchedulerContext

NOT_FOUND = 404


CLUSTER = "cluster"
"""What stands for the nodes of victims that make room for a group."""


class EvictionPreemptor(msgspec.Struct, frozen=True):
    """Who gets the resources of victims: a pod, or a group with its pending pods.

    kind: `pod` or `podgroup`. key: of the pods, by which they are found again.
    """

    kind: str
    uid: str
    scheduler_name: str
    priority: int
    pods: tuple[Pod, ...]

    @classmethod
    def of_pod(cls, pod: Pod) -> EvictionPreemptor:
        """A pod that preempts for itself."""
        return cls("pod", pod.uid, pod.spec.scheduler_name, pod.priority, (pod,))


class Preemption(msgspec.Struct, gc=False):
    """One preemptor and its victims on one node.

    last: the victim evicted after the others. pending: effect number -> victim whose eviction has
    no outcome yet. failed: some eviction was refused.
    """

    preemptor: EvictionPreemptor
    node: str
    last: Pod
    pending: dict[int, Pod]
    last_is_evicted: bool = False
    failed: bool = False


class Evictions:
    """Preemptions in progress."""

    def __init__(self, context: SchedulerContext, bindings: BindingCycles) -> None:
        self._context = context
        self._bindings = bindings
        # Preemptions that gate their preemptor, by its uid; preemptions by pending effect.
        self._gating: dict[str, Preemption] = {}
        self._by_effect: dict[int, Preemption] = {}
        # Those whose last victim is evicted, by its uid and the preemptor's.
        self._by_last: dict[str, dict[str, Preemption]] = {}

    def __len__(self) -> int:
        return len(self._gating)

    def start(
        self, preemptor: Pod, node_name: str, victims: Sequence[PodInfo], plugin: str
    ) -> None:
        """Evict the victims and clear lower-priority nominations on the node.

        plugin: the PostFilter that chose them.
        """
        pods = [info.pod for info in victims]
        self._start(EvictionPreemptor.of_pod(preemptor), node_name, pods, plugin)

    def start_for_group(
        self, group: SchedulingGroup, members: Sequence[Pod], victims: Sequence[Pod], plugin: str
    ) -> None:
        """Evict the victims of a group, on whatever nodes they are. members: its pending pods.
        plugin: the PostFilter that chose them.

        Nominations of other pods stay.
        """
        name = members[0].spec.scheduler_name
        preemptor = EvictionPreemptor("podgroup", group.uid, name, group.priority, tuple(members))
        self._start(preemptor, CLUSTER, victims, plugin)

    def _start(
        self, preemptor: EvictionPreemptor, node_name: str, victims: Sequence[Pod], plugin: str
    ) -> None:
        known = self._context.pods
        pods = [known.get(pod.key, pod) for pod in victims]
        pods = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        if not pods:
            return
        self._clear_lower(preemptor, node_name)
        going: list[Pod] = []
        for pod in pods:
            if self._bindings.preempt(pod.uid, plugin):
                self._record_preempted(pod, preemptor, node_name, " (in kube-scheduler memory).")
            else:
                going.append(pod)
        if not going:
            return
        *others, last = going
        preemption = Preemption(preemptor, node_name, last, {})
        earlier = self._gating.get(preemptor.uid)
        if earlier is not None:
            self._end_wait(earlier)
        self._gating[preemptor.uid] = preemption
        if self._context.gates.scheduler_async_preemption:
            self._context.shared.preempting.add(preemptor.uid)
        for victim in others:
            self._evict(preemption, victim)
        if not others:
            self._continue(preemption)

    def done(self, event: EvictDone) -> None:
        """The API server accepted the eviction of a victim."""
        self._eviction_ended(event.effect, evicted=True)

    def failed(self, event: EvictFailed) -> None:
        """An eviction was refused; a victim that no longer exists counts as evicted."""
        preemption = self._by_effect.get(event.effect)
        if preemption is not None and event.code != NOT_FOUND:
            preemption.failed = True
        self._eviction_ended(event.effect, evicted=False)

    def _eviction_ended(self, effect: int, *, evicted: bool) -> None:
        preemption = self._by_effect.pop(effect, None)
        if preemption is None:
            return
        victim = preemption.pending.pop(effect)
        if evicted:
            self._record_preempted(victim, preemption.preemptor, preemption.node, "")
        if not preemption.pending:
            self._continue(preemption)

    def _continue(self, preemption: Preemption) -> None:
        """All evictions have an outcome: evict the last victim, or end the preemption."""
        if self._gating.get(preemption.preemptor.uid) is not preemption:
            # The preemptor was deleted, or was retried since and may have started another
            # preemption. Differs: if it was deleted, the original still evicts the last victim.
            return
        if preemption.failed or not (
            preemption.last_is_evicted or self._is_victim_on_node(preemption)
        ):
            # Differs: in the original the deletion of a last victim that ended by itself may
            # activate no pod.
            self._ungate(preemption)
            self._activate(preemption.preemptor)
        elif preemption.last_is_evicted:
            self._end(preemption)
        else:
            preemption.last_is_evicted = True
            waiting = self._by_last.setdefault(preemption.last.uid, {})
            waiting[preemption.preemptor.uid] = preemption
            self._evict(preemption, preemption.last)

    def is_awaited(self, uid: str) -> bool:
        """True for the victim whose end a preemptor waits for, and for a preemptor that waits."""
        return uid in self._by_last or uid in self._gating

    def victim_terminating(self, uid: str) -> None:
        """A pod was deleted or is terminating; ungate the preemptor if it was the last victim."""
        waiting = self._by_last.get(uid)
        if not waiting:
            return
        ending = list(waiting.values())
        if len(ending) > 1:
            ending = [one for one in self._gating.values() if one.preemptor.uid in waiting]
        for preemption in ending:
            self._end(preemption)

    def preemptor_gone(self, uid: str) -> None:
        """The preemptor was deleted or bound: evict no more victims for it."""
        preemption = self._gating.get(uid)
        if preemption is not None:
            self._ungate(preemption)

    def step_down(self) -> None:
        """Leadership lost: pending evictions no longer lead to anything."""
        self._by_effect.clear()
        for preemption in tuple(self._gating.values()):
            self._ungate(preemption)
            self._activate(preemption.preemptor)

    def _end(self, preemption: Preemption) -> None:
        """The last victim is terminating, and its deletion wakes the preemptor. If the victim no
        longer holds resources, since its binding was rolled back meanwhile, no event follows and
        the preemptor is activated."""
        self._ungate(preemption)
        if not self._context.cache.nodes.knows_pod(preemption.last.uid):
            self._activate(preemption.preemptor)

    def _ungate(self, preemption: Preemption) -> None:
        """Ungate the preemptor."""
        uid = preemption.preemptor.uid
        del self._gating[uid]
        self._end_wait(preemption)
        self._context.shared.preempting.discard(uid)

    def _end_wait(self, preemption: Preemption) -> None:
        last, uid = preemption.last.uid, preemption.preemptor.uid
        waiting = self._by_last.get(last, {})
        if waiting.get(uid) is preemption:
            del waiting[uid]
            if not waiting:
                del self._by_last[last]

    def _activate(self, preemptor: EvictionPreemptor) -> None:
        known = self._context.pods
        found = [(before, known.get(before.key)) for before in preemptor.pods]
        pods = [
            pod
            for before, pod in found
            if pod is not None and pod.uid == before.uid and not pod.node_name
        ]
        if pods:
            self._context.queue.activate(pods, self._context.now)

    def _is_victim_on_node(self, preemption: Preemption) -> bool:
        """True while the last victim holds resources on the node and is not terminating."""
        nodes, victim = self._context.cache.nodes, preemption.last
        pod = self._context.pods.get(victim.key)
        if pod is None or pod.uid != victim.uid or pod.metadata.deletion_timestamp is not None:
            return False
        if preemption.node == CLUSTER:
            return nodes.knows_pod(pod.uid)
        row = nodes.row(preemption.node)
        return row >= 0 and nodes.knows_pod(pod.uid) and nodes.row_of_pod(pod.uid) == row

    def _clear_lower(self, preemptor: EvictionPreemptor, node_name: str) -> None:
        """Clear nominations of lower-priority pods to the node.

        Nominations of session pods stay: the next session takes the new nomination into account.
        """
        context = self._context
        nominator = context.queue.nominator
        for info in nominator.on(node_name):
            pod = context.pods.get(info.pod.key, info.pod)
            if pod.priority < preemptor.priority and context.lanes.is_queued(pod):
                nominator.drop(info.uid)
                context.outbox.patch_status(pod, "")

    def _record_preempted(
        self, victim: Pod, preemptor: EvictionPreemptor, node_name: str, suffix: str
    ) -> None:
        note = f"Preempted by {preemptor.kind} {preemptor.uid} on node {node_name}{suffix}"
        self._context.outbox.record(victim, "Normal", "Preempted", "Preempting", note)

    def _evict(self, preemption: Preemption, victim: Pod) -> None:
        preemptor = preemption.preemptor
        text = (
            f"{preemptor.scheduler_name}: preempting to accommodate a higher priority "
            f"{preemptor.kind}"
        )
        effect = self._context.outbox.evict(victim, preemptor.uid, text, "preemption")
        preemption.pending[effect] = victim
        self._by_effect[effect] = preemption
