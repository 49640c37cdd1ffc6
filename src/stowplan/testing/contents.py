"""Everything that can be read from a NodeTable, as plain values to compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stowplan.columns import NodeTable
from stowplan.columns.pods.podinfo import WILDCARD_IP, Port


def contents(table: NodeTable) -> dict[str, Any]:
    """The answers of `table`, by the name of the reader: lists in row order, all of them copies."""
    return {
        "names": list(table.names),
        "nodes": list(table.nodes),
        "pods": [list(pods) for pods in table.pods],
        "pod count": table.pod_count.tolist(),
        "unschedulable": table.unschedulable.tolist(),
        "nonzero cpu": table.nonzero_requested("cpu").tolist(),
        "nonzero memory": table.nonzero_requested("memory").tolist(),
        "order": table.order.tolist(),
        "rank": table.rank.tolist(),
        "row of node": [table.row(name) for name in table.names],
        "row of pod": {
            info.uid: table.row_of_pod(info.uid) for pods in table.pods for info in pods
        },
        **dict(_resources(table)),
        **dict(_labels(table)),
        "taints": _items(table, table.taints),
        "features": _items(table, table.features),
        **dict(_ports(table)),
        **dict(_images(table)),
        **dict(_infos(table)),
    }


def differences(have: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """The readers with different answers, each with both answers; a missing one counts as None."""
    return [
        f"{reader}: {have.get(reader)}, not {want.get(reader)}"
        for reader in dict.fromkeys((*have, *want))
        if have.get(reader) != want.get(reader)
    ]


def _resources(table: NodeTable) -> Iterator[tuple[str, Any]]:
    # A resource without allocatable and requests may be known or not.
    for name in sorted(table.resources.values):
        for what, column in (
            ("allocatable", table.allocatable(name)),
            ("requested", table.requested(name)),
        ):
            if column.any():
                yield f"{what} {name}", column.tolist()


def _labels(table: NodeTable) -> Iterator[tuple[str, Any]]:
    for key in sorted({key for node in table.nodes for key in node.labels}):
        column = table.labels.column(key)
        codes = column.codes[table.all_rows].tolist()
        yield f"label {key}", [column.vocabulary.values[c] if c >= 0 else None for c in codes]


def _items(table: NodeTable, incidence: Any) -> list[list[Any]]:
    return [incidence.of_row(row) for row in range(table.n_nodes)]


def _ports(table: NodeTable) -> Iterator[tuple[str, Any]]:
    used = [table.ports.of_row(row) for row in range(table.n_nodes)]
    yield "ports", used
    asked: set[Port] = set().union(*used)
    asked |= {(WILDCARD_IP, protocol, number) for _, protocol, number in asked}
    for port in sorted(asked):
        taken = table.ports.conflicts([port], table.n_nodes)
        yield f"rows in conflict with {port}", np.flatnonzero(taken).tolist()


def _images(table: NodeTable) -> Iterator[tuple[str, Any]]:
    for name, state in sorted(table.images.states.items()):
        rows, counts = state.arrays()
        known = dict(sorted(zip(rows.tolist(), counts.tolist(), strict=True)))
        yield f"image {name}", (state.size, known)


def _infos(table: NodeTable) -> Iterator[tuple[str, Any]]:
    for info in table.infos():
        yield (
            f"info of {info.name}",
            {
                "node": info.node,
                "pods": list(info.pods),
                "ports": set(info.used_ports),
                "images": dict(info.images),
                "allocatable": dict(info.allocatable),
                "requested": {name: n for name, n in info.requested.items() if n},
                "nonzero": info.nonzero_requested,
            },
        )
