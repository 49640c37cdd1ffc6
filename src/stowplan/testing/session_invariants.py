"""Session invariants: checks whether the decisions of a session keep the guarantees of sessions.

They read the tasks and resources at the end of a session, and call no session plugin. Of the rules
they know only the session's predicates for single pods.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

import numpy as np

from stowplan.batch import Session
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.columns.array_types import Floats
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus

Shares = dict[str, dict[str, float]]

EPSILON = 0.1
_PIPELINED = TaskStatus.PIPELINED
WAITING_STATUSES = OCCUPYING | {TaskStatus.PENDING, TaskStatus.PIPELINED}


class Violation(AssertionError):
    """An event that must never happen. uid: of the pod that it happened to, "" for none."""

    def __init__(self, what: str, uid: str = "") -> None:
        super().__init__(what)
        self.uid = uid


def check_session(session: Session) -> None:
    """Raise Violation for a session, closed and not settled, with an invalid decision."""
    check_gangs(session)
    check_capability(session)
    check_victims(session)
    check_victims_needed(session)
    check_starvation(session)
    check_reclaim(session)


def check_gangs(session: Session) -> None:
    """A gang starts with at least its minimum of pods, or with none, and holds no resources
    meanwhile."""
    for job in session.jobs.values():
        n_held = len(job.of(TaskStatus.ALLOCATED))
        if n_held and job.ready_count + len(job.of(_PIPELINED)) < job.min_available:
            raise Violation(
                f"{job.uid} holds resources for {n_held} of its minimum of {job.min_available}"
            )
    for job in jobs_of(session.state.bound, session):
        if job.ready_count < job.min_available:
            raise Violation(
                f"{job.uid} starts with {job.ready_count} of its minimum of {job.min_available}"
            )


def check_capability(session: Session) -> None:
    """No queue gets more than its capability: neither now, terminating pods included, by what is
    bound, nor by what is pipelined after that."""
    later = amounts_by_queue(session, lambda t: t.status in OCCUPYING or t.status is _PIPELINED)
    now = amounts_by_queue(session, _is_held)
    promised = [task for job in session.jobs.values() for task in job.of(_PIPELINED).values()]
    for tasks, amounts in ((session.state.bound, now), (promised, later)):
        for task in tasks:
            queue = session.jobs[task.job].queue
            for name, most in capability_of(session, queue).items():
                has = amounts[queue].get(name, 0.0)
                if task.ask.running.get(name) > 0 and has > most + EPSILON:
                    raise Violation(f"queue {queue} has {has} {name}, above its capability {most}")


def capability_of(session: Session, queue: str) -> dict[str, float]:
    """Resource -> the maximum of a queue, for limited resources."""
    stated = session.queues[queue].capability
    return {} if stated is None else {name: n for name, n in stated.pairs() if n > 0}


def within_capability(session: Session, queue: str, tasks: Iterable[TaskInfo]) -> bool:
    """True when a queue may have these tasks too, now."""
    has = amounts_by_queue(session, lambda task: _is_held(task) or task.status is _PIPELINED)[queue]
    wants = [task.ask.running for task in tasks]
    return all(
        has.get(name, 0.0) + sum(ask.get(name) for ask in wants) <= most + EPSILON
        for name, most in capability_of(session, queue).items()
    )


def _is_held(task: TaskInfo) -> bool:
    return task.status in OCCUPYING or task.status is TaskStatus.RELEASING


def check_victims(session: Session) -> None:
    """Preempt evicts less important tasks of the same queue; reclaim evicts tasks of other queues,
    none of which then has less than it deserves of scarce resources (or of any, where the taker
    requests no scarce one), and those of higher priority last."""
    deserved, scarce = deserved_by_queue(session), scarce_resources(session)
    # What a queue preempts from itself afterwards was still there when it was reclaimed from.
    own = {task.uid for task, why in session.state.evicted if why == "preempt"}
    own |= pipelined_before(session)
    left = amounts_by_queue(session, lambda task: task.status in OCCUPYING or task.uid in own)
    for victim, why in session.state.evicted:
        taker = session.state.preemptors.get(victim.uid)
        if taker is None:
            raise Violation(f"{victim.key} is evicted without need ({why})", victim.uid)
        job, other = session.jobs[taker.job], session.jobs[victim.job]
        if why == "preempt":
            _check_preempted(taker, job, victim, other)
        elif why == "reclaim":
            if job.queue == other.queue:
                raise Violation(f"{victim.key} is reclaimed for its own queue", victim.uid)
            for name in _counted(taker, victim, scarce):
                have, due = left[other.queue].get(name, 0.0), deserved[other.queue].get(name, 0.0)
                if have < due - EPSILON:
                    text = f"queue {other.queue} keeps {have} {name} of {due} deserved"
                    raise Violation(f"{victim.key} is reclaimed and {text}", victim.uid)
            _check_reclaimed(session, victim, other)
        _check_victim_order(session, victim)


def pipelined_before(session: Session) -> set[str]:
    """The uids of tasks that earlier sessions pipelined and that still are: they count for their
    queues."""
    return {
        uid
        for job, promised in session.state.nominations.items()
        for uid in promised
        if job in session.jobs and uid in session.jobs[job].of(_PIPELINED)
    }


def _counted(taker: TaskInfo, victim: TaskInfo, scarce: set[str]) -> list[str]:
    """The resources of which a victim's queue keeps what it deserves."""
    taken = [name for name, amount in victim.ask.running_pairs if amount > 0]
    if not _contested(taker, scarce):
        return taken
    return [name for name in taken if name in scarce] or taken


