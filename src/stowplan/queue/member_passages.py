"""Members of groups enter the queue together where they come together, and are popped together.

Source: kube-scheduler v1.36, backend/queue/scheduling_queue.go PopSpecificPod.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.framework.clusterevents import UNSCHEDULABLE_POD_ADD
from stowplan.objects.pod import Pod
from stowplan.queue.heap import HeapItem
from stowplan.queue.pod_record import PodRecord, PodState, SubQueue
from stowplan.queue.scheduling_queue import SchedulingQueue

_ACTIVE, _GATED, _IN_FLIGHT = PodState.ACTIVE, PodState.GATED, PodState.IN_FLIGHT


def enter_gated(queue: SchedulingQueue, entries: Sequence[PodRecord], gate: str) -> None:
    """Add new members that the gate of their group keeps out."""
    refusers = frozenset((gate,))
    for entry in entries:
        entry.gated_by, entry.refused_by, entry.state = gate, refusers, _GATED
    queue.unschedulable_pods.put_all(entries)
    queue.count_new(SubQueue.UNSCHEDULABLE, len(entries))


def enter_opening(
    queue: SchedulingQueue, entries: Sequence[PodRecord], gate: str, n_gated: int, now: int
) -> None:
    """Add new members of a group that is complete with one of them: the gate keeps out so many
    before it, which follow it into the active queue at once, as do those that waited before."""
    gated, complete = entries[:n_gated], entries[n_gated:]
    refusers = frozenset((gate,))
    for entry in entries:
        entry.initial_attempt, entry.state = now, _ACTIVE
    for number, entry in enumerate(complete):
        queue.active.put(entry)
        queue.count_new(SubQueue.ACTIVE, 1)
        queue.move(UNSCHEDULABLE_POD_ADD, None, entry.pod, now)
        if number == 0 and gated:
            for one in gated:
                one.refused_by = refusers
            queue.unschedulable_pods.note_since(now)
            queue.active.put_all(gated)
            queue.count_new(SubQueue.UNSCHEDULABLE, n_gated)
            queue.count_new(SubQueue.ACTIVE, n_gated)


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


def pop_active(queue: SchedulingQueue, entries: Sequence[PodRecord]) -> list[HeapItem]:
    """Pop entries of the active queue, none of which is in flight; returns what undoes it."""
    items = queue.active.take_items(entries)
    if queue.options.hints:
        queue.in_flight.start_all([one.pod.metadata.uid or one.key for one in entries])
    cycle = queue.cycle
    for entry in entries:
        cycle += 1
        entry.attempts += 1
        entry.cycle, entry.state = cycle, _IN_FLIGHT
    queue.cycle = cycle
    return items


def undo_pop_active(queue: SchedulingQueue, items: Sequence[HeapItem]) -> None:
    """Undo the latest `pop_active` calls, for entries that were not attempted: each of them is
    where it was. items: in pop order."""
    for item in items:
        entry = item[2]
        entry.attempts -= 1
        if queue.options.hints:
            queue.in_flight.done(entry.uid)
        entry.state = _ACTIVE
        queue.active.restore(item)
    queue.cycle -= len(items)
    queue.move_request_cycle = min(queue.move_request_cycle, queue.cycle)
