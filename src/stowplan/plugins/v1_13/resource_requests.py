"""Resource requests as Kubernetes 1.13 counts them, per pod and per node.

Each container's amount is rounded up by itself and then added. Init containers count for the
incoming pod only; overhead, pod-level amounts and resizes do not count.

Source: Kubernetes v1.13, scheduler/cache/node_info.go, predicates.GetResourceRequest and
priorities/util/non_zero.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints, grow
from stowplan.columns.nodeinfo import wrapped
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import NodeInfo, NodeTable, PodInfo
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import NONZERO_CPU_MILLI, NONZERO_MEMORY_BYTES, is_tracked
from stowplan.objects.quantity import Quantity, amount

ResourceAmounts = Mapping[str, int]

NATIVE_RESOURCES = ("cpu", "memory", "ephemeral-storage")

_KEPT = "v1_13.amounts"


class PodResourceRequests(msgspec.Struct, frozen=True):
    """Requests of a pod in base units (milli-CPU, bytes, counts).

    on_node: counted on a node, by resource. wanted: required of a node, init containers included; a
    resource may be present with 0. nonzero: milli-CPU and bytes with the defaults for containers
    without requests. limits: of cpu and memory, init containers included.
    """

    on_node: ResourceAmounts
    wanted: ResourceAmounts
    nonzero: tuple[int, int]
    limits: tuple[int, int]


def resource_requests_of(pod: Pod) -> PodResourceRequests:
    """The requests of a pod, cached per spec; raises QuantityError."""
    kept: PodResourceRequests | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        kept = pod.spec.__dict__[_KEPT] = _resource_requests(pod)
    return kept


def _resource_requests(pod: Pod) -> PodResourceRequests:
    regular = [container.resources for container in pod.spec.containers]
    initial = [container.resources for container in pod.spec.init_containers]
    on_node = _sum(r.requests for r in regular)
    limits = _largest(_sum(r.limits for r in regular), (r.limits for r in initial))
    return PodResourceRequests(
        on_node=on_node,
        wanted=_largest(on_node, (r.requests for r in initial)),
        nonzero=(
            _filled_sum("cpu", NONZERO_CPU_MILLI, (r.requests for r in regular)),
            _filled_sum("memory", NONZERO_MEMORY_BYTES, (r.requests for r in regular)),
        ),
        limits=(limits.get("cpu", 0), limits.get("memory", 0)),
    )


def _sum(stated: Iterable[Mapping[str, Quantity]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for quantities in stated:
        for name, quantity in quantities.items():
            if is_tracked(name):
                total[name] = wrapped(total.get(name, 0) + amount(name, quantity))
    return total


def _largest(total: ResourceAmounts, stated: Iterable[Mapping[str, Quantity]]) -> dict[str, int]:
    """`total` raised to the largest of `stated`, where that is above it."""
    largest = dict(total)
    for quantities in stated:
        for name, quantity in quantities.items():
            if is_tracked(name) and (asked := amount(name, quantity)) > largest.get(name, 0):
                largest[name] = asked
    return largest


def _filled_sum(name: str, default: int, stated: Iterable[Mapping[str, Quantity]]) -> int:
    """The sum over containers, with `default` for one without the resource."""
    return wrapped(sum(amount(name, q[name]) if name in q else default for q in stated))


def requested_on(node: NodeInfo, resource: str) -> int:
    """Requests of the pods of a node for a resource, base units."""
    return wrapped(
        sum(resource_requests_of(info.pod).on_node.get(resource, 0) for info in node.pods)
    )


def nonzero_on(node: NodeInfo) -> tuple[int, int]:
    """(milli-CPU, bytes): requests of the pods of a node, with the defaults."""
    shares = [resource_requests_of(info.pod).nonzero for info in node.pods]
    return wrapped(sum(s[0] for s in shares)), wrapped(sum(s[1] for s in shares))


class RequestedByRow(TableWatcher):
    """The sums of every row, updated by delta."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._requested: dict[str, Ints] = {}
        self._nonzero: Ints = np.zeros((2, 0), dtype=np.int64)

    def requested(self, resource: str) -> Ints:
        """int64 (n_nodes,): `requested_on` of each row; a view, read only."""
        column = self._requested.get(resource)
        if column is None:
            return np.zeros(self._table.n_nodes, dtype=np.int64)
        return column[: self._table.n_nodes]

    def nonzero(self, resource: str) -> Ints:
        """int64 (n_nodes,): `nonzero_on` of each row, for cpu or memory; a view, read only."""
        return self._nonzero[("cpu", "memory").index(resource), : self._table.n_nodes]

    def pod_added(self, row: int, info: PodInfo) -> None:
        """A pod was added to a row."""
        self._count(row, info, 1)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """A pod was removed from a row."""
        self._count(row, info, -1)

    def row_added(self, row: int) -> None:
        """A node was added; its pods are announced next."""
        self._nonzero = grow(self._nonzero, (2, row + 1))
        self._nonzero[:, row] = 0
        for resource, column in self._requested.items():
            self._requested[resource] = grow(column, (row + 1,))
            self._requested[resource][row] = 0

    def row_moved(self, source: int, target: int) -> None:
        """The node of row `source` is now on `target`, which is empty."""
        for column in (*self._requested.values(), *self._nonzero):
            column[target] = column[source]

    def _count(self, row: int, info: PodInfo, sign: int) -> None:
        counted = resource_requests_of(info.pod)
        for resource, asked in counted.on_node.items():
            if resource not in self._requested:
                n_rows = self._nonzero.shape[1]
                self._requested[resource] = np.zeros(n_rows, dtype=np.int64)
            column = self._requested[resource]
            column[row] = wrapped(int(column[row]) + sign * asked)
        for column, asked in zip(self._nonzero, counted.nonzero, strict=True):
            column[row] = wrapped(int(column[row]) + sign * asked)
