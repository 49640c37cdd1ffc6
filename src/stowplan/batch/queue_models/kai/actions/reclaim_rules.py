"""Which queues may take resources from which, by KAI-Scheduler's strategies: from a queue above
what it may use, or above its quota for one that stays within its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from stowplan.batch.queue_models.kai.actions.victim_scenario import JobVictims, VictimScenario
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_amount import Amount, plus
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_queue import (
    RANGE,
    KaiQueue,
    Shares,
    all_within,
)
from stowplan.batch.queue_models.kai.state.kai_task import ACTIVE_STATUSES, KaiTask


def may_reclaim(session: KaiSession, job: KaiJob) -> bool:
    """Whether a job's queue stays within its fair share with it, and within its quota with those
    that are not preemptible."""
    queue = session.queues.queues[job.queue]
    wanted = session.wanted(job)
    if not all_within([queue.allocated[i] + wanted[i] for i in RANGE], queue.fair):
        return False
    if job.is_preemptible:
        return True
    return all_within([queue.fixed[i] + wanted[i] for i in RANGE], queue.quota)


class MayReclaim:
    """Answers of `may_reclaim`, kept while queues use the same."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self._version = -1
        self._known: dict[tuple[str, bool, Shares], bool] = {}

    def __call__(self, job: KaiJob) -> bool:
        """Whether a job may reclaim."""
        session = self._session
        if session.queues.version != self._version:
            self._version = session.queues.version
            self._known.clear()
        key = job.queue, job.is_preemptible, session.wanted(job)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = may_reclaim(session, job)
        return known


def may_be_reclaimed(
    session: KaiSession, job: KaiJob, victims: str, known: dict[str, bool]
) -> bool:
    """Whether some strategy may take resources from a queue for a job. known: answers for it."""
    if victims not in known:
        known[victims] = _may_be_reclaimed(session, job, victims)
    return known[victims]


def _may_be_reclaimed(session: KaiSession, job: KaiJob, victims: str) -> bool:
    if victims not in session.queues.queues:
        return True
    mine, other = _below_common(session, session.queues.queues, job.queue, victims)
    wanted = session.wanted(job)
    if not mine.fits_quota(wanted):
        return not all_within(other.allocated, other.allocatable)
    is_below = False
    for i in RANGE:
        if wanted[i] <= 0 or other.quota[i] == UNLIMITED:
            continue
        if other.allocated[i] > other.quota[i]:
            return True
        is_below |= other.allocated[i] < other.quota[i]
    return not is_below


def _below_common(
    session: KaiSession, queues: Mapping[str, KaiQueue], name: str, other: str
) -> tuple[KaiQueue, KaiQueue]:
    """The queues of two jobs just below their lowest common one."""
    pairs = list(zip(session.queues.path(name), session.queues.path(other), strict=False))
    mine, theirs = next((pair for pair in pairs if pair[0].name != pair[1].name), pairs[-1])
    return queues[mine.name], queues[theirs.name]


class ReclaimCheck:
    """Checks of scenarios against the amounts of queues when the search for a job began. queues:
    as they were then."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self.queues = session.queues.snapshot()

    def is_valid(self, scenario: VictimScenario) -> bool:
        """Whether what the victims of a scenario lose may be taken for its job."""
        index = scenario.job.index
        lost: dict[str, list[Shares]] = {}
        for victims in scenario.victims().values():
            if parts := [index.shares(part) for part in _lost_parts(victims)]:
                lost.setdefault(victims.job.queue, []).extend(parts)
        left: dict[str, list[float]] = {}
        involved: dict[str, set[int]] = {}
        wanted = self._session.wanted(scenario.job)
        for name, parts in lost.items():
            if not self._take(scenario.job, wanted, name, parts, left, involved):
                return False
        return self._stays_balanced(scenario.job, wanted, left, involved)

    def _take(
        self,
        job: KaiJob,
        wanted: Shares,
        name: str,
        parts: Sequence[Shares],
        left: dict[str, list[float]],
        involved: dict[str, set[int]],
    ) -> bool:
        mine, other = _below_common(self._session, self.queues, job.queue, name)
        involved[name] = {i for part in parts for i in RANGE if part[i] > 0}
        rest = left.setdefault(other.name, list(other.allocated))
        for part in parts:
            is_above_share = not all_within(rest, other.allocatable)
            is_above_quota = mine.fits_quota(wanted) and not all_within(rest, other.quota)
            if not is_above_share and not is_above_quota:
                return False
            for queue in self._session.queues.up(name):
                amounts = left.setdefault(queue.name, list(self.queues[queue.name].allocated))
                for i in RANGE:
                    amounts[i] -= part[i]
                involved.setdefault(queue.name, set()).update(involved[name])
        return True

    def _stays_balanced(
        self,
        job: KaiJob,
        wanted: Shares,
        left: dict[str, list[float]],
        involved: dict[str, set[int]],
    ) -> bool:
        """Whether no queue of the job goes above its fair share further than a sibling that lost
        something, nor what is not preemptible above a quota."""
        asked = {i for i in RANGE if wanted[i] > 0}
        for above in self._session.queues.up(job.queue):
            queue = self.queues[above.name]
            uses = left.get(queue.name)
            if uses is None:
                uses = list(queue.allocated)
            for i in RANGE:
                uses[i] += wanted[i]
            for name, rest in left.items():
                sibling = self.queues[name]
                if sibling.parent != queue.parent or name == queue.name:
                    continue
                resources = involved.get(name, set()) | asked
                if any(self._passes_by(i, uses, queue, rest, sibling) for i in resources):
                    return False
            fixed = [queue.fixed[i] + wanted[i] for i in RANGE]
            if not job.is_preemptible and not all_within(fixed, queue.quota):
                return False
        return True

    def _passes_by(
        self,
        i: int,
        uses: Sequence[float],
        queue: KaiQueue,
        rest: Sequence[float],
        sibling: KaiQueue,
    ) -> bool:
        if queue.fair[i] == UNLIMITED and sibling.fair[i] == UNLIMITED:
            return False
        ratio, other = _ratio(uses[i], queue.fair[i]), _ratio(rest[i], sibling.fair[i])
        return (
            ratio > 1 and sibling.fair[i] > 0 and ratio * self._session.options.saturation >= other
        )


def _ratio(uses: float, fair: float) -> float:
    if fair == 0:
        return math.inf if uses > 0 else 0.0
    return 0.0 if fair == UNLIMITED else uses / fair


def _lost_parts(victims: JobVictims) -> list[Amount]:
    """What a job loses, without pods that are only moved: each pod above the minimum by itself,
    the rest together."""
    by_set: dict[str, list[KaiTask]] = {}
    for task in victims.tasks:
        by_set.setdefault(task.sub_group, []).append(task)
    core: list[KaiTask] = []
    extra: list[KaiTask] = []
    for name, tasks in by_set.items():
        minimum = victims.job.sets[name].minimum
        core += tasks[:minimum]
        extra += tasks[minimum:]
    parts = [_accepted([task]) for task in extra] + [_accepted(core)]
    return [part for part in parts if part is not None]


def _accepted(tasks: Sequence[KaiTask]) -> Amount | None:
    total: Amount | None = None
    for task in tasks:
        if not task.status & ACTIVE_STATUSES:
            total = list(task.accepted) if total is None else plus(total, task.accepted)
    return total
