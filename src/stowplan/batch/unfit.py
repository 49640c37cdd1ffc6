"""Why a task fits on no node, in one text; and whether it does fit on one."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stowplan.batch.jobs import Task
from stowplan.batch.rules import Pressures, Unanswerable
from stowplan.batch.session import Session

UNREADY = "node(s) were not ready"


def complaint(session: Session, task: Task) -> str:
    """`0/5 nodes are available: 3 Insufficient cpu, ...`; the same for tasks that ask the same.

    A node may be counted for several resources. Rules are asked only where some node has room.
    Of a queue that has reached its capability that is said instead.
    """
    refusal = session.working.capabilities.refusal(task)
    if refusal:
        return refusal
    nodes = session.working.nodes
    has_room = nodes.fits_future(task)
    key = (task.ask.wants, task.kind if has_room.any() else None)
    found = session.complaints.get(key)
    if found is None:
        found = session.complaints[key] = _text(session, task, has_room=bool(has_room.any()))
    return found


def _text(session: Session, task: Task, *, has_room: bool) -> str:
    nodes = session.working.nodes
    n_nodes = nodes.n_nodes
    reasons: Counter[str] = Counter()
    if nodes.n_unready:
        reasons[UNREADY] = nodes.n_unready
    for name, wanted in task.ask.wants:
        future = nodes.idle.get(name, n_nodes) + nodes.releasing.get(name, n_nodes)
        is_short = future <= wanted - session.arithmetic.milli_epsilon
        short = int(np.count_nonzero(is_short & nodes.there()))
        if short:
            reasons[f"Insufficient {name}"] += short
    if has_room and session.hooks.walk("predicate"):
        full = int(np.count_nonzero(nodes.pod_count >= nodes.pod_limit))
        if full:
            reasons["Too many pods"] += full
        reasons.update(session.working.rules.refusals(task, Pressures()))
    n_known = sum(node is not None for node in nodes.nodes)
    if not n_known:
        return "no nodes available to schedule pods"
    texts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{n_known} nodes are available: {', '.join(texts)}."


def finds_room(session: Session, task: Task) -> bool:
    """True when a node would do for a task as things are, and its queue may have it."""
    if not session.working.capabilities.allows(task):
        return False
    nodes = session.working.nodes
    rows = np.flatnonzero(nodes.fits_idle(task))
    try:
        return bool(rows.shape[0] and session.hooks.passing(task, rows).any())
    except Unanswerable:
        return False
