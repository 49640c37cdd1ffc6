"""Group preemption in forecasts: which pods are evicted for a PodGroup, and where its pods go.

A scheduler of its own sees the cluster as it is in the chain. It tries the group in a group cycle,
victims go at once, and the group is tried again, until all that fits is placed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.framework.pod_groups.pod_group_states import group_key_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.scheduler import Scheduler, SchedulerOptions
from stowplan.scheduler.failure_handler import FailedAttempt

ROUNDS_MAX = 10
"""Cycles of one group; each but the last evicts pods."""
PAUSE = 600 * SECOND
"""Virtual time between two cycles: longer than any backoff."""
NOT_ATTEMPTED = "pod group was not attempted"


class PlacedByPreemption(msgspec.Struct, frozen=True):
    """What becomes of a group. placed: pod -> node. victims: in the order in which they are
    evicted. reasons: pod without a node -> why."""

    placed: dict[str, str]
    victims: tuple[Pod, ...]
    reasons: dict[str, str]


class GroupPreemption:
    """A scheduler that tries groups on a cluster. It follows `put` and `drop`."""

    def __init__(
        self,
        deciders: Deciders,
        nodes: Iterable[Node],
        objects: Iterable[Object],
        pods: Iterable[Pod],
    ) -> None:
        """pods: those that have a node."""
        self._scheduler: Scheduler = deciders.scheduler(options=SchedulerOptions(), engine="walk")
        self._scheduler.on_failure(self._pod_failed)
        self._preempts_whole = deciders.gates.workload_aware_preemption
        self._groups = {one.key: one for one in objects if isinstance(one, SchedulingGroup)}
        self._pods = {pod.uid: pod for pod in pods}
        self._failed: dict[str, str] = {}
        self._now = 0
        events: list[Event] = [happened.NodeAdded(node) for node in nodes]
        events += [happened.ObjectAdded(one) for one in objects]
        events += [happened.PodAdded(pod) for pod in self._pods.values()]
        self._scheduler.handle(events, 0, heads_max=0)

    def _pod_failed(self, attempt: FailedAttempt) -> None:
        self._failed[attempt.key] = attempt.message

    def priority_of(self, key: str, members: Sequence[Pod]) -> int:
        """The priority with which a group preempts: its own where it preempts as a whole, else the
        highest of its pods."""
        group = self._groups.get(key)
        if group is not None and self._preempts_whole:
            return group.priority
        return max(pod.priority for pod in members)

    def put(self, pod: Pod) -> None:
        """A pod got a node."""
        self._pods[pod.uid] = pod
        self._scheduler.handle([happened.PodAdded(pod)], self._now, heads_max=0)

    def drop(self, pods: Iterable[Pod]) -> None:
        """Pods are gone."""
        events: list[Event] = []
        for pod in pods:
            self._pods.pop(pod.uid, None)
            events.append(happened.PodDeleted(pod))
        self._scheduler.handle(events, self._now, heads_max=0)

    def attempt(self, members: Sequence[Pod]) -> PlacedByPreemption:
        """Try the pending pods of a group; those that get a node stay there."""
        self._failed = {}
        victims: list[Pod] = []
        events: list[Event] = [happened.PodAdded(pod) for pod in members]
        for _ in range(ROUNDS_MAX):
            evicted = self._round(events)
            victims += evicted
            events = []
            if not evicted:
                break
        placed = self._placed(members)
        rest = [pod for pod in members if pod.key not in placed]
        settled: list[Event] = [
            happened.PodUpdated(replace(pod, spec=replace(pod.spec, node_name=placed[pod.key])))
            for pod in members
            if pod.key in placed
        ]
        settled += [happened.PodDeleted(pod) for pod in rest]
        self._scheduler.handle(settled, self._now, heads_max=0)
        reasons = {pod.key: self._failed.get(pod.key, NOT_ATTEMPTED) for pod in rest}
        return PlacedByPreemption(placed, tuple(victims), reasons)

    def _round(self, events: list[Event]) -> list[Pod]:
        """One cycle; returns the pods that it evicts, which are gone then."""
        self._now += PAUSE
        evicted: list[Pod] = []
        effects = self._scheduler.handle(events, self._now, heads_max=1)
        while effects:
            answers = list(self._answers(effects, evicted))
            # The last victim is evicted when the others are.
            effects = self._scheduler.handle(answers, self._now, heads_max=0) if answers else []
        return evicted

    def _answers(self, effects: Iterable[Effect], evicted: list[Pod]) -> Iterable[Event]:
        for effect in effects:
            if isinstance(effect, to_do.Evict):
                pod = self._pods.pop(effect.uid)
                evicted.append(pod)
                yield happened.EvictDone(effect.effect, effect.uid)
                yield happened.PodDeleted(pod)
            elif isinstance(effect, to_do.Bind):
                yield happened.BindDone(effect.effect, effect.uid)

    def _placed(self, members: Sequence[Pod]) -> dict[str, str]:
        """The nodes of members that have one and do not wait for others."""
        groups = self._scheduler.pod_groups
        state = None if groups is None else groups.get(group_key_of(members[0]))
        if state is None:
            return {}
        waiting = {one.pod.uid for one in self._scheduler.waiting_pods}
        return {
            pod.key: state.assumed[pod.uid]
            for pod in members
            if pod.uid in state.assumed and pod.uid not in waiting
        }
