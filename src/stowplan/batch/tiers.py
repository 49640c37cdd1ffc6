"""Tiers of policies, and how what they say is combined.

The first comparison that is not zero wins. Predicates and readiness are conjunctions, overused is a
disjunction. Victims are intersected within a tier; the first tier with an opinion decides.

A policy may have an opinion about victims (these, and no others, may go) or a veto (these stay,
whatever others say). The vetoes of all tiers up to the one that decides take their pods out first,
and are no opinion: that gang protects its members does not keep proportion, a tier below, from
being asked whose turn it is to give. Where only vetoes are heard, all that they leave may go.

Source: kube-batch v0.5, framework/session_plugins.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.batch.compat import Compat
from stowplan.batch.heap import Heap, SortedTasks
from stowplan.batch.hook_contracts import HookKind, ValidateResult, check_answers, source_location
from stowplan.batch.state.jobs import JobInfo, TaskInfo, TaskStatus
from stowplan.batch.state.queues import QueueInfo
from stowplan.framework.problems import ContractError

SWITCH_OF: Mapping[str, str] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "task_order": "enableTaskOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "queue_order": "enableQueueOrder",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
}
"""Kind of function -> the switch of a configuration that turns it off; the others have none."""

Victims = Callable[[TaskInfo, Sequence[TaskInfo]], list[TaskInfo]]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


TaskQueue = Heap[TaskInfo] | SortedTasks[TaskInfo]
"""Tasks that are popped in their order."""


class SessionPluginUse(msgspec.Struct, frozen=True):
    """A policy in a tier. disabled: the switches that are off. arguments: as written."""

    name: str
    disabled: frozenset[str] = frozenset()
    arguments: Mapping[str, str] = {}


Tiers = tuple[tuple[SessionPluginUse, ...], ...]


_ORDER = "order"


def _unknown_row_kind(_: TaskInfo) -> Hashable:
    return None


class TierVictims(msgspec.Struct):
    """What one tier has to say about victims: policies with an opinion, and those with a veto."""

    opinions: list[Victims]
    vetoes: list[Victims]


class Hooks:
    """The functions that policies registered, walked tier by tier.

    A function is called under the name of its policy wherever that stands in the tiers and is not
    switched off.
    """

    def __init__(self, tiers: Tiers, compat: Compat) -> None:
        self.tiers = tiers
        self.compat = compat
        self._names = {use.name for tier in tiers for use in tier}
        self._given: dict[tuple[str, str], Any] = {}
        self._vetoes: set[tuple[str, str]] = set()
        self._row_kinds: dict[tuple[str, str], Callable[[TaskInfo], Hashable]] = {}
        self._spares: dict[tuple[str, str], Callable[[JobInfo], bool] | None] = {}
        self._whys: dict[tuple[str, str], Callable[[QueueInfo], str] | None] = {}
        self._keys: dict[tuple[str, str], Callable[[TaskInfo], Any] | None] = {}
        self._walks: dict[str, list[Any]] = {}
        self._spare_walks: dict[str, list[Callable[[JobInfo], bool]]] = {}
        self._opinions: dict[str, list[TierVictims]] = {}

    # Registering.

    def register(
        self,
        kind: HookKind,
        policy: str,
        function: Any,
        *,
        veto: bool = False,
        row_kind: Callable[[TaskInfo], Hashable] = _unknown_row_kind,
        key: Callable[[TaskInfo], Any] | None = None,
        spares: Callable[[JobInfo], bool] | None = None,
        why: Callable[[QueueInfo], str] | None = None,
    ) -> None:
        """Take a policy's function of a kind, in place of an earlier one.

        job_order, queue_order, task_order: (first, second) -> below 0 when the first goes first.
        predicate: (task, rows) -> bool (n_rows,), the rows that may take it. node_order: (task,
        rows) -> float64 (n_rows,), higher is better; rows are int64. row_kind: (task) -> equal for
        tasks that get the same answer for a row, so that it may be kept; None where it may
        depend on other rows. key: for a task_order, a key that does not change in a session, by
        which the smaller goes first. preemptable, reclaimable: (task, candidates) -> those that may
        go; veto: those that are left out stay, whatever others say; spares: (job) -> True when
        the function would let none of the job's tasks go, whoever asks. overused: (queue) -> bool;
        why: (queue) -> what its jobs are told when it is. job_ready, job_pipelined: (job) -> bool.
        job_valid: (job) -> Invalid or None.

        Raises ContractError for a kind that is not one of these, a name that is in no tier, and
        what cannot be called like that. A function of one's own that answers otherwise raises it.
        """
        place = source_location(function)
        self._given[kind, policy] = check_answers(kind, policy, function, place)
        if policy not in self._names:
            names = ", ".join(sorted(self._names))
            text = f"registers {kind} under {policy!r}, wanted its own name, one of {names}"
            raise ContractError(f"{place}: {text}")
        if veto:
            self._vetoes.add((kind, policy))
        self._row_kinds[kind, policy] = check_answers("row_kind", policy, row_kind, place)
        self._keys[kind, policy] = None
        self._spares[kind, policy] = None
        self._whys[kind, policy] = None
        if key is not None:
            self._keys[kind, policy] = check_answers("key", policy, key, place)
        if spares is not None:
            self._spares[kind, policy] = check_answers("spares", policy, spares, place)
        if why is not None:
            self._whys[kind, policy] = check_answers("why", policy, why, place)
        self._walks.clear()
        self._spare_walks.clear()
        self._opinions.clear()

    def walk(self, kind: HookKind) -> list[Any]:
        """The functions of a kind in the order in which they are asked."""
        found = self._walks.get(kind)
        if found is None:
            found = self._walks[kind] = [
                self._given[kind, use.name]
                for tier in self.tiers
                for use in self._active(kind, tier)
            ]
        return found

    def _active(
        self, kind: HookKind, tier: Iterable[SessionPluginUse]
    ) -> Iterable[SessionPluginUse]:
        switch = SWITCH_OF.get(kind, "")
        return (u for u in tier if switch not in u.disabled and (kind, u.name) in self._given)

    # Order.

    def _compared(self, kind: HookKind, first: Any, second: Any) -> float:
        """The first opinion on which of two comes first: below 0 for `first`, 0 for none."""
        for compare in self.walk(kind):
            said: float = compare(first, second)
            if said:
                return said
        return 0

    def job_less(self, first: JobInfo, second: JobInfo) -> bool:
        """True when `first` is served before `second`; in doubt the older one, then by uid."""
        said = self._compared("job_order", first, second)
        return said < 0 if said else (first.created, first.uid) < (second.created, second.uid)

    def queue_less(self, first: QueueInfo, second: QueueInfo) -> bool:
        """True when `first` is served before `second`; in doubt the older one, then by name."""
        said = self._compared("queue_order", first, second)
        return said < 0 if said else (first.created, first.name) < (second.created, second.name)

    def task_less(self, first: TaskInfo, second: TaskInfo) -> bool:
        """True when `first` is served before `second`; in doubt the older one, then by uid."""
        said = self._compared("task_order", first, second)
        return said < 0 if said else (first.created, first.uid) < (second.created, second.uid)

    def job_turns(
        self, job: JobInfo, wanted: Callable[[TaskInfo], bool] | None = None
    ) -> TaskQueue:
        """The pending tasks of a job that are wanted, None for all, to be popped in their order."""
        pending = job.of(TaskStatus.PENDING).values()
        return self.task_turns(filter(wanted, pending) if wanted else pending, job, wanted)

    def task_turns(
        self,
        tasks: Iterable[TaskInfo],
        job: JobInfo | None = None,
        wanted: Callable[[TaskInfo], bool] | None = None,
    ) -> TaskQueue:
        """Tasks to be popped in their order; sorted at once where the order has keys.

        job: they are those of its pending tasks that are `wanted`, whose order is kept.
        """
        keys = [
            self._keys["task_order", use.name]
            for tier in self.tiers
            for use in self._active("task_order", tier)
        ]
        known = [key for key in keys if key is not None]
        if len(known) < len(keys):
            return Heap(self.task_less, tasks)

        def order(task: TaskInfo) -> tuple[Any, ...]:
            return (*(key(task) for key in known), task.created, task.uid)

        if job is None:
            return SortedTasks(order, tasks)
        tiers, kept = job.kept.get(_ORDER, (None, ()))
        if tiers is not self.tiers:
            pending = job.of(TaskStatus.PENDING).values()
            kept = tuple(sorted(pending, key=order, reverse=True))
            job.kept[_ORDER] = self.tiers, kept
        return SortedTasks(order, filter(wanted, kept), is_sorted=True)

    # Conjunctions and the disjunction.

    def job_ready(self, job: JobInfo) -> bool:
        """True when every policy finds that the job may start."""
        return all(ready(job) for ready in self.walk("job_ready"))

    def job_pipelined(self, job: JobInfo) -> bool:
        """True when every policy finds that the job can start once room is free."""
        return all(pipelined(job) for pipelined in self.walk("job_pipelined"))

    def job_invalid(self, job: JobInfo) -> ValidateResult | None:
        """What the first policy that objects to the job says, None when none does."""
        said = (valid(job) for valid in self.walk("job_valid"))
        return next((invalid for invalid in said if invalid is not None), None)

    def overused(self, queue: QueueInfo) -> bool:
        """True when some policy finds that the queue has had enough."""
        return any(overused(queue) for overused in self.walk("overused"))

    def why_overused(self, queue: QueueInfo) -> str:
        """What the first policy that finds so says of it, "" when none does."""
        for tier in self.tiers:
            for use in self._active("overused", tier):
                if self._given["overused", use.name](queue):
                    why = self._whys["overused", use.name]
                    return why(queue) if why else f"queue {queue.name!r} is overused by {use.name}"
        return ""

    def passing(self, task: TaskInfo, rows: Ints) -> Bools:
        """bool (n_rows,): the rows that every policy lets the task have."""
        result: Bools = np.ones(rows.shape[0], dtype=np.bool_)
        for predicate in self.walk("predicate"):
            result &= predicate(task, rows)
        return result

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Equal for tasks of which predicates and scores say the same of a row; None: unknown."""
        kinds: tuple[HookKind, HookKind] = ("predicate", "node_order")
        found = [
            self._row_kinds[kind, use.name](task)
            for kind in kinds
            for tier in self.tiers
            for use in self._active(kind, tier)
        ]
        return None if any(kind is None for kind in found) else tuple(found)

    def scores(self, task: TaskInfo, rows: Ints) -> Floats:
        """float64 (n_rows,): what all policies together think of these rows."""
        total: Floats = np.zeros(rows.shape[0], dtype=np.float64)
        for order in self.walk("node_order"):
            total += order(task, rows)
        return total

    # Victims.

    def victims(
        self,
        kind: Literal["preemptable", "reclaimable"],
        task: TaskInfo,
        candidates: Sequence[TaskInfo],
    ) -> list[TaskInfo]:
        """Those of `candidates` that may go for `task`, in their order."""
        if self.compat.tiers_stick:
            return self._victims_v0_5(kind, task, candidates)
        left = list(candidates)
        asked = False
        for tier in self._tier_opinions(kind):
            for veto in tier.vetoes:
                left = _intersect(left, veto(task, left))
                asked = True
            if tier.opinions:
                for opinion in tier.opinions:
                    left = _intersect(left, opinion(task, left))
                return left
        return left if asked else []

    def spares(self, kind: Literal["preemptable", "reclaimable"], job: JobInfo) -> bool:
        """True when it is known that none of the job's tasks would be let go."""
        if self.compat.tiers_stick:
            return False
        found = self._spare_walks.get(kind)
        if found is None:
            found = self._spare_walks[kind] = self._spare_walk(kind)
        return any(spares(job) for spares in found)

    def _spare_walk(self, kind: HookKind) -> list[Callable[[JobInfo], bool]]:
        """What spares jobs, up to the tier that decides."""
        found: list[Callable[[JobInfo], bool]] = []
        for tier in self.tiers:
            decides = False
            for use in self._active(kind, tier):
                spares = self._spares[kind, use.name]
                if spares is not None:
                    found.append(spares)
                decides |= (kind, use.name) not in self._vetoes
            if decides:
                break
        return found

    def _tier_opinions(self, kind: HookKind) -> list[TierVictims]:
        found = self._opinions.get(kind)
        if found is None:
            found = self._opinions[kind] = []
            for tier in self.tiers:
                said = TierVictims([], [])
                for use in self._active(kind, tier):
                    side = said.vetoes if (kind, use.name) in self._vetoes else said.opinions
                    side.append(self._given[kind, use.name])
                found.append(said)
        return found

    def _victims_v0_5(
        self, kind: HookKind, task: TaskInfo, candidates: Sequence[TaskInfo]
    ) -> list[TaskInfo]:
        """As the original: what the first asked says is never forgotten, not even between tiers."""
        found: list[TaskInfo] = []
        begun = False
        for tier in self.tiers:
            for use in self._active(kind, tier):
                said = self._given[kind, use.name](task, candidates)
                found = _intersect(found, said) if begun else said
                begun = True
            if found:
                return found
        return found


def _intersect(first: Sequence[TaskInfo], second: Sequence[TaskInfo]) -> list[TaskInfo]:
    kept = {task.uid for task in second}
    return [task for task in first if task.uid in kept]
