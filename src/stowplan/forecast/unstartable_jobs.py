"""Unstartable jobs: reasons why a pending job cannot start even if all nodes were empty.

Only resources and ready nodes are considered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from stowplan.batch import Session
from stowplan.batch.job_report import JobReport
from stowplan.batch.state.capability import PODS, limits_of
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.nodes import is_node_ready
from stowplan.batch.state.task_requests import (
    EPSILON,
    format_resource,
    node_allocatable_of,
    task_request_of,
)
from stowplan.columns.array_types import Floats
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus
from stowplan.kube_batch_v05.amounts import MEMORY_MIN, MILLI_MIN
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

WAITING = (TaskStatus.PENDING, TaskStatus.PIPELINED, TaskStatus.GATED)
"""Statuses of tasks that are not ready yet."""

AnyTask = TaskInfo | KubeBatchTask


class JobNeeds(msgspec.Struct, frozen=True):
    """Requests of a job, and what its nodes and its queue offer.

    n_needed: its minimum without tasks that have succeeded. n_missing: tasks that it lacks to be
    ready. waiting: tasks that are not ready. held: tasks with a node. held_here: those on ready
    nodes. total: allocatable resources of all ready nodes. offers: resource -> float64 (n_nodes,),
    allocatable of each node, 0 for one that is not ready. limits: of its queue. epsilon: resource
    -> difference that does not count.
    """

    n_needed: int
    n_missing: int
    waiting: Sequence[AnyTask]
    held: Sequence[AnyTask]
    held_here: Sequence[AnyTask]
    total: ResourceVector
    offers: Callable[[str], Floats]
    queue: str
    limits: Mapping[str, float]
    epsilon: Callable[[str], float]


def unstartable_reasons(
    session: Session | KubeBatchSession, job: JobInfo | KubeBatchJob
) -> tuple[str, ...]:
    """Why a job cannot start on the session's nodes even if they were empty; empty if it might."""
    needs = _needs(session, job)
    return _reasons(needs) if needs.n_missing > 0 and needs.waiting else ()


def _reasons(needs: JobNeeds) -> tuple[str, ...]:
    sums = tuple(_sums(needs))
    singles = tuple(_too_large(needs)) if len(needs.waiting) <= needs.n_missing else ()
    return sums or singles or tuple(_slots_short(needs))


def unstartable_reasons_of_report(
    job: JobReport, pods: Mapping[str, Pod], nodes: Iterable[Node]
) -> tuple[str, ...]:
    """The same of a job of a queue model, by what it lacks: its pods with a node are not named."""
    n_missing = job.min_member - job.ready
    keys = [key for key in (*job.waiting, *job.promised) if key in pods]
    waiting = [
        TaskInfo(pods[key], task_request_of(pods[key]), job.uid, TaskStatus.PENDING, "")
        for key in keys
    ]
    if n_missing <= 0 or not waiting:
        return ()
    offered = [node_allocatable_of(one.status.allocatable) for one in nodes if is_node_ready(one)]
    total = ResourceVector()
    for one in offered:
        total.add(one)
    needs = JobNeeds(
        n_needed=n_missing,
        n_missing=n_missing,
        waiting=waiting,
        held=(),
        held_here=(),
        total=total,
        offers=lambda name: np.array([one.get(name) for one in offered], dtype=np.float64),
        queue=job.queue,
        limits={},
        epsilon=_fine,
    )
    return _reasons(needs)


def _needs(session: Session | KubeBatchSession, job: JobInfo | KubeBatchJob) -> JobNeeds:
    held: list[AnyTask] = [task for status in OCCUPYING for task in job.of(status).values()]
    if isinstance(session, Session):
        nodes = session.state.nodes
        here = [task for task in held if nodes.has_ready_node(nodes.row(task.node))]
        total, limits = nodes.total(), limits_of(session.queues[job.queue])
        offers, epsilon = _offers_of(session), _fine
    else:
        here = [task for task in held if task.node in session.nodes]
        total, limits = ResourceVector(), {}
        for node in session.nodes.values():
            total.add(node.allocatable)
        offers, epsilon = _offers_v0_5(session), _coarse
    return JobNeeds(
        n_needed=job.min_available - len(job.of(TaskStatus.SUCCEEDED)),
        n_missing=job.min_available - job.ready_count,
        waiting=[task for status in WAITING for task in job.of(status).values()],
        held=held,
        held_here=here,
        total=total,
        offers=offers,
        queue=job.queue,
        limits=limits,
        epsilon=epsilon,
    )


