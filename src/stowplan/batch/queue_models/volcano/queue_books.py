"""QueueBooks: what the jobs of each queue have together, summed anew where a job has changed."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_session_job import JobAmounts, VolcanoSessionJob


class QueueBook:
    """Sums of the jobs of a queue; read-only. entries: what was summed, in order."""

    __slots__ = ("allocated", "elastic", "entries", "inqueue", "request")

    def __init__(self, entries: list[JobAmounts]) -> None:
        self.entries = entries
        self.allocated, self.request = VolcanoAmount(), VolcanoAmount()
        self.inqueue, self.elastic = VolcanoAmount(), VolcanoAmount()
        for one in entries:
            self.allocated.add(one.allocated)
            self.request.add(one.allocated).add(one.pending)
            if one.reserved is not None:
                self.inqueue.add(one.reserved)
            self.elastic.add(one.elastic)


QueueBooks = dict[str, QueueBook]


def sums_by_queue(jobs: Iterable[VolcanoSessionJob], books: QueueBooks) -> QueueBooks:
    """Queue -> sums of its jobs, for the queues that have one. books: of the session before, which
    are brought up to date."""
    entries: dict[str, list[JobAmounts]] = {}
    for job in jobs:
        of_queue = entries.get(job.queue)
        if of_queue is None:
            of_queue = entries[job.queue] = []
        of_queue.append(job.amounts)
    found: QueueBooks = {}
    for name, of_queue in entries.items():
        book = books.get(name)
        # A job whose tasks, phase or group changed has another object.
        found[name] = QueueBook(of_queue) if book is None or book.entries != of_queue else book
    books.clear()
    books.update(found)
    return found
