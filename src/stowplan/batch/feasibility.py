"""Feasibility: whether a pending job can ever start, and what evictions would achieve.

Applied to a session whose actions have run; trial placements are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal

import numpy as np

from stowplan.batch.actions.preempt import preemptable_candidates
from stowplan.batch.actions.reclaim import reclaimable_jobs
from stowplan.batch.actions.victims import VictimSearch, running
from stowplan.batch.session import Session
from stowplan.batch.session_rules import ScoringError
from stowplan.batch.state.capability import PODS, limits_of, requested_of
from stowplan.batch.state.jobs import OCCUPYING, JobInfo, TaskInfo, TaskStatus
from stowplan.batch.state.resource_vector import format_resource
from stowplan.columns.array_types import Floats

WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED, TaskStatus.GATED)
"""Statuses of tasks that are not ready yet."""

EvictionKind = Literal["preemptable", "reclaimable"]


def unstartable_reasons(session: Session, job: JobInfo) -> tuple[str, ...]:
    """Reasons why a job cannot start on these nodes even if they were empty; empty if it might.

    Only resources and ready nodes are considered.
    """
    n_missing = job.min_available - job.ready_count
    waiting = [task for status in WAITING for task in job.of(status).values()]
    if n_missing <= 0 or not waiting:
        return ()
    sums = tuple(_sums(session, job, waiting, n_missing))
    singles = tuple(_too_large(session, waiting)) if len(waiting) <= n_missing else ()
    return sums or singles or tuple(_slots_short(session, job, waiting))


def _sums(session: Session, job: JobInfo, waiting: list[TaskInfo], n_missing: int) -> Iterator[str]:
    """Resources of which the smallest pods that complete the job need more than the cluster, or
    than the capability of its queue."""
    nodes = session.state.nodes
    total = nodes.total()
    limits = {} if session.compat.ignores_capability else limits_of(session.queues[job.queue])
    # Pods on nodes that are not ready take nothing from the other nodes.
    here = [task for task in _occupying_tasks(job) if nodes.has_ready_node(nodes.row(task.node))]
    for name in dict.fromkeys([name for task in waiting for name, _ in task.ask.wants] + [*limits]):
        least = sum(sorted(requested_of(task, name) for task in waiting)[:n_missing])
        needs = least + sum(requested_of(task, name) for task in here)
        may_have = limits.get(name)
        has = total.get(name)
        if name != PODS and needs > has:
            yield f"needs {_text(name, needs)} {name}, the cluster has {_text(name, has)}"
            continue
        needs = least + sum(requested_of(task, name) for task in _occupying_tasks(job))
        if may_have is not None and least and needs > may_have:
            most = f"the capability of queue {job.queue!r} is {_text(name, may_have)}"
            yield f"needs {_text(name, needs)} {name}, {most}"


def _too_large(session: Session, waiting: list[TaskInfo]) -> Iterator[str]:
    """Resources of which one pod requests more than any node has."""
    for name in dict.fromkeys(name for task in waiting for name, _ in task.ask.wants):
        most = max((task.ask.launching.get(name), task.key) for task in waiting)
        largest = float(_offers(session, name).max(initial=0.0))
        if most[0] > largest:
            asks, has = _text(name, most[0]), _text(name, largest)
            yield f"pod {most[1]} needs {asks} {name}, the largest node has {has}"


def _slots_short(session: Session, job: JobInfo, waiting: list[TaskInfo]) -> Iterator[str]:
    """Number of its pods that fit on empty nodes, if all have equal requests and that is too
    few."""
    wants = waiting[0].ask.wants
    n_needed = job.min_available - job.count((TaskStatus.SUCCEEDED,))
    if not wants or any(task.ask.wants != wants for task in (*waiting, *_occupying_tasks(job))):
        return
    counts = np.where(session.state.nodes.has_ready_nodes(), np.inf, 0.0)
    for name, amount in wants:
        offered = _offers(session, name) + session.arithmetic.milli_epsilon
        counts = np.minimum(counts, np.floor(offered / amount))
    n_slots = int(counts.sum())
    if n_slots < n_needed:
        yield f"{n_slots} of its pods fit on empty nodes, {n_needed} are needed"


def _occupying_tasks(job: JobInfo) -> list[TaskInfo]:
    return [task for status in OCCUPYING for task in job.of(status).values()]


def _offers(session: Session, name: str) -> Floats:
    """float64 (n_nodes,): allocatable amount of a resource on ready nodes, 0 for others."""
    nodes = session.state.nodes
    offers = nodes.idle.get(name, nodes.n_nodes) + nodes.used.get(name, nodes.n_nodes)
    return np.where(nodes.has_ready_nodes(), offers, 0.0)


def eviction_notes(session: Session, job: JobInfo) -> tuple[str, ...]:
    """What reclaim and preempt would achieve for a pending job, one line each."""
    needs = job.min_available
    if any(session.compat.on()) or session.hooks.job_pipelined(job):
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


def _text(name: str, amount: float) -> str:
    return f"{amount:.0f}" if name == PODS else format_resource(name, amount)