def _offers_of(session: Session) -> Callable[[str], Floats]:
    nodes = session.state.nodes

    def offers(name: str) -> Floats:
        whole = nodes.idle.get(name, nodes.n_nodes) + nodes.used.get(name, nodes.n_nodes)
        return np.where(nodes.has_ready_nodes(), whole, 0.0)

    return offers


def _offers_v0_5(session: KubeBatchSession) -> Callable[[str], Floats]:
    nodes = session.nodes.values()
    return lambda name: np.array([node.allocatable.get(name) for node in nodes], dtype=np.float64)


def _fine(name: str) -> float:
    return EPSILON


def _coarse(name: str) -> float:
    return MEMORY_MIN if name == "memory" else MILLI_MIN


def _requested(task: AnyTask, name: str) -> float:
    """Amount of a resource that a task uses; of pods it is one."""
    return 1.0 if name == PODS else task.ask.running.get(name)


def _wants(task: AnyTask) -> tuple[tuple[str, float], ...]:
    """Resources that a task needs to start."""
    return tuple((name, n) for name, n in task.ask.launching.pairs() if n > 0)


def _wanted_names(needs: JobNeeds) -> list[str]:
    return list(dict.fromkeys(name for task in needs.waiting for name, _ in _wants(task)))


def _sums(needs: JobNeeds) -> Iterator[str]:
    """Resources of which the smallest pods that complete the job need more than the cluster, or
    than the capability of its queue."""
    for name in dict.fromkeys([*_wanted_names(needs), *needs.limits]):
        least = sum(sorted(_requested(task, name) for task in needs.waiting)[: needs.n_missing])
        # Pods on nodes that are not ready take nothing from the other nodes.
        amount = least + sum(_requested(task, name) for task in needs.held_here)
        has = needs.total.get(name)
        if name != PODS and amount > has:
            yield f"needs {_text(name, amount)} {name}, the cluster has {_text(name, has)}"
            continue
        amount = least + sum(_requested(task, name) for task in needs.held)
        may_have = needs.limits.get(name)
        if may_have is not None and least and amount > may_have:
            most = f"the capability of queue {needs.queue!r} is {_text(name, may_have)}"
            yield f"needs {_text(name, amount)} {name}, {most}"


def _too_large(needs: JobNeeds) -> Iterator[str]:
    """Resources of which one pod requests more than any node has."""
    for name in _wanted_names(needs):
        most = max((task.ask.launching.get(name), task.key) for task in needs.waiting)
        largest = float(needs.offers(name).max(initial=0.0))
        if most[0] > largest:
            asks, has = _text(name, most[0]), _text(name, largest)
            yield f"pod {most[1]} needs {asks} {name}, the largest node has {has}"


def _slots_short(needs: JobNeeds) -> Iterator[str]:
    """Number of its pods that fit on empty nodes, if all have equal requests and that is too
    few."""
    wants = _wants(needs.waiting[0])
    if not wants or any(_wants(task) != wants for task in (*needs.waiting, *needs.held)):
        return
    slots = [
        np.floor((offered + (offered > 0) * needs.epsilon(name)) / amount)
        for name, amount in wants
        for offered in (needs.offers(name),)
    ]
    n_slots = int(np.minimum.reduce(slots).sum())
    if n_slots < needs.n_needed:
        yield f"{n_slots} of its pods fit on empty nodes, {needs.n_needed} are needed"


def _text(name: str, amount: float) -> str:
    return f"{amount:.0f}" if name == PODS else format_resource(name, amount)
