"""Measures: what a live scheduler counts, under the names and labels of kube-scheduler's metrics.

Counted from what goes into and comes out of the machine, and by its parts (`framework.timed`,
`scheduler.timed`); the rest is looked up when asked for. Numbers stay plain until somebody asks, as
every pod is counted several times.

Differs: the pods that are decided in one call of the machine share its time.

Source: kube-scheduler v1.36, scheduler/metrics, schedule_one.go; component-base, client-go's rest
and leaderelection metrics.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector

from stowplan.framework.metrics import Distribution, Labels, Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.extender import Verb
from stowplan.scheduler.journey import Stage

if TYPE_CHECKING:
    from stowplan.driver.api import ApiClient
    from stowplan.scheduler import Machine

SECOND = 1e9
ATTEMPTS_SHOWN = 15
ERROR = "SchedulerError"
SAMPLED_S, SAMPLES = 1.0, 60

ATTEMPTS = "scheduler_schedule_attempts_total"
ATTEMPT_SECONDS = "scheduler_scheduling_attempt_duration_seconds"
ALGORITHM_SECONDS = "scheduler_scheduling_algorithm_duration_seconds"
SLI_SECONDS = "scheduler_pod_scheduling_sli_duration_seconds"
POD_ATTEMPTS = "scheduler_pod_scheduling_attempts"
AFTER_FLUSH = "scheduler_pod_scheduled_after_flush_total"
VICTIMS = "scheduler_preemption_victims"
PREEMPTIONS = "scheduler_preemption_attempts_total"


def _powers(first: float, factor: float, n: int) -> tuple[float, ...]:
    return tuple(first * factor**k for k in range(n))


_ATTEMPT_S = _powers(0.001, 2, 15)
_SLI_S = _powers(0.01, 2, 20)
_OF_ONE_SERIES = {
    ALGORITHM_SECONDS: _ATTEMPT_S,
    POD_ATTEMPTS: _powers(1, 2, 5),
    VICTIMS: _powers(1, 2, 7),
}
_ANSWERS: frozenset[type[Event]] = frozenset(
    (
        happened.BindDone,
        happened.BindFailed,
        happened.PodRead,
        happened.PrepareDone,
        happened.PrepareFailed,
        happened.ExtenderReplied,
        happened.ExtenderFailed,
    )
)
"""After which a binding under way may have come to its end."""


class Binding(msgspec.Struct, gc=False):
    """A binding under way. since: when its pod was ready to be tried first, None for one of
    sessions. took_s: to decide. begun: when that was done. Times in ns as the machine has them."""

    profile: str
    attempts: int
    since: int | None
    was_flushed: bool
    took_s: float
    begun: int


class Measures:
    """registry: of what Prometheus is shown. counted: what is counted, in plain numbers, some of it
    by the parts of the machine."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.counted = Metrics(time.perf_counter)
        self.api: ApiClient | None = None
        self.n_events = 0
        self.n_bound = 0
        self.n_refused = 0
        self._machine: Machine | None = None
        self._under_way: dict[str, Binding] = {}
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES)
        self._sli: dict[str, Distribution] = {}
        self._attempts: dict[tuple[str, str], tuple[tuple[str, Labels], Distribution]] = {}
        self._one = {name: Distribution(bounds) for name, bounds in _OF_ONE_SERIES.items()}
        self.counted.distributions |= {(name, ()): one for name, one in self._one.items()}
        for name in (AFTER_FLUSH, PREEMPTIONS):
            self.counted.count(name, by=0)

    def watch(self, machine: Machine) -> None:
        """Count what this machine does."""
        self._machine = machine

    def rates(self) -> dict[str, float]:
        """Bindings and refusals per second, over the last minute or so."""
        self._sample(time.monotonic())
        at, bound, refused = self._samples[0]
        seconds = self._samples[-1][0] - at
        if seconds <= 0:
            return {"boundPerSecond": 0.0, "refusedPerSecond": 0.0}
        return {
            "boundPerSecond": round((self.n_bound - bound) / seconds, 2),
            "refusedPerSecond": round((self.n_refused - refused) / seconds, 2),
        }

    def _sample(self, now: float) -> None:
        if not self._samples or now - self._samples[-1][0] >= SAMPLED_S:
            self._samples.append((now, self.n_bound, self.n_refused))

    def handled(
        self, events: Sequence[Event], effects: Sequence[Effect], now: int, took_ns: int
    ) -> None:
        """A call of the machine. now: when it began."""
        self.n_events += len(events)
        self._sample(time.monotonic())
        for event in events:
            if type(event) in _ANSWERS:
                uid: str = event.uid  # type: ignore[union-attr]
                if uid in self._under_way:
                    self._answered(uid, isinstance(event, happened.BindDone), now)
            elif isinstance(event, happened.PodDeleted):
                self._under_way.pop(event.pod.uid, None)
        binds: list[str] = []
        refused: list[tuple[str, str]] = []
        victims: dict[str, int] = {}
        failed = {e.uid for e in effects if isinstance(e, to_do.PatchStatus) and e.reason == ERROR}
        for effect in effects:
            match effect:
                case to_do.Bind() | to_do.Prepare(point="bind"):
                    binds.append(effect.uid)
                case to_do.CallExtender() if effect.question.verb is Verb.BIND:
                    binds.append(effect.uid)
                case to_do.RecordEvent(reason="FailedScheduling"):
                    result = "error" if effect.uid in failed else "unschedulable"
                    refused.append((result, effect.scheduler))
                case to_do.Evict(preemptor=uid) if uid:
                    victims[uid] = victims.get(uid, 0) + 1
        each_s = took_ns / SECOND / max(1, len(binds) + len(refused))
        for uid in binds:
            self._begun(uid, each_s, now + took_ns)
        for result, profile in refused:
            self.n_refused += 1
            self._attempted(result, profile, each_s)
            self._one[ALGORITHM_SECONDS].add(each_s)
        for count in victims.values():
            self._one[VICTIMS].add(count)

    def _begun(self, uid: str, took_s: float, now: int) -> None:
        """A node was chosen, and the binding is sent."""
        self._one[ALGORITHM_SECONDS].add(took_s)
        journey = None if self._machine is None else self._machine.bindings.get(uid)
        if journey is not None:
            entry = journey.entry
            self._under_way[uid] = Binding(
                entry.pod.spec.scheduler_name,
                entry.attempts,
                entry.initial_attempt,
                entry.flushed,
                took_s,
                now,
            )

    def _answered(self, uid: str, is_done: bool, now: int) -> None:
        """There is an answer about a pod. is_done: it says that the pod is bound."""
        journey = None if self._machine is None else self._machine.bindings.get(uid)
        if journey is not None and journey.stage in (Stage.BINDING, Stage.DOUBTFUL):
            return
        one = self._under_way.pop(uid)
        if not is_done and (journey is None or journey.stage is not Stage.BOUND):
            return
        self.n_bound += 1
        self._attempted("scheduled", one.profile, one.took_s + max(0, now - one.begun) / SECOND)
        if one.since is None:
            return
        shown = str(one.attempts) if one.attempts < ATTEMPTS_SHOWN else f"{ATTEMPTS_SHOWN}+"
        spread = self._sli.get(shown)
        if spread is None:
            labels = (("attempts", shown),)
            spread = self._sli[shown] = self.counted.distribution(SLI_SECONDS, labels, _SLI_S)
        spread.add((now - one.since) / SECOND)
        self._one[POD_ATTEMPTS].add(one.attempts)
        if one.was_flushed:
            self.counted.count(AFTER_FLUSH)

    def _attempted(self, result: str, profile: str, took_s: float) -> None:
        series = self._attempts.get((result, profile))
        if series is None:
            labels: Labels = ("result", result), ("profile", profile)
            spread = self.counted.distribution(ATTEMPT_SECONDS, labels, _ATTEMPT_S)
            series = self._attempts[result, profile] = (ATTEMPTS, labels), spread
        key, spread = series
        self.counted.counters[key] = self.counted.counters.get(key, 0) + 1
        spread.add(took_s)
