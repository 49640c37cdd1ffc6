"""Pop of a pod out of turn: the members of a group are attempted together.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go PopSpecificPod.
"""

from __future__ import annotations

from stowplan.objects.pod import Pod
from stowplan.queue.pod_record import PodRecord, PodState
from stowplan.queue.scheduling_queue import SchedulingQueue


def pop_member(queue: SchedulingQueue, pod: Pod, now: int) -> PodRecord | None:
    """Pop a pod wherever it waits, without backoff; None when its gates keep it out, or it is in no
    sub-queue."""
    if pod.key not in queue.active:
        queue.activate([pod], now)
    entry = queue.active.take(pod.key)
    if entry is None:
        return None
    entry.attempts += 1
    if queue.options.hints and not queue.in_flight.start(entry.uid):
        queue.discarded.append(entry)
        return None
    queue.cycle += 1
    entry.cycle = queue.cycle
    entry.state = PodState.IN_FLIGHT
    return entry