def _contested(taker: TaskInfo, scarce: set[str]) -> list[str]:
    return [name for name, amount in taker.ask.running_pairs if amount > 0 and name in scarce]


def _check_preempted(taker: TaskInfo, job: JobInfo, victim: TaskInfo, other: JobInfo) -> None:
    if job.queue != other.queue:
        raise Violation(f"{victim.key} of another queue is preempted", victim.uid)
    within = victim.priority < taker.priority
    if not (within if job is other else other.priority < job.priority):
        raise Violation(f"{victim.key} is preempted by {taker.key} of no higher rank", victim.uid)


def _check_reclaimed(session: Session, victim: TaskInfo, job: JobInfo) -> None:
    """Of pods of one size and queue on a node the least important that their gangs can spare are
    evicted."""
    nodes = session.state.nodes
    for held in nodes.tasks_on(nodes.row(victim.node)):
        one, other = held.task, session.jobs.get(held.task.job)
        if held.status is not TaskStatus.RUNNING or other is None or other.queue != job.queue:
            continue
        spared = other.min_available <= other.ready_count - 1 or other.min_available == 1
        lower = (other.priority, one.priority) < (job.priority, victim.priority)
        if spared and lower and one.ask.running_pairs == victim.ask.running_pairs:
            raise Violation(
                f"{victim.key} is evicted and {one.key}, of lower rank, stays", victim.uid
            )


def _check_victim_order(session: Session, victim: TaskInfo) -> None:
    """Of pods of one job and size on a node those of lower priority are evicted first."""
    nodes = session.state.nodes
    row = nodes.row(victim.node)
    for held in nodes.tasks_on(row):
        one = held.task
        same = one.job == victim.job and one.ask.running_pairs == victim.ask.running_pairs
        if same and held.status is TaskStatus.RUNNING and one.priority < victim.priority:
            raise Violation(
                f"{victim.key} is evicted and {one.key}, of lower priority, stays", victim.uid
            )


def check_victims_needed(session: Session) -> None:
    """Every victim is needed: the pipelined tasks fit with its eviction, and did not fit without.

    Checked backwards, from the last pipelined task to the first, as later victims may make earlier
    ones look needless. Tasks without victims may have been pipelined at any time.
    """
    nodes, preemptors = session.state.nodes, session.state.preemptors
    victims: dict[str, list[TaskInfo]] = {}
    for victim, _ in session.state.evicted:
        victims.setdefault(preemptors[victim.uid].uid, []).append(victim)
    futures: dict[str, dict[str, float]] = {}
    for gone in reversed(victims.values()):
        taker = preemptors[gone[0].uid]
        row = nodes.row(gone[0].node)
        future = futures.setdefault(gone[0].node, {})
        for name, _ in (*taker.ask.wants, *gone[0].ask.running_pairs):
            idle, later = nodes.idle.get(name, nodes.n_nodes), nodes.releasing
            room = float(idle[row] + later.get(name, nodes.n_nodes)[row])
            future.setdefault(name, room)
        others = _without_victims(session, gone[0].node, victims)
        _check_released_resources(
            taker, [v for v in gone if not _is_excess(session, taker, v)], future, others
        )
        for name in future:
            freed = sum(victim.ask.running.get(name) for victim in gone)
            future[name] += taker.ask.running.get(name) - freed


