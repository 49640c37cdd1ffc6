"""Scoring strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Source: kube-scheduler v1.36, plugins/noderesources least_allocated, most_allocated and
requested_to_capacity_ratio, and apis/config/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import force_setattr

from stowplan.columns.array_types import Ints
from stowplan.framework import Problem
from stowplan.framework.problems import did_you_mean
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import divide_truncated, percentages
from stowplan.plugins.resources.resource_allocation import (
    DEFAULT_RESOURCES,
    ResourceSpec,
    ResourceUtilization,
    ScoringFunction,
    weight_problems,
)
from stowplan.plugins.utilization_shape import (
    UTILIZATION_MAX,
    UtilizationShapePoint,
    piecewise_linear_scores,
    shape_problems,
)

LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
STRATEGY_TYPES = (LEAST, MOST, RATIO)


class RequestedToCapacityRatioParam(PluginArgs, frozen=True):
    """The shape of the strategy RequestedToCapacityRatio."""

    shape: tuple[UtilizationShapePoint, ...] = ()


class ScoringStrategy(PluginArgs, frozen=True):
    """A strategy and its resources (none: cpu and memory)."""

    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RequestedToCapacityRatioParam | None = None

    def __post_init__(self) -> None:
        if not self.resources:
            force_setattr(self, "resources", DEFAULT_RESOURCES)

    def problems(self, path: str) -> Iterator[Problem]:
        """Problems of the strategy. path: its place in the configuration."""
        if self.type not in STRATEGY_TYPES:
            hint = did_you_mean(self.type, STRATEGY_TYPES)
            yield Problem(
                f"{path}.type", repr(self.type), f"one of {', '.join(STRATEGY_TYPES)}", hint
            )
        yield from weight_problems(self.resources, f"{path}.resources")
        ratio, at = self.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
        if self.type == RATIO and ratio is None:
            yield Problem(at, "nothing", f"a shape, since the type is {RATIO}")
        elif self.type == RATIO and ratio is not None:
            yield from shape_problems(ratio.shape, f"{at}.shape")
        elif ratio is not None:
            yield Problem(at, "a shape", f"nothing, unless the type is {RATIO}")

    def rule(self) -> ScoringFunction:
        """The scoring function; the strategy must have no problems."""
        if self.type == RATIO and self.requested_to_capacity_ratio is not None:
            line = piecewise_linear_scores(self.requested_to_capacity_ratio.shape)
            return lambda stocks, n_rows: capacity_ratio(stocks, n_rows, line)
        return least_allocated if self.type == LEAST else most_allocated


def least_allocated(stocks: Sequence[ResourceUtilization], n_rows: int) -> Ints:
    """int64 (n_rows,): the weighted mean of the free percentages; 0 where over-committed."""
    parts = [np.maximum(stock.allocatable - stock.taken(), 0) for stock in stocks]
    return _mean_percentage(parts, stocks, n_rows)


def most_allocated(stocks: Sequence[ResourceUtilization], n_rows: int) -> Ints:
    """int64 (n_rows,): the weighted mean of the used percentages; 100 where over-committed."""
    parts = [_capped_requested(stock) for stock in stocks]
    return _mean_percentage(parts, stocks, n_rows)


def capacity_ratio(stocks: Sequence[ResourceUtilization], n_rows: int, line: Ints) -> Ints:
    """int64 (n_rows,): the weighted mean of the shape's scores at the used percentages, rounded.

    line: int64 (101,), the score per percentage. Resources that score 0 do not count in the mean.
    """
    total = np.zeros(n_rows, dtype=np.int64)
    weights = np.zeros(n_rows, dtype=np.int64)
    for stock in stocks:
        used = percentages(_capped_requested(stock), stock.allocatable)
        scores = line[np.clip(used, 0, UTILIZATION_MAX)]
        total += scores * stock.weight
        weights += (scores > 0) * stock.weight
    weights[weights == 0] = 1
    # Half up in whole numbers: the original rounds a quotient of floats, but no quotient of numbers
    # this small comes close enough to a half for that to differ.
    return (2 * total + weights) // (2 * weights)


def _capped_requested(stock: ResourceUtilization) -> Ints:
    """The requested amount, at most the allocatable one."""
    return np.minimum(stock.taken(), stock.allocatable)


def _mean_percentage(
    parts: Sequence[Ints], stocks: Sequence[ResourceUtilization], n_rows: int
) -> Ints:
    """The weighted mean of each part as a whole percentage of its allocatable amount."""
    total = np.zeros(n_rows, dtype=np.int64)
    for part, stock in zip(parts, stocks, strict=True):
        percentage = percentages(part, stock.allocatable)
        total += percentage if stock.weight == 1 else percentage * stock.weight
    return divide_truncated(total, max(1, sum(stock.weight for stock in stocks)))
