"""resource-strategy-fit: a strategy per resource; scarce resources are kept for those who ask.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/resource-strategy-fit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints

LEAST, MOST = "LeastAllocated", "MostAllocated"
TYPE_ANNOTATION = "volcano.sh/resource-strategy-scoring-type"
WEIGHT_ANNOTATION = "volcano.sh/resource-strategy-weight"

Strategies = Mapping[str, tuple[str, int]]
"""Resource, or its beginning followed by `*`, -> (strategy, weight)."""


class ResourceStrategyFit(VolcanoPlugin):
    """Scores by strategy, by scarce resources (sra), and the filter `proportional`."""

    name = "resource-strategy-fit"

    def open(self, session: VolcanoSession) -> None:
        """Read the strategies."""
        weight = _int(self.arguments.get("resourceStrategyFitWeight"), 0)
        is_stated = "resourceStrategyFitWeight" in self.arguments
        self._weight = weight if is_stated and weight >= 0 else 10
        self._strategies = _strategies(self.arguments.get("resources"))
        self._scarce, self._scarce_weight = _scarce(_mapping(self.arguments.get("sra")))
        self._reserves = _reserves(_mapping(self.arguments.get("proportional")))
        if self._reserves is None:
            self.silent.add("predicate")
        if self._weight <= 0 and self._scarce_weight <= 0:
            self.silent.add("node_order")

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Nodes that keep enough cpu and memory beside their idle scarce resources."""
        codes = [PASSES if self._keeps_reserve(task, node) else UNRESOLVABLE for node in nodes]
        return np.array(codes, dtype=np.int64)

    def _keeps_reserve(self, task: VolcanoTask, node: VolcanoNode) -> bool:
        reserves = self._reserves or {}
        if any(task.request.get(name) > 0 for name in reserves):
            return True
        idle = node.idle
        cpu, memory = idle.cpu - task.request.cpu, idle.memory - task.request.memory
        for name, (per_cpu, per_memory) in reserves.items():
            n = (idle.scalars or {}).get(name)
            if n is not None and (cpu < n * per_cpu or memory < n * per_memory * 1e6):
                return False
        return True

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): the sum of both scores."""
        stated = _stated_strategies(task.pod.metadata.annotations)
        scores = np.zeros(len(nodes), dtype=np.float64)
        for i, node in enumerate(nodes):
            if self._weight > 0:
                share = _strategy_share(task, node, self._strategies, stated)
                scores[i] += share * 100.0 * self._weight
            if self._scarce_weight > 0:
                scores[i] += self._scarce_score(task, node)
        return scores

    def _scarce_score(self, task: VolcanoTask, node: VolcanoNode) -> float:
        """Higher on nodes without scarce resources; 0 if they lack one that is requested."""
        if any(node.allocatable.get(name) == 0 for name in task.request.names()):
            return 0.0
        score = sum(float(w) for name, w in self._scarce.items() if node.allocatable.get(name) > 0)
        whole = sum(self._scarce.values())
        if whole > 0:
            score = 1.0 - score / whole
        return score * 100 * self._scarce_weight


def _strategy_share(
    task: VolcanoTask,
    node: VolcanoNode,
    strategies: Strategies,
    stated: tuple[str, Mapping[str, int]] | None,
) -> float:
    total, weight_sum = 0.0, 0
    for name in task.request.names():
        found = _strategy_of(name, strategies) if stated is None else _from_pod(name, stated)
        if found is None:
            continue
        strategy, weight = found
        whole = node.allocatable.get(name)
        if weight != 0 and whole != 0 and strategy in (LEAST, MOST):
            used = task.request.get(name) + node.used.get(name)
            if used > whole:
                return 0.0
            total += (used if strategy == MOST else whole - used) * weight / whole
        weight_sum += weight
    return total / weight_sum if weight_sum > 0 else total


def _from_pod(name: str, stated: tuple[str, Mapping[str, int]]) -> tuple[str, int] | None:
    return (stated[0], stated[1][name]) if name in stated[1] else None


def _strategy_of(name: str, strategies: Strategies) -> tuple[str, int] | None:
    """The strategy of a resource, or of the longest beginning of its name."""
    if name in strategies:
        return strategies[name]
    starts = [k for k in strategies if "*" in k and name.startswith(k.removesuffix("*"))]
    return strategies[max(starts, key=len)] if starts else None


def _stated_strategies(annotations: Mapping[str, str]) -> tuple[str, Mapping[str, int]] | None:
    """Strategy and weights that a pod states; without valid weights it has no score."""
    strategy = annotations.get(TYPE_ANNOTATION, "")
    if not strategy:
        return None
    try:
        tree = json.loads(annotations.get(WEIGHT_ANNOTATION) or "{}")
    except ValueError:
        return strategy, {}
    if not isinstance(tree, dict) or not all(type(w) is int for w in tree.values()):
        return strategy, {}
    return strategy, tree


def _strategies(tree: Any) -> Strategies:
    given = _mapping(tree) or {"cpu": {}, "memory": {}}
    found = {}
    for name, entry in given.items():
        if "*" in name and (name == "*" or name.count("*") > 1 or not name.endswith("*")):
            continue
        fields = {str(key).lower(): value for key, value in _mapping(entry).items()}
        weight, kind = _int(fields.get("weight"), 0), fields.get("type")
        found[name] = (kind if kind in (LEAST, MOST) else LEAST), (weight if weight > 0 else 1)
    return found


def _names(tree: Mapping[str, Any]) -> list[str]:
    text = tree.get("resources")
    return [name.strip() for name in str(text or "").split(",") if name.strip()]


def _scarce(tree: Mapping[str, Any]) -> tuple[Mapping[str, int], int]:
    """Weights of scarce resources, and the weight of the score; 0 if it is off."""
    if tree.get("enable") is not True:
        return {}, 0
    weights = _mapping(tree.get("resourceWeight"))
    found = {name: _int(weights.get(name), 1) for name in _names(tree)}
    return {n: w if w >= 0 else 1 for n, w in found.items()}, _int(tree.get("weight"), 0)


def _reserves(tree: Mapping[str, Any]) -> Mapping[str, tuple[float, float]] | None:
    """Per scarce resource the cpu and memory to keep free; None if the filter is off."""
    if tree.get("enable") is not True:
        return None
    rates = _mapping(tree.get("resourceProportion"))

    def rate(key: str) -> float:
        found = rates.get(key, 1.0)
        return float(found) if isinstance(found, int | float) and found >= 0 else 1.0

    return {name: (rate(f"{name}.cpu"), rate(f"{name}.memory")) for name in _names(tree)}


def _mapping(tree: Any) -> Mapping[str, Any]:
    return tree if isinstance(tree, dict) else {}


def _int(tree: Any, default: int) -> int:
    return int(tree) if isinstance(tree, int | float) and not isinstance(tree, bool) else default
