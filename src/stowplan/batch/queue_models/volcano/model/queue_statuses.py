"""QueueStatuses: `status.allocated` of queues, as a session leaves them.

Source: volcano master of 2026-08-20, pkg/scheduler/framework/session.go (updateQueueStatus),
pkg/scheduler/util/scheduler_helper.go (ConvertRes2ResList).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stowplan.batch.queue_models.volcano.volcano_amount import PODS, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.framework.deciders.session_decider import QueueStatusReport
from stowplan.objects.podgroup import VOLCANO_API_VERSION
from stowplan.objects.quantity import Quantity, format_quantity


class _CountedJob(NamedTuple):
    job: VolcanoSessionJob
    version: int
    amount: VolcanoAmount


class QueueStatuses:
    """Keeps sums by queue, at the cost of the jobs that change."""

    def __init__(self) -> None:
        self._sums: dict[str, VolcanoAmount] = {}
        self._counted: dict[str, _CountedJob] = {}
        # Queue -> the status that was read last, and its amounts.
        self._read: dict[str, tuple[Mapping[str, Quantity], dict[str, float]]] = {}

    def changed(self, session: VolcanoSession) -> list[QueueStatusReport]:
        """The queues whose status states something else than their jobs, and those of the queues
        below them, have. Queues without an object, such as a `root` that was not made, have no
        status."""
        self._follow(session.jobs)
        found = []
        sums = self._with_ancestors(session)
        for name, queue in session.queues.items():
            meta, version = queue.queue.metadata, queue.queue.api_version
            if not meta.uid or version != VOLCANO_API_VERSION:
                continue
            amounts = _present(sums.get(name, VolcanoAmount()))
            stated = queue.queue.status.allocated
            if stated and self._amounts_of(name, stated) == amounts:
                continue
            texts = {resource: _quantity(resource, n) for resource, n in amounts.items()}
            removed = tuple(one for one in stated if one not in texts)
            found.append(QueueStatusReport(meta.uid, name, version, texts, removed))
        return found

    def _follow(self, jobs: Mapping[str, VolcanoSessionJob]) -> None:
        counted = self._counted
        for uid, job in jobs.items():
            before = counted.get(uid)
            if before is not None:
                if before.job is job and before.version == job.version:
                    continue
                self._sums[before.job.queue].subtract(before.amount)
            amount = job.allocated.copy()
            self._sums.setdefault(job.queue, VolcanoAmount()).add(amount)
            counted[uid] = _CountedJob(job, job.version, amount)
        if len(counted) > len(jobs):
            for uid in counted.keys() - jobs.keys():
                gone = counted.pop(uid)
                self._sums[gone.job.queue].subtract(gone.amount)

    def _amounts_of(self, name: str, stated: Mapping[str, Quantity]) -> dict[str, float]:
        kept = self._read.get(name)
        if kept is None or kept[0] is not stated:
            kept = self._read[name] = stated, dict(VolcanoAmount.of(stated).items())
        return kept[1]

    def _with_ancestors(self, session: VolcanoSession) -> dict[str, VolcanoAmount]:
        sums: dict[str, VolcanoAmount] = {}
        for queue, amount in self._sums.items():
            name, seen = queue, set[str]()
            while name in session.queues and name not in seen:
                seen.add(name)
                sums.setdefault(name, VolcanoAmount()).add(amount)
                parent = session.queues[name].queue.spec.parent or ROOT
                name = "" if name == ROOT else parent
        return sums


def _present(amount: VolcanoAmount) -> dict[str, float]:
    """cpu, memory and the scalars of which there is some."""
    return {name: n for name, n in amount.items() if n or name in ("cpu", "memory")}


def _quantity(resource: str, n: float) -> str:
    """An amount as a quantity."""
    whole = round(n)
    if resource in ("cpu", "memory", PODS):
        return format_quantity(resource, whole)
    return f"{whole}m" if whole % 1000 else format_quantity(resource, whole // 1000)
