"""QueueStatuses: `status.allocated` of queues, as a session leaves them.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session.go (updateQueueStatus),
pkg/scheduler/util/scheduler_helper.go (ConvertRes2ResList).
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.queue_books import QueueBooks, sums_by_queue
from stowplan.batch.queue_models.volcano.volcano_amount import PODS, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.framework.deciders.session_decider import QueueStatusReport
from stowplan.objects.podgroup import VOLCANO_API_VERSION
from stowplan.objects.quantity import format_quantity


class QueueStatuses:
    """Keeps sums of jobs that have not changed."""

    def __init__(self) -> None:
        self._books: QueueBooks = {}

    def changed(self, session: VolcanoSession) -> list[QueueStatusReport]:
        """The queues whose status says something else than their jobs, and those of the queues
        below them, have. Queues without an object, such as a `root` that was not made, have no
        status."""
        found = []
        sums = self._with_ancestors(session)
        for name, queue in session.queues.items():
            meta, version = queue.queue.metadata, queue.queue.api_version
            if not meta.uid or version != VOLCANO_API_VERSION:
                continue
            reported, amount = queue.queue.status.allocated, sums.get(name, VolcanoAmount())
            if reported and dict(VolcanoAmount.of(reported).items()) == dict(amount.items()):
                continue
            texts = quantities(amount)
            removed = tuple(one for one in reported if one not in texts)
            found.append(QueueStatusReport(meta.uid, name, version, texts, removed))
        return found

    def _with_ancestors(self, session: VolcanoSession) -> dict[str, VolcanoAmount]:
        sums: dict[str, VolcanoAmount] = {}
        for name, book in sums_by_queue(session.jobs.values(), self._books).items():
            seen: set[str] = set()
            while name in session.queues and name not in seen:
                seen.add(name)
                sums.setdefault(name, VolcanoAmount()).add(book.allocated)
                parent = session.queues[name].queue.spec.parent or ROOT
                name = "" if name == ROOT else parent
        return sums


def quantities(amount: VolcanoAmount) -> dict[str, str]:
    """An amount as a resource list."""
    found = {}
    for name, n in amount.items():
        whole = round(n)
        if name in ("cpu", "memory", PODS):
            found[name] = format_quantity(name, whole)
        elif whole % 1000:
            found[name] = f"{whole}m"
        else:
            found[name] = format_quantity(name, whole // 1000)
    return found
