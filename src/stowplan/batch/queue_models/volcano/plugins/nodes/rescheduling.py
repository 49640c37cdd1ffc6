"""rescheduling: evict pods from nodes with a high measured load while others have a low one.

Victims go when the action `shuffle` runs, at most once in the interval. Of the strategies Volcano
has lowNodeUtilization.

Unproved: no recorded answer has this plugin.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/rescheduling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from typing import Any

from stowplan.batch.queue_models.volcano.plugins.nodes.measured_load import MeasuredLoad
from stowplan.batch.queue_models.volcano.volcano_hooks import VolcanoPlugin
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_options import duration_s
from stowplan.batch.queue_models.volcano.volcano_session import VolcanoSession
from stowplan.batch.queue_models.volcano.volcano_task import VolcanoTask
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import milli_value

STRATEGY = "lowNodeUtilization"
INTERVAL_S = 300.0
THRESHOLD = 100.0
BEST_EFFORT, BURSTABLE, GUARANTEED = 0, 1, 2


class Rescheduling(VolcanoPlugin):
    """Moves pods from loaded nodes to idle ones, by MeasuredLoad."""

    name = "rescheduling"

    def open(self, session: VolcanoSession) -> None:
        """Read the thresholds, and whether the interval has passed."""
        self._session = session
        cluster = session.cluster
        interval = duration_s(self.arguments, "interval", INTERVAL_S)
        last = cluster.last_runs.setdefault(self.name, cluster.now)
        strategies = _strategies(self.arguments.get("strategies"))
        if STRATEGY not in strategies or last + interval >= cluster.now:
            self.silent.add("victim_tasks")
            return
        cluster.last_runs[self.name] = cluster.now
        parameters = strategies[STRATEGY]
        self._low = _thresholds(parameters.get("thresholds"))
        self._high = _thresholds(parameters.get("targetThresholds"))

    def victim_tasks(self, running: Iterable[VolcanoTask]) -> list[VolcanoTask]:
        """Tasks of nodes above a target threshold, the most loaded node first, until each is below
        or the nodes with a low load have no room for more."""
        session = self._session
        load = {node.name: _load_of(node, session.cluster.now) for node in session.node_list}
        low = [node for node in session.node_list if self._is_low(node, load[node.name])]
        names = {node.name for node in low}
        high = [
            node
            for node in session.node_list
            if node.name not in names and _exceeds(load[node.name], self._high)
        ]
        if not low or not high or len(low) == len(session.node_list):
            return []
        room = [
            sum(
                float(int(self._high[i] * _capacity(node)[i] * 0.01))
                - float(int(load[node.name][i] * _capacity(node)[i] * 0.01))
                for node in low
            )
            for i in (0, 1)
        ]
        chosen = {task.uid for task in running}
        victims: list[VolcanoTask] = []
        for node in sorted(high, key=lambda one: -sum(load[one.name])):
            for task in sorted(node.tasks.values(), key=cmp_to_key(_before)):
                used = load[node.name]
                is_over = any(n >= most for n, most in zip(used, self._high, strict=True))
                if not is_over or 0.0 in room:
                    break
                if task.uid in chosen:
                    victims.append(task)
                    amounts = task.request.cpu, task.request.memory
                    capacity = node.capacity.cpu, node.capacity.memory
                    for i in (0, 1):
                        room[i] -= amounts[i]
                        used[i] -= amounts[i] * 100 / capacity[i] if capacity[i] else 0.0
        return victims

    def _is_low(self, node: VolcanoNode, load: list[float]) -> bool:
        if node.node.spec.unschedulable:
            return False
        return all(n < most for n, most in zip(load, self._low, strict=True))


def _load_of(node: VolcanoNode, now: float) -> list[float]:
    load = MeasuredLoad.of(node.node.metadata.annotations, now)
    return [load.cpu, load.memory]


def _exceeds(load: list[float], thresholds: tuple[float, float]) -> bool:
    return any(n > most for n, most in zip(load, thresholds, strict=True))


def _capacity(node: VolcanoNode) -> tuple[float, float]:
    amount = node.allocatable if node.node.status.allocatable else node.capacity
    return amount.cpu, amount.memory


def _before(left: VolcanoTask, right: VolcanoTask) -> int:
    """Pods without a priority first, then by priority, then by quality of service."""
    return (_rank(left.pod) > _rank(right.pod)) - (_rank(left.pod) < _rank(right.pod))


def _rank(pod: Pod) -> tuple[bool, int, int]:
    priority = pod.spec.priority
    return priority is not None, priority or 0, _quality_of_service(pod)


def _quality_of_service(pod: Pod) -> int:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    if not any(c.resources.requests or c.resources.limits for c in containers):
        return BEST_EFFORT
    return GUARANTEED if all(_is_guaranteed(one) for one in containers) else BURSTABLE


def _is_guaranteed(container: Container) -> bool:
    requests, limits = container.resources.requests, container.resources.limits
    return all(
        name in limits
        and milli_value(requests.get(name, limits[name])) == milli_value(limits[name])
        for name in ("cpu", "memory")
    )


def _strategies(tree: Any) -> Mapping[str, Mapping[str, Any]]:
    """Strategy -> its parameters."""
    if not isinstance(tree, list) or not tree:
        return {STRATEGY: {}}
    entries = [one for one in tree if isinstance(one, dict)]
    return {
        str(one.get("name")): params if isinstance(params := one.get("params"), dict) else {}
        for one in entries
    }


def _thresholds(tree: Any) -> tuple[float, float]:
    """Percentages of cpu and memory."""
    stated = tree if isinstance(tree, dict) else {}
    cpu, memory = (stated.get(name, THRESHOLD) for name in ("cpu", "memory"))
    return _percent(cpu), _percent(memory)


def _percent(given: object) -> float:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if is_number else THRESHOLD  # type: ignore[arg-type]