def _is_excess(session: Session, taker: TaskInfo, victim: TaskInfo) -> bool:
    """True when the queue of both would exceed its capability if the victim stayed."""
    queue = session.jobs[taker.job].queue
    if session.jobs[victim.job].queue != queue:
        return False
    later = amounts_by_queue(session, lambda t: t.status in OCCUPYING or t.status is _PIPELINED)
    return any(
        taker.ask.running.get(name) > 0
        and later[queue].get(name, 0.0) + victim.ask.running.get(name) > most + EPSILON
        for name, most in capability_of(session, queue).items()
    )


def _without_victims(session: Session, node: str, takers: Container[str]) -> list[TaskInfo]:
    """Tasks that this session placed on a node without victims."""
    placed = list(session.state.bound)
    for job in session.jobs.values():
        placed += (*job.of(TaskStatus.ALLOCATED).values(), *job.of(_PIPELINED).values())
    return [task for task in placed if task.node == node and task.uid not in takers]


def _check_released_resources(
    taker: TaskInfo, gone: list[TaskInfo], future: dict[str, float], others: list[TaskInfo]
) -> None:
    wanted = [name for name, _ in taker.ask.wants]
    later = {name: sum(other.ask.running.get(name) for other in others) for name in wanted}
    short = [name for name in wanted if future[name] + later[name] < -EPSILON]
    if short and gone:
        raise Violation(f"{gone[0].key} is evicted and {short} is short nevertheless", gone[0].uid)
    for victim in gone:
        if all(future[name] - victim.ask.running.get(name) >= -EPSILON for name in wanted):
            raise Violation(
                f"{victim.key} is evicted, and {taker.key} would fit without it", victim.uid
            )


def check_starvation(session: Session) -> None:
    """No job waits whose missing pods fit, in a queue that has less than it deserves."""
    deserved = deserved_by_queue(session)
    have = amounts_by_queue(session, lambda t: t.status in OCCUPYING or t.status is _PIPELINED)
    for job in session.jobs.values():
        pending = list(job.of(TaskStatus.PENDING).values())
        if not pending or job.uid in {task.job for task, _ in session.state.evicted}:
            continue
        reached = job.ready_count + len(job.of(_PIPELINED))
        n_missing = max(job.min_available - reached, 1)
        if len(pending) < n_missing:
            continue
        first = pending[:n_missing]
        if any(t.ask.wants != first[0].ask.wants for t in first) or not first[0].ask.wants:
            continue
        due, has = deserved[job.queue], have[job.queue]
        under = all(
            has.get(name, 0.0) + n_missing * amount <= due.get(name, 0.0) + EPSILON
            for name, amount in first[0].ask.running_pairs
        )
        if under and fits_all(session, first) and within_capability(session, job.queue, first):
            text = f"{job.queue} has {has} of {due}"
            raise Violation(f"{job.uid} waits, and {n_missing} pods of it fit; {text}")


def check_reclaim(session: Session) -> None:
    """No job waits for one pod, in a queue that has less than it deserves of scarce resources,
    while other queues have more and one of their pods could be evicted for it.

    Checked where sessions reclaim with the in-tree session plugins and nothing else changed in this
    one, on nodes whose possible victims are alike, as no session tries all sets.
    """
    options, state = session.options, session.state
    known = {"gang", "conformance", "proportion"} <= session.plugins.keys()
    if not known or "reclaim" not in {action.name for action in options.actions}:
        return
    if state.bound or state.evicted or state.nodes.has_releases:
        return
    if any(job.of(_PIPELINED) for job in session.jobs.values()):
        return
    deserved, scarce = deserved_by_queue(session), scarce_resources(session)
    have = amounts_by_queue(session, lambda task: task.status in OCCUPYING)
    for job in session.jobs.values():
        pending = list(job.of(TaskStatus.PENDING).values())
        if not pending or job.min_available - job.ready_count > 1:
            continue
        taker, due, has = pending[0], deserved[job.queue], have[job.queue]
        if not within_capability(session, job.queue, [taker]):
            continue
        contested = _contested(taker, scarce)
        if not contested or any(task.ask.wants != taker.ask.wants for task in pending):
            continue
        if any(has.get(name, 0.0) > due.get(name, 0.0) - 10 * EPSILON for name in contested):
            continue
        for victim in _possible_victims(session, taker, deserved, have, scarce):
            text = f"{job.queue} has {has} of {due}"
            raise Violation(f"{taker.key} waits, and {victim.key} could be evicted for it; {text}")


