"""Measures: what a live scheduler counts, under the names and labels of kube-scheduler's metrics.

Counted from what goes into and comes out of the machine; the rest is looked up when asked for.

Differs: durations of attempts are those of a call of the machine, shared by the pods decided in it.

Source: kube-scheduler v1.36, scheduler/metrics; component-base, client-go's rest and
leaderelection metrics.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

from stowplan.framework.metrics import Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event

if TYPE_CHECKING:
    from stowplan.driver.api import ApiClient

SECOND = 1e9
ATTEMPTS_SHOWN = 15
TRIED_MAX = 200_000
ERROR = "SchedulerError"
SAMPLED_S, SAMPLES = 1.0, 60


def _powers(first: float, factor: float, n: int) -> tuple[float, ...]:
    return tuple(first * factor**k for k in range(n))


class Tried(msgspec.Struct):
    """A pod that waits for its node. since: when it was first tried, seconds."""

    profile: str
    since: float
    attempts: int = 0


class Measures:
    """registry: of what Prometheus is shown. sessions: counts of sessions."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions = Metrics(time.perf_counter)
        self.api: ApiClient | None = None
        self.n_events = 0
        self.n_bound = 0
        self.n_refused = 0
        self._tried: dict[str, Tried] = {}
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES)
        self._make()

    def _make(self) -> None:
        registry = self.registry
        self.attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Attempts to schedule pods, by result.",
            ("result", "profile"),
            registry=registry,
        )
        self.attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of an attempt, from the queue to the binding.",
            ("result", "profile"),
            buckets=_powers(0.001, 2, 15),
            registry=registry,
        )
        self.algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Time of a decision.",
            buckets=_powers(0.001, 2, 15),
            registry=registry,
        )
        self.sli_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from the first sight of a pod to its binding.",
            ("attempts",),
            buckets=_powers(0.01, 2, 20),
            registry=registry,
        )
        self.pod_attempts = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Attempts that a pod took.",
            buckets=_powers(1, 2, 5),
            registry=registry,
        )
        self.preemptions = Counter(
            "scheduler_preemption_attempts_total", "Preemptions begun.", registry=registry
        )
        self.victims = Histogram(
            "scheduler_preemption_victims",
            "Pods that had to go at once.",
            buckets=_powers(1, 2, 7),
            registry=registry,
        )

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

    def handled(self, events: Sequence[Event], effects: Sequence[Effect], took_ns: int) -> None:
        """A call of the machine."""
        self.n_events += len(events)
        now = time.monotonic()
        self._sample(now)
        for event in events:
            self._event(event, now)
        decided: list[tuple[str, str]] = []
        victims: dict[str, int] = {}
        failed = {e.uid for e in effects if isinstance(e, to_do.PatchStatus) and e.reason == ERROR}
        for effect in effects:
            self._effect(effect, failed, decided, victims)
        each_s = took_ns / SECOND / max(1, len(decided))
        for result, profile in decided:
            self.attempts.labels(result, profile).inc()
            self.attempt_seconds.labels(result, profile).observe(each_s)
            self.algorithm_seconds.observe(each_s)
        for count in victims.values():
            self.preemptions.inc()
            self.victims.observe(count)

    def _effect(
        self,
        effect: Effect,
        failed: set[str],
        decided: list[tuple[str, str]],
        victims: dict[str, int],
    ) -> None:
        match effect:
            case to_do.Bind():
                tried = self._tried.get(effect.uid)
                if tried is not None:
                    tried.attempts += 1
                decided.append(("scheduled", tried.profile if tried is not None else ""))
            case to_do.RecordEvent(reason="FailedScheduling"):
                self.n_refused += 1
                tried = self._tried.get(effect.uid)
                if tried is not None:
                    tried.attempts += 1
                result = "error" if effect.uid in failed else "unschedulable"
                decided.append((result, effect.scheduler))
            case to_do.Evict():
                victims[effect.preemptor] = victims.get(effect.preemptor, 0) + 1
            case _:
                return

    def _event(self, event: Event, now: float) -> None:
        match event:
            case happened.PodAdded(pod) | happened.PodUpdated(pod):
                if not pod.spec.node_name and pod.uid not in self._tried:
                    if len(self._tried) < TRIED_MAX:
                        self._tried[pod.uid] = Tried(pod.spec.scheduler_name, now)
                elif pod.spec.node_name and pod.uid in self._tried:
                    del self._tried[pod.uid]
            case happened.PodDeleted(pod):
                self._tried.pop(pod.uid, None)
            case happened.BindDone():
                self.n_bound += 1
                tried = self._tried.pop(event.uid, None)
                if tried is not None:
                    shown = str(tried.attempts) if tried.attempts < ATTEMPTS_SHOWN else "15+"
                    self.sli_seconds.labels(shown).observe(now - tried.since)
                    self.pod_attempts.observe(tried.attempts)
            case _:
                return
