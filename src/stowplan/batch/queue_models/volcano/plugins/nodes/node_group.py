"""nodegroup: queues use, prefer or avoid groups of nodes.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/nodegroup/nodegroup.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_amount import EPSILON, VolcanoAmount
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import boolean
from stowplan.batch.queue_models.volcano.volcano_queue import ROOT, VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import ALLOCATED_STATUSES, VolcanoTask
from stowplan.columns.array_types import Floats, Ints
from stowplan.objects.podgroup import NodeGroups, QueueAffinity
from stowplan.objects.quantity import QuantityError

LABEL = "volcano.sh/nodegroup-name"
LIMITS = "volcano.sh/nodegroup-resource-limits"

Limits = Mapping[str, tuple[frozenset[str], VolcanoAmount]]
"""Group -> (limited resources, limits)."""


class NodeGroup(VolcanoPlugin):
    """Affinity of queues to groups of nodes, and limits per group."""

    name = "nodegroup"

    def open(self, session: VolcanoSession) -> None:
        """Read the affinities."""
        self._session = session
        self._is_strict = boolean(self.arguments, "strict", default=True)
        self._is_ordered = boolean(self.arguments, "enablePreferredOrder", default=False)
        is_tree = session.options.is_hierarchical(self.name)
        self._affinities = {
            name: _affinity(session, queue, is_tree=is_tree)
            for name, queue in session.queues.items()
        }
        self._limits = {name: _limits(queue) for name, queue in session.queues.items()}
        self._used: dict[tuple[str, str], VolcanoAmount] = {}
        for job in session.jobs.values():
            for task in job.in_statuses(ALLOCATED_STATUSES):
                self._count(task, 1)

    def _count(self, task: VolcanoTask, sign: int) -> None:
        job, node = self._session.jobs.get(task.job), self._session.nodes.get(task.node)
        if job is None or node is None or LABEL not in node.node.labels:
            return
        used = self._used.setdefault((job.queue, node.node.labels[LABEL]), VolcanoAmount())
        if sign > 0:
            used.add(task.request)
        else:
            used.subtract(task.request)

    def allocated(self, task: VolcanoTask) -> bool:
        """Count a placed task."""
        self._count(task, 1)
        return True

    def released(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        self._count(task, -1)

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Nodes of groups that the queue of the task may use."""
        queue = self._session.jobs[task.job].queue
        codes = [PASSES if self._passes(task, queue, node) else UNRESOLVABLE for node in nodes]
        return np.array(codes, dtype=np.int64)

    def _passes(self, task: VolcanoTask, queue: str, node: VolcanoNode) -> bool:
        limits, affinity = self._limits[queue], self._affinities[queue]
        if limits is None:
            return False
        like, avoid = _groups(affinity)
        is_unset = not any((like.required, like.preferred, avoid.required, avoid.preferred))
        group = node.node.labels.get(LABEL)
        if group is None:
            return is_unset and not self._is_strict
        if group not in avoid.preferred:
            is_liked = group in like.required or group in like.preferred
            if not is_liked or group in avoid.required:
                return False
        return group not in limits or self._is_within(task, queue, group, *limits[group])

    def _is_within(
        self,
        task: VolcanoTask,
        queue: str,
        group: str,
        names: frozenset[str],
        limit: VolcanoAmount,
    ) -> bool:
        used = self._used.get((queue, group), VolcanoAmount()).copy().add(task.request)
        return all(used.get(name) - limit.get(name) < EPSILON for name in names)

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): 100 for required groups, up to 50 for preferred ones."""
        affinity = self._affinities[self._session.jobs[task.job].queue]
        scores = [self._score(affinity, node.node.labels.get(LABEL)) for node in nodes]
        return np.array(scores, dtype=np.float64)

    def _score(self, affinity: QueueAffinity | None, group: str | None) -> float:
        if affinity is None or group is None:
            return 0.0
        like, avoid = _groups(affinity)
        if group in avoid.preferred:
            return -1.0
        score = 100.0 if group in like.required else 0.0
        if group in like.preferred:
            part = 1.0
            if self._is_ordered:
                last = {name: i for i, name in enumerate(like.preferred)}
                part = (len(last) - last[group]) / len(last)
            score += 50.0 * part
        return score


def _groups(affinity: QueueAffinity | None) -> tuple[NodeGroups, NodeGroups]:
    if affinity is None:
        return NodeGroups(), NodeGroups()
    none = NodeGroups()
    return affinity.node_group_affinity or none, affinity.node_group_anti_affinity or none


def _affinity(
    session: VolcanoSession, queue: VolcanoQueue, *, is_tree: bool
) -> QueueAffinity | None:
    """The affinity of a queue; in a tree, where it has none, of the nearest queue above it."""
    found, seen = queue.queue.spec.affinity, {queue.name}
    while is_tree and found is None and queue.name != ROOT:
        parent = session.queues.get(queue.queue.spec.parent or ROOT)
        if parent is None or parent.name in seen:
            break
        seen.add(parent.name)
        queue, found = parent, parent.queue.spec.affinity
    return found


def _limits(queue: VolcanoQueue) -> Limits | None:
    """Limits per group; None for an invalid annotation: the queue uses no group then."""
    text = queue.queue.metadata.annotations.get(LIMITS, "")
    if not text:
        return {}
    try:
        tree = json.loads(text)
        return {
            group: (frozenset(amounts), VolcanoAmount.of(amounts))
            for group, amounts in tree.items()
        }
    except (ValueError, AttributeError, TypeError, QuantityError):
        return None