def _possible_victims(
    session: Session, taker: TaskInfo, deserved: Shares, have: Shares, scarce: set[str]
) -> Iterator[TaskInfo]:
    """Pods of which one alone releases enough resources, and that their queues can spare."""
    nodes, mine = session.state.nodes, session.jobs[taker.job].queue
    for row in np.flatnonzero(session.passing(taker)).tolist():
        others = [
            held.task
            for held in nodes.tasks_on(row)
            if held.status is TaskStatus.RUNNING and held.task.job in session.jobs
        ]
        others = [other for other in others if session.jobs[other.job].queue != mine]
        if len({other.ask.running_pairs for other in others}) != 1:
            continue
        idle = {name: _idle(session, name, row) for name, _ in taker.ask.wants}
        for other in others:
            job = session.jobs[other.job]
            spared = job.min_available <= job.ready_count - 1 or job.min_available == 1
            helps = all(
                idle[name] + other.ask.running.get(name) >= amount
                for name, amount in taker.ask.wants
            )
            left, due = have[job.queue], deserved[job.queue]
            spares = all(
                left[name] - other.ask.running.get(name) >= due.get(name, 0.0) + 10 * EPSILON
                for name in _counted(taker, other, scarce)
            )
            if spared and helps and spares and session.queues[job.queue].is_reclaimable:
                yield other


def _idle(session: Session, name: str, row: int) -> float:
    """Idle resources that no task is pipelined on."""
    nodes = session.state.nodes
    idle = float(nodes.idle.get(name, nodes.n_nodes)[row])
    return min(idle, idle + float(nodes.releasing.get(name, nodes.n_nodes)[row]))


def fits_all(session: Session, tasks: list[TaskInfo]) -> bool:
    """True when these tasks, all alike, fit into idle resources one after the other."""
    nodes, task = session.state.nodes, tasks[0]
    n_nodes = nodes.n_nodes
    counts: Floats = np.where(session.passing(task), np.inf, 0.0)
    counts = np.minimum(counts, nodes.pod_limit - nodes.pod_count)
    for name, amount in task.ask.wants:
        idle = nodes.idle.get(name, n_nodes)
        future = idle + nodes.releasing.get(name, n_nodes)
        counts = np.minimum(counts, np.floor((np.minimum(idle, future) + EPSILON) / amount))
    return bool(np.maximum(counts, 0.0).sum() >= len(tasks))


def jobs_of(tasks: Iterable[TaskInfo], session: Session) -> Iterator[JobInfo]:
    """The jobs of tasks, each once."""
    for uid in dict.fromkeys(task.job for task in tasks):
        yield session.jobs[uid]


def amounts_by_queue(session: Session, counts: Callable[[TaskInfo], bool]) -> Shares:
    """Queue -> resource -> requests of the tasks that count."""
    found: Shares = {name: {} for name in session.queues}
    for job in (*session.jobs.values(), *session.invalid.values()):
        if job.queue not in found:
            continue
        held = found[job.queue]
        for task in job.tasks.values():
            if counts(task):
                for name, amount in task.ask.running_pairs:
                    held[name] = held.get(name, 0.0) + amount
    return found


def demand_by_queue(session: Session) -> Shares:
    """Use and pending requests of each queue with jobs when the session opened.

    An invalid job counts with its use only.
    """
    gone = {task.uid for task, _ in session.state.evicted}

    def wanted(task: TaskInfo) -> bool:
        if task.job in session.invalid:
            return task.status in OCCUPYING
        return task.status in WAITING_STATUSES or task.uid in gone

    busy = {job.queue for job in session.jobs.values()}
    found = amounts_by_queue(session, wanted)
    return {queue: held for queue, held in found.items() if queue in busy}


