"""Session: one round of decisions about all jobs, and its steps.

A step returns an error message, or "" on success. The original logs the error and goes on, and its
later decisions depend on the incomplete step.

Source: kube-batch v0.5, framework/session.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.pod_affinity import AffinityError
from stowplan.kube_batch_v05.session_cache import KubeBatchCache, KubeBatchQueue, KubeBatchSnapshot
from stowplan.kube_batch_v05.tiers import KubeBatchTiers, PluginFunctions

TaskHandler = Callable[[KubeBatchTask], None]


class KubeBatchOptions(msgspec.Struct, frozen=True):
    """Names of the actions, in order, and the tiers of plugins. Unknown plugins are ignored."""

    actions: tuple[str, ...]
    tiers: KubeBatchTiers = ()


class KubeBatchPlugin(Protocol):
    """A session plugin: it registers its functions and handlers when a session opens."""

    name: str

    def on_open(self, session: KubeBatchSession) -> None:
        """The session opens; its jobs, nodes and queues are complete."""

    def on_close(self, session: KubeBatchSession) -> None:
        """All actions have run."""


class KubeBatchSession:
    """A round of decisions on a snapshot.

    rng: breaks ties between nodes; None takes the first. plugins: by name. handlers: (allocated,
    deallocated) of plugins that keep shares. bound, evicted: decisions, in order. failed: (key,
    message, job) of calls that the cache refused. preemptors: uid of an evicted task -> the task
    that gets its resources, if known.
    """

    def __init__(
        self,
        opened: KubeBatchSnapshot,
        tiers: KubeBatchTiers,
        cache: KubeBatchCache,
        uid: str,
        now: datetime.datetime | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.jobs: dict[str, KubeBatchJob] = opened.jobs
        self.nodes: dict[str, KubeBatchNode] = opened.nodes
        self.queues: dict[str, KubeBatchQueue] = opened.queues
        self.uid = uid
        self.now = now
        self.functions = PluginFunctions(tiers)
        self.plugins: dict[str, KubeBatchPlugin] = {}
        self.handlers: list[tuple[TaskHandler, TaskHandler]] = []
        self.bound: list[KubeBatchTask] = []
        self.evicted: list[tuple[KubeBatchTask, str]] = []
        self.failed: list[tuple[str, str, str]] = []
        self.preemptors: dict[str, KubeBatchTask] = {}
        self._cache = cache
        self._rng = rng

    # Steps.

    def allocate(self, task: KubeBatchTask, node: KubeBatchNode) -> str:
        """Place a task on idle resources, and bind the allocated tasks of its job if it is
        ready."""
        job = self.jobs[task.job]
        problem = self.put(task, node, TaskStatus.ALLOCATED)
        if problem or not self.functions.job_ready(job):
            return problem
        for allocated in list(job.of(TaskStatus.ALLOCATED).values()):
            problem = self._cache.bind(allocated)
            if problem:
                self.failed.append((allocated.key, problem, allocated.job))
                return problem
            job.turn(allocated, TaskStatus.BINDING)
            self.bound.append(allocated)
        return ""

    def pipeline(self, task: KubeBatchTask, node: KubeBatchNode) -> str:
        """Let a task wait for resources that are being released."""
        return self.put(task, node, TaskStatus.PIPELINED)

    def evict(self, task: KubeBatchTask, reason: str) -> str:
        """Evict a task at once."""
        return self.send_eviction(task, reason) or self.release(task)

    def put(
        self,
        task: KubeBatchTask,
        node: KubeBatchNode,
        status: TaskStatus,
        *,
        even_if_failed: bool = False,
    ) -> str:
        """Place a task. even_if_failed: tell plugins even if the node did not accept it."""
        self.jobs[task.job].turn(task, status)
        task.node = node.name
        problem = node.add(task)
        if not problem or even_if_failed:
            for allocated, _ in self.handlers:
                allocated(task)
        return problem

    def undo_put(self, task: KubeBatchTask) -> None:
        """Undo `put`; the task keeps the name of the node."""
        self.jobs[task.job].turn(task, TaskStatus.PENDING)
        self.nodes[task.node].remove(task.key)
        for _, deallocated in self.handlers:
            deallocated(task)

    def release(self, task: KubeBatchTask, *, even_if_failed: bool = False) -> str:
        """Mark a task as releasing. even_if_failed: as for `put`."""
        self.jobs[task.job].turn(task, TaskStatus.RELEASING)
        node = self.nodes.get(task.node)
        problem = "" if node is None else node.update(task)
        if not problem or even_if_failed:
            for _, deallocated in self.handlers:
                deallocated(task)
        return problem

    def undo_release(self, task: KubeBatchTask, before: TaskStatus) -> None:
        """Undo `release` in the job. The node goes on releasing the task: the original adds it
        there a second time, which fails."""
        self.jobs[task.job].turn(task, before)
        for allocated, _ in self.handlers:
            allocated(task)

    def send_eviction(self, task: KubeBatchTask, reason: str) -> str:
        """Delete a task's pod."""
        problem = self._cache.evict(task, reason)
        if problem:
            self.failed.append((task.key, problem, task.job))
        else:
            self.evicted.append((task, reason))
        return problem

    def is_ready(self, job: str) -> bool:
        """True if a job, by uid, may start."""
        return job in self.jobs and self.functions.job_ready(self.jobs[job])

    def is_pipelined(self, job: str) -> bool:
        """True if a job, by uid, can start once resources are freed."""
        return job in self.jobs and self.functions.job_pipelined(self.jobs[job])

    def is_overused(self, queue: str) -> bool:
        """True if a plugin finds the queue overused."""
        return self.functions.overused(self.queues[queue])

    # Node selection.

    def passing(
        self, task: KubeBatchTask, nodes: Sequence[KubeBatchNode] | None = None
    ) -> list[KubeBatchNode]:
        """Nodes, all by default, on which the task may run, resources aside."""
        return self.functions.passing(task, list(self.nodes.values()) if nodes is None else nodes)

    def best(self, task: KubeBatchTask, nodes: Sequence[KubeBatchNode]) -> KubeBatchNode | None:
        """A node with the highest score; None if there is none or they cannot be scored."""
        if not nodes:
            return None
        try:
            scores = self.functions.scores(task, nodes)
        except AffinityError:
            return None
        highest = max(scores)
        top = [node for node, score in zip(nodes, scores, strict=True) if score == highest]
        return top[0] if self._rng is None else top[int(self._rng.integers(len(top)))]

    def ranked(self, task: KubeBatchTask) -> list[KubeBatchNode]:
        """Nodes on which the task may run by descending score, among equals the last name first;
        raises AffinityError if they cannot be scored."""
        nodes = self.passing(task)
        scores = self.functions.scores(task, nodes)
        pairs = sorted(
            zip(scores, nodes, strict=True), key=lambda pair: (pair[0], pair[1].name), reverse=True
        )
        return [node for _, node in pairs]


