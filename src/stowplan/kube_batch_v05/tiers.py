"""Tiers of session plugins, and how their answers are combined.

Source: kube-batch v0.5, framework/session_plugins.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.kube_batch_v05.jobs import KubeBatchJob, KubeBatchTask
from stowplan.kube_batch_v05.nodes import KubeBatchNode
from stowplan.kube_batch_v05.session_cache import KubeBatchQueue

SWITCHES: Mapping[str, str] = {
    "job_order": "enableJobOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "task_order": "enableTaskOrder",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "queue_order": "enableQueueOrder",
    "predicate": "enablePredicate",
    "node_order": "enableNodeOrder",
    "overused": "",
}
"""Kind of function -> configuration switch that disables it, "" for none."""


class KubeBatchPluginOption(msgspec.Struct, frozen=True):
    """A plugin in a tier. disabled: switches that are off. arguments: as written."""

    name: str
    disabled: frozenset[str] = frozenset()
    arguments: Mapping[str, str] = {}


KubeBatchTiers = tuple[tuple[KubeBatchPluginOption, ...], ...]


class PluginFunctions:
    """Functions that plugins register, called tier by tier where they are configured."""

    def __init__(self, tiers: KubeBatchTiers) -> None:
        self._tiers = tiers
        self._given: dict[tuple[str, str], Callable[..., Any]] = {}

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None:
        """Register a plugin's functions by kind, a key of SWITCHES."""
        for kind, function in functions.items():
            assert kind in SWITCHES, kind
            self._given[kind, plugin] = function

    def _tier(
        self, kind: str, tier: Sequence[KubeBatchPluginOption]
    ) -> Iterator[Callable[..., Any]]:
        for use in tier:
            if SWITCHES[kind] not in use.disabled and (kind, use.name) in self._given:
                yield self._given[kind, use.name]

    def walk(self, kind: str) -> Iterator[Callable[..., Any]]:
        """Functions of a kind, in call order."""
        for tier in self._tiers:
            yield from self._tier(kind, tier)

    # Order: the first comparison that is not 0 decides, then the age, then the id.

    def _order(self, kind: str, first: Any, second: Any) -> float:
        orders = (compare(first, second) for compare in self.walk(kind))
        return next((float(order) for order in orders if order), 0.0)

    def job_less(self, first: KubeBatchJob, second: KubeBatchJob) -> bool:
        """True if `first` is served before `second`."""
        order = self._order("job_order", first, second)
        return order < 0 if order else (first.created, first.uid) < (second.created, second.uid)

    def queue_less(self, first: KubeBatchQueue, second: KubeBatchQueue) -> bool:
        """True if `first` is served before `second`."""
        order = self._order("queue_order", first, second)
        return order < 0 if order else (first.created, first.name) < (second.created, second.name)

    def task_less(self, first: KubeBatchTask, second: KubeBatchTask) -> bool:
        """True if `first` is served before `second`."""
        order = self._order("task_order", first, second)
        return order < 0 if order else (first.created, first.uid) < (second.created, second.uid)

    # Conjunctions, and a disjunction.

    def job_ready(self, job: KubeBatchJob) -> bool:
        """True if every plugin finds that the job may start."""
        return all(ready(job) for ready in self.walk("job_ready"))

    def job_pipelined(self, job: KubeBatchJob) -> bool:
        """True if every plugin finds that the job can start once resources are freed."""
        return all(pipelined(job) for pipelined in self.walk("job_pipelined"))

    def overused(self, queue: KubeBatchQueue) -> bool:
        """True if a plugin finds the queue overused."""
        return any(overused(queue) for overused in self.walk("overused"))

    def passing(self, task: KubeBatchTask, nodes: Sequence[KubeBatchNode]) -> list[KubeBatchNode]:
        """The nodes that pass all plugins for the task, in their order."""
        left = list(nodes)
        for predicate in self.walk("predicate"):
            left = predicate(task, left)
        return left

    def scores(self, task: KubeBatchTask, nodes: Sequence[KubeBatchNode]) -> list[float]:
        """Total scores of these nodes, all of which pass."""
        totals = [0.0] * len(nodes)
        for node_order in self.walk("node_order"):
            pairs = zip(totals, node_order(task, nodes), strict=True)
            totals = [total + score for total, score in pairs]
        return totals

    # Victims.

    def victims(
        self, kind: str, task: KubeBatchTask, candidates: Sequence[KubeBatchTask]
    ) -> list[KubeBatchTask]:
        """Candidates that all plugins of a tier would evict.

        The first answer is kept over tiers: once a tier has answered, with nothing too, a later one
        can only reduce it, and no later one is called after a tier that has found victims.
        """
        found: list[KubeBatchTask] | None = None
        for tier in self._tiers:
            for selected in self._tier(kind, tier):
                answer = selected(task, candidates)
                kept = {one.uid for one in answer}
                found = answer if found is None else [t for t in found if t.uid in kept]
            if found:
                return found
        return found or []


def running_on(node: KubeBatchNode) -> list[KubeBatchTask]:
    """Copies of the tasks that run on a node."""
    return [task.copy() for task in node.tasks.values() if task.status is TaskStatus.RUNNING]