def scarce_resources(session: Session) -> set[str]:
    """Resources of which queues request more together than there is, counting satisfiable requests
    within their capability."""
    wants = satisfiable_demand_by_queue(session)
    total = session.state.nodes.total().pairs()
    return {name for name, n in total if _sum_wanted(session, wants, name) > n + EPSILON}


def _sum_wanted(session: Session, wants: Shares, name: str) -> float:
    return sum(_capped(session, queue, held, name) for queue, held in wants.items())


def _capped(session: Session, queue: str, wants: dict[str, float], name: str) -> float:
    """The demand of a queue for a resource, up to its capability."""
    wanted = wants.get(name, 0.0)
    return min(wanted, capability_of(session, queue).get(name, wanted))


def satisfiable_demand_by_queue(session: Session) -> Shares:
    """The demand of each queue, without jobs that request more than the cluster has."""
    found = demand_by_queue(session)
    for job in session.jobs.values():
        if exceeds_cluster(session, job):
            for task in waiting_tasks(job):
                for name, amount in task.ask.running_pairs:
                    found[job.queue][name] -= amount
    return found


def waiting_tasks(job: JobInfo) -> list[TaskInfo]:
    """Tasks that have no node, or are pipelined only."""
    return [*job.of(TaskStatus.PENDING).values(), *job.of(_PIPELINED).values()]


def exceeds_cluster(session: Session, job: JobInfo) -> bool:
    """True for a gang that could not start on all ready nodes alone: even its smallest pods exceed
    some resource, or its queue's capability."""
    gone = [task for task, _ in session.state.evicted if task.job == job.uid]
    n_missing = job.min_available - job.ready_count - len(gone)
    if n_missing <= 0 or "gang" not in session.plugins:
        return False
    nodes = session.state.nodes
    running = [task for task in job.tasks.values() if task.status in OCCUPYING]
    room = dict(nodes.total().pairs())
    for task in (*running, *gone):
        for name, amount in task.ask.running_pairs:
            has_ready_node = nodes.has_ready_node(nodes.row(task.node))
            room[name] = room.get(name, 0.0) - (amount if has_ready_node else 0.0)
    waiting = waiting_tasks(job)
    names = {name for task in waiting for name, _ in task.ask.running_pairs}
    limits = capability_of(session, job.queue)
    for name in names:
        least = sum(sorted(task.ask.running.get(name) for task in waiting)[:n_missing])
        has = sum(task.ask.running.get(name) for task in (*running, *gone))
        if least > room.get(name, 0.0) + EPSILON:
            return True
        if least > 0 and least + has > limits.get(name, least + has) + EPSILON:
            return True
    return False


def deserved_by_queue(session: Session) -> Shares:
    """Deserved resources of each queue when the session opened: shares by weight, filled step by
    step, and last for demand that cannot be satisfied."""
    total = dict(session.state.nodes.total().pairs())
    found: Shares = {name: {} for name in session.queues}
    for name, amount in total.items():
        rest = amount
        for wants in (satisfiable_demand_by_queue(session), demand_by_queue(session)):
            rest = _fill_by_weight(session, name, rest, wants, found)
    return found


def _fill_by_weight(
    session: Session, name: str, rest: float, wants: Shares, found: Shares
) -> float:
    """Add an amount of a resource to the queues' deserved shares, up to their demand; returns the
    rest."""
    open_ = {q for q in wants if session.queues[q].weight > 0}
    while open_ and rest > EPSILON / 10:
        weight = sum(session.queues[q].weight for q in open_)
        part = rest
        for queue in sorted(open_):
            most = _capped(session, queue, wants[queue], name) - found[queue].get(name, 0.0)
            given = min(part * session.queues[queue].weight / weight, max(most, 0.0))
            found[queue][name] = found[queue].get(name, 0.0) + given
            rest -= given
            if most <= given + EPSILON / 100:
                open_.discard(queue)
        if part - rest < EPSILON / 1000:
            break
    return rest
