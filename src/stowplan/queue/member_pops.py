"""Pops out of turn: the members of a group are attempted together.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go PopSpecificPod.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.objects.pod import Pod
from stowplan.queue.pod_record import PodRecord, PodState
from stowplan.queue.scheduling_queue import SchedulingQueue

_IN_FLIGHT = PodState.IN_FLIGHT


def pop_members(queue: SchedulingQueue, pods: Iterable[Pod], now: int) -> list[PodRecord]:
    """Pop pods wherever they wait, without backoff; their records, without those of pods that their
    gates keep out, or that are in no sub-queue."""
    active, start, uses_hints = queue.active, queue.in_flight.start, queue.options.hints
    popped: list[PodRecord] = []
    for pod in pods:
        key = pod.key
        if key not in active.live:
            queue.activate([pod], now)
        entry = active.take(key)
        if entry is None:
            continue
        entry.attempts += 1
        if uses_hints and not start(entry.pod.metadata.uid or key):
            queue.discarded.append(entry)
            continue
        queue.cycle += 1
        entry.cycle = queue.cycle
        entry.state = _IN_FLIGHT
        popped.append(entry)
    return popped
