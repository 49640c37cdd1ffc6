"""Quotas of queues for devices of device classes.

Keys of a resource list: `deviceclass/NAME` counts devices, `DIMENSION.deviceclass/NAME` their
capacity. A claim that several pods of a queue share counts once.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/capacity/capacity.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.batch.queue_models.volcano.plugins.shares.queue_attributes import QueueAttributes
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob
from stowplan.batch.queue_models.volcano.volcano_task import ALLOCATED_STATUSES, VolcanoTask
from stowplan.objects.quantity import Quantity, nanos, value

CLASS, IN_CLASS = "deviceclass/", ".deviceclass/"

DeviceAmounts = dict[tuple[str, str], int]
"""(device class, dimension) -> amount; dimension "" counts devices, others are in billionths."""


def parsed_quota(quantities: Mapping[str, Quantity]) -> DeviceAmounts:
    """The quota of a resource list."""
    found: DeviceAmounts = {}
    for name, quantity in quantities.items():
        dimension, separator, in_class = name.partition(IN_CLASS)
        if separator and dimension and in_class:
            found[in_class, dimension] = nanos(quantity)
        elif name.startswith(CLASS) and name != CLASS:
            found[name.removeprefix(CLASS), ""] = value(quantity)
    return found


class _QueueQuota:
    """Quota of one queue: limits, what is in use, what admitted jobs may take, and the claims in
    use with the number of pods."""

    def __init__(self, limits: DeviceAmounts) -> None:
        self.limits = limits
        self.used: DeviceAmounts = {}
        self.inqueue: DeviceAmounts = {}
        self.claims: dict[str, int] = {}


class DeviceQuotas:
    """Quotas of all queues."""

    def __init__(
        self,
        session: VolcanoSession,
        attributes: Mapping[str, QueueAttributes],
        *,
        is_on: bool,
        with_capacity: bool,
    ) -> None:
        self._session, self._with_capacity = session, with_capacity
        self._requests = session.cluster.device_requests
        self._paths = {name: (name, *one.ancestors) for name, one in attributes.items()}
        self._quotas: dict[str, _QueueQuota] = {}
        for name, one in attributes.items() if is_on else ():
            spec = one.queue.queue.spec
            lists = (spec.capability, spec.deserved, spec.guarantee.resource)
            if any(parsed_quota(quantities) for quantities in lists):
                self._quotas[name] = _QueueQuota(parsed_quota(spec.capability))
        for job in session.jobs.values() if self._quotas else ():
            for task in job.in_statuses(ALLOCATED_STATUSES):
                self.count(task, 1)

    def count(self, task: VolcanoTask, sign: int) -> None:
        """Count a placed task, or no longer (sign -1)."""
        requests = self._requests.get(task.uid)
        job = self._session.jobs.get(task.job)
        if not requests or job is None:
            return
        for name in self._paths.get(job.queue, ()):
            quota = self._quotas.get(name)
            if quota is None:
                continue
            for claim, amounts in requests.items():
                before = quota.claims.get(claim, 0)
                quota.claims[claim] = max(before + sign, 0)
                if (before == 0) if sign > 0 else (before == 1):
                    _add(quota.used, amounts, sign)

    def allow(self, queue: str, task: VolcanoTask) -> bool:
        """True if a task is within the quota."""
        quota, requests = self._quotas.get(queue), self._requests.get(task.uid)
        if quota is None or not requests:
            return True
        fresh: DeviceAmounts = {}
        for claim, amounts in requests.items():
            if not quota.claims.get(claim):
                _add(fresh, amounts, 1)
        return self._is_within(quota, fresh, (quota.used,))

    def concern(self, job: VolcanoSessionJob) -> bool:
        """True if a job requests devices in a queue with a quota."""
        return job.queue in self._quotas and bool(self._least(job))

    def admit(self, queue: str, job: VolcanoSessionJob) -> bool:
        """True if the minimum of a job is within the quota."""
        quota = self._quotas.get(queue)
        if quota is None:
            return True
        return self._is_within(quota, self._least(job), (quota.used, quota.inqueue))

    def admitted(self, queue: str, job: VolcanoSessionJob) -> None:
        """Count an admitted job."""
        quota = self._quotas.get(queue)
        if quota is not None:
            _add(quota.inqueue, self._least(job), 1)

    def _least(self, job: VolcanoSessionJob) -> DeviceAmounts:
        """What the minimum of a job requests: that of its first tasks with claims, or by role."""
        found: DeviceAmounts = {}
        asking = [task for task in job.tasks.values() if self._requests.get(task.uid)]
        if not job.min_by_role:
            asking.sort(key=lambda task: (task.pod.namespace, task.pod.name, task.uid))
            for task in asking[: max(job.min_available, 0)]:
                _add(found, self._of(task), 1)
            return found
        first = {task.role: task for task in reversed(asking)}
        for role, least in job.min_by_role.items():
            if role in first:
                _add(found, self._of(first[role]), max(least, 0))
        return found

    def _of(self, task: VolcanoTask) -> DeviceAmounts:
        found: DeviceAmounts = {}
        for amounts in self._requests[task.uid].values():
            _add(found, amounts, 1)
        return found

    def _is_within(
        self, quota: _QueueQuota, request: DeviceAmounts, taken: Iterable[DeviceAmounts]
    ) -> bool:
        limited = {in_class for in_class, _ in quota.limits}
        books = tuple(taken)
        for key, amount in request.items():
            if key[0] not in limited or (key[1] and not self._with_capacity):
                continue
            limit = quota.limits.get(key, 0)
            if not key[1] and limit <= 0:
                continue
            if amount + sum(book.get(key, 0) for book in books) > limit:
                return False
        return True


def _add(book: DeviceAmounts, amounts: Mapping[tuple[str, str], int], times: int) -> None:
    for key, amount in amounts.items():
        book[key] = max(book.get(key, 0) + times * amount, 0)
