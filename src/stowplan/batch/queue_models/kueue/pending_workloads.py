"""Workloads that wait in a ClusterQueue: active ones in order, and inadmissible ones.

Source: Kueue, pkg/cache/queue: cluster_queue.go, inadmissible_workloads.go.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Set

from stowplan.batch.queue_models.kueue.admission_workload import (
    QUOTA_RESERVED,
    REQUEUED,
    AdmissionWorkload,
)
from stowplan.batch.queue_models.kueue.kueue_objects import ZERO_TIME, seconds

STRICT = "StrictFIFO"

AFTER_NOMINATION = "FailedAfterNomination"
PENDING_PREEMPTION = "PendingPreemption"
NAMESPACE_MISMATCH = "NamespaceMismatch"
GATED = "PreemptionGated"
NO_FIT = "NoFit"
NO_CANDIDATES = "PreemptionNoCandidates"
"""Why a workload goes back to its queue."""


_Order = tuple[int, float, str, str]
"""Priority (negative), time, uid and key of a workload."""


class _AlikeWorkloads:
    """Workloads of one shape and LocalQueue, by key. They fare alike: all are active or none.

    The heap finds the first one; entries whose workload has left or changed do not count.
    """

    def __init__(self) -> None:
        self.members: dict[str, AdmissionWorkload] = {}
        self.is_active = True
        self._heap: list[_Order] = []

    def add(self, one: AdmissionWorkload) -> None:
        """Add one."""
        self.members[one.key] = one
        heapq.heappush(self._heap, _order(one))

    def take_first(self) -> AdmissionWorkload:
        """Take what `first` has found."""
        return self.members.pop(heapq.heappop(self._heap)[-1])

    def first(self) -> _Order | None:
        """The first one; None if there is none."""
        while self._heap:
            entry = self._heap[0]
            found = self.members.get(entry[-1])
            if found is not None and _order(found) == entry:
                return entry
            heapq.heappop(self._heap)
        return None


class PendingWorkloads:
    """Workloads that wait in one queue. sticky: key of the one that comes first, "" for none.
    usage_of: what a LocalQueue has used, where that orders workloads before all else.

    Those that failed for what they ask for wait with all that ask for the same; others that are
    inadmissible stand apart.
    """

    def __init__(self, strategy: str) -> None:
        self.strategy = strategy
        self.sticky = ""
        self.usage_of: Callable[[str], float] | None = None
        self._groups: dict[tuple[bytes, str, str], _AlikeWorkloads] = {}
        self._apart: dict[str, AdmissionWorkload] = {}
        # Shape -> why one of it got no quota.
        self._bad_shapes: dict[bytes, str] = {}

    @property
    def active(self) -> dict[str, AdmissionWorkload]:
        """Those that will be tried, by key."""
        return self._members(is_active=True)

    @property
    def inadmissible(self) -> dict[str, AdmissionWorkload]:
        """Those that wait for a change, by key."""
        return self._members(is_active=False) | self._apart

    @property
    def has_active(self) -> bool:
        """Whether one of them will be tried."""
        return any(one.is_active and one.members for one in self._groups.values())

    def __len__(self) -> int:
        return sum(len(one.members) for one in self._groups.values()) + len(self._apart)

    def push(self, workload: AdmissionWorkload, now: float) -> None:
        """Let a workload wait that is new, or was evicted."""
        self._apart.pop(workload.key, None)
        if is_requeued(workload, now):
            self._add(workload)
        else:
            self._apart[workload.key] = workload

    def requeue(self, workload: AdmissionWorkload, why: str, now: float) -> None:
        """Take back a head that got no quota."""
        key = workload.key
        if why == PENDING_PREEMPTION:
            self.sticky = key if self.strategy != STRICT else ""
        at_once = (
            why != NAMESPACE_MISMATCH
            if self.strategy == STRICT
            else why in (AFTER_NOMINATION, PENDING_PREEMPTION)
        )
        has_left = workload.tried is not None and workload.tried.has_flavors_left
        is_free = is_requeued(workload, now)
        if is_free and (at_once or has_left):
            self._add(workload)
            return
        if why not in (NO_FIT, NO_CANDIDATES) or self.strategy == STRICT:
            self._apart[key] = workload
            return
        self._bad_shapes[workload.shape] = workload.conditions[QUOTA_RESERVED].reason
        for (shape, _, _), one in self._groups.items():
            if shape == workload.shape:
                one.is_active = False
        if is_free:
            self._add(workload)
        else:
            self._apart[key] = workload

    def why_bypassed(self, one: AdmissionWorkload) -> str:
        """Why a workload that asks for the same got no quota, so that this one is not tried; "" if
        none failed."""
        return self._bad_shapes.get(one.shape, "")

    def pop(self) -> AdmissionWorkload | None:
        """Take the head."""
        best: tuple[float, bool, _Order] | None = None
        best_group: _AlikeWorkloads | None = None
        for (_, _, local), one in self._groups.items():
            first = one.first() if one.is_active else None
            if first is None:
                continue
            used = 0.0 if self.usage_of is None else self.usage_of(local)
            place = used, self.sticky not in one.members, first
            if best is None or place < best:
                best, best_group = place, one
        if best_group is None:
            return None
        sticky = best_group.members.pop(self.sticky, None)
        return best_group.take_first() if sticky is None else sticky

    def all(self) -> list[AdmissionWorkload]:
        """All that wait."""
        return [*self.active.values(), *self.inadmissible.values()]

    def in_order(self) -> list[str]:
        """Keys of all that wait, as they would be heads if nothing changed."""
        every = self.all()
        usage = self.usage_by_queue(every)
        every.sort(key=lambda one: (usage[one.queue_name], one.key != self.sticky, _order(one)))
        return [one.key for one in every]

    def usage_by_queue(self, workloads: Iterable[AdmissionWorkload]) -> dict[str, float]:
        """What the LocalQueues of workloads have used; 0 each where that orders nothing."""
        names = dict.fromkeys(one.queue_name for one in workloads)
        return {name: 0.0 if self.usage_of is None else self.usage_of(name) for name in names}

    def forget(self, one: AdmissionWorkload) -> None:
        """Drop a workload that got quota or ended."""
        key = _group_key(one)
        group = self._groups.get(key)
        if group is not None:
            group.members.pop(one.key, None)
            if not group.members:
                del self._groups[key]
        self._apart.pop(one.key, None)
        if self.sticky == one.key:
            self.sticky = ""

    def activate(self, namespaces: Set[str], now: float) -> None:
        """Try inadmissible workloads again. namespaces: that the queue takes."""
        self._bad_shapes.clear()
        for key, group in list(self._groups.items()):
            if key[1] in namespaces:
                group.is_active = True
            elif not group.is_active:
                self._apart |= group.members
                del self._groups[key]
        for name, one in list(self._apart.items()):
            if one.namespace in namespaces and is_requeued(one, now):
                del self._apart[name]
                self._add(one)

    def _members(self, *, is_active: bool) -> dict[str, AdmissionWorkload]:
        groups = (one for one in self._groups.values() if one.is_active is is_active)
        return {key: one for group in groups for key, one in group.members.items()}

    def _add(self, one: AdmissionWorkload) -> None:
        """Add one to those that ask for the same."""
        key = _group_key(one)
        group = self._groups.get(key)
        if group is None or not group.members:
            group = self._groups[key] = _AlikeWorkloads()
            group.is_active = self.strategy == STRICT or one.shape not in self._bad_shapes
        group.add(one)


def _group_key(one: AdmissionWorkload) -> tuple[bytes, str, str]:
    return one.shape, one.namespace, one.queue_name


def _order(one: AdmissionWorkload) -> _Order:
    return -one.priority, one.queued_since, one.uid, one.key


def is_requeued(workload: AdmissionWorkload, now: float) -> bool:
    """Whether an evicted workload may be tried again."""
    condition = workload.conditions.get(REQUEUED)
    if condition is not None and not condition.is_true:
        return False
    state = workload.workload.status.requeue_state
    at = ZERO_TIME if state is None else seconds(state.requeue_at)
    return now >= at
