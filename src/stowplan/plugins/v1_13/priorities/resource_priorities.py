"""Priorities by a node's resources: LeastRequested, MostRequested, RequestedToCapacityRatio and
ResourceLimits; and EqualPriority, by nothing.

Source: Kubernetes v1.13, priorities/resource_allocation.go, least_requested.go, most_requested.go,
requested_to_capacity_ratio.go, resource_limits.go; scheduler/core EqualPriorityMap.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import NodeInfo, NodeTable, Problem, Rows
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import divide_truncated, n_rows_of
from stowplan.plugins.utilization_shape import (
    POINT_SCORE_MAX,
    UTILIZATION_MAX,
    UtilizationShapePoint,
    score_at,
    shape_problems,
)
from stowplan.plugins.v1_13.resource_requests import (
    RequestedByRow,
    nonzero_on,
    resource_requests_of,
)

RequestedAndAllocatable = tuple[Ints, Ints]
"""(requested with the pod, allocatable) of a resource: int64 (n_rows,), base units."""

SCORED_RESOURCES = ("cpu", "memory")


def rows_resource_use(
    pod: Pod, nodes: NodeTable, rows: Rows
) -> tuple[RequestedAndAllocatable, RequestedAndAllocatable]:
    """Utilization of cpu and of memory on rows, with the pod's request."""
    amounts, asked = RequestedByRow.of(nodes), resource_requests_of(pod).nonzero
    cpu, memory = (
        (amounts.nonzero(name)[rows] + more, nodes.allocatable(name)[rows])
        for name, more in zip(SCORED_RESOURCES, asked, strict=True)
    )
    return cpu, memory


def node_resource_use(
    pod: Pod, node: NodeInfo
) -> tuple[RequestedAndAllocatable, RequestedAndAllocatable]:
    """The same of one node."""
    there, asked = nonzero_on(node), resource_requests_of(pod).nonzero
    cpu, memory = (
        (np.array([have + more]), np.array([node.allocatable.get(name, 0)]))
        for name, have, more in zip(SCORED_RESOURCES, there, asked, strict=True)
    )
    return cpu, memory


class _ResourcePriority:
    """Score by the mean of a score for cpu and one for memory."""

    row_local = True
    reads: tuple[type[Object], ...] = ()

    def of_resource(self, requested: Ints, allocatable: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: the score of one resource."""
        raise NotImplementedError

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """The mean, truncated."""
        return int(self._mean(node_resource_use(pod, node))[0])

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return self._mean(rows_resource_use(pod, nodes, rows))

    def _mean(self, uses: tuple[RequestedAndAllocatable, RequestedAndAllocatable]) -> Ints:
        cpu, memory = (self.of_resource(*use) for use in uses)
        return divide_truncated(cpu + memory, 2)

    def signature(self, pod: Pod) -> object:
        """Requests of the pod, with the defaults."""
        return resource_requests_of(pod).nonzero


class LeastRequestedPriority(_ResourcePriority):
    """Score 10 for an empty node, 0 for a full one."""

    name = "LeastRequestedPriority"

    def of_resource(self, requested: Ints, allocatable: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: the free share; 0 where requests exceed allocatable."""
        return _share(allocatable - requested, requested, allocatable)


class MostRequestedPriority(_ResourcePriority):
    """Score 0 for an empty node, 10 for a full one."""

    name = "MostRequestedPriority"

    def of_resource(self, requested: Ints, allocatable: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: the used share; 0 where requests exceed allocatable."""
        return _share(requested, requested, allocatable)


def _share(part: Ints, requested: Ints, allocatable: Ints) -> Ints:
    fits = (allocatable != 0) & (requested <= allocatable)
    shares = divide_truncated(part * PRIORITY_MAX, np.where(fits, allocatable, 1))
    scores: Ints = np.where(fits, shares, 0)
    return scores


class EqualPriority:
    """Score 1, whatever the node."""

    name = "EqualPriority"
    declaration = Plugin(name=name, reads=())

    def score(self) -> int:
        """1."""
        return 1

    def score_column(self, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        return np.ones(n_rows_of(rows), dtype=np.int64)


class ResourceLimitsPriority:
    """Score 1 where the node's allocatable covers the pod's limit of cpu or of memory, else 0."""

    name = "ResourceLimitsPriority"
    declaration = Plugin(name=name, reads=(), row_local=True)

    def score(self, pod: Pod, node: NodeInfo) -> int:
        """1 or 0."""
        offered = (node.allocatable.get(name, 0) for name in SCORED_RESOURCES)
        limits = resource_requests_of(pod).limits
        return int(
            any(_satisfies_limit(limit, have) for limit, have in zip(limits, offered, strict=True))
        )

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        scores = np.zeros(n_rows_of(rows), dtype=np.int64)
        for name, limit in zip(SCORED_RESOURCES, resource_requests_of(pod).limits, strict=True):
            if limit != 0:
                offered = nodes.allocatable(name)[rows]
                scores[(offered != 0) & (offered >= limit)] = 1
        return scores

    def signature(self, pod: Pod) -> object:
        """The limits."""
        return resource_requests_of(pod).limits


def _satisfies_limit(limit: int, offered: int) -> bool:
    return limit != 0 and offered != 0 and limit <= offered


class RequestedToCapacityRatioArgs(PluginArgs, frozen=True):
    """shape: score by utilization, a piecewise linear function; default: falling from 10 to 0."""

    shape: tuple[UtilizationShapePoint, ...] = (
        UtilizationShapePoint(0, POINT_SCORE_MAX),
        UtilizationShapePoint(UTILIZATION_MAX, 0),
    )

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the shape. path: its place in the configuration."""
        yield from shape_problems(self.shape, f"{path}.shape")


class RequestedToCapacityRatioPriority(_ResourcePriority):
    """Score by a piecewise linear function of utilization."""

    name = "RequestedToCapacityRatioPriority"
    Args = RequestedToCapacityRatioArgs

    def __init__(self, args: RequestedToCapacityRatioArgs) -> None:
        self.args = args
        percentages = range(UTILIZATION_MAX + 1)
        self._line = np.array([score_at(p, args.shape) for p in percentages], dtype=np.int64)

    def of_resource(self, requested: Ints, allocatable: Ints) -> Ints:
        """int64 (n_rows,) in [0, 10]: the shape's score; full where requests exceed allocatable."""
        fits = (allocatable != 0) & (requested <= allocatable)
        free = (allocatable - requested) * UTILIZATION_MAX
        used = UTILIZATION_MAX - divide_truncated(free, np.where(fits, allocatable, 1))
        scores: Ints = self._line[np.where(fits, np.clip(used, 0, None), UTILIZATION_MAX)]
        return scores
