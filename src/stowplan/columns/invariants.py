"""Compares a NodeTable with one rebuilt from the same objects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stowplan.columns.nodetable import NodeTable, TableError
from stowplan.columns.pods.podinfo import WILDCARD_IP


class InvariantBroken(AssertionError):
    """A bug: incrementally kept state differs from the objects."""


def validate(table: NodeTable) -> None:
    """Rebuild `table` from its objects and compare; raises InvariantBroken with the differences."""
    try:
        fresh = _rebuilt(table)
    except TableError as contradiction:
        raise InvariantBroken(f"node table: {contradiction}") from contradiction
    differences = list(_differences(table, fresh))
    if differences:
        raise InvariantBroken("node table: " + "; ".join(differences[:10]))


def _rebuilt(table: NodeTable) -> NodeTable:
    fresh = NodeTable()
    for node in table.nodes:
        fresh.add_node(node)
    for name, pods in zip(table.names, table.pods, strict=True):
        for info in pods:
            fresh.add_pod(info.pod, name)
    return fresh


def _differences(kept: NodeTable, fresh: NodeTable) -> Iterator[str]:
    names = sorted({*kept.resources.values, *fresh.resources.values})
    for name in names:
        yield from _unequal(f"allocatable {name}", kept.allocatable(name), fresh.allocatable(name))
        yield from _unequal(f"requested {name}", kept.requested(name), fresh.requested(name))
    for name in ("cpu", "memory"):
        yield from _unequal(
            f"nonzero {name}", kept.nonzero_requested(name), fresh.nonzero_requested(name)
        )
    yield from _unequal("pod count", kept.pod_count, fresh.pod_count)
    yield from _unequal("unschedulable", kept.unschedulable, fresh.unschedulable)
    for row, name in enumerate(kept.names):
        if kept.row(name) != row:
            yield f"node {name!r} stands on row {row}, looked up as {kept.row(name)}"
        yield from _row_differences(kept, fresh, row)
    if sorted(kept.order.tolist()) != list(range(kept.n_nodes)):
        yield f"order is no permutation of {kept.n_nodes} rows: {kept.order.tolist()[:10]}"
    elif not np.array_equal(kept.rank[kept.order], np.arange(kept.n_nodes)):
        yield f"rank is not the place in the order: {kept.rank.tolist()[:10]}"
    yield from _port_differences(kept)
    yield from _image_differences(kept)


def _row_differences(kept: NodeTable, fresh: NodeTable, row: int) -> Iterator[str]:
    name = kept.names[row]
    for what, a, b in (
        ("taints", kept.taints, fresh.taints),
        ("features", kept.features, fresh.features),
    ):
        have = a.of_row(row)
        want = b.of_row(row)
        if have != want:
            yield f"{what} of {name!r}: kept {have}, rebuilt {want}"
    for key, column in kept.labels.active().items():
        code = int(column.codes[row])
        value = column.vocabulary.values[code] if code >= 0 else None
        if value != kept.nodes[row].labels.get(key):
            yield f"label {key!r} of {name!r}: kept {value!r}"
    # A port becomes free with the first of the pods that share it, so fewer may be kept.
    if not kept.ports.of_row(row) <= fresh.ports.of_row(row):
        yield f"ports of {name!r}: kept {kept.ports.of_row(row)}"
    if kept.images.of_row(row).keys() != fresh.images.of_row(row).keys():
        yield f"images of {name!r}: kept {sorted(kept.images.of_row(row))}"
    for info in kept.pods[row]:
        if kept.row_of_pod(info.uid) != row:
            yield f"pod {info.uid} stands on row {row}, looked up as {kept.row_of_pod(info.uid)}"
    view = kept.info(row)
    if (
        view.node is not kept.nodes[row]
        or view.pods != kept.pods[row]
        or view.used_ports != kept.ports.of_row(row)
        or view.images != kept.images.of_row(row)
    ):
        yield f"the scalar view of {name!r} is out of date"


def _port_differences(kept: NodeTable) -> Iterator[str]:
    """Compare ports by port with ports by row."""
    used = [kept.ports.of_row(row) for row in range(kept.n_nodes)]
    for port in sorted(set().union(*used)):
        ip, *rest = port
        wanted = [
            any(rest == other and (WILDCARD_IP in (ip, at) or at == ip) for at, *other in ports)
            for ports in used
        ]
        conflicts = kept.ports.conflicts([port], kept.n_nodes)
        yield from _unequal(f"conflicts with port {port}", conflicts, np.array(wanted))


def _image_differences(kept: NodeTable) -> Iterator[str]:
    """Compare images by image with images by row."""
    by_row = [(name, row) for row in range(kept.n_nodes) for name in kept.images.of_row(row)]
    by_name = [(name, row) for name, state in kept.images.states.items() for row in state.rows]
    for name, row in sorted({*by_row} ^ {*by_name}):
        yield f"image {name!r} on row {row}: known by row or by name only"


def _unequal(what: str, kept: np.ndarray, fresh: np.ndarray) -> Iterator[str]:
    if not np.array_equal(kept, fresh):
        rows = np.flatnonzero(kept != fresh)[:5].tolist() if kept.shape == fresh.shape else []
        yield f"{what}: rows {rows} kept {kept[rows]}, rebuilt {fresh[rows]}"
