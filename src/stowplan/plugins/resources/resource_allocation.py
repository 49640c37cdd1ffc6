"""Allocatable and requested amounts of the resources that a configuration scores.

NodeResourcesFit and NodeResourcesBalancedAllocation score by them. Their rules are written once,
over arrays; for one node the arrays have one element, and the amounts come from its pods instead of
the columns.

Source: kube-scheduler v1.36, plugins/noderesources resource_allocation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec
import numpy as np
from msgspec.structs import force_setattr

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import NodeInfo, NodeTable, Problem, Rows
from stowplan.objects.pod_requests import is_scalar, is_tracked
from stowplan.plugins.args_base import PluginArgs
from stowplan.plugins.arithmetic import n_rows_of

WEIGHT_MAX = 100
NONZERO_RESOURCES = ("cpu", "memory")


class ResourceSpec(PluginArgs, frozen=True):
    """A resource that is scored, and its weight; a weight of 0 counts as unset and becomes 1."""

    name: str = ""
    weight: int = 1

    def __post_init__(self) -> None:
        if self.weight == 0:
            force_setattr(self, "weight", 1)


DEFAULT_RESOURCES = (ResourceSpec("cpu"), ResourceSpec("memory"))


def weight_problems(resources: Sequence[ResourceSpec], path: str) -> Iterator[Problem]:
    """Weights out of range. path: the place of `resources` in the configuration."""
    for i, resource in enumerate(resources):
        if not 0 < resource.weight <= WEIGHT_MAX:
            yield Problem(f"{path}[{i}].weight", str(resource.weight), f"1 to {WEIGHT_MAX}")


class ResourceUtilization(msgspec.Struct, frozen=True):
    """One scored resource, in base units.

    allocatable: int64 (n_rows,), what the rows have. before: int64 (n_rows,), requests of the pods
    on them. request: that of the pod to be placed.
    """

    weight: int
    allocatable: Ints
    before: Ints
    request: int

    def taken(self) -> Ints:
        """int64 (n_rows,): requested amount with the pod."""
        return self.before + self.request

    def of(self, chosen: Bools) -> ResourceUtilization:
        """The same for the given rows."""
        return ResourceUtilization(
            self.weight, self.allocatable[chosen], self.before[chosen], self.request
        )


ScoringFunction = Callable[[Sequence[ResourceUtilization], int], Ints]
"""(resources, n_rows) -> int64 (n_rows,): scores of rows that have some of every resource."""


class ResourceReader(Protocol):
    """Source of amounts: each int64 (n_rows,), base units."""

    n_rows: int

    def allocatable(self, resource: str) -> Ints:
        """Allocatable amounts of nodes."""

    def requested(self, resource: str) -> Ints:
        """Requests of the pods on them."""

    def nonzero_requested(self, resource: str) -> Ints:
        """Their requests of cpu or memory, with the scheduler's defaults filled in."""


class RowsResourceReader:
    """Amounts from the columns."""

    def __init__(self, nodes: NodeTable, rows: Rows) -> None:
        self._nodes = nodes
        self._rows = rows
        self.n_rows = n_rows_of(rows)

    def allocatable(self, resource: str) -> Ints:
        return self._nodes.allocatable(resource)[self._rows]

    def requested(self, resource: str) -> Ints:
        return self._nodes.requested(resource)[self._rows]

    def nonzero_requested(self, resource: str) -> Ints:
        return self._nodes.nonzero_requested(resource)[self._rows]


class NodeResourceReader:
    """Amounts of one node and its pods."""

    n_rows = 1

    def __init__(self, node: NodeInfo) -> None:
        self._node = node

    def allocatable(self, resource: str) -> Ints:
        return _single_row(self._node.allocatable.get(resource, 0))

    def requested(self, resource: str) -> Ints:
        return _single_row(self._node.requested.get(resource, 0))

    def nonzero_requested(self, resource: str) -> Ints:
        return _single_row(self._node.nonzero_requested[NONZERO_RESOURCES.index(resource)])


def _single_row(amount: int) -> Ints:
    # Sums beyond int64 wrap around, as they do in the columns and in the original.
    return np.array([amount % 2**64], dtype=np.uint64).view(np.int64)


def scored_requests(
    resources: Sequence[ResourceSpec], requests: Mapping[str, int]
) -> Iterator[tuple[ResourceSpec, int]]:
    """The resources that are scored for a pod with these `requests`, and its request of each.

    Left out are resources that the scheduler does not count, and scalar resources that the pod does
    not request.
    """
    for resource in resources:
        request = requests.get(resource.name, 0)
        if is_tracked(resource.name) and (request != 0 or not is_scalar(resource.name)):
            yield resource, request


def resource_utilizations(
    source: ResourceReader,
    resources: Sequence[ResourceSpec],
    requests: Mapping[str, int],
    *,
    fill_in: bool,
) -> list[ResourceUtilization]:
    """The utilization of `resources`, in their order, with a pod of these `requests`.

    fill_in: whether cpu and memory that pods do not request have defaults.
    """
    found = []
    for resource, request in scored_requests(resources, requests):
        name = resource.name
        use_defaults = fill_in and name in NONZERO_RESOURCES
        before = source.nonzero_requested(name) if use_defaults else source.requested(name)
        found.append(
            ResourceUtilization(resource.weight, source.allocatable(name), before, request)
        )
    return found


def score_resources(
    held: Sequence[ResourceUtilization], n_rows: int, rule: ScoringFunction
) -> Ints:
    """int64 (n_rows,): the rule's scores; for each row over the resources that it has.

    Rows that have the same resources are scored together; usually that is all of them.
    """
    for index, stock in enumerate(held):
        offered = stock.allocatable != 0
        if not offered.all():
            others = [*held[:index], *held[index + 1 :]]
            scores = np.zeros(n_rows, dtype=np.int64)
            for chosen, group in ((offered, held), (~offered, others)):
                n_chosen = int(np.count_nonzero(chosen))
                scores[chosen] = score_resources(
                    [each.of(chosen) for each in group], n_chosen, rule
                )
            return scores
    return rule(held, n_rows)
