"""The second pass: workloads that hold quota and need places in a topology.

Either the places were delayed until a ProvisioningRequest made the nodes, or a node of an admitted
workload has failed. They are heads beside those of the queues, and use no quota of their own.

Source: Kueue, pkg/workload/workload.go, pkg/cache/queue/second_pass_queue.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    FINISHED,
    AdmissionWorkload,
)

BACKOFF_S, BACKOFF_FACTOR, BACKOFF_MAX_S = 1.0, 2.0, 30.0


def needs_second_pass(workload: AdmissionWorkload) -> bool:
    """Whether a workload holds quota without the places that it should have."""
    if workload.is_condition(FINISHED) or workload.is_evicted or not workload.holds_quota:
        return False
    return workload.has_failed_places or _has_delayed_places(workload)


def _has_delayed_places(workload: AdmissionWorkload) -> bool:
    return (
        bool(workload.checks)
        and all(state == "Ready" for state in workload.checks.values())
        and any(one.delayed == "Pending" and one.places is None for one in workload.demands)
        and not workload.is_condition(ADMITTED)
    )


class SecondPassQueue:
    """Workloads by key, with the number of attempts and the time (s) of the next one."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, float]] = {}

    def add(self, workload: AdmissionWorkload, now: float) -> None:
        """Try a workload in the next cycle, if it needs it."""
        if needs_second_pass(workload):
            self._waiting[workload.key] = (0, now)

    def retry(self, workload: AdmissionWorkload, now: float) -> None:
        """Try a workload again after a backoff."""
        attempts = self._waiting.get(workload.key, (0, now))[0] + 1
        delay = min(BACKOFF_S * BACKOFF_FACTOR ** (attempts - 1), BACKOFF_MAX_S)
        self._waiting[workload.key] = (attempts, now + delay)

    def forget(self, key: str) -> None:
        """A workload has its places, or no longer holds quota."""
        self._waiting.pop(key, None)

    def next_at(self) -> float | None:
        """When the first of them may be tried again; None for none."""
        return min((at for _, at in self._waiting.values()), default=None)

    def ready(self, now: float) -> list[str]:
        """Keys of the workloads whose time has come."""
        return [key for key, (_, at) in self._waiting.items() if at <= now]
