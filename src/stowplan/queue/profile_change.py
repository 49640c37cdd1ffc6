"""Other profiles for a queue with pods: its sort key, gates, hints and backoff durations change.

Pods keep their time of arrival, their failures and their backoff. A gate that is new may close
before pods that were in the queue already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stowplan.framework.clusterevents import CONFIGURATION_CHANGE
from stowplan.framework.runtime.framework import Framework
from stowplan.objects.pod import Pod
from stowplan.queue.options import QueueOptions
from stowplan.queue.pre_enqueue import PreEnqueueGates
from stowplan.queue.queue_sort import by_arrival, queue_sort_key
from stowplan.queue.queueing_hints import QueueingHintMap
from stowplan.queue.scheduling_queue import SchedulingQueue


def use_profiles(
    queue: SchedulingQueue,
    frameworks: Mapping[str, Framework],
    options: QueueOptions,
    others: Iterable[str] = (),
) -> None:
    """Replace what the queue has of the profiles; its pods stay where they are.

    options: only durations may differ. others: names of rejecters that are not plugins.
    """
    if queue.unschedulable_index is not None:
        queue.unschedulable_index.settle()
    hints, gates = QueueingHintMap.of(frameworks, others), PreEnqueueGates.of(frameworks)
    hints.faults += queue.hints.faults
    gates.faults += queue.gates.faults
    queue.hints = hints if options.hints else hints.always()
    queue.gates = gates
    queue.unschedulable_pods.open_all()
    gates.preempting.on_discard = queue.unschedulable_pods.victims_gone
    queue.options = options
    rank = by_arrival if options.by_arrival else queue_sort_key(next(iter(frameworks.values())))
    queue.active.use_rank(rank)
    queue.backoff.use(options, rank)


def retry_all(queue: SchedulingQueue, changed: Collection[str], now: int) -> None:
    """Ask the gates again for the pods of some scheduler names, and requeue those that were
    unschedulable, as an event does that concerns them all: their backoff is kept."""

    def is_concerned(pod: Pod) -> bool:
        return pod.spec.scheduler_name in changed

    waiting = [*queue.active.in_order(), *queue.backoff]
    gated = [entry for entry in queue.unschedulable_pods if entry.gated_by]
    queue.move(CONFIGURATION_CHANGE, None, None, now, is_concerned)
    for entry in gated:
        if is_concerned(entry.pod):
            queue.try_again(entry, now)
    for entry in waiting:
        if is_concerned(entry.pod):
            queue.gate(entry)
