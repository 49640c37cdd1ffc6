"""Tasks and jobs: pods and their groups, as kube-batch v0.5 counts them.

Source: kube-batch v0.5, api/job_info.go.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping

from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import OCCUPYING, PRIORITY_UNSET, READY, TaskStatus
from stowplan.kube_batch_v05.amounts import KubeBatchRequest, request_of
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupStatus

EPOCH = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_NONE: Mapping[str, KubeBatchTask] = {}


class KubeBatchTask:
    """A pod. job: id of its job, "" for none. node: "" for none; it stays set when a placement is
    undone."""

    __slots__ = ("ask", "created", "job", "key", "node", "pod", "priority", "status", "uid")

    def __init__(self, pod: Pod, job: str, status: TaskStatus, node: str) -> None:
        self.pod = pod
        self.uid = pod.uid
        self.key = pod.key
        self.ask: KubeBatchRequest = request_of(pod)
        self.job = job
        self.status = status
        self.node = node
        self.priority = PRIORITY_UNSET if pod.spec.priority is None else pod.spec.priority
        self.created = pod.metadata.creation_timestamp or EPOCH

    def __repr__(self) -> str:
        return f"KubeBatchTask({self.key}, {self.status.title}, node {self.node!r})"

    def copy(self) -> KubeBatchTask:
        """An independent copy."""
        return KubeBatchTask(self.pod, self.job, self.status, self.node)


class KubeBatchPodGroup:
    """The pod group of a job. is_solo: created in memory for pods that name no group. status: as
    last written."""

    __slots__ = ("api_version", "is_solo", "min_member", "name", "namespace", "priority_class",
                 "status", "uid")  # fmt: skip

    def __init__(
        self,
        namespace: str,
        name: str,
        min_member: int,
        *,
        uid: str = "",
        priority_class: str = "",
        api_version: str = "",
        status: PodGroupStatus | None = None,
        is_solo: bool = False,
    ) -> None:
        self.uid = uid
        self.namespace = namespace
        self.name = name
        self.min_member = min_member
        self.priority_class = priority_class
        self.api_version = api_version
        self.status = status or PodGroupStatus()
        self.is_solo = is_solo

    @property
    def key(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.namespace}/{self.name}"


class KubeBatchJob:
    """Pods of which at least `min_available` run together.

    group: None for pods of a PodDisruptionBudget, and while the group is unknown. short_by: node ->
    idle minus requested amounts, for the last node that was chosen without being idle. The index
    by_status keeps a task of which `tasks` has a later version.
    """

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.queue = ""
        self.priority = 0
        self.min_available = 0
        self.created = EPOCH
        self.group: KubeBatchPodGroup | None = None
        self.has_budget = False
        self.tasks: dict[str, KubeBatchTask] = {}
        self.by_status: dict[TaskStatus, dict[str, KubeBatchTask]] = {}
        self.short_by: dict[str, ResourceVector] = {}

    def __repr__(self) -> str:
        return f"KubeBatchJob({self.uid}, {len(self.tasks)} tasks)"

    def of(self, status: TaskStatus) -> Mapping[str, KubeBatchTask]:
        """Tasks in a status, by uid."""
        return self.by_status.get(status, _NONE)

    def count(self, statuses: Iterable[TaskStatus]) -> int:
        """Number of tasks in these statuses."""
        return sum(len(self.of(status)) for status in statuses)

    @property
    def ready_count(self) -> int:
        """Number of tasks that have a node or have succeeded."""
        return self.count(READY)

    @property
    def is_ready(self) -> bool:
        """True if enough tasks have a node."""
        return self.ready_count >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """True if enough tasks have a node or wait for one that is being freed."""
        return self.ready_count + len(self.of(TaskStatus.PIPELINED)) >= self.min_available

    @property
    def is_solo(self) -> bool:
        """True if the job has no PodGroup object."""
        return self.group is None or self.group.is_solo

    @property
    def allocated(self) -> ResourceVector:
        """Sum of the requests of tasks that have a node, a new vector."""
        return self._sum(OCCUPYING)

    @property
    def wanted(self) -> ResourceVector:
        """Sum of the requests of tasks that have a node or are pending, a new vector."""
        return self._sum(OCCUPYING | {TaskStatus.PENDING})

    def _sum(self, statuses: Iterable[TaskStatus]) -> ResourceVector:
        total = ResourceVector()
        for status in statuses:
            for task in self.of(status).values():
                total.add(task.ask.running)
        return total

    def add(self, task: KubeBatchTask) -> None:
        """Add a task."""
        self.tasks[task.uid] = task
        self.by_status.setdefault(task.status, {})[task.uid] = task

    def remove(self, uid: str) -> bool:
        """Remove a task; False if it is not in the job."""
        task = self.tasks.pop(uid, None)
        if task is None:
            return False
        indexed = self.by_status.get(task.status, {})
        indexed.pop(uid, None)
        if not indexed:
            self.by_status.pop(task.status, None)
        return True

    def turn(self, task: KubeBatchTask, status: TaskStatus) -> None:
        """Change a task's status; `task` may be a copy of the job's own and replaces it."""
        self.remove(task.uid)
        task.status = status
        self.add(task)

    def copy(self) -> KubeBatchJob:
        """A copy with copies of its tasks; the group is shared."""
        other = KubeBatchJob(self.uid)
        other.queue, other.priority = self.queue, self.priority
        other.min_available, other.created = self.min_available, self.created
        other.group, other.has_budget = self.group, self.has_budget
        for task in self.tasks.values():
            other.add(task.copy())
        return other


def job_fit_error(job: KubeBatchJob) -> str:
    """Why the last task of the job was not allocated: only the chosen node is named."""
    if not job.short_by:
        return "0 nodes are available"
    reasons: Counter[str] = Counter()
    for left in job.short_by.values():
        reasons.update(name for name in left.names() if left.get(name) < 0)
    texts = sorted(f"{count} insufficient {name}" for name, count in reasons.items())
    return f"0/{len(job.short_by)} nodes are available, {', '.join(texts)}."
