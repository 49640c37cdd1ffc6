"""validate(): a NodeTable against one built anew from the same objects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stowplan.columns.nodetable import NodeTable


class InvariantBroken(AssertionError):
    """Our own bug: what is kept by delta differs from what the objects say."""


def validate(table: NodeTable) -> None:
    """Rebuild `table` from its objects and compare; raises InvariantBroken naming differences."""
    differences = list(_differences(table, _rebuilt(table)))
    if differences:
        raise InvariantBroken("node table: " + "; ".join(differences[:10]))


def _rebuilt(table: NodeTable) -> NodeTable:
    fresh = NodeTable()
    for node in table.nodes:
        fresh.add_node(node)
    for pods in table.pods:
        for info in pods:
            fresh.add_pod(info.pod)
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


def _row_differences(kept: NodeTable, fresh: NodeTable, row: int) -> Iterator[str]:
    name = kept.names[row]
    for what, a, b in (
        ("taints", kept.taints, fresh.taints),
        ("features", kept.features, fresh.features),
    ):
        have = [a.vocabulary.values[i] for i in a.items[row] if i >= 0]
        want = [b.vocabulary.values[i] for i in b.items[row] if i >= 0]
        if have != want:
            yield f"{what} of {name!r}: kept {have}, rebuilt {want}"
    for key, column in kept.labels.active().items():
        code = int(column.codes[row])
        value = column.vocabulary.values[code] if code >= 0 else None
        if value != kept.nodes[row].labels.get(key):
            yield f"label {key!r} of {name!r}: kept {value!r}"
    # A port goes free with the first of the pods that share it, so fewer may be kept.
    if not kept.ports.of_row(row) <= fresh.ports.of_row(row):
        yield f"ports of {name!r}: kept {kept.ports.of_row(row)}"
    if kept.images.of_row(row).keys() != fresh.images.of_row(row).keys():
        yield f"images of {name!r}: kept {sorted(kept.images.of_row(row))}"


def _unequal(what: str, kept: np.ndarray, fresh: np.ndarray) -> Iterator[str]:
    if not np.array_equal(kept, fresh):
        rows = np.flatnonzero(kept != fresh)[:5].tolist() if kept.shape == fresh.shape else []
        yield f"{what}: rows {rows} kept {kept[rows]}, rebuilt {fresh[rows]}"
