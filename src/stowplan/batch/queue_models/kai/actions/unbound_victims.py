"""Pods that get a place in a session and lose it to another job before they are bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stowplan.batch.queue_models.kai.actions.kai_actions import start
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask

PendingAs = Callable[[KaiTask], KaiTask | None]


def place_instead(
    session: KaiSession, pending_as: PendingAs, last_evictions: Mapping[str, float]
) -> None:
    """Let the jobs for which such pods were evicted have their places at once: nothing has to
    terminate for them. pending_as: a pod as it was read, None if it had a node then.
    last_evictions: by job, in seconds, before the session.

    Differs: KAI binds these pods and deletes them. To do neither and let the others wait, the next
    session would decide the same again, for ever.
    """
    notes = session.eviction_notes
    if not notes:
        return
    evicted = [
        task
        for job in session.jobs.values()
        if job.was_touched
        for task in job.tasks()
        if task.key in notes
    ]
    victims = [task for task in evicted if pending_as(task) is not None]
    if not victims:
        return
    gaining = dict.fromkeys(notes[task.key].job for task in victims)
    moved = dict.fromkeys(task.job for task in victims if task.status == KaiStatus.PIPELINED)
    # Jobs that lose other pods, which run, were evicted all the same.
    bound = {task.job for task in evicted if pending_as(task) is None}
    for task in [*victims, *_waiting(session, gaining)]:
        _make_pending(session, task, pending_as(task))
    for task in victims:
        if task.job not in bound:
            session.jobs[task.job].last_eviction = last_evictions.get(task.job)
    nodes = [*session.nodes.values()]
    for uid in dict.fromkeys((*gaining, *moved)):
        if uid in session.jobs:
            start(session, session.jobs[uid], nodes)


def _waiting(session: KaiSession, jobs: Iterable[str]) -> list[KaiTask]:
    return [
        task
        for uid in jobs
        if uid in session.jobs
        for task in session.jobs[uid].tasks()
        if task.status == KaiStatus.PIPELINED and task.key not in session.eviction_notes
    ]


def _make_pending(session: KaiSession, task: KaiTask, read: KaiTask | None) -> None:
    """Take a pod from the node that it was to get. read: as it was then."""
    if read is None or not task.node:
        return
    is_placed = task.status == KaiStatus.PIPELINED
    # One that was to move is on two nodes.
    for node in session.nodes.values():
        node.remove(task)
    session.jobs[task.job].update(task, KaiStatus.PENDING)
    if is_placed:
        session.on_placed(task, -1)
    task.node, task.is_virtual = "", False
    task.groups, task.numa, task.devices = read.groups, read.numa, read.devices
    session.binds.pop(task.key, None)
    if session.eviction_notes.pop(task.key, None) is not None:
        session.evicts.remove(task.key)
