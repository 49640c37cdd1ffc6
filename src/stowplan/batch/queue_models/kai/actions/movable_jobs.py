"""Which jobs consolidation may move for another one, where their number is limited.

KAI-Scheduler takes the first that a map returns, so others in each search. Always the same ones
would never empty the nodes of the rest; here a search goes through the nodes with most free first,
and the next one goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_amount import CARDS, CPU
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.node_rows import Rows


def victim_jobs(
    session: KaiSession, job: KaiJob, is_victim: Callable[[KaiJob], bool]
) -> Iterator[KaiJob]:
    """Jobs with a place that may be evicted for another one."""
    for victim in session.jobs.values():
        if victim.is_preemptible and victim.uid != job.uid and victim.active and is_victim(victim):
            yield victim


def movable_jobs(session: KaiSession, job: KaiJob) -> Iterable[KaiJob]:
    """Jobs that may be moved for another one: all, or one more than `max_moved`, as in KAI; all
    that are on a node, or none of them but on the first one."""
    if session.options.max_moved < 0:
        return victim_jobs(session, job, lambda _: True)
    most, order = session.options.max_moved + 1, _most_free_first(session, job)
    first, found, n_nodes = session.budget.next_node, dict[str, KaiJob](), len(order)
    for place in range(first, first + n_nodes):
        more = _on(session, job, session.rows.nodes[order[place % n_nodes]])
        if found and len(found | more) > most:
            break
        session.budget.next_node = place + 1
        if len(more) > most:
            # Of a node with more jobs, others each time round.
            begin = place // n_nodes * most % len(more)
            more = dict([*more.items()][begin:] + [*more.items()][:begin])
        found |= more
        if len(found) >= most:
            break
    return [*found.values()][:most]


def _most_free_first(session: KaiSession, job: KaiJob) -> Rows:
    """Rows of nodes by free cards, or by free cpu for a job that needs no card; equal ones by
    name."""
    needs_cards = any(task.needs_card for task in job.next_tasks(False))
    return np.argsort(-session.rows.later[CARDS if needs_cards else CPU], kind="stable")


def _on(session: KaiSession, job: KaiJob, node: KaiNode) -> dict[str, KaiJob]:
    """Jobs with pods on a node that may be moved, by uid."""
    found = {}
    for task in node.tasks.values():
        other = session.jobs.get(task.job)
        if other is not None and other.is_preemptible and other.uid != job.uid and other.active:
            found[other.uid] = other
    return found
