"""Rounds: sessions held on a cluster from files, one after the other, and what became of each job.

Binds and evictions succeed at once: between two sessions a bound pod runs, and an evicted one is
gone and does not come back.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from msgspec.structs import replace

from stowplan.assembly.deciders import Deciders
from stowplan.batch import Inventory, Session
from stowplan.batch.amounts import SessionPanic
from stowplan.batch.jobs import Job, Task, TaskStatus
from stowplan.framework import ContractError, Snapshot
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import UNSCHEDULABLE, PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass
from stowplan.sim.cluster import Cluster
from stowplan.sim.input_error import InputError

NO_QUEUE = "QueueNotFound"
NO_GROUP = "PodGroupNotFound"
OVERUSED = "QueueOverused"
ROOM = "RoomBeingFreed"


class JobReport(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a session left of a job.

    uid: as sessions know it. name: its group, or its only pod, or what controls its pods. kind:
    PodGroup, Pods or PodDisruptionBudget. pods, ready: how many there are, and how many have a node
    or have ended well. placed: pod -> node, of those that this session placed. promised: pod -> the
    node where room is kept or being freed for it. waiting: the others without a node. reason,
    message: why the job cannot start, "" where it can, or has.
    """

    uid: str
    name: str
    kind: str
    queue: str
    priority: int
    min_member: int
    pods: int
    ready: int
    phase: str = ""
    placed: dict[str, str] = {}
    promised: dict[str, str] = {}
    waiting: tuple[str, ...] = ()
    reason: str = ""
    message: str = ""

    @property
    def is_ready(self) -> bool:
        """True when as many pods as it needs have a node."""
        return self.ready >= self.min_member


class Round(msgspec.Struct, frozen=True):
    """One session. bound: pod -> node. evicted: pod -> why."""

    bound: dict[str, str]
    evicted: dict[str, str]
    jobs: list[JobReport]


