"""Cache: jobs, nodes and queues between sessions, from watch events and decisions.

A session opens on a copy. What copying loses is part of the result: a node whose tasks exceed it,
for example, is in no session.

Source: kube-batch v0.5, cache/cache.go, cache/event_handlers.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection

import msgspec

from stowplan.framework.deciders.tasks import TERMINATED, TaskStatus, group_of, status_of
from stowplan.kube_batch_v05.jobs import EPOCH, KubeBatchJob, KubeBatchPodGroup, KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.objects.meta import NamespacedObject
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import VOLCANO_API_VERSION, PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass


class KubeBatchQueue(msgspec.Struct, frozen=True):
    """A queue."""

    name: str
    weight: int
    created: datetime.datetime = EPOCH


class KubeBatchSnapshot(msgspec.Struct, frozen=True):
    """State that a session opens with: its own copies of jobs, nodes and queues, by id or name."""

    jobs: dict[str, KubeBatchJob]
    nodes: dict[str, KubeBatchNode]
    queues: dict[str, KubeBatchQueue]


class KubeBatchCache:
    """The cluster as kube-batch v0.5 sees it.

    scheduler_names: whose pending pods are scheduled here. bound, evicted: decisions since they
    were last cleared.
    """

    def __init__(self, scheduler_names: Collection[str], default_queue: str = "default") -> None:
        self.scheduler_names = frozenset(scheduler_names)
        self.default_queue = default_queue
        self.jobs: dict[str, KubeBatchJob] = {}
        self.nodes: dict[str, KubeBatchNode] = {}
        self.queues: dict[str, KubeBatchQueue] = {}
        self.bound: list[KubeBatchTask] = []
        self.evicted: list[tuple[KubeBatchTask, str]] = []
        self.pods: dict[str, Pod] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._default_priority = 0
        # Decisions that the watch has not confirmed yet: uid -> node; uids.
        self._binding: dict[str, str] = {}
        self._evicting: set[str] = set()

    # Sessions.

    def open(self) -> KubeBatchSnapshot:
        """Ready nodes, and jobs with a group or budget and an existing queue.

        Jobs whose queue or group is missing are left out without a message.
        """
        jobs = {}
        for uid, job in self.jobs.items():
            if (job.group is None and not job.has_budget) or job.queue not in self.queues:
                continue
            if job.group is not None:
                job.priority = self._priority(job.group.priority_class)
            jobs[uid] = job.copy()
        nodes = {
            name: node.copy()
            for name, node in self.nodes.items()
            if node.is_ready and node.node is not None
        }
        return KubeBatchSnapshot(jobs, nodes, dict(self.queues))

    def bind(self, task: KubeBatchTask) -> str:
        """Count a task as being bound; returns an error message or ""."""
        found = self._found(task, task.node)
        if isinstance(found, str):
            return found
        job, mine, node = found
        job.turn(mine, TaskStatus.BINDING)
        mine.node = task.node
        problem = node.add(mine)
        if not problem:
            self.bound.append(mine)
        return problem

    def evict(self, task: KubeBatchTask, reason: str) -> str:
        """Count a task as being deleted; returns an error message or ""."""
        found = self._found(task)
        if isinstance(found, str):
            return found
        job, mine, node = found
        job.turn(mine, TaskStatus.RELEASING)
        problem = node.update(mine)
        if not problem:
            self.evicted.append((mine, reason))
        return problem

    def _found(
        self, task: KubeBatchTask, on: str | None = None
    ) -> tuple[KubeBatchJob, KubeBatchTask, KubeBatchNode] | str:
        """The cache's job, task and node, the task's own by default; or an error message."""
        job = self.jobs.get(task.job)
        if job is None:
            return f"failed to find Job {task.job} for Task {task.uid}"
        mine = job.tasks.get(task.uid)
        if mine is None:
            return f"failed to find task in status {task.status.title} by id {task.uid}"
        name = mine.node if on is None else on
        node = self.nodes.get(name)
        if node is None:
            return f"failed to bind Task {task.uid} to host {name}, host does not exist"
        return job, mine, node

    def sweep(self) -> None:
        """Forget jobs without pods, group and budget."""
        for uid, job in list(self.jobs.items()):
            if job.group is None and not job.has_budget and not job.tasks:
                del self.jobs[uid]

    def _priority(self, name: str) -> int:
        found = self._classes.get(name)
        return self._default_priority if found is None else found.value

    # Decisions that the watch has not confirmed yet.

    def binding(self, uid: str, node: str) -> None:
        """A pod's bind is pending."""
        self._binding[uid] = node

    def assume(self, pod: Pod, node: str) -> None:
        """A pod is assumed on a node, whichever scheduler decided it."""
        if self._binding.get(pod.uid) != node and pod.uid in self.pods:
            self._uncount(self.pods[pod.uid])
            self._binding[pod.uid] = node
            self._add(self.pods[pod.uid])

    def not_bound(self, uid: str) -> None:
        """The pod was not bound; it is pending again."""
        if uid in self._binding:
            self._uncount(self.pods[uid])
            del self._binding[uid]
            if self._counts(self.pods[uid]):
                self._add(self.pods[uid])

    def evicting(self, uid: str) -> None:
        """A pod is being evicted."""
        self._evicting.add(uid)

    def pod_not_evicted(self, uid: str) -> None:
        """The eviction failed; the pod stays."""
        if uid in self._evicting:
            self._evicting.discard(uid)
            self._uncount(self.pods[uid])
            if self._counts(self.pods[uid]):
                self._add(self.pods[uid])

    def _uncount(self, pod: Pod) -> None:
        """Remove a pod from its job and its node, solo or not: the original reads such a pod anew
        after a failed call."""
        job = self.jobs.get(group_of(pod) or _solo_job_of(pod))
        task = job.tasks.get(pod.uid) if job is not None else None
        node = self.nodes.get(self._node_of(pod) if task is None else task.node)
        if job is not None:
            job.remove(pod.uid)
        if node is not None:
            node.remove(pod.key)

    def _node_of(self, pod: Pod) -> str:
        return pod.node_name or self._binding.get(pod.uid, "")

    # Pods.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated. If its former version is not found where it should be, the
        update is lost."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        gone = before is None or not self._counts(before) or self._remove(before)
        if pod.node_name or pod.status.phase != "Pending":
            self._binding.pop(pod.uid, None)
        if self._counts(pod) and gone:
            self._add(pod)

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted. A pod without a group stays in its job."""
        pod = self.pods.pop(uid, None)
        if pod is not None and self._counts(pod):
            self._remove(pod)
        self._binding.pop(uid, None)
        self._evicting.discard(uid)

    def _counts(self, pod: Pod) -> bool:
        """False for a pending pod of another scheduler, even if it has a node."""
        ours = pod.spec.scheduler_name in self.scheduler_names
        return pod.status.phase != "Pending" or ours or pod.uid in self._binding

    def _add(self, pod: Pod) -> None:
        status, node = status_of(pod), pod.node_name
        if status is TaskStatus.GATED:
            # Scheduling gates are younger than the original.
            status = TaskStatus.PENDING
        if status is TaskStatus.PENDING and pod.uid in self._binding:
            status, node = TaskStatus.BINDING, self._binding[pod.uid]
        elif pod.uid in self._evicting and status in (TaskStatus.RUNNING, TaskStatus.BOUND):
            status = TaskStatus.RELEASING
        task = KubeBatchTask(pod, group_of(pod), status, node)
        job = self._job_for(task)
        if job is not None:
            task.job = job.uid
            job.add(task)
        if node:
            held = self.nodes.setdefault(node, KubeBatchNode(node))
            if status not in TERMINATED:
                held.add(task)

    def _job_for(self, task: KubeBatchTask) -> KubeBatchJob | None:
        """The task's job, created if needed; None for pods of other schedulers without a group."""
        if task.job:
            return self._job(task.job)
        if task.pod.spec.scheduler_name not in self.scheduler_names:
            return None
        uid = _solo_job_of(task.pod)
        if uid not in self.jobs:
            job = self._job(uid)
            # Without the pod's priority and creation time.
            job.group = KubeBatchPodGroup(task.pod.metadata.namespace, uid, 1, is_solo=True)
            job.min_available, job.queue = 1, self.default_queue
        return self.jobs[uid]

    def _remove(self, pod: Pod) -> bool:
        """Remove a pod; False if it was not found everywhere where it should be.

        The job of a pod without a group is not looked up, so the pod stays in it.
        """
        job_id = group_of(pod)
        job = self.jobs.get(job_id) if job_id else None
        task = job.tasks.get(pod.uid) if job is not None else None
        node = self.nodes.get(self._node_of(pod) if task is None else task.node)
        found = not job_id or (job is not None and job.remove(pod.uid))
        if node is not None:
            found &= not node.remove(pod.key)
        return found

    def _job(self, uid: str) -> KubeBatchJob:
        if uid not in self.jobs:
            self.jobs[uid] = KubeBatchJob(uid)
        return self.jobs[uid]

    # Other objects.

    def node_updated(self, node: Node) -> None:
        """A node was added or updated."""
        self.nodes.setdefault(node.name, KubeBatchNode(node.name)).set_node(node)

    def node_deleted(self, name: str) -> None:
        """A node was deleted, and its tasks with it."""
        self.nodes.pop(name, None)

    def group_updated(self, group: PodGroup) -> None:
        """A pod group was added or updated."""
        job = self._job(group.key)
        job.min_available = group.spec.min_member
        job.queue = group.spec.queue or self.default_queue
        job.created = group.metadata.creation_timestamp or job.created
        job.group = KubeBatchPodGroup(
            group.namespace,
            group.name,
            group.spec.min_member,
            uid=group.metadata.uid,
            priority_class=group.spec.priority_class_name,
            api_version=group.api_version,
            status=group.status,
        )

    def group_deleted(self, key: str) -> None:
        """A pod group was deleted."""
        job = self.jobs.get(key)
        if job is not None:
            job.group, job.min_available, job.queue = None, 0, ""

    def budget_updated(self, budget: PodDisruptionBudget) -> None:
        """A PodDisruptionBudget was added or updated; without a controller it applies to no job."""
        owner = _controller_of(budget)
        if not owner:
            return
        job = self._job(owner)
        needed = budget.spec.min_available
        job.min_available = needed if isinstance(needed, int) else 0
        job.created = budget.metadata.creation_timestamp or job.created
        job.has_budget = True
        job.queue = self.default_queue

    def budget_deleted(self, budget: PodDisruptionBudget) -> None:
        """A PodDisruptionBudget was deleted."""
        job = self.jobs.get(_controller_of(budget))
        if job is not None:
            job.has_budget = False

    def queue_updated(self, queue: Queue) -> None:
        """A queue was added or updated. Its capability is not read."""
        # A default that Volcano's webhook sets.
        absent = 1 if queue.api_version == VOLCANO_API_VERSION else 0
        created = queue.metadata.creation_timestamp or EPOCH
        self.queues[queue.name] = KubeBatchQueue(queue.name, queue.spec.weight or absent, created)

    def queue_deleted(self, name: str) -> None:
        """A queue was deleted."""
        self.queues.pop(name, None)

    def priority_class_updated(self, priority_class: PriorityClass) -> None:
        """A priority class was added or updated; of several defaults the last one applies."""
        before = self._classes.get(priority_class.name)
        self._classes[priority_class.name] = priority_class
        if priority_class.global_default:
            self._default_priority = priority_class.value
        elif before is not None and before.global_default:
            self._default_priority = 0

    def priority_class_deleted(self, priority_class: PriorityClass) -> None:
        """A priority class was deleted."""
        self._classes.pop(priority_class.name, None)
        if priority_class.global_default:
            self._default_priority = 0


def _controller_of(value: NamespacedObject) -> str:
    """Uid of an object's controller, or its key, since objects in files have no uid; "" for
    none."""
    owner = value.controller
    if owner is None:
        return ""
    return owner.uid or f"{value.namespace}/{owner.kind}/{owner.name}"


def _solo_job_of(pod: Pod) -> str:
    """Job id of a pod without a group: its controller's uid, or its own, which in files may be its
    key, and may equal that of a PodGroup."""
    own = pod.uid if pod.uid != pod.key else f"{pod.namespace}/Pod/{pod.metadata.name}"
    return _controller_of(pod) or own
