"""How many more units fit, decided one after another until one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from stowplan.insight.capacity.units import Unit, UnitCopier, UnitCopy
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.insight.node_pools import pool_of
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

SCHEMA = "stowplan.dev/capacity/v1"
BATCH_MIN, BATCH_MAX = 64, 1024
"""Pods of the first batch of copies, and of the largest."""


class UnitCapacity(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Number of further units that fit.

    name: `deployment/web`, `podgroup/train`, `all of them`. kind: `pod`, `gang` or `workload`.
    pods_per_unit: pods of one unit. count: units that fit; is_limited: the search ended at its
    limit, so that more may fit. pools: pool -> pods placed there. nodes: the same by node. reasons:
    reason -> number of nodes that refuse the next pod for it, most nodes first. next_pod: the pod
    of the unit that is refused. message: of units that sessions decide, why they start no further
    one; their reasons have it, too, with the number of all nodes.
    """

    name: str
    kind: str
    pods_per_unit: int
    count: int
    is_limited: bool = False
    pools: dict[str, int] = {}
    nodes: dict[str, int] = {}
    reasons: dict[str, int] = {}
    next_pod: str = ""
    message: str = ""


class CapacityCount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Numbers of further units of a workload that fit into a cluster, each counted alone.

    notes: limits of the answer, such as an autoscaler that was not modelled.
    """

    api_version: str
    units: tuple[UnitCapacity, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        found = ", ".join(f"{one.name}: {one.count:,}" for one in self.units)
        return f"CapacityCount({found})"

    def _repr_html_(self) -> str:
        """For notebooks: how many more of each unit fit, and what refuses the next one."""
        rows = (
            (one.name, one.kind, f"{one.count:,}", "; ".join(one.reasons)) for one in self.units
        )
        columns = ("Unit", "Kind", "More that fit", "Then refused by")
        return html_summary("Capacity", html_table(columns, rows), *map(html_text, self.notes))

    def to_frame(self, library: str = "") -> Any:
        """One row per unit as a DataFrame of pandas or polars; see `to_dataframe`."""
        names = ("name", "kind", "pods_per_unit", "count", "is_limited")
        return to_dataframe(
            {name: [getattr(one, name) for one in self.units] for name in names}, library
        )


Placer = Callable[[Sequence[UnitCopy]], list[dict[str, str]]]
"""Places units in order until one does not fit: pod -> node, of each unit that was placed."""


def count_on_copy(unit: Unit, copier: UnitCopier, copy: ClusterCopy, limit: int) -> UnitCapacity:
    """Count units on a copy of the cluster, which is as before afterwards."""
    entered: list[Pod] = []

    def place(units: Sequence[UnitCopy]) -> list[dict[str, str]]:
        pods = [pod for one in units for pod in one.pods]
        made = copy.place(pods, stops=True)
        homes = [decision.node_name for decision in made if decision.node_name]
        size = len(unit.pods)
        n_whole = len(homes) // size
        # A unit that fits in part only is taken away again.
        for pod in pods[n_whole * size : len(homes)]:
            copy.remove(pod)
        entered.extend(pods[: n_whole * size])
        return [
            {pod.key: home for pod, home in zip(one.pods, homes[i * size :], strict=False)}
            for i, one in enumerate(units[:n_whole])
        ]

    placed, n_tried = placed_units(copier, place, limit)
    refused = next_refused(copier.copy(n_tried), copy) if len(placed) < limit else ("", {})
    found = unit_capacity(unit, placed, copy.table.nodes, limit, *refused)
    for pod in entered:
        copy.remove(pod)
    return found


def placed_units(copier: UnitCopier, place: Placer, limit: int) -> tuple[list[dict[str, str]], int]:
    """(pod -> node of each unit placed, number of the first copy that is not): copies are made in
    batches that double."""
    placed: list[dict[str, str]] = []
    size = BATCH_MIN
    while len(placed) < limit:
        n_units = min(max(size // len(copier.unit.pods), 1), limit - len(placed))
        start = len(placed)
        new = place([copier.copy(number) for number in range(start, start + n_units)])
        placed += new
        if len(new) < n_units:
            break
        size = min(2 * size, BATCH_MAX)
    return placed, len(placed)


def next_refused(unit: UnitCopy, copy: ClusterCopy) -> tuple[str, dict[str, int]]:
    """The first pod of a unit that no node takes, and why, with the unit's earlier pods placed."""
    decisions = copy.place(unit.pods, stops=True)
    n_placed = sum(1 for decision in decisions if decision.node_name)
    found: tuple[str, dict[str, int]] = "", {}
    if n_placed < len(unit.pods):
        pod = unit.pods[n_placed]
        found = pod.name, copy.refusal(pod)
    for pod in unit.pods[:n_placed]:
        copy.remove(pod)
    return found


def unit_capacity(
    unit: Unit,
    placed: Sequence[dict[str, str]],
    among: Iterable[Node],
    limit: int,
    next_pod: str,
    reasons: dict[str, int],
) -> UnitCapacity:
    """The result for one unit. among: the nodes. next_pod, reasons: see `UnitCapacity`."""
    nodes = Counter(home for one in placed for home in one.values())
    pools: Counter[str] = Counter()
    for node in among:
        if node.name in nodes:
            pools[pool_of(node)] += nodes[node.name]
    return UnitCapacity(
        unit.name,
        unit.kind,
        len(unit.pods),
        len(placed),
        len(placed) >= limit,
        dict(sorted(pools.items())),
        dict(sorted(nodes.items())),
        reasons,
        next_pod,
    )