class Rounds:
    """A cluster on which sessions are held. dice: break ties between nodes; None takes the first.

    Raises InputError where no sessions are configured.
    """

    def __init__(
        self, cluster: Cluster, deciders: Deciders, dice: np.random.Generator | None = None
    ) -> None:
        if deciders.batch is None:
            wanted = "a file with actions and tiers, or a block `batch`"
            raise InputError("config", "", "no sessions", wanted)
        self.batch = deciders.batch
        self.compat = deciders.compat
        self.deciders = deciders
        self.inventory = Inventory(self.batch.scheduler_name, self.batch.default_queue, self.compat)
        self.table = cluster.table()
        self.pods: dict[str, Pod] = {}
        self.n_held = 0
        self._world = cluster.world()
        self._dice = dice
        self._options = deciders.session_options(self.snapshot)
        self._fill(cluster)

    def _fill(self, cluster: Cluster) -> None:
        inventory = self.inventory
        for node in cluster.nodes:
            inventory.node_seen(node)
        for found in cluster.objects:
            match found:
                case PriorityClass() if self.batch.uses_priority_classes:
                    inventory.class_seen(found)
                case Queue():
                    inventory.queue_seen(found)
                case PodGroup():
                    inventory.group_seen(found)
        for pod in cluster.pods:
            self._see(_with_phase(pod))
        for found in cluster.objects:
            if isinstance(found, PodDisruptionBudget):
                inventory.budget_seen(found)

    def snapshot(self) -> Snapshot:
        """Nodes and pods as they are now."""
        return Snapshot(self.table, self._world)

    def open(self) -> Session:
        """A session that is open: no action has run. To be followed by `settle`."""
        self.inventory.bound.clear()
        self.inventory.evicted.clear()
        self.n_held += 1
        self._opened = self.inventory.open()
        uid = f"session-{self.n_held}"
        return Session(self._opened, self._options, self.inventory, uid, dice=self._dice)

    def settle(self, session: Session) -> Round:
        """Close a session and let the cluster be as it decided."""
        session.close()
        bound, evicted = self._news()
        jobs = [self._report(session, job) for job in self.inventory.jobs.values() if job.tasks]
        self.inventory.settle(self._opened)
        for uid, node in bound.items():
            self._run(self.pods[uid], node)
        keys = {uid: self.pods[uid].key for uid in (*bound, *evicted)}
        for uid in evicted:
            self.inventory.pod_gone(uid)
            self.table.remove_pod(uid)
            del self.pods[uid]
        self.table.refresh()
        self.inventory.sweep()
        return Round(
            {keys[uid]: node for uid, node in bound.items()},
            {keys[uid]: why for uid, why in evicted.items()},
            jobs,
        )

    def _news(self) -> tuple[dict[str, str], dict[str, str]]:
        """(uid -> node, uid -> why) of what was bound and evicted.

        With kube-batch's defects pods are bound again, and after they have gone: that is no news.
        """
        known = self.pods
        bound = {
            task.uid: task.node
            for task in self.inventory.bound
            if task.uid in known and not known[task.uid].node_name
        }
        evicted = {t.uid: why for t, why in self.inventory.evicted if t.uid in known}
        return bound, evicted

    def hold(self) -> Round:
        """One whole session; raises as `blaming` does."""
        with self.blaming():
            session = self.open()
            session.run()
            return self.settle(session)

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Say whose fault it is when a session breaks off.

        Raises ContractError for policies and actions of one's own, InputError where kube-batch,
        with its defects, would have ended.
        """
        try:
            yield
        except SessionPanic as panic:
            wanted = "a cluster that kube-batch survives, or no --compat"
            raise InputError(f"session {self.n_held}", "", f"a panic ({panic})", wanted) from None
        except Exception as failure:
            parts = (*self.deciders.actions.values(), *self.deciders.policies.values())
            own = {inspect.getsourcefile(part) for part in parts}
            frames = traceback.extract_tb(failure.__traceback__)
            place = next((f for f in reversed(frames) if f.filename in own), None)
            if place is None:
                raise
            where = f"{place.filename}:{place.lineno}"
            said = f"{type(failure).__name__}: {failure}"
            raise ContractError(f"{where}: {place.name}() raised {said}") from failure

    def until_still(self) -> Iterator[Round]:
        """Sessions until one binds and evicts nothing, that one included."""
        # Every other session places a pod or ends one for good, so there is an end.
        while True:
            held = self.hold()
            yield held
            if not held.bound and not held.evicted:
                return

    # Inside.

    def _see(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.inventory.pod_seen(pod)

    def _run(self, pod: Pod, node: str) -> None:
        spec = replace(pod.spec, node_name=node)
        running = replace(pod, spec=spec, status=replace(pod.status, phase="Running"))
        self._see(running)
        self.table.add_pod(running)

    def _report(self, session: Session, job: Job) -> JobReport:
        # With switches on the session has worked on copies.
        job = session.jobs.get(job.uid) or session.invalid.get(job.uid) or job
        waiting = tuple(task.key for task in tasks(job, TaskStatus.PENDING))
        kept = tasks(job, TaskStatus.ALLOCATED, TaskStatus.PIPELINED)
        promised = {task.key: task.node for task in kept}
        reason, message = self._reason(session, job, len(promised), is_waiting=bool(waiting))
        mine = {task.uid for task in session.working.bound}
        return JobReport(
            uid=job.uid,
            name=_name(job),
            kind=_kind(job),
            queue=job.queue,
            priority=job.priority,
            min_member=job.min_available,
            pods=len(job.tasks),
            ready=job.ready_count - len(job.of(TaskStatus.ALLOCATED)),
            phase=job.group.status.phase if job.group is not None else "",
            placed={t.key: t.node for t in job.tasks.values() if t.uid in mine},
            promised=promised,
            waiting=waiting,
            reason=reason,
            message=message,
        )

    def _reason(
        self, session: Session, job: Job, n_promised: int, *, is_waiting: bool
    ) -> tuple[str, str]:
        if job.group is None and not job.has_budget:
            return NO_GROUP, f"no PodGroup {job.uid}"
        if job.queue not in session.queues:
            return NO_QUEUE, f"no queue {job.queue!r}, which {_name(job)} is in"
        queue = session.queues[job.queue]
        known = job.uid in session.jobs
        if n_promised and session.hooks.job_pipelined(job):
            return ROOM, f"{n_promised} pods of it wait for room that is being freed"
        if known and is_waiting and session.hooks.overused(queue):
            return OVERUSED, f"queue {job.queue!r} has all that it deserves"
        status = job.group.status if job.group is not None else None
        for condition in status.conditions if status is not None else ():
            is_said = condition.type == UNSCHEDULABLE and condition.status == "True"
            if is_said and condition.transition_id == session.uid:
                return condition.reason, condition.message
        return "", ""


def tasks(job: Job, *statuses: TaskStatus) -> Iterator[Task]:
    """The tasks of a job in these statuses."""
    for status in statuses:
        yield from job.of(status).values()


def _with_phase(pod: Pod) -> Pod:
    """The pod with the phase that manifests leave out."""
    if pod.status.phase:
        return pod
    phase = "Running" if pod.node_name else "Pending"
    return replace(pod, status=replace(pod.status, phase=phase))


def _kind(job: Job) -> str:
    if job.has_budget:
        return "PodDisruptionBudget"
    return "Pods" if job.group is not None and job.group.is_solo else "PodGroup"


def _name(job: Job) -> str:
    """The group; else the pod, or what controls several."""
    if not job.is_solo or (job.group is None and not job.has_budget):
        return job.uid
    first = next(iter(job.tasks.values()))
    owner = first.pod.controller
    if owner is None:
        return first.key
    return f"{first.pod.namespace}/{owner.kind}/{owner.name}"
