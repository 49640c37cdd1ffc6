"""Inventory: jobs and queues between sessions, updated by watch events.

It opens sessions and applies their decisions to itself. Pods without a group form jobs of their
own, one per controller; a PodDisruptionBudget of the same controller sets their minimum. Nodes, and
what the pods on them use, are those of the scheduler's node table.

A session works on the inventory itself, at the cost of what changes, and undoes everything that was
not decided. Differs: the original copies it.

Source: kube-batch v0.5, cache/cache.go, cache/event_handlers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from stowplan.batch.state.jobs import JobInfo, PodGroupInfo, TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.session_state import ClusterInfo
from stowplan.batch.state.task_requests import TaskRequest, node_allocatable_of, task_request_of
from stowplan.columns import NodeTable
from stowplan.framework.deciders.tasks import TERMINATED, TaskStatus, group_of, status_of
from stowplan.objects.meta import NamespacedObject
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import VOLCANO_API_VERSION, PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

_ASK = "batch ask"


class Inventory:
    """The cluster state of batch scheduling.

    It follows pods and objects; the owner of the node table counts the same pods there, assumed
    ones too, before a session opens.

    scheduler_names: whose pending pods are scheduled here. nominations: uid -> node of the pods
    nominated by earlier sessions. first: jobs that go before all others -> number of members whose
    bind failed. now: Unix time of the last session, in nanoseconds. placed_at: uid -> time of the
    session by which a pod had its node.
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        default_queue: str,
        table: Callable[[], NodeTable],
    ) -> None:
        """scheduler_names: one name or several. table: the current node table, refreshed."""
        one = isinstance(scheduler_names, str)
        self.scheduler_names = frozenset((scheduler_names,) if one else scheduler_names)
        self.default_queue = default_queue
        self.jobs: dict[str, JobInfo] = {}
        self._table = table
        self._session_nodes: SessionNodes | None = None
        self.queues: dict[str, QueueInfo] = {}
        self.bound: list[TaskInfo] = []
        self.evicted: list[tuple[TaskInfo, str]] = []
        self._pods: dict[str, Pod] = {}
        self._job_of: dict[str, str] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._default_priority = 0
        # Decisions that the watch has not confirmed yet: uid -> node; uids.
        self._binding: dict[str, str] = {}
        self._evicting: set[str] = set()
        # Terminating pods on nodes that belong to no job.
        self._others_leaving: dict[str, TaskInfo] = {}
        self.nominations: dict[str, str] = {}
        self.first: dict[str, int] = {}
        self.now = 0
        self.placed_at: dict[str, int] = {}

    # Sessions.

    def open(self, nominated_pods: Iterable[tuple[Pod, str]] = ()) -> ClusterInfo:
        """Cluster info of a session: nodes, and jobs with a group and an existing queue.

        nominated_pods: of other schedulers; (pod, node). The session holds resources for them.
        """
        self.close_nodes()
        jobs = {}
        leaving = list(self._others_leaving.values())
        for uid, job in self.jobs.items():
            if TaskStatus.RELEASING in job.by_status:
                leaving += job.by_status[TaskStatus.RELEASING].values()
            if (job.group is None and not job.has_budget) or job.queue not in self.queues:
                continue
            if job.group is not None:
                job.priority = self._priority(job.group.priority_class)
            jobs[uid] = job
        nominations: dict[str, dict[str, str]] = {}
        for uid, node in self.nominations.items():
            nominations.setdefault(self._job_of.get(uid, ""), {})[uid] = node
        nodes = self._session_nodes = SessionNodes(self._table(), leaving, self.task_of)
        for pod, node in nominated_pods:
            row = nodes.row(node)
            if row >= 0:
                nodes.hold(row, TaskInfo(pod, self._ask(pod), "", TaskStatus.PIPELINED, node))
        queues, first = dict(self.queues), dict(self.first)
        return ClusterInfo(jobs, nodes, queues, nominations, first, self.now, self.placed_at)

    def close_nodes(self) -> None:
        """Undo what the session has done to the node table, if one is open."""
        if self._session_nodes is not None:
            self._session_nodes.close()
            self._session_nodes = None

    def settle(self) -> None:
        """A session has ended: the node table is as before, and what was not decided is undone."""
        self.close_nodes()
        for job in self.jobs.values():
            if job.fit_errors or job.short_by:
                job.short_by, job.fit_errors = {}, ""
            for status in (TaskStatus.ALLOCATED, TaskStatus.PIPELINED):
                if status not in job.by_status:
                    continue
                for task in list(job.by_status[status].values()):
                    job.turn(task, TaskStatus.PENDING)
                    task.node = ""

    def bind(self, task: TaskInfo) -> None:
        """Note a task as being bound."""
        self.bound.append(task)

    def evict(self, task: TaskInfo, reason: str) -> None:
        """Note a task as being deleted."""
        self.evicted.append((task, reason))

    # Decisions that the watch has not confirmed yet.

    def binding(self, uid: str, node: str) -> None:
        """A session has placed a pod on a node; its bind is pending."""
        self._binding[uid] = node
        self.placed_at[uid] = self.now
        self.nominations.pop(uid, None)

    def assume(self, pod: Pod, node: str) -> None:
        """A pod is assumed on a node, whichever scheduler decided it."""
        if self._binding.get(pod.uid) != node and pod.uid in self._pods:
            self._uncount_pod(pod.uid)
            self.binding(pod.uid, node)
            self._add(self._pods[pod.uid])

    def not_bound(self, uid: str) -> None:
        """The pod was not bound; it is pending again."""
        if uid in self._binding:
            self._uncount_pod(uid)
            self.placed_at.pop(uid, None)
            del self._binding[uid]
            self._count_pod(uid)

    def evicting(self, uid: str) -> None:
        """A pod is being evicted."""
        self._evicting.add(uid)

    def pod_not_evicted(self, uid: str) -> None:
        """The eviction failed; the pod stays."""
        if uid in self._evicting:
            self._evicting.discard(uid)
            self.refresh(uid)

    def job_of(self, uid: str) -> JobInfo | None:
        """The job of a pod."""
        return self.jobs.get(self._job_of.get(uid, ""))

    def task_of(self, pod: Pod) -> TaskInfo:
        """The task of a pod: that of its job, a new one for a pod without a job."""
        job = self.job_of(pod.uid)
        task = job.tasks.get(pod.uid) if job is not None else None
        return self._task(pod) if task is None else task

    def pod(self, uid: str) -> Pod | None:
        """The last known version of a pod."""
        return self._pods.get(uid)

    @property
    def pods(self) -> Iterable[Pod]:
        """All known pods, finished ones too."""
        return self._pods.values()

    def take_over(self, other: Inventory) -> None:
        """Copy the unconfirmed decisions of another inventory."""
        self._binding, self._evicting = dict(other._binding), set(other._evicting)
        self.now, self.placed_at = other.now, dict(other.placed_at)
        self.nominations, self.first = dict(other.nominations), dict(other.first)

    def refresh(self, uid: str) -> None:
        """Recount a pod."""
        self._uncount_pod(uid)
        self._count_pod(uid)

    def _uncount_pod(self, uid: str) -> None:
        """Remove a pod from all counts."""
        job = self.job_of(uid)
        if job is not None:
            job.remove(uid)
        self._uncounted(uid)

    def _count_pod(self, uid: str) -> None:
        pod = self._pods[uid]
        if self._counts(pod):
            self._add(pod)

    def _priority(self, name: str) -> int:
        found = self._classes.get(name)
        return self._default_priority if found is None else found.value

    # Pods.

    def pod_updated(self, pod: Pod) -> None:
        """A pod was added or updated."""
        before = self._pods.get(pod.uid)
        self._pods[pod.uid] = pod
        if before is not None and self._counts(before):
            self._remove(before)
        if pod.node_name or pod.status.phase != "Pending":
            self._binding.pop(pod.uid, None)
            self.nominations.pop(pod.uid, None)
        elif is_nomination_new(before, pod) and pod.uid not in self._binding:
            # The nomination was written by another scheduler, or by this one before a restart.
            self.nominations.setdefault(pod.uid, pod.status.nominated_node_name)
        self._count_pod(pod.uid)

    def pod_deleted(self, uid: str) -> None:
        """A pod was deleted."""
        pod = self._pods.pop(uid, None)
        if pod is not None and self._counts(pod):
            self._remove(pod)
        self._binding.pop(uid, None)
        self.placed_at.pop(uid, None)
        self._evicting.discard(uid)
        self.nominations.pop(uid, None)

    def sweep(self) -> None:
        """Forget jobs without pods, group and budget."""
        for uid in [uid for uid, job in self.jobs.items() if self._is_over(job)]:
            del self.jobs[uid]

    def _is_over(self, job: JobInfo) -> bool:
        if job.has_budget:
            return False
        if job.group is None:
            return not job.tasks
        # Finished pods of a solo group keep nothing alive.
        return job.group.is_solo and job.count(TERMINATED) == len(job.tasks)

    def _counts(self, pod: Pod) -> bool:
        if pod.status.phase != "Pending" or pod.spec.scheduler_name in self.scheduler_names:
            return True
        if pod.uid in self._binding:
            return True
        return bool(pod.node_name)

    def _task(self, pod: Pod) -> TaskInfo:
        status, node = status_of(pod), pod.node_name
        if status is TaskStatus.PENDING and pod.uid in self._binding:
            status, node = TaskStatus.BINDING, self._binding[pod.uid]
        elif pod.uid in self._evicting and status in (TaskStatus.RUNNING, TaskStatus.BOUND):
            status = TaskStatus.RELEASING
        return TaskInfo(pod, self._ask(pod), group_of(pod), status, node)

    def _ask(self, pod: Pod) -> TaskRequest:
        if pod.status.resources or pod.status.container_statuses:
            return task_request_of(pod)
        kept: TaskRequest | None = pod.spec.__dict__.get(_ASK)
        if kept is None:
            kept = pod.spec.__dict__[_ASK] = task_request_of(pod)
        return kept

    def _add(self, pod: Pod) -> None:
        task = self._task(pod)
        job = self._job_for(task)
        if job is not None:
            job.add(task)
            self._job_of[task.uid] = job.uid
        if task.node and task.status not in TERMINATED:
            self.placed_at.setdefault(task.uid, self.now)
        self._counted(task)

    def _counted(self, task: TaskInfo) -> None:
        """A pod was counted."""
        if not task.job and task.node and task.status is TaskStatus.RELEASING:
            self._others_leaving[task.uid] = task

    def _uncounted(self, uid: str) -> None:
        """A pod was removed from all counts."""
        self._others_leaving.pop(uid, None)

    def _job_for(self, task: TaskInfo) -> JobInfo | None:
        """The task's job, created if needed; None for pods of other schedulers without a group."""
        pod = task.pod
        if task.job:
            if task.job not in self.jobs:
                self.jobs[task.job] = JobInfo(task.job)
            return self.jobs[task.job]
        if pod.spec.scheduler_name not in self.scheduler_names:
            return None
        task.job = _controller_of(pod) or _job_of_one(pod)
        job = self.jobs.get(task.job)
        if job is None:
            job = self.jobs[task.job] = JobInfo(task.job)
            self._make_solo_group(job, pod)
        elif job.group is None and job.has_budget:
            # The order of arrival of pods and their budget must not matter.
            needed, created = job.min_available, job.created
            self._make_solo_group(job, pod)
            job.min_available, job.created = needed, created
        return job

    def _make_solo_group(self, job: JobInfo, pod: Pod) -> None:
        """Create a group for pods that name none."""
        group = PodGroupInfo(pod.metadata.namespace, job.uid, 1, is_solo=True)
        job.group, job.min_available, job.queue = group, 1, self.default_queue
        group.priority_class = pod.spec.priority_class_name
        job.created = pod.metadata.creation_timestamp or job.created

    def _remove(self, pod: Pod) -> None:
        """Remove a pod from its job."""
        job = self.jobs.get(self._job_of.pop(pod.uid, ""))
        if job is not None:
            job.remove(pod.uid)
        self._uncounted(pod.uid)

    def contradictions(self) -> Iterator[str]:
        """Pods that the node table counts elsewhere than the jobs do."""
        table = self._table()
        for job in self.jobs.values():
            for task in job.tasks.values():
                if task.status in TERMINATED:
                    continue
                row = table.row_of_pod(task.uid)
                if task.node and (not table.knows_pod(task.uid) or row != table.row(task.node)):
                    yield f"pod {task.uid}: on {task.node!r}, in the node table on row {row}"
                elif task.status is TaskStatus.PENDING and table.knows_pod(task.uid):
                    yield f"pod {task.uid}: pending, in the node table on row {row}"

    # Groups, budgets, queues, classes.

    def group_updated(self, group: PodGroup) -> None:
        """A pod group was added or updated."""
        job = self._job(group.key)
        job.min_available = group.spec.min_member
        job.queue = group.spec.queue or self.default_queue
        if group.metadata.creation_timestamp is not None:
            job.created = group.metadata.creation_timestamp
        job.group = PodGroupInfo(
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
            # Its settings no longer apply to its pods.
            job.group, job.min_available, job.queue = None, 0, ""

    def budget_updated(self, budget: PodDisruptionBudget) -> None:
        """A PodDisruptionBudget was added or updated; without a controller it applies to no job."""
        owner = _controller_of(budget)
        if not owner:
            return
        job = self._job(owner)
        needed = budget.spec.min_available
        job.min_available = needed if isinstance(needed, int) else 0
        if budget.metadata.creation_timestamp is not None:
            job.created = budget.metadata.creation_timestamp
        job.has_budget = True
        job.queue = self.default_queue

    def budget_deleted(self, budget: PodDisruptionBudget) -> None:
        """A PodDisruptionBudget was deleted."""
        job = self.jobs.get(_controller_of(budget))
        if job is None:
            return
        job.has_budget = False
        ours = (t.pod for t in job.tasks.values())
        first = next((pod for pod in ours if pod.spec.scheduler_name in self.scheduler_names), None)
        if first is not None and job.is_solo:
            # The remaining pods have no group.
            self._make_solo_group(job, first)

    def queue_updated(self, queue: Queue) -> None:
        """A queue was added or updated."""
        stated = queue.spec.capability
        capability = node_allocatable_of(stated) if stated else None
        created = queue.metadata.creation_timestamp
        # Defaults that Volcano's webhook sets.
        absent = 1 if queue.api_version == VOLCANO_API_VERSION else 0
        self.queues[queue.name] = QueueInfo(
            queue.name,
            queue.spec.weight or absent,
            created,
            capability,
            is_reclaimable=queue.spec.reclaimable is not False,
            state=queue.status.state,
        )

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

    def _job(self, uid: str) -> JobInfo:
        if uid not in self.jobs:
            self.jobs[uid] = JobInfo(uid)
        return self.jobs[uid]


def _controller_of(value: NamespacedObject) -> str:
    """Uid of an object's controller, or its key, since objects in files have no uid; "" for
    none."""
    owner = value.controller
    if owner is None:
        return ""
    return owner.uid or f"{value.namespace}/{owner.kind}/{owner.name}"


def _job_of_one(pod: Pod) -> str:
    """Job id of a pod without a controller: its uid, which in files may be its key, and may equal
    that of a PodGroup."""
    return pod.uid if pod.uid != pod.key else f"{pod.namespace}/Pod/{pod.metadata.name}"


def is_nomination_new(before: Pod | None, pod: Pod) -> bool:
    """True if the pod's nomination is new."""
    nominated = pod.status.nominated_node_name
    return bool(nominated) and (before is None or nominated != before.status.nominated_node_name)