class KubeBatchStatement:
    """Evictions and pipelined tasks that take effect together or are undone."""

    def __init__(self, session: KubeBatchSession) -> None:
        self._session = session
        # (task, reason of its eviction or "" if it was pipelined, its status before).
        self._operations: list[tuple[KubeBatchTask, str, TaskStatus]] = []

    def evict(self, task: KubeBatchTask, reason: str) -> None:
        """Evict a task in the session; its pod is deleted by `commit`."""
        self._operations.append((task, reason, task.status))
        self._session.release(task, even_if_failed=True)

    def pipeline(self, task: KubeBatchTask, node: KubeBatchNode) -> None:
        """Let a task wait for resources that are being released."""
        self._operations.append((task, "", task.status))
        self._session.put(task, node, TaskStatus.PIPELINED, even_if_failed=True)

    def discard(self) -> None:
        """Undo all operations, the last one first."""
        while self._operations:
            task, reason, before = self._operations.pop()
            if reason:
                self._session.undo_release(task, before)
            else:
                self._session.undo_put(task)

    def commit(self) -> None:
        """Delete the pods of the evicted tasks."""
        self._note_preemptors()
        for task, reason, before in self._operations:
            if reason and self._session.send_eviction(task, reason):
                self._session.undo_release(task, before)
        self._operations.clear()

    def _note_preemptors(self) -> None:
        """A victim makes way for the task that is pipelined on its node next."""
        latest: dict[str, KubeBatchTask] = {}
        for task, reason, _ in reversed(self._operations):
            if not reason:
                latest[task.node] = task
            elif task.node in latest:
                self._session.preemptors[task.uid] = latest[task.node]
