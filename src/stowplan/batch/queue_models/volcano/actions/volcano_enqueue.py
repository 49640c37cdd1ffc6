"""enqueue: admit pending jobs for which there is room.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/enqueue/enqueue.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import INQUEUE_PHASE, VolcanoSessionJob
from stowplan.framework.deciders.heap import Heap


def enqueue(session: VolcanoSession) -> None:
    """Run the action."""
    queues: Heap[VolcanoQueue] = Heap(session.queue_before)
    seen: set[str] = set()
    pending: dict[str, list[VolcanoSessionJob]] = {}
    for job in session.jobs.values():
        if job.queue not in session.queues:
            continue
        if job.queue not in seen:
            seen.add(job.queue)
            queues.push(session.queues[job.queue])
        if job.is_pending:
            pending.setdefault(job.queue, []).append(job)
    waiting = {name: session.job_heap(jobs) for name, jobs in pending.items()}
    while queues:
        queue = queues.pop()
        heap = waiting.get(queue.name)
        if not heap:
            continue
        job = heap.pop()
        if not job.states_min_resources or session.hooks.vote("job_enqueueable", job):
            for call in session.hooks.all("job_enqueued"):
                call(job)
            job.phase = INQUEUE_PHASE
        queues.push(queue)
