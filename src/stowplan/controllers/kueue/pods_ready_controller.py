"""Workloads whose pods do not get ready in time are evicted, and tried again after a backoff.

Source: sigs.k8s.io/kueue of 2026-08-22, pkg/controller/core/workload_controller.go
(reconcileNotReadyTimeout, reconcileOnBackoff); KEP-349.
"""

from __future__ import annotations

from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts, split_key
from stowplan.controller_runtime.object_times import format_time, unix_seconds
from stowplan.controllers.kueue.kueue_kinds import WORKLOADS
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    EVICTED,
    FINISHED,
    PODS_READY,
    REQUEUED,
    condition_of,
    is_true,
    note,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import WatchEvent

COMPONENT = "workload-controller"
TIMED_OUT = "PodsReadyTimeout"


class PodsReadyController(Controller):
    """Keys are those of Workloads. Of the options it reads those of `PodsReadyOptions` by name:
    timeout_s is None where pods need not get ready."""

    name = "kueue-pods-ready"
    path = WORKLOADS
    timeout_s: float | None = None
    backoff_s, backoff_max_s = 60.0, 3600.0
    requeues_max: int | None = None

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Workload."""
        if change.path == WORKLOADS:
            self.queue.add(split_key(change))

    def sync(self, key: Key) -> None:
        """Evict a Workload that is late, or end its backoff."""
        workload = self.api.get(WORKLOADS, *key)
        if workload is None or is_true(workload, FINISHED):
            return
        at = unix_seconds(
            ((workload.get("status") or {}).get("requeueState") or {}).get("requeueAt")
        )
        requeued = condition_of(workload, REQUEUED)
        if at and requeued is not None and requeued.get("status") == "False":
            self._end_backoff(key, workload, at)
        elif self.timeout_s is not None and _is_waiting(workload):
            since = (condition_of(workload, ADMITTED) or {}).get("lastTransitionTime")
            due = unix_seconds(since) + self.timeout_s
            if due > self.api.now:
                self.queue.add(key, due)
            else:
                self._evict(key, workload)

    def _end_backoff(self, key: Key, workload: Tree, at: float) -> None:
        if at > self.api.now:
            self.queue.add(key, at)
            return
        del workload["status"]["requeueState"]["requeueAt"]
        text = "The workload backoff was finished"
        note(workload, REQUEUED, True, "BackoffFinished", text, self.api.now)
        self.api.update_status(WORKLOADS, workload)

    def _evict(self, key: Key, workload: Tree) -> None:
        status = workload["status"]
        count = int((status.get("requeueState") or {}).get("count", 0)) + 1
        if self.requeues_max is not None and count > self.requeues_max:
            workload["spec"]["active"] = False
            workload = self.api.update(WORKLOADS, workload)
            text = "The workload is deactivated due to exceeding the maximum number of re-queuing"
            note(workload, EVICTED, True, "Deactivated", text, self.api.now)
            self.api.update_status(WORKLOADS, workload)
            self.recorder.record(workload, COMPONENT, "EvictedDueToDeactivated", text)
            return
        delay_s = min(self.backoff_s * 2.0 ** (count - 1), self.backoff_max_s)
        at = format_time(self.api.now + delay_s)
        status["requeueState"] = {"count": count, "requeueAt": at}
        text = f"Exceeded the PodsReady timeout {key[0]}/{key[1]}"
        note(workload, EVICTED, True, TIMED_OUT, text, self.api.now)
        self.api.update_status(WORKLOADS, workload)
        self.recorder.record(workload, COMPONENT, f"EvictedDueTo{TIMED_OUT}", text)


def _is_waiting(workload: Tree) -> bool:
    """Whether a Workload is admitted and its pods are not ready."""
    if is_true(workload, EVICTED) or not is_true(workload, ADMITTED):
        return False
    return not is_true(workload, PODS_READY)
