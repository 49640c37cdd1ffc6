"""Queue capability: the most that the jobs of a queue may use together, tracked during a session.

Every action checks it before placing a task. A task may be allocated if the queue stays within its
capability with everything it holds, terminating pods included; it may be pipelined if the queue
does once those are gone. Only resources that a task requests are compared.

Differs: kube-batch ignores the capability of a queue. Volcano's plugins proportion and capacity
enforce it where they are configured; here it is always enforced.

Source: volcano.sh/apis, scheduling/v1beta1 (QueueSpec.capability).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.task_requests import EPSILON, format_resource
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus

PODS = "pods"
REACHED = "has reached its capability"
"""Part of the message for jobs whose queue has reached its capability."""


class _QueueUsage:
    """Usage of a queue. limits: resource -> maximum. held: of allocated and pipelined tasks.
    releasing: of terminating tasks."""

    __slots__ = ("held", "limits", "releasing")

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.held = dict.fromkeys(limits, 0.0)
        self.releasing = dict.fromkeys(limits, 0.0)

    def add(self, to: dict[str, float], task: TaskInfo, sign: int) -> None:
        """Add a task's resources, or subtract them with sign -1."""
        for name in to:
            to[name] += sign * requested_of(task, name)


class QueueCapabilities:
    """Usage of queues with a capability. queues: by name."""

    def __init__(
        self,
        queues: Mapping[str, QueueInfo],
        jobs: Mapping[str, JobInfo],
    ) -> None:
        self._jobs = jobs
        self._uses: dict[str, _QueueUsage] = {}
        for name, queue in queues.items():
            limits = limits_of(queue)
            if limits:
                self._uses[name] = _QueueUsage(limits)
        if self._uses:
            self._count(jobs.values())

    def _count(self, jobs: Iterable[JobInfo]) -> None:
        for job in jobs:
            use = self._uses.get(job.queue)
            if use is None:
                continue
            for status, tasks in job.by_status.items():
                if status in OCCUPYING or status is TaskStatus.RELEASING:
                    to = use.releasing if status is TaskStatus.RELEASING else use.held
                    for task in tasks.values():
                        use.add(to, task, 1)

    # Queries.

    def is_limited(self, queue: str) -> bool:
        """True for a queue with a capability."""
        return queue in self._uses

    def allows(self, task: TaskInfo, *, later: bool = False) -> bool:
        """True if the capability allows the task. later: once terminating pods are gone."""
        use = self._use_of(task)
        return use is None or not self._excess(use, task, later=later)

    def shortage(self, task: TaskInfo) -> dict[str, float]:
        """Resource -> amount by which the queue would exceed its capability with the task, once
        terminating pods are gone; empty if it would not."""
        use = self._use_of(task)
        return {} if use is None else self._excess(use, task, later=True)

    def refusal(self, task: TaskInfo) -> str:
        """Why a task may not be allocated now, "" if it may."""
        use = self._use_of(task)
        if use is None:
            return ""
        texts = []
        for name in self._excess(use, task, later=False):
            used, most = use.held[name] + use.releasing[name], use.limits[name]
            asks, has, limit = (_text(name, n) for n in (requested_of(task, name), used, most))
            leaving = use.releasing[name]
            more = f", terminating: {name}={_text(name, leaving)}" if leaving else ""
            text = f"requested: {name}={asks}, used: {name}={has}, limited: {name}={limit}"
            texts.append(text + more)
        queue = self._jobs[task.job].queue
        return f"queue {queue!r} {REACHED}: {'; '.join(texts)}" if texts else ""

    def _use_of(self, task: TaskInfo) -> _QueueUsage | None:
        return self._uses.get(self._jobs[task.job].queue) if self._uses else None

    def _excess(self, use: _QueueUsage, task: TaskInfo, *, later: bool) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, most in use.limits.items():
            amount = requested_of(task, name)
            used = use.held[name] + (0.0 if later else use.releasing[name])
            if amount > 0 and used + amount > most + EPSILON:
                found[name] = used + amount - most
        return found

    # Updates. The task already has its new status.

    def hold(self, task: TaskInfo) -> None:
        """A task was allocated or pipelined."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, 1)

    def give_back(self, task: TaskInfo) -> None:
        """A task's placement was undone."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, -1)

    def release(self, task: TaskInfo) -> None:
        """An allocated task is terminating."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, -1)
            use.add(use.releasing, task, 1)

    def unrelease(self, task: TaskInfo) -> None:
        """The eviction of a task was undone."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.releasing, task, -1)
            use.add(use.held, task, 1)


def limits_of(queue: QueueInfo) -> dict[str, float]:
    """Resource -> limit of a queue, in the units of ResourceVector; pods as a count.

    cpu, memory or pods of 0 are no limit, as with Volcano; nor are resources that are not named.
    """
    capability = queue.capability
    if capability is None:
        return {}
    limits = {name: n for name, n in capability.pairs() if n > 0 or name not in ("cpu", "memory")}
    return limits | ({PODS: float(capability.pods)} if capability.pods > 0 else {})


def requested_of(task: TaskInfo, name: str) -> float:
    """Amount of a resource that a task uses; of pods it is one."""
    return 1.0 if name == PODS else task.ask.running.get(name)


def least_excess(
    job: JobInfo, has: ResourceVector, limits: Mapping[str, float]
) -> dict[str, float]:
    """Resource -> amount by which `has` plus the minimum request of the job's missing tasks exceeds
    a limit; empty if the job can start within the limits."""
    waiting = [t for s in _WAITING for t in job.of(s).values()]
    n_missing = max(job.min_available - job.ready_count, 0)
    found = {}
    for name, most in limits.items():
        least = sum(sorted(requested_of(task, name) for task in waiting)[:n_missing])
        held = float(job.count(OCCUPYING)) if name == PODS else has.get(name)
        if least > 0 and held + least > most:
            found[name] = held + least - most
    return found


_WAITING = (TaskStatus.PENDING, TaskStatus.ALLOCATED, TaskStatus.PIPELINED)


def _text(name: str, amount: float) -> str:
    return f"{amount:.0f}" if name == PODS else format_resource(name, amount)
