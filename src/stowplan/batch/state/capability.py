"""Capability: the most that the jobs of a queue may have together, kept while a session works.

Every action asks before it gives a task room. A task may be placed now if the queue stays within
its capability with all that it holds, pods that are being deleted included; it may be promised room
if the queue does once those are gone. Only the resources that a task asks for are compared.

Differs: kube-batch does not look at the capability of a queue. Volcano's plugins proportion and
capacity enforce it where they are configured; here it holds whatever is configured.

Source: volcano.sh/apis, scheduling/v1beta1 (QueueSpec.capability).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.batch.state.jobs import OCCUPYING, JobInfo, TaskInfo, TaskStatus
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.state.resource_vector import ResourceArithmetic, ResourceVector, format_resource

PODS = "pods"
REACHED = "has reached its capability"
"""Part of what is said of a job whose queue may have no more."""


class _QueueUsage:
    """What a queue has. limits: resource -> the most. held: of tasks with a node or a promise.
    releasing: of tasks that are being deleted."""

    __slots__ = ("held", "limits", "releasing")

    def __init__(self, limits: Mapping[str, float]) -> None:
        self.limits = limits
        self.held = dict.fromkeys(limits, 0.0)
        self.releasing = dict.fromkeys(limits, 0.0)

    def add(self, to: dict[str, float], task: TaskInfo, sign: int) -> None:
        """Count a task, or with sign -1 count it no more."""
        for name in to:
            to[name] += sign * requested_of(task, name)


class QueueCapabilities:
    """The queues with a capability and what they have. queues: by name; none are limited where
    `is_ignored`."""

    def __init__(
        self,
        queues: Mapping[str, QueueInfo],
        jobs: Mapping[str, JobInfo],
        arithmetic: ResourceArithmetic,
        *,
        is_ignored: bool,
    ) -> None:
        self._jobs = jobs
        self._epsilon = arithmetic.milli_epsilon
        self._uses: dict[str, _QueueUsage] = {}
        for name, queue in queues.items():
            limits = {} if is_ignored else limits_of(queue)
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

    # Questions.

    def is_limited(self, queue: str) -> bool:
        """True for a queue that has a capability."""
        return queue in self._uses

    def allows(self, task: TaskInfo, *, later: bool = False) -> bool:
        """True when the task's queue may have it too. later: once what is being deleted is gone."""
        use = self._use_of(task)
        return use is None or not self._excess(use, task, later=later)

    def shortage(self, task: TaskInfo) -> dict[str, float]:
        """Resource -> by how much the queue would exceed its capability with the task, once what
        is being deleted is gone; nothing where it would not."""
        use = self._use_of(task)
        return {} if use is None else self._excess(use, task, later=True)

    def refusal(self, task: TaskInfo) -> str:
        """Why a task may not be placed now, "" where it may."""
        use = self._use_of(task)
        if use is None:
            return ""
        texts = []
        for name in self._excess(use, task, later=False):
            used, most = use.held[name] + use.releasing[name], use.limits[name]
            asks, has, limit = (_text(name, n) for n in (requested_of(task, name), used, most))
            leaving = use.releasing[name]
            more = f", {_text(name, leaving)} of it being deleted" if leaving else ""
            texts.append(f"{name} (asks for {asks}, {has} of {limit} used{more})")
        queue = self._jobs[task.job].queue
        return f"queue {queue!r} {REACHED}: {', '.join(texts)}" if texts else ""

    def _use_of(self, task: TaskInfo) -> _QueueUsage | None:
        return self._uses.get(self._jobs[task.job].queue) if self._uses else None

    def _excess(self, use: _QueueUsage, task: TaskInfo, *, later: bool) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, most in use.limits.items():
            amount = requested_of(task, name)
            used = use.held[name] + (0.0 if later else use.releasing[name])
            if amount > 0 and used + amount > most + self._epsilon:
                found[name] = used + amount - most
        return found

    # Changes. The status of the task is the one that it has come to.

    def hold(self, task: TaskInfo) -> None:
        """A task has been given room, or was promised some."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, 1)

    def give_back(self, task: TaskInfo) -> None:
        """It has not any more."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, -1)

    def release(self, task: TaskInfo) -> None:
        """A task that had room is being deleted."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.held, task, -1)
            use.add(use.releasing, task, 1)

    def unrelease(self, task: TaskInfo) -> None:
        """It is not after all."""
        use = self._use_of(task)
        if use is not None:
            use.add(use.releasing, task, -1)
            use.add(use.held, task, 1)


def limits_of(queue: QueueInfo) -> dict[str, float]:
    """Resource -> the most that a queue may have of it, in the units of Amount; pods in pieces.

    cpu, memory or pods of 0 are no limit, as with Volcano; what is not named is none either.
    """
    capability = queue.capability
    if capability is None:
        return {}
    limits = {name: n for name, n in capability.pairs() if n > 0 or name not in ("cpu", "memory")}
    return limits | ({PODS: float(capability.pods)} if capability.pods > 0 else {})


def requested_of(task: TaskInfo, name: str) -> float:
    """What a task takes of a resource; of pods it is one."""
    return 1.0 if name == PODS else task.ask.running.get(name)


def least_excess(
    job: JobInfo, has: ResourceVector, limits: Mapping[str, float]
) -> dict[str, float]:
    """Resource -> by how much `has` and the least that the tasks which a job lacks may ask for
    exceed a limit; nothing where the job can be started within the limits."""
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
