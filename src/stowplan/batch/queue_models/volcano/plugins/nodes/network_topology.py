"""network-topology-aware: jobs are placed close together in the network.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/network-topology-aware.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stowplan.batch.queue_models.volcano.hyper_nodes import HyperNode
from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, total_of
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import (
    boolean,
    integer,
    number,
    resource_weights,
)
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob, VolcanoSubJob
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats

EVICT_MAX = 8
Gradients = list[list[HyperNode]]


class _HyperNodeAmounts:
    """Amounts of the nodes below a HyperNode. idle, future: when the session opens."""

    __slots__ = ("allocatable", "future", "idle", "used")

    def __init__(self, nodes: Sequence[VolcanoNode]) -> None:
        self.allocatable = total_of(node.allocatable for node in nodes)
        self.used = total_of(node.used for node in nodes)
        self.idle = total_of(node.idle for node in nodes)
        self.future = total_of(node.future_idle() for node in nodes)


class NetworkTopologyAware(VolcanoPlugin):
    """HyperNodes to try for jobs, and scores of HyperNodes and nodes."""

    name = "network-topology-aware"

    def open(self, session: VolcanoSession) -> None:
        """Add up what HyperNodes have."""
        self._session, self._tree = session, session.tree
        weight = integer(self.arguments, "weight", 1)
        self._scale = 100.0 * (weight if weight >= 0 else 1)
        self._weights = resource_weights(self.arguments, "hypernode.binpack")
        normal = "hypernode.binpack.normal-pod"
        self._scores_normal = boolean(self.arguments, f"{normal}.enable", default=True)
        fading = number(self.arguments, f"{normal}.fading", 0.8)
        self._fading = fading if fading >= 0 else 0.8
        stated = integer(self.arguments, "hypernode.gradient.evict.max-hypernodes", EVICT_MAX)
        self._evict_max = stated if stated > 0 else EVICT_MAX
        tiers = self._tree.tiers
        self._tiers = range(tiers[0], tiers[-1] + 1)
        self._amounts = {
            one.name: _HyperNodeAmounts(session.nodes_of(one.name))
            for one in self._tree.with_objects
        }

    def allocated(self, task: VolcanoTask) -> bool:
        """Count a placed task."""
        for hyper_node in self._tree.holders(task.node):
            self._amounts[hyper_node.name].used.add(task.request)
        return True

    def released(self, task: VolcanoTask) -> None:
        """No longer count a task."""
        for hyper_node in self._tree.holders(task.node):
            self._amounts[hyper_node.name].used.subtract(task.request)

    # Which HyperNodes to try.

    def job_gradients(self, job: VolcanoSessionJob, within: HyperNode, evicts: bool) -> Gradients:
        """HyperNodes for a job, the lowest tier first; for evictions the highest one first."""
        if job.hard_tier is None:
            return [[within]]
        found = self._search(
            within, job.hard_tier, job.allocated_hyper_node, job.min_resources, evicts
        )
        return self._capped(found) if evicts else found

    def sub_job_gradients(
        self, sub_job: VolcanoSubJob, within: HyperNode, evicts: bool
    ) -> Gradients:
        """The same for a sub-group."""
        if sub_job.hard_tier is None:
            return [[within]]
        least = sub_job.pending_request()
        found = self._search(within, sub_job.hard_tier, sub_job.allocated_hyper_node, least, evicts)
        return self._capped(found) if evicts else found

    def _search(
        self, within: HyperNode, tier_max: int, used: str, least: VolcanoAmount, evicts: bool
    ) -> Gradients:
        root = self._root(within, tier_max, used)
        if root is None:
            return []
        by_tier: dict[int, list[HyperNode]] = {}
        queue, seen = [root], {root.name}
        for one in queue:
            if one.tier <= tier_max and (used or self._may_fit(one.name, least, evicts)):
                by_tier.setdefault(one.tier, []).append(one)
            for child in one.children:
                if child not in seen:
                    seen.add(child)
                    queue.append(self._tree[child])
        return [by_tier[tier] for tier in sorted(by_tier)]

    def _root(self, within: HyperNode, tier_max: int, used: str) -> HyperNode | None:
        """Where the search begins; None if what is used is outside."""
        if not used:
            return within
        highest = ""
        for name in self._tree.ancestors(used):
            if name not in self._tree or self._tree[name].tier > tier_max:
                break
            highest = name
        if not highest:
            return None
        common = self._tree.common_ancestor(within.name, highest)
        if common == highest:
            return within
        return self._tree[highest] if common == within.name else None

    def _may_fit(self, name: str, least: VolcanoAmount, evicts: bool) -> bool:
        amounts = self._amounts[name]
        if evicts:
            return least.fits(amounts.allocatable)
        return least.fits(amounts.idle) or least.fits(amounts.future)

    def _capped(self, gradients: Gradients) -> Gradients:
        """The steps in reverse, with so many HyperNodes altogether."""
        left, found = self._evict_max, []
        for gradient in reversed(gradients):
            if left == 0:
                break
            part = gradient[-left:]
            found.append(part)
            left -= len(part)
        return found

    # Scores.

    def hyper_node_order(self, sub_job: VolcanoSubJob, names: Sequence[str]) -> dict[str, float]:
        """Scores of HyperNodes for a sub-group: how full they get, then its tasks in them."""
        request: dict[str, float] = {}
        for task in sub_job.tasks.values():
            for name in task.request.names():
                if name in self._weights:
                    request[name] = request.get(name, 0.0) + task.request.get(name)
        scores = {name: self._used_share(name, request) for name in names}
        self._add_task_shares(sub_job, scores, {name: name for name in names})
        return {name: score * self._scale for name, score in scores.items()}

    def _used_share(self, hyper_node: str, request: dict[str, float]) -> float:
        """Weighted mean of the shares of resources in use with the request; 0 if one is
        exceeded."""
        amounts = self._amounts.get(hyper_node)
        total, weight_sum = 0.0, 0
        if amounts is None:
            return 0.0
        for name, asked in request.items():
            used, whole = amounts.used.get(name) + asked, amounts.allocatable.get(name)
            if used > whole:
                return 0.0
            total += self._weights[name] * (used / whole)
            weight_sum += self._weights[name]
        return total / weight_sum if weight_sum > 0 else 0.0

    def _add_task_shares(
        self, sub_job: VolcanoSubJob, scores: dict[str, float], hyper_node_of: dict[str, str]
    ) -> None:
        """Add to the highest scores, if there are several, the share of tasks that are there."""
        highest = max(scores.values(), default=-1.0)
        best = [name for name, score in scores.items() if score == highest]
        if len(best) > 1 and sub_job.tasks:
            for name in best:
                n_there = sum(
                    self._tree.has_node(hyper_node_of[name], task.node)
                    for task in sub_job.tasks.values()
                )
                scores[name] += n_there / len(sub_job.tasks)

    def batch_node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): scores of nodes."""
        job = self._session.jobs.get(task.job)
        if job is None:
            return np.zeros(len(nodes), dtype=np.float64)
        sub_job = job.sub_jobs.get(job.sub_job_of(task.uid))
        if sub_job is None or sub_job.topology is None:
            scores = [self._normal_score(task, node) for node in nodes]
            return np.array(scores, dtype=np.float64) * self._scale
        if not task.near:
            return np.zeros(len(nodes), dtype=np.float64)
        leaf = {node.name: self._tree.leaf_of(node.name) for node in nodes}
        by_name = {name: self._nearness(one, task.near) for name, one in leaf.items()}
        self._add_task_shares(sub_job, by_name, leaf)
        return np.array([by_name[node.name] for node in nodes], dtype=np.float64) * self._scale

    def _nearness(self, hyper_node: str, near: str) -> float:
        """1 in the same HyperNode, less the higher the tier above both; 0 at the highest."""
        if not hyper_node:
            return 0.0
        if hyper_node == near:
            return 1.0
        common = self._tree.common_ancestor(hyper_node, near)
        if common not in self._tree:
            return 0.0
        lowest, highest = self._tiers[0], self._tiers[-1]
        if lowest == highest:
            return 1.0
        return (highest - self._tree[common].tier) / (highest - lowest)

    def _normal_score(self, task: VolcanoTask, node: VolcanoNode) -> float:
        """Weighted mean over tiers of how full the HyperNode above the node gets."""
        if not self._scores_normal:
            return 0.0
        request = {
            name: task.request.get(name) for name in task.request.names() if name in self._weights
        }
        total, weight_sum = 0.0, 0.0
        for tier in self._tiers:
            weight = self._fading ** float(tier - 1)
            weight_sum += weight
            above = next(
                (h for h in self._tree.at_tier(tier) if self._tree.has_node(h.name, node.name)),
                None,
            )
            total += weight * (1.0 if above is None else self._used_share(above.name, request))
        return total / weight_sum if weight_sum > 0 else 0.0
