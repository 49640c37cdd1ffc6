"""Fit errors: why a task fits on no node, as one message; and whether it fits on some node."""

from __future__ import annotations

from collections import Counter

import numpy as np

from stowplan.batch.session import Session
from stowplan.batch.session_rules import PressureChecks, ScoringError
from stowplan.batch.state.jobs import TaskInfo

NODES_NOT_READY = "node(s) were not ready"


def fit_errors(session: Session, task: TaskInfo) -> str:
    """`0/5 nodes are available: 3 Insufficient cpu, ...`; equal for tasks with equal requests.

    A node may be counted for several resources. Rules are evaluated only if some node has the
    resources. If the queue has reached its capability, the message says so instead.
    """
    refusal = session.state.capabilities.refusal(task)
    if refusal:
        return refusal
    nodes = session.state.nodes
    has_room = nodes.fits_future(task)
    key = (nodes.wants(task), task.kind if has_room.any() else None)
    found = session.fit_error_texts.get(key)
    if found is None:
        found = session.fit_error_texts[key] = _text(session, task, has_room=bool(has_room.any()))
    return found


def _text(session: Session, task: TaskInfo, *, has_room: bool) -> str:
    nodes = session.state.nodes
    reasons: Counter[str] = Counter()
    if nodes.n_unready:
        reasons[NODES_NOT_READY] = nodes.n_unready
    has_amounts = nodes.has_ready_nodes()
    for name, requested in nodes.least(task):
        is_short = nodes.future(name) < requested
        short = int(np.count_nonzero(is_short & nodes.has_ready_nodes()))
        has_amounts &= ~is_short
        if short:
            reasons[f"Insufficient {name}"] += short
    reasons.update(nodes.cards.refusals(task, np.flatnonzero(has_amounts)))
    if has_room and session.hooks.walk("predicate"):
        full = int(np.count_nonzero(nodes.pod_count >= nodes.pod_limit))
        if full:
            reasons["Too many pods"] += full
        reasons.update(session.state.rules.refusals(task, PressureChecks()))
    if not nodes.n_nodes:
        return "no nodes available to schedule pods"
    texts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes.n_nodes} nodes are available: {', '.join(texts)}."


def fits_somewhere(session: Session, task: TaskInfo) -> bool:
    """True if some node fits the task now and its queue's capability allows it."""
    if not session.state.capabilities.allows(task):
        return False
    nodes = session.state.nodes
    rows = np.flatnonzero(nodes.fits_idle(task))
    try:
        return bool(rows.shape[0] and session.hooks.passing(task, rows).any())
    except ScoringError:
        return False
