"""Metrics recorder of a live scheduler, with the names and labels of kube-scheduler's metrics.

Counts the events and effects of the scheduler; its parts count too (`timed_framework`,
`timed_scheduler`); gauges are looked up on request. Numbers are kept plain until then, because each
pod is counted several times.

Differs: pods that are decided in one `handle` call share its duration.

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

from stowplan.driver.clocks import monotonic_ns
from stowplan.framework import ObjectChange
from stowplan.framework.metrics import Histogram, Labels, Metrics
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import ExtenderVerb
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.duration import SECOND
from stowplan.plugins.devices.claim_binding import FAILED, TIMED_OUT, AssumedClaims
from stowplan.plugins.devices.dynamic_resources import DynamicResources
from stowplan.queue.pod_record import PodState

if TYPE_CHECKING:
    from stowplan.driver.client.api_client import ApiClient
    from stowplan.scheduler import Scheduler

ATTEMPTS_LABEL_MAX = 15
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
CLAIM_CREATES = "scheduler_resourceclaim_creates_total"
CONDITION_ALLOCATIONS = "scheduler_dra_bindingconditions_allocations_total"
CONDITION_SECONDS = "scheduler_dra_bindingconditions_wait_duration_seconds"
CONFIGURATION_RELOADS = "stowplan_configuration_reloads_total"
APPLIED, REFUSED = "applied", "refused"


def _exponential_buckets(first: float, factor: float, n: int) -> tuple[float, ...]:
    return tuple(first * factor**k for k in range(n))


_ATTEMPT_S = _exponential_buckets(0.001, 2, 15)
_SLI_S = _exponential_buckets(0.01, 2, 20)
_CONDITION_S = _exponential_buckets(0.1, 2, 14)
_UNLABELLED_HISTOGRAMS = {
    ALGORITHM_SECONDS: _ATTEMPT_S,
    POD_ATTEMPTS: _exponential_buckets(1, 2, 5),
    VICTIMS: _exponential_buckets(1, 2, 7),
}
_BINDING_OUTCOMES: frozenset[type[Event]] = frozenset(
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
"""Events that may end a binding cycle."""


class PendingBinding(msgspec.Struct, gc=False):
    """A binding in progress. since: first time that its pod was ready, None for sessions. took_s:
    duration of the decision. begun: when the decision was made. Times in ns of the scheduler's
    clock."""

    profile: str
    attempts: int
    since: int | None
    was_flushed: bool
    took_s: float
    begun: int


class DeviceWait(msgspec.Struct, gc=False):
    """A pod whose devices are waited for. since: by the scheduler clock, in ns. drivers: of all its
    devices. waited: of those that must report that they are ready."""

    profile: str
    since: int
    drivers: list[str]
    waited: list[str]


class DeviceMetrics:
    """Claims that are created for extended resources, and waits for devices.

    Differs: devices of claims that the pod had before and that nothing is waited for are not
    counted.
    """

    def __init__(self, counted: Metrics) -> None:
        self._counted = counted
        self._creates: set[int] = set()
        self._waits: dict[str, DeviceWait] = {}

    @property
    def is_idle(self) -> bool:
        """True where no outcome is awaited."""
        return not (self._creates or self._waits)

    def written(self, effect: to_do.Write) -> None:
        """A write is sent."""
        if (
            isinstance(effect.value, ResourceClaim)
            and ObjectChange(effect.value, effect.patch).creates
        ):
            self._creates.add(effect.effect)

    def outcome(self, event: Event) -> None:
        """A write has an outcome, or a pod is gone."""
        if isinstance(event, happened.WriteDone | happened.WriteFailed):
            if event.effect in self._creates:
                self._creates.discard(event.effect)
                result = "success" if isinstance(event, happened.WriteDone) else "failure"
                self._counted.count(CLAIM_CREATES, (("status", result),))
        elif isinstance(event, happened.PodDeleted):
            self._waits.pop(event.pod.uid, None)

    def begin(self, uid: str, profile: str, scheduler: Scheduler | None, now: int) -> None:
        """A pod waits for its devices."""
        cycle = None if scheduler is None else scheduler.bindings.get(uid)
        reserved = (
            None if cycle is None else cycle.binding.attempt[1].find(DynamicResources.RESERVED)
        )
        if isinstance(reserved, AssumedClaims):
            self._waits[uid] = DeviceWait(
                profile,
                now,
                reserved.drivers(with_conditions=False),
                reserved.drivers(with_conditions=True),
            )

    def end(self, uid: str, status: str, now: int) -> None:
        """A pod waits no longer."""
        wait = self._waits.pop(uid, None)
        if wait is None:
            return
        for drivers, is_timed in ((wait.drivers, True), (wait.waited, False)):
            for driver in drivers:
                labels = ("profile", wait.profile), ("driver", driver), ("status", status)
                if is_timed:
                    seconds = max(0, now - wait.since) / SECOND
                    self._counted.observe(CONDITION_SECONDS, seconds, labels, _CONDITION_S)
                else:
                    self._counted.count(CONDITION_ALLOCATIONS, labels)


def _end_of_wait(note: str) -> str:
    """How a wait for devices ended, by the message of the failed attempt."""
    ends = {TIMED_OUT: "timeout", FAILED: "failure"}
    return next((status for text, status in ends.items() if text in note), "error")


class MetricsRecorder:
    """registry: what Prometheus reads. counted: plain numbers, some of them counted by parts of the
    scheduler."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.counted = Metrics(time.perf_counter)
        self.api: ApiClient | None = None
        self.n_events = 0
        self.n_bound = 0
        self.n_refused = 0
        self._devices = DeviceMetrics(self.counted)
        self._scheduler: Scheduler | None = None
        self._pending_bindings: dict[str, PendingBinding] = {}
        self._samples: deque[tuple[int, int, int]] = deque(maxlen=SAMPLES)
        self._sli: dict[str, Histogram] = {}
        self._attempts: dict[tuple[str, str], tuple[tuple[str, Labels], Histogram]] = {}
        self._one = {name: Histogram(bounds) for name, bounds in _UNLABELLED_HISTOGRAMS.items()}
        self.counted.histograms |= {(name, ()): one for name, one in self._one.items()}
        for name in (AFTER_FLUSH, PREEMPTIONS):
            self.counted.count(name, by=0)
        for result in (APPLIED, REFUSED):
            self.counted.count(CONFIGURATION_RELOADS, (("result", result),), by=0)

    def configuration_reloaded(self, *, is_applied: bool) -> None:
        """Count a changed configuration."""
        labels = (("result", APPLIED if is_applied else REFUSED),)
        self.counted.count(CONFIGURATION_RELOADS, labels)

    def watch(self, scheduler: Scheduler) -> None:
        """Record the metrics of this scheduler."""
        self._scheduler = scheduler

    def rates(self) -> dict[str, float]:
        """Bindings and rejections per second over the last minute."""
        self._sample(monotonic_ns())
        at, bound, refused = self._samples[0]
        seconds = (self._samples[-1][0] - at) / SECOND
        if seconds <= 0:
            return {"boundPerSecond": 0.0, "refusedPerSecond": 0.0}
        return {
            "boundPerSecond": round((self.n_bound - bound) / seconds, 2),
            "refusedPerSecond": round((self.n_refused - refused) / seconds, 2),
        }

    def _sample(self, now: int) -> None:
        if not self._samples or now - self._samples[-1][0] >= SAMPLED_S * SECOND:
            self._samples.append((now, self.n_bound, self.n_refused))

    def handled(
        self, events: Sequence[Event], effects: Sequence[Effect], now: int, took_ns: int
    ) -> None:
        """Record one `handle` call. now: its start."""
        self.n_events += len(events)
        self._sample(now)
        if not self._devices.is_idle:
            for event in events:
                self._devices.outcome(event)
        for event in events:
            if type(event) in _BINDING_OUTCOMES:
                uid: str = event.uid  # type: ignore[union-attr]
                if uid in self._pending_bindings:
                    self._finish_binding(uid, isinstance(event, happened.BindDone), now)
            elif isinstance(event, happened.PodDeleted):
                self._pending_bindings.pop(event.pod.uid, None)
        binds: list[str] = []
        refused: list[tuple[str, str]] = []
        victims: dict[str, int] = {}
        failed = {e.uid for e in effects if isinstance(e, to_do.PatchStatus) and e.reason == ERROR}
        for effect in effects:
            match effect:
                case to_do.Bind() | to_do.Prepare(point="bind"):
                    binds.append(effect.uid)
                case to_do.CallExtender() if effect.question.verb is ExtenderVerb.BIND:
                    binds.append(effect.uid)
                case to_do.Write():
                    self._devices.written(effect)
                case to_do.RecordEvent(reason="BindingConditionsPending"):
                    self._devices.begin(effect.uid, effect.scheduler, self._scheduler, now)
                case to_do.RecordEvent(reason="FailedScheduling"):
                    self._devices.end(effect.uid, _end_of_wait(effect.note), now)
                    result = "error" if effect.uid in failed else "unschedulable"
                    refused.append((result, effect.scheduler))
                case to_do.Evict(preemptor=uid) if uid:
                    victims[uid] = victims.get(uid, 0) + 1
        each_s = took_ns / SECOND / max(1, len(binds) + len(refused))
        for uid in binds:
            self._devices.end(uid, "success", now)
            self._start_binding(uid, each_s, now + took_ns)
        for result, profile in refused:
            self.n_refused += 1
            self._count_attempt(result, profile, each_s)
            self._one[ALGORITHM_SECONDS].add(each_s)
        for count in victims.values():
            self._one[VICTIMS].add(count)

    def _start_binding(self, uid: str, took_s: float, now: int) -> None:
        """A node was chosen and the binding sent."""
        self._one[ALGORITHM_SECONDS].add(took_s)
        binding_cycle = None if self._scheduler is None else self._scheduler.bindings.get(uid)
        if binding_cycle is not None:
            entry = binding_cycle
            self._pending_bindings[uid] = PendingBinding(
                entry.pod.spec.scheduler_name,
                entry.attempts,
                entry.initial_attempt,
                entry.flushed,
                took_s,
                now,
            )

    def _finish_binding(self, uid: str, is_done: bool, now: int) -> None:
        """A binding has an outcome. is_done: the pod is bound."""
        binding_cycle = None if self._scheduler is None else self._scheduler.bindings.get(uid)
        if binding_cycle is not None and binding_cycle.state in (
            PodState.BINDING,
            PodState.BIND_UNKNOWN,
        ):
            return
        one = self._pending_bindings.pop(uid)
        if not is_done and (binding_cycle is None or binding_cycle.state is not PodState.ASSUMED):
            return
        self.n_bound += 1
        self._count_attempt("scheduled", one.profile, one.took_s + max(0, now - one.begun) / SECOND)
        if one.since is None:
            return
        attempts_text = (
            str(one.attempts) if one.attempts < ATTEMPTS_LABEL_MAX else f"{ATTEMPTS_LABEL_MAX}+"
        )
        spread = self._sli.get(attempts_text)
        if spread is None:
            labels = (("attempts", attempts_text),)
            spread = self._sli[attempts_text] = self.counted.histogram(SLI_SECONDS, labels, _SLI_S)
        spread.add((now - one.since) / SECOND)
        self._one[POD_ATTEMPTS].add(one.attempts)
        if one.was_flushed:
            self.counted.count(AFTER_FLUSH)

    def _count_attempt(self, result: str, profile: str, took_s: float) -> None:
        series = self._attempts.get((result, profile))
        if series is None:
            labels: Labels = ("result", result), ("profile", profile)
            spread = self.counted.histogram(ATTEMPT_SECONDS, labels, _ATTEMPT_S)
            series = self._attempts[result, profile] = (ATTEMPTS, labels), spread
        key, spread = series
        self.counted.counters[key] = self.counted.counters.get(key, 0) + 1
        spread.add(took_s)
