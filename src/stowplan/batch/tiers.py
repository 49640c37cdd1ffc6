"""Tiers of session plugins, and how their answers are combined.

The first comparison that is not zero decides. Predicates and readiness are conjunctions, overused
is a disjunction. Victims are intersected within a tier; the first tier with an opinion decides.

A session plugin may have an opinion on victims (these and no others may be evicted) or a veto
(these stay, whatever others say). The vetoes of all tiers up to the deciding one remove their pods
first and are no opinion: gang protecting its members does not prevent proportion, a tier below,
from deciding which queue must release. If there are only vetoes, all remaining candidates may be
evicted.

Source: kube-batch v0.5, framework/session_plugins.go.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from stowplan._deprecated import deprecated_keywords
from stowplan.batch.hook_contracts import HookKind, ValidateResult, check_answers, source_location
from stowplan.batch.sorted_tasks import SortedTasks
from stowplan.batch.state.jobs import JobInfo, TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.columns.array_types import Bools, Floats, Ints
from stowplan.framework.deciders.heap import Heap
from stowplan.framework.deciders.tasks import TaskStatus
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
"""Kind of function -> configuration switch that disables it; others have none."""

VictimFunction = Callable[[TaskInfo, Sequence[TaskInfo]], list[TaskInfo]]


TaskQueue = Heap[TaskInfo] | SortedTasks[TaskInfo]
"""Tasks that are popped in order."""


class SessionPluginUse(msgspec.Struct, frozen=True):
    """A session plugin in a tier. disabled: switches that are off. arguments: as written."""

    name: str
    disabled: frozenset[str] = frozenset()
    arguments: Mapping[str, str] = {}


Tiers = tuple[tuple[SessionPluginUse, ...], ...]


_ORDER = "order"


def _unknown_row_kind(_: TaskInfo) -> Hashable:
    return None


class TierVictims(msgspec.Struct):
    """Victim functions of one tier: those with an opinion, and those with a veto."""

    opinions: list[VictimFunction]
    vetoes: list[VictimFunction]


class Hooks:
    """Functions registered by session plugins, called tier by tier.

    A function is called under its plugin's name wherever the plugin is in the tiers and not
    disabled.
    """

    def __init__(self, tiers: Tiers) -> None:
        self.tiers = tiers
        self._names = {use.name for tier in tiers for use in tier}
        self._given: dict[tuple[str, str], Any] = {}
        self._vetoes: set[tuple[str, str]] = set()
        self._row_kinds: dict[tuple[str, str], Callable[[TaskInfo], Hashable]] = {}
        self._spares: dict[tuple[str, str], Callable[[JobInfo], bool] | None] = {}
        self._overused_reasons: dict[tuple[str, str], Callable[[QueueInfo], str] | None] = {}
        self._keys: dict[tuple[str, str], Callable[[TaskInfo], Any] | None] = {}
        self._walks: dict[str, list[Any]] = {}
        self._spare_walks: dict[str, list[Callable[[JobInfo], bool]]] = {}
        self._opinions: dict[str, list[TierVictims]] = {}

    # Registering.

    @deprecated_keywords(policy="plugin")
    def register(
        self,
        kind: HookKind,
        plugin: str,
        function: Any,
        *,
        veto: bool = False,
        row_kind: Callable[[TaskInfo], Hashable] = _unknown_row_kind,
        key: Callable[[TaskInfo], Any] | None = None,
        spares: Callable[[JobInfo], bool] | None = None,
        why: Callable[[QueueInfo], str] | None = None,
    ) -> None:
        """Register a session plugin's function of a kind, replacing an earlier one.

        job_order, queue_order, task_order: (first, second) -> below 0 if the first goes first.
        key: for a task_order, a key that is constant during a session; the smaller goes first.
        predicate: (task, rows) -> bool (n_rows,), rows that pass; rows are int64.
        node_order: (task, rows) -> float64 (n_rows,), higher is better.
        row_kind: (task) -> key of tasks with the same answer for a row, so that it may be cached;
        None if the answer may depend on other rows.
        preemptable, reclaimable: (task, candidates) -> those that may be evicted. veto: candidates
        left out stay, whatever others answer. spares: (job) -> True if the function would release
        none of the job's tasks for any task.
        overused: (queue) -> bool. why: (queue) -> message for its jobs.
        job_ready, job_pipelined: (job) -> bool. job_valid: (job) -> ValidateResult or None.

        Raises ContractError for an unknown kind, for a name that is in no tier, and for a function
        that does not accept the arguments. A custom function with an invalid answer raises it.
        """
        place = source_location(function)
        self._given[kind, plugin] = check_answers(kind, plugin, function, place)
        if plugin not in self._names:
            names = ", ".join(sorted(self._names))
            text = f"hook {kind}: invalid plugin name: {plugin!r}: expected one of {names}"
            raise ContractError(f"{place}: {text}")
        if veto:
            self._vetoes.add((kind, plugin))
        self._row_kinds[kind, plugin] = check_answers("row_kind", plugin, row_kind, place)
        self._keys[kind, plugin] = None
        self._spares[kind, plugin] = None
        self._overused_reasons[kind, plugin] = None
        if key is not None:
            self._keys[kind, plugin] = check_answers("key", plugin, key, place)
        if spares is not None:
            self._spares[kind, plugin] = check_answers("spares", plugin, spares, place)
        if why is not None:
            self._overused_reasons[kind, plugin] = check_answers("why", plugin, why, place)
        self._walks.clear()
        self._spare_walks.clear()
        self._opinions.clear()

    def walk(self, kind: HookKind) -> list[Any]:
        """Functions of a kind, in call order."""
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
        """The first nonzero comparison of two items: below 0 for `first`, 0 for none."""
        for compare in self.walk(kind):
            order: float = compare(first, second)
            if order:
                return order
        return 0

    def job_less(self, first: JobInfo, second: JobInfo) -> bool:
        """True if `first` is served before `second`; ties go to the older one, then by uid."""
        order = self._compared("job_order", first, second)
        return order < 0 if order else (first.created, first.uid) < (second.created, second.uid)

    def queue_less(self, first: QueueInfo, second: QueueInfo) -> bool:
        """True if `first` is served before `second`; ties go to the older one, then by name."""
        order = self._compared("queue_order", first, second)
        return order < 0 if order else (first.created, first.name) < (second.created, second.name)

    def task_less(self, first: TaskInfo, second: TaskInfo) -> bool:
        """True if `first` is served before `second`; ties go to the older one, then by uid."""
        order = self._compared("task_order", first, second)
        return order < 0 if order else (first.created, first.uid) < (second.created, second.uid)

    def job_turns(
        self, job: JobInfo, wanted: Callable[[TaskInfo], bool] | None = None
    ) -> TaskQueue:
        """The wanted pending tasks of a job (None for all), popped in order."""
        pending = job.of(TaskStatus.PENDING).values()
        return self.task_turns(filter(wanted, pending) if wanted else pending, job, wanted)

    def task_turns(
        self,
        tasks: Iterable[TaskInfo],
        job: JobInfo | None = None,
        wanted: Callable[[TaskInfo], bool] | None = None,
    ) -> TaskQueue:
        """Tasks popped in order; sorted at once if the order has keys.

        job: `tasks` are its `wanted` pending tasks; their order is cached.
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
        """True if every session plugin finds that the job may start."""
        return all(ready(job) for ready in self.walk("job_ready"))

    def job_pipelined(self, job: JobInfo) -> bool:
        """True if every session plugin finds that the job can start once resources are freed."""
        return all(pipelined(job) for pipelined in self.walk("job_pipelined"))

    def job_invalid(self, job: JobInfo) -> ValidateResult | None:
        """Answer of the first session plugin that finds the job invalid, or None."""
        results = (valid(job) for valid in self.walk("job_valid"))
        return next((invalid for invalid in results if invalid is not None), None)

    def overused(self, queue: QueueInfo) -> bool:
        """True if a session plugin finds the queue overused."""
        return any(overused(queue) for overused in self.walk("overused"))

    def why_overused(self, queue: QueueInfo) -> str:
        """Reason of the first session plugin that finds the queue overused, "" if none does."""
        for tier in self.tiers:
            for use in self._active("overused", tier):
                if self._given["overused", use.name](queue):
                    why = self._overused_reasons["overused", use.name]
                    return why(queue) if why else f"queue {queue.name!r} is overused by {use.name}"
        return ""

    def passing(self, task: TaskInfo, rows: Ints) -> Bools:
        """bool (n_rows,): rows that pass all session plugins for the task."""
        result: Bools = np.ones(rows.shape[0], dtype=np.bool_)
        for predicate in self.walk("predicate"):
            result &= predicate(task, rows)
        return result

    def row_kind(self, task: TaskInfo) -> Hashable:
        """Key of tasks with equal predicate results and scores for a row; None if unknown."""
        kinds: tuple[HookKind, HookKind] = ("predicate", "node_order")
        found = [
            self._row_kinds[kind, use.name](task)
            for kind in kinds
            for tier in self.tiers
            for use in self._active(kind, tier)
        ]
        return None if any(kind is None for kind in found) else tuple(found)

    def scores(self, task: TaskInfo, rows: Ints) -> Floats:
        """float64 (n_rows,): total scores of all session plugins for these rows."""
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
        """Candidates that may be evicted for `task`, in their order."""
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
        """True if it is known that no task of the job would be released."""
        found = self._spare_walks.get(kind)
        if found is None:
            found = self._spare_walks[kind] = self._spare_walk(kind)
        return any(spares(job) for spares in found)

    def _spare_walk(self, kind: HookKind) -> list[Callable[[JobInfo], bool]]:
        """Functions that spare jobs, up to the deciding tier."""
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
                tier_victims = TierVictims([], [])
                for use in self._active(kind, tier):
                    side = (
                        tier_victims.vetoes
                        if (kind, use.name) in self._vetoes
                        else tier_victims.opinions
                    )
                    side.append(self._given[kind, use.name])
                found.append(tier_victims)
        return found


def _intersect(first: Sequence[TaskInfo], second: Sequence[TaskInfo]) -> list[TaskInfo]:
    kept = {task.uid for task in second}
    return [task for task in first if task.uid in kept]
