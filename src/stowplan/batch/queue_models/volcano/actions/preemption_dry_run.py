"""Preemption by dry run: on several nodes victims are removed, and added back where possible.

Source: volcano master of 2026-08-20, pkg/scheduler/actions/preempt/preempt.go
(enableTopologyAwarePreemption).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.batch.queue_models.volcano.actions.volcano_reclaim import suffices
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import Arguments, integer
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask, seconds

_OFFSET = 2**31

Found = tuple[VolcanoNode, list[VolcanoTask]]


def find_dry_run_victims(
    session: VolcanoSession,
    task: VolcanoTask,
    nodes: Sequence[VolcanoNode],
    may_evict: Callable[[VolcanoTask], bool],
    arguments: Arguments,
) -> Found | None:
    """The node and its victims that cost least; None if no node can be made to fit.

    Differs: the original begins at a random node; here it is the first one.
    """
    least = integer(arguments, "minCandidateNodesAbsolute", 1)
    most = integer(arguments, "maxCandidateNodesAbsolute", 100)
    percentage = integer(arguments, "minCandidateNodesPercentage", 10)
    enough = min(max(len(nodes) * percentage // 100, least), most, len(nodes))
    found: list[Found] = []
    for node in nodes:
        victims = _victims_on(session, task, node, may_evict)
        if victims:
            found.append((node, victims))
        if len(found) >= enough:
            break
    return max(found, key=lambda one: _preference(one[1], session.cluster.now), default=None)


def _preference(victims: list[VolcanoTask], now: float) -> tuple[float, ...]:
    """Better is higher: a low highest priority, a low sum of them, few victims, a late start."""
    priorities = [victim.pod.priority for victim in victims]
    starts = {
        victim.uid: seconds(victim.pod.status.start_time) if victim.pod.status.start_time else now
        for victim in victims
    }
    highest = max(priorities)
    earliest = min(starts[v.uid] for v in victims if v.pod.priority == highest)
    total = sum(priority + _OFFSET for priority in priorities)
    return (-priorities[0], -total, -len(victims), earliest)


def _victims_on(
    session: VolcanoSession,
    task: VolcanoTask,
    node: VolcanoNode,
    may_evict: Callable[[VolcanoTask], bool],
) -> list[VolcanoTask]:
    """Victims without which a task fits a node; [] if it does not, or needs none."""
    queue = session.queues[session.jobs[task.job].queue]
    candidates = [other for other in node.tasks.values() if may_evict(other)]
    allowed = session.hooks.victims("preemptable", task, candidates)
    if not suffices(task, node, allowed):
        return []
    trial, gone = node.copy(), list[VolcanoTask]()

    def passes() -> bool:
        return session.hooks.everyone("simulate_predicate", task, node, gone)

    def fits() -> bool:
        has_room = session.hooks.everyone("simulate_room", queue, task, gone)
        return has_room and task.request.fits(trial.future_idle()) and passes()

    heap = session.victim_heap(allowed, task)
    while heap:
        victim = heap.pop()
        gone.append(victim)
        trial.remove(victim)
        if fits():
            break
    if not gone or not passes():
        return []
    victims = []
    for victim in reversed(list(gone)):
        gone.remove(victim)
        trial.add(victim)
        if not fits():
            trial.remove(victim)
            gone.append(victim)
            victims.append(victim)
    return victims
