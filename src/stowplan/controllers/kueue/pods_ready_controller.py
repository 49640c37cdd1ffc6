"""Workloads that run out of time: their pods do not get ready, or they run for too long.

They are evicted, and tried again after a backoff or deactivated. Ends backoffs, and notes that a
Workload was activated again.

Differs: a Workload that was deactivated for a cause is tried again when it is activated; in Kueue
its condition Requeued stays False.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/workload_controller.go
(reconcileNotReadyTimeout, reconcileMaxExecutionTime); KEP-349.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controllers.kueue.kueue_kinds import WORKLOADS
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    DEACTIVATED,
    EVICTED,
    FINISHED,
    PODS_READY,
    REQUEUED,
    WAIT_FOR_RECOVERY,
    condition_of,
    is_true,
    note,
    note_evicted,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

COMPONENT = "workload-controller"
TIMED_OUT = "PodsReadyTimeout"
_BACKED_OFF = (TIMED_OUT, "AdmissionCheck")
"""Reasons of evictions after which a Workload waits for a backoff."""


class PodsReadyController(Controller):
    """Keys are those of Workloads. Of the options it reads those of `PodsReadyOptions` by name:
    timeout_s is None where pods need not get ready, recovery_s where they may fail for ever."""

    name = "kueue-pods-ready"
    path = WORKLOADS
    timeout_s: float | None = None
    recovery_s: float | None = None
    backoff_s, backoff_max_s = 60.0, 3600.0
    requeues_max: int | None = None

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Workload."""
        if change.path == WORKLOADS:
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Evict a Workload that is late, or let one be tried again."""
        workload = self.api.get(WORKLOADS, *key)
        if workload is None or is_true(workload, FINISHED):
            return
        if workload["spec"].get("active") is not False:
            requeued = condition_of(workload, REQUEUED)
            if requeued is not None and requeued.get("status") == "False":
                self._requeue(key, workload, str(requeued.get("reason", "")))
                return
        if is_true(workload, EVICTED) or not is_true(workload, ADMITTED):
            return
        due = [
            (at, stop)
            for at, stop in (
                (self._late_at(workload), self._evict),
                (_over_at(workload), self._end_run),
            )
            if at is not None
        ]
        for at, stop in sorted(due, key=lambda one: one[0])[:1]:
            if at > self.api.now:
                self.queue.add(key, at)
            else:
                stop(key, workload)

    def _requeue(self, key: Key, workload: Tree, reason: str) -> None:
        """End a backoff, or note that a Workload is active again."""
        if reason.startswith(DEACTIVATED):
            # It may run for as long as before.
            workload["status"].pop("accumulatedPastExecutionTimeSeconds", None)
            text = "The workload was reactivated"
            note(workload, REQUEUED, True, "Reactivated", text, self.api.now)
            self.api.update_status(WORKLOADS, workload)
            return
        if reason not in _BACKED_OFF:
            return
        state = (workload.get("status") or {}).get("requeueState") or {}
        at = unix_seconds(state.get("requeueAt"))
        if at > self.api.now:
            self.queue.add(key, at)
            return
        state.pop("requeueAt", None)
        text = "The workload backoff was finished"
        note(workload, REQUEUED, True, "BackoffFinished", text, self.api.now)
        self.api.update_status(WORKLOADS, workload)

    def _late_at(self, workload: Tree) -> float | None:
        """When the pods of an admitted Workload have to be ready; None: they are, or need not."""
        ready = condition_of(workload, PODS_READY) or {}
        if self.timeout_s is None or ready.get("status") == "True":
            return None
        if ready.get("reason") == WAIT_FOR_RECOVERY:
            failed = unix_seconds(ready.get("lastTransitionTime"))
            return None if self.recovery_s is None else failed + self.recovery_s
        since = (condition_of(workload, ADMITTED) or {}).get("lastTransitionTime")
        return unix_seconds(since) + self.timeout_s

    def _evict(self, key: Key, workload: Tree) -> None:
        status = workload["status"]
        count = int((status.get("requeueState") or {}).get("count", 0)) + 1
        if self.requeues_max is not None and count > self.requeues_max:
            text = "exceeding the maximum number of re-queuing retries"
            self._deactivate(workload, "RequeuingLimitExceeded", text)
            return
        delay_s = min(self.backoff_s * 2.0 ** (count - 1), self.backoff_max_s)
        at = format_time(self.api.now + delay_s)
        status["requeueState"] = {"count": count, "requeueAt": at}
        text = f"Exceeded the PodsReady timeout {key[0]}/{key[1]}"
        note_evicted(workload, TIMED_OUT, text, self.api.now)
        self.api.update_status(WORKLOADS, workload)
        self.recorder.record(workload, COMPONENT, f"EvictedDueTo{TIMED_OUT}", text)

    def _end_run(self, key: Key, workload: Tree) -> None:
        """A Workload has run for as long as it may."""
        reason = "MaximumExecutionTimeExceeded"
        longest = int(workload["spec"]["maximumExecutionTimeSeconds"])
        text = f"The maximum execution time ({longest}s) exceeded"
        self.recorder.record(workload, COMPONENT, reason, text, type="Warning")
        self._deactivate(workload, reason, "exceeding the maximum execution time")

    def _deactivate(self, workload: Tree, cause: str, why: str) -> None:
        status = workload["status"]
        status.pop("requeueState", None)
        workload["spec"]["active"] = False
        workload = {**self.api.update(WORKLOADS, workload), "status": status}
        reason, text = f"{DEACTIVATED}DueTo{cause}", f"The workload is deactivated due to {why}"
        note_evicted(workload, reason, text, self.api.now)
        self.api.update_status(WORKLOADS, workload)
        self.recorder.record(workload, COMPONENT, f"{EVICTED}DueTo{reason}", text)


def _over_at(workload: Tree) -> float | None:
    """When an admitted Workload has run for as long as it may; None: it may run on."""
    longest = workload["spec"].get("maximumExecutionTimeSeconds")
    if longest is None:
        return None
    past = int(workload["status"].get("accumulatedPastExecutionTimeSeconds") or 0)
    since = (condition_of(workload, ADMITTED) or {}).get("lastTransitionTime")
    return unix_seconds(since) + int(longest) - past
