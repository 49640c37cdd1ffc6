"""usage: nodes with a low measured load come first, and those above a threshold take no pods.

Pods of which no measurement can know yet count with an estimate.

Unproved: no recorded answer has this plugin.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/usage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stowplan.batch.queue_models.volcano.plugins.nodes.measured_load import MeasuredLoad
from stowplan.batch.queue_models.volcano.pod_rules import PASSES, UNRESOLVABLE
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import Arguments, integer, number
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.columns.array_types import Floats, Ints
from stowplan.framework.deciders.tasks import TaskStatus
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import QuantityError, milli_value, value

SCORE_MAX = 100.0
DELAY_S = 30.0
"""A pod that has run for less than this is in no measurement yet."""
_PLACED = (TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND)

Amounts = tuple[float, float]
"""Milli-CPU and bytes."""


class Estimator:
    """What a pod will use: a part of its request, and of what its limit has beyond; more on a
    loaded node."""

    def __init__(self, tree: Any) -> None:
        arguments: Arguments = tree if isinstance(tree, dict) else {}

        def within(key: str, default: float, least: float, most: float) -> float:
            found = number(arguments, key, default)
            return found if least <= found <= most else default

        self._of_request = within("request_ratio", 0.7, 0.0, 1.0)
        self._of_burst = within("burst_ratio", 0.0, 0.0, 1.0)
        self._threshold = within("risk_threshold", 0.6, 0.0, 1.0)
        self._factor = within("risk_factor", 1.2, 1.0, float("inf"))
        self._best_effort = (
            _best_effort(arguments.get("be_cpu"), 250.0, 1.0, is_cpu=True),
            _best_effort(arguments.get("be_mem"), 200.0 * 2**20, 2.0**20, is_cpu=False),
        )

    def risk(self, load: float) -> float:
        """The factor for a node with this load, from 0 to 1."""
        return self._factor if load >= self._threshold else 1.0

    def of(self, task: VolcanoTask, risk: float) -> Amounts:
        """What a task will use."""
        if task.is_best_effort:
            cpu, memory = self._best_effort
            return cpu * risk, memory * risk
        request = task.request
        limits = _limits(task.pod)
        return (
            self._estimate(request.cpu, limits[0], risk),
            self._estimate(request.memory, limits[1], risk),
        )

    def _estimate(self, request: float, limit: float, risk: float) -> float:
        most = max(limit, request)
        estimate = (request * self._of_request + (most - request) * self._of_burst) * risk
        return min(max(estimate, 0.0), most)


class VolcanoUsage(VolcanoPlugin):
    """Measured load of nodes, see MeasuredLoad."""

    name = "usage"

    def open(self, session: VolcanoSession) -> None:
        """Read the load of nodes, and estimate that of pods that have just been placed."""
        arguments = self.arguments
        self._weight = _not_negative(arguments, "usage.weight", 5)
        self._weights = tuple(_not_negative(arguments, f"{n}.weight", 1) for n in ("cpu", "memory"))
        thresholds = arguments.get("thresholds")
        stated: Arguments = thresholds if isinstance(thresholds, dict) else {}
        self._thresholds = tuple(_percent(stated, key, 80) for key in ("cpu", "mem"))
        self._estimator = Estimator(arguments.get("estimator"))
        self._nodes: Mapping[str, VolcanoNode] = session.nodes
        now = session.cluster.now
        self._load = {
            node.name: MeasuredLoad.of(node.node.metadata.annotations, now)
            for node in session.node_list
        }
        self._added: dict[str, list[float]] = {name: [0.0, 0.0] for name in self._load}
        self._estimates: dict[str, tuple[str, Amounts]] = {}
        for node in session.node_list:
            for task in node.tasks.values():
                if _is_unmeasured(task, now):
                    self.allocated(task)

    def predicate(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Ints:
        """Nodes whose measured load is not above a threshold."""
        return np.array(
            [UNRESOLVABLE if self._is_overloaded(node.name) else PASSES for node in nodes],
            dtype=np.int64,
        )

    def _is_overloaded(self, name: str) -> bool:
        load = self._load[name]
        cpu, memory = self._thresholds
        return load.is_recent and (load.cpu > cpu or load.memory > memory)

    def node_order(self, task: VolcanoTask, nodes: Sequence[VolcanoNode]) -> Floats:
        """float64 (n_nodes,): higher where less is in use; 0 without a recent measurement."""
        return np.array([self._score(node) for node in nodes], dtype=np.float64)

    def _score(self, node: VolcanoNode) -> float:
        whole = sum(self._weights)
        if whole == 0 or not self._load[node.name].is_recent:
            return 0.0
        cpu, memory = self._utilization(node)
        free = (1.0 - cpu) * self._weights[0] + (1.0 - memory) * self._weights[1]
        return free / whole * SCORE_MAX * self._weight

    def _utilization(self, node: VolcanoNode) -> Amounts:
        """Parts of the capacity in use, measured and estimated together, from 0 to 1."""
        load, added = self._load[node.name], self._added[node.name]
        return (
            _utilization(load.cpu, added[0], node.capacity.cpu),
            _utilization(load.memory, added[1], node.capacity.memory),
        )

    def allocated(self, task: VolcanoTask) -> bool:
        """Add the estimate of a placed task."""
        node = self._nodes.get(task.node)
        if node is None:
            return True
        cpu, memory = self._utilization(node)
        whole = sum(self._weights)
        load = (cpu * self._weights[0] + memory * self._weights[1]) / whole if whole else 0.0
        self.released(task)
        amounts = self._estimator.of(task, self._estimator.risk(load))
        self._estimates[task.uid] = node.name, amounts
        for place, amount in enumerate(amounts):
            self._added[node.name][place] += amount
        return True

    def released(self, task: VolcanoTask) -> None:
        """Take back what was added for a task."""
        known = self._estimates.pop(task.uid, None)
        if known is not None:
            name, amounts = known
            added = self._added[name]
            for place, amount in enumerate(amounts):
                added[place] = max(added[place] - amount, 0.0)


def _is_unmeasured(task: VolcanoTask, now: float) -> bool:
    if task.status is not TaskStatus.RUNNING:
        return task.status in _PLACED
    since = task.pod.status.start_time
    return since is None or now - since.timestamp() < DELAY_S


def _utilization(percent: float, added: float, capacity: float) -> float:
    if capacity <= 0:
        return 0.0
    return min(max((percent / 100.0 * capacity + added) / capacity, 0.0), 1.0)


def _limits(pod: Pod) -> Amounts:
    """Limits of the containers; init containers run before them, sidecars beside them."""
    spec = pod.spec
    beside = [c for c in spec.init_containers if c.is_sidecar]
    together = [_limit(c) for c in (*spec.containers, *beside)]
    first = [_limit(c) for c in spec.init_containers if not c.is_sidecar]
    cpu = max(sum(one[0] for one in together), max((one[0] for one in first), default=0.0))
    memory = max(sum(one[1] for one in together), max((one[1] for one in first), default=0.0))
    return cpu, memory


def _limit(container: Container) -> Amounts:
    limits = container.resources.limits
    return float(milli_value(limits.get("cpu", 0))), float(value(limits.get("memory", 0)))


def _not_negative(arguments: Arguments, key: str, default: int) -> int:
    found = integer(arguments, key, default)
    return found if found >= 0 else default


def _percent(arguments: Arguments, key: str, default: int) -> float:
    found = integer(arguments, key, default)
    return float(found if 0 <= found <= 100 else default)


def _best_effort(given: object, default: float, unit: float, *, is_cpu: bool) -> float:
    """A number of units, or a quantity."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given * unit if given >= 0 else default
    if not isinstance(given, str):
        return default
    try:
        found = float(milli_value(given) if is_cpu else value(given))
    except QuantityError:
        return default
    return found if found >= 0 else default
