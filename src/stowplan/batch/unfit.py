"""Why a task fits on no node, in one text."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stowplan.batch.jobs import Task
from stowplan.batch.rules import Pressures
from stowplan.batch.session import Session


def complaint(session: Session, task: Task) -> str:
    """`0/5 nodes are available: 3 Insufficient cpu, ...`; the same for tasks that ask the same.

    A node may be counted for several resources. Rules are asked only where some node has room.
    """
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
    for name, wanted in task.ask.wants:
        future = nodes.idle.get(name, n_nodes) + nodes.releasing.get(name, n_nodes)
        short = int(np.count_nonzero(future <= wanted - session.arithmetic.milli_epsilon))
        if short:
            reasons[f"Insufficient {name}"] += short
    if has_room and session.hooks.walk("predicate"):
        full = int(np.count_nonzero(nodes.pod_count >= nodes.pod_limit))
        if full:
            reasons["Too many pods"] += full
        reasons.update(session.working.rules.refusals(task, Pressures()))
    if not n_nodes:
        return "no nodes available to schedule pods"
    texts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{n_nodes} nodes are available: {', '.join(texts)}."
