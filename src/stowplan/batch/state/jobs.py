"""Tasks and jobs: pods and their groups, as sessions count them.

Source: kube-batch v0.5, api/job_info.go, api/types.go, api/helpers.go.
"""

from __future__ import annotations

import datetime
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from stowplan._deprecated import deprecated_property
from stowplan.batch.state.task_requests import TaskRequest
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import OCCUPYING, PRIORITY_UNSET, READY, TaskStatus
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroupStatus

_EPOCH = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class TaskInfo:
    """A pod as sessions see it. job: id of its job, "" for none. node: "" for none."""

    __slots__ = (
        "_kind", "ask", "created", "job", "key", "node", "pod", "priority", "status",
        "uid",
    )  # fmt: skip

    def __init__(self, pod: Pod, ask: TaskRequest, job: str, status: TaskStatus, node: str) -> None:
        self.pod = pod
        self.uid = pod.uid
        self.key = pod.key
        self.ask = ask
        self.job = job
        self.status = status
        self.node = node
        self.priority = PRIORITY_UNSET if pod.spec.priority is None else pod.spec.priority
        self.created = pod.metadata.creation_timestamp or _EPOCH
        self._kind: Hashable = None

    @property
    def kind(self) -> Hashable:
        """Key of tasks that are identical to all rules."""
        if self._kind is None:
            pod = self.pod
            self._kind = (id(pod.spec), pod.namespace, frozenset(pod.labels.items()))
        return self._kind

    def __repr__(self) -> str:
        return f"Task({self.key}, {self.status.title}, node {self.node!r})"


class PodGroupInfo:
    """The pod group of a job. is_solo: created for pods that name no group.

    status: as last written.
    """

    __slots__ = (
        "api_version",
        "is_solo",
        "min_member",
        "name",
        "namespace",
        "priority_class",
        "status",
        "uid",
    )

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


class JobInfo:
    """Pods that run together, at least `min_available` of them.

    group: None for the pods of a PodDisruptionBudget, and while the group is unknown. has_budget: a
    PodDisruptionBudget sets the minimum. short_by: node -> free minus requested amounts, for nodes
    that were chosen and lacked resources. fit_errors: why the last task without a node found none.
    ready_count: tasks that have a node or have succeeded. kept: results cached by other modules
    until a task of the job changes.
    """

    __slots__ = (
        "allocated",
        "by_status",
        "created",
        "fit_errors",
        "group",
        "has_budget",
        "kept",
        "min_available",
        "priority",
        "queue",
        "ready_count",
        "short_by",
        "tasks",
        "uid",
        "wanted",
    )  # fmt: skip

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.queue = ""
        self.priority = 0
        self.min_available = 0
        self.created = _EPOCH
        self.group: PodGroupInfo | None = None
        self.has_budget = False
        self.tasks: dict[str, TaskInfo] = {}
        self.by_status: dict[TaskStatus, dict[str, TaskInfo]] = {}
        self.allocated = ResourceVector()
        self.wanted = ResourceVector()
        self.short_by: dict[str, ResourceVector] = {}
        self.fit_errors = ""
        self.ready_count = 0
        self.kept: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Job({self.uid}, {len(self.tasks)} tasks)"

    complaint = deprecated_property("complaint", "fit_errors")

    def of(self, status: TaskStatus) -> Mapping[str, TaskInfo]:
        """Tasks in a status, by uid."""
        return self.by_status.get(status, _NONE)

    def count(self, statuses: Iterable[TaskStatus]) -> int:
        """Number of tasks in these statuses."""
        return sum(len(self.by_status[s]) for s in statuses if s in self.by_status)

    @property
    def is_ready(self) -> bool:
        """True if enough tasks have a node."""
        return self.ready_count >= self.min_available

    @property
    def is_pipelined(self) -> bool:
        """True if enough tasks are allocated or pipelined."""
        return self.ready_count + len(self.of(TaskStatus.PIPELINED)) >= self.min_available

    @property
    def is_solo(self) -> bool:
        """True if the job has no PodGroup object."""
        return self.group is None or self.group.is_solo

    def add(self, task: TaskInfo) -> None:
        """Add a task."""
        self.tasks[task.uid] = task
        self.by_status.setdefault(task.status, {})[task.uid] = task
        self._count(task, add=True)

    def remove(self, uid: str) -> bool:
        """Remove a task; False if it is not in the job."""
        task = self.tasks.pop(uid, None)
        if task is None:
            return False
        held = self.by_status.get(task.status)
        if held is not None:
            held.pop(uid, None)
            if not held:
                del self.by_status[task.status]
        self._count(task, add=False)
        return True

    def turn(self, task: TaskInfo, status: TaskStatus) -> None:
        """Change a task's status."""
        self.remove(task.uid)
        task.status = status
        self.add(task)

    def _count(self, task: TaskInfo, *, add: bool) -> None:
        self.kept.clear()
        if task.status in READY:
            self.ready_count += 1 if add else -1
        # Requests include allocated and waiting tasks, as fair shares need them.
        taking = task.status in OCCUPYING
        for amount, counts in (
            (self.allocated, taking),
            (self.wanted, taking or task.status is TaskStatus.PENDING),
        ):
            if not counts:
                continue
            if add:
                amount.add(task.ask.running)
            else:
                amount.take(task.ask.running)


_NONE: Mapping[str, TaskInfo] = {}
