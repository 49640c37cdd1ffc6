"""Playback: feeds a workload to a scheduler and measures the time.

Only time inside `handle` counts, not the building of reply events or decoding.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import BenchmarkClient
from stowplan.benchmarks.benchmark_workload import BATCH, BenchmarkWorkload
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import decode, encode
from stowplan.objects.pod import Pod, PodCondition
from stowplan.scheduler import Scheduler

HEADS_MAX = 1000
PAUSE = SECOND // 10
IDLE_MAX = 20
"""Wakes in a row without progress after which the remaining pods are given up."""


class Playback:
    """One scheduler and one workload.

    waits: uid -> seconds from the start of the call that delivered the pod to the end of the call
    that ended it. calls: seconds and number of events of each call. effects: all effects. seconds:
    time until the last awaited pod ended, or the last event was handled.
    """

    def __init__(
        self, scheduler: Scheduler, workload: BenchmarkWorkload, client: BenchmarkClient
    ) -> None:
        self.scheduler = scheduler
        self.workload = workload
        self.waits: dict[str, float] = {}
        self.calls: list[tuple[float, int]] = []
        self.seconds = 0.0
        self._client = client
        # Resource version of the last write.
        self._version = 1
        self._clock = 0.0
        self._now = 0
        self._wake: int | None = None
        self._pods: dict[str, Pod] = {}
        self._taken: dict[str, float] = {}
        self.effects: list[Effect] = []

    def prepare(self) -> None:
        """Handle the events before the measurement; then collect garbage, as a live driver does."""
        events = self.workload.before
        self._remember(events)
        for first in range(0, len(events), BATCH):
            self._settle(self.scheduler.handle(events[first : first + BATCH], 0, HEADS_MAX))
        while len(self.scheduler.queue.active):
            self._settle(self.scheduler.handle([], 0, HEADS_MAX))
        for now in range(PAUSE, SECOND, PAUSE):
            if not len(self.scheduler.bindings):
                break
            # Many pods that wait for what they wrote are looked at now and then.
            self._settle(self.scheduler.handle([], now, HEADS_MAX), now)
        for call in self.workload.calls:
            self._remember(call.events)
        gc.collect()
        gc.freeze()

    def run(self) -> None:
        """Run the measured calls."""
        answers: list[Event] = []
        for call in self.workload.calls:
            answers = self._handle(call.at, answers + call.events)
        idle = 0
        while len(self.waits) < len(self.workload.awaited) and idle < IDLE_MAX:
            if not answers and self._wake is None:
                break
            n_ended = len(self.waits)
            at = self._now if answers or self._wake is None else self._wake
            answers = self._handle(at, answers)
            idle = 0 if answers or len(self.waits) > n_ended else idle + 1

    def _handle(self, at: int, events: list[Event]) -> list[Event]:
        """One measured call; returns the reply events."""
        self._now = max(at, self._now)
        for event in events:
            if isinstance(event, happened.PodAdded):
                self._taken[event.pod.uid] = self._clock
        began = time.perf_counter()
        effects = self.scheduler.handle(events, self._now, HEADS_MAX)
        took = time.perf_counter() - began
        self._clock += took
        self.calls.append((took, len(events)))
        self.effects += effects
        self._note_ends(effects)
        return self._answers(effects)

    def _note_ends(self, effects: list[Effect]) -> None:
        workload = self.workload
        if not workload.awaited:
            self.seconds = self._clock
        for effect in effects:
            if isinstance(effect, to_do.Wake):
                self._wake = effect.at
            elif isinstance(effect, to_do.PatchStatus if workload.refused else to_do.Bind):
                nominated_only = isinstance(effect, to_do.PatchStatus) and not effect.reason
                uid = effect.uid
                if uid in workload.awaited and uid not in self.waits and not nominated_only:
                    self.waits[uid] = self._clock - self._taken[uid]
                    self.seconds = self._clock

    def _answers(self, effects: list[Effect]) -> list[Event]:
        """Reply events: victims terminate at once."""
        answers: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Evict):
                answers.append(happened.EvictDone(effect.effect, effect.uid))
                answers.append(happened.PodDeleted(self._pods[effect.uid]))
            elif isinstance(effect, to_do.Write):
                answers += self._written(effect)
        return answers

    def _written(self, effect: to_do.Write) -> list[Event]:
        """The outcome of a write, and the object as the watch shows it, decoded again."""
        self._version += 1
        version = str(self._version)
        value = effect.value
        metadata = replace(value.metadata, resource_version=version)
        seen = decode(encode(replace(value, metadata=metadata)), type(value))
        return [
            happened.WriteDone(effect.effect, effect.uid, version),
            happened.ObjectUpdated(seen),
        ]

    # Confirmations by the watch.

    def confirm(self) -> float:
        """Deliver bound and patched pods as the watch does; pods per second, 0.0 for none."""
        events = self._confirmations(self.effects)
        n_pods = sum(isinstance(event, happened.PodUpdated) for event in events)
        began = time.perf_counter()
        for first in range(0, len(events), BATCH):
            self.scheduler.handle(events[first : first + BATCH], self._now, HEADS_MAX)
        took = time.perf_counter() - began
        return n_pods / took if n_pods else 0.0

    def _settle(self, effects: list[Effect], now: int = 0) -> None:
        events = self._confirmations(effects)
        if events:
            self._settle(self.scheduler.handle(events, now, HEADS_MAX), now)

    def _confirmations(self, effects: list[Effect]) -> list[Event]:
        gone = {effect.uid for effect in effects if isinstance(effect, to_do.Evict)}
        pods: dict[str, Pod] = {}
        binds: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Write):
                binds += self._written(effect)
            elif isinstance(effect, to_do.Bind) and effect.uid not in gone:
                before = pods.get(effect.uid, self._pods[effect.uid])
                pods[effect.uid] = bound(before, effect.node)
                binds.append(happened.BindDone(effect.effect, effect.uid))
            elif isinstance(effect, to_do.PatchStatus) and effect.uid not in gone:
                before = pods.get(effect.uid, self._pods[effect.uid])
                pods[effect.uid] = patched(before, effect)
        seen = self._client.again(pods.values())
        self._pods |= {pod.uid: pod for pod in seen}
        return [*binds, *(happened.PodUpdated(pod) for pod in seen)]

    def _remember(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, happened.PodAdded):
                self._pods[event.pod.uid] = event.pod


def bound(pod: Pod, node: str) -> Pod:
    """The pod bound to a node."""
    return replace(pod, spec=replace(pod.spec, node_name=node))


def patched(pod: Pod, patch: to_do.PatchStatus) -> Pod:
    """The pod with the patched condition and nomination."""
    status = pod.status
    if patch.reason:
        condition = PodCondition("PodScheduled", "False", patch.reason, patch.message)
        status = replace(status, conditions=(condition,))
    if patch.nominated_node is not None:
        status = replace(status, nominated_node_name=patch.nominated_node)
    return replace(pod, status=status)
