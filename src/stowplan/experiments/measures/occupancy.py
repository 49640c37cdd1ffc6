"""Occupancy: pods, their requests, queues and nodes over the time of a simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stowplan.columns.array_types import Floats, Ints
from stowplan.insight.pod_placement import Placement
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.quantity import amount
from stowplan.objects.timing.run_limits import run_limit_s
from stowplan.simulation.results.pod_history import TimedPlacement
from stowplan.simulation.results.pod_queues import queues_of
from stowplan.simulation.results.simulated_objects import SimulatedObjects

SAMPLES = 200
"""Times at which queues are compared."""


class Occupancy(NamedTuple):
    """Pods over time. A pod that was bound again counts from its last binding.

    resources: names, without pods. requests: float64 (n_pods, n_resources), base units (milli-CPU,
    bytes, counts). arrived, start, end: float64 (n_pods,), seconds; start is infinite for a pod
    without a node. node: int64 (n_pods,), row of `nodes`, -1 for none. queue: int64 (n_pods,), row
    of `queues`. offered: float64 (n_nodes, n_resources), allocatable amounts. end_s: end of the
    simulation, 0 without a replay. by_namespace: True where no pod names a queue, and namespaces
    count as queues.
    """

    resources: list[str]
    requests: Floats
    arrived: Floats
    start: Floats
    end: Floats
    node: Ints
    nodes: list[Node]
    queue: Ints
    queues: list[str]
    offered: Floats
    end_s: float
    by_namespace: bool

    @classmethod
    def of(
        cls, placements: Sequence[Placement], objects: SimulatedObjects, end_s: float
    ) -> Occupancy:
        """The occupancy of a simulation; placements are in the order of `objects.pods`."""
        pods = [*objects.pods, *objects.bound]
        by_name = {node.name: row for row, node in enumerate(objects.nodes)}
        names = [one.node for one in placements] + [pod.node_name for pod in objects.bound]
        times = [_times(one, end_s) for one in placements]
        times += [(0.0, 0.0, min(run_limit_s(pod), end_s or math.inf)) for pod in objects.bound]
        columns = np.array(times, dtype=np.float64).reshape(len(times), 3)
        queues, by_namespace = queues_of(pods, objects.objects)
        known = sorted(set(queues))
        offered = {name for node in objects.nodes for name in node.status.allocatable}
        resources = sorted(offered - {"pods"})
        return cls(
            resources,
            _requests(pods, resources),
            columns[:, 0],
            columns[:, 1],
            columns[:, 2],
            np.array([by_name.get(name, -1) for name in names], dtype=np.int64),
            objects.nodes,
            np.searchsorted(known, queues).astype(np.int64) if known else np.zeros(0, np.int64),
            known,
            _offered(objects.nodes, resources),
            end_s,
            by_namespace,
        )

    def sample_times(self) -> Floats:
        """float64 (n_samples,): times while pods arrive, evenly spaced; [0] without a replay."""
        last = float(self.arrived.max(initial=0.0)) or self.end_s
        return np.linspace(0.0, last, SAMPLES) if last else np.zeros(1)


def _times(one: Placement, end_s: float) -> tuple[float, float, float]:
    """Arrival, binding and end of a pod, in seconds."""
    if not isinstance(one, TimedPlacement):
        return 0.0, 0.0 if one.node else math.inf, math.inf
    start = math.inf if one.bound_s is None else one.bound_s
    return one.arrived_s, start, end_s if one.ended_s is None else one.ended_s


def _requests(pods: Iterable[Pod], resources: Sequence[str]) -> Floats:
    by_spec: dict[int, list[int]] = {}
    rows = []
    for pod in pods:
        row = by_spec.get(id(pod.spec))
        if row is None:
            asks = requested(pod)
            row = [asks.get(name, 0) for name in resources]
            by_spec[id(pod.spec)] = row
        rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(resources))


def _offered(nodes: Sequence[Node], resources: Sequence[str]) -> Floats:
    rows = [
        [
            amount(name, node.status.allocatable[name]) if name in node.status.allocatable else 0
            for name in resources
        ]
        for node in nodes
    ]
    return np.array(rows, dtype=np.float64).reshape(len(nodes), len(resources))
