"""Feasibility: what evictions would achieve for a pending job.

Applied to a session whose actions have run; trial placements are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

from stowplan.batch.actions.preempt import preemptable_candidates
from stowplan.batch.actions.reclaim import reclaimable_jobs
from stowplan.batch.actions.victims import VictimSearch, running
from stowplan.batch.session import Session
from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.framework.deciders.tasks import TaskStatus

EvictionKind = Literal["preemptable", "reclaimable"]


def eviction_notes(session: Session, job: JobInfo) -> tuple[str, ...]:
    """What reclaim and preempt would achieve for a pending job, one line each."""
    needs = job.min_available
    if session.hooks.job_pipelined(job) or not job.of(TaskStatus.PENDING):
        return ()
    configured = {action.name for action in session.options.actions}
    search = VictimSearch(session)
    notes = []
    for name, others, n_room in (
        ("reclaim", "other queues", partial(_room_by_reclaim, session, search, job)),
        ("preempt", "lower priority in its queue", partial(_room_by_preempt, session, search, job)),
    ):
        has_candidates, n_with_room = n_room()
        is_overused = name == "reclaim" and session.hooks.overused(session.queues[job.queue])
        if n_with_room >= needs and name not in configured:
            notes.append(f"{name} could free resources for it, but is not a configured action")
        elif name not in configured:
            continue
        elif is_overused:
            why = session.hooks.why_overused(session.queues[job.queue])
            notes.append(f"reclaim does not help: {why}")
        elif not has_candidates:
            notes.append(f"{name} does not help: no pod of {others} may be evicted for it")
        elif n_with_room < needs:
            notes.append(f"{name} does not help: it frees {n_with_room} of {needs} slots")
    return tuple(notes)


def _room_by_reclaim(session: Session, search: VictimSearch, job: JobInfo) -> tuple[bool, int]:
    def candidates(_: TaskInfo) -> Iterable[TaskInfo]:
        return running(reclaimable_jobs(session, search, job.queue))

    return _room_by(session, search, job, "reclaimable", candidates)


def _room_by_preempt(session: Session, search: VictimSearch, job: JobInfo) -> tuple[bool, int]:
    return _room_by(
        session,
        search,
        job,
        "preemptable",
        lambda task: preemptable_candidates(session, search, job, task),
    )


def _room_by(
    session: Session,
    search: VictimSearch,
    job: JobInfo,
    kind: EvictionKind,
    candidates: Callable[[TaskInfo], Iterable[TaskInfo]],
) -> tuple[bool, int]:
    """Whether there are candidates, and how many of the job's pods would fit without the pods that
    session plugins would release."""
    statement = session.statement()
    victims = partial(session.hooks.victims, kind)
    has_candidates, n_with_room = False, job.ready_count + len(job.of(TaskStatus.PIPELINED))
    turns = session.hooks.job_turns(job)
    while turns and n_with_room < job.min_available:
        task = turns.pop()
        key = (kind, job.uid, task.priority)
        found = search.candidates(key, partial(candidates, task))
        has_candidates |= bool(found.by_row)
        try:
            is_placed = search.place(statement, task, found, key, victims, "")
        except ScoringError:
            is_placed = False
        if not is_placed:
            row = session.best_nodes.best(task)
            if row < 0:
                continue
            statement.allocate(task, row)
        n_with_room += 1
    statement.rollback()
    return has_candidates, n_with_room
