"""Clusters drawn as text: a table of nodes and a table of pods, a line each.

    cluster = draw('''
        node  cpu  memory  zone  taints              nvidia.com/gpu
        n1    4    16Gi    a     -                   -
        n2    8    32Gi    b     gpu=yes:NoSchedule  2

        pod   on   cpu   labels            tolerations
        web   n1   500m  app=web,tier=api  -
        job   -    2     -                 gpu
    ''')
    cluster.table, cluster.pods["web"], cluster.pending

A table starts with a line that names its columns, `node` or `pod` first, and ends with a blank
line. Cells hold no blanks; `-` means unset; a comma separates the entries of a list. A column
that the builders in `make` do not know but that names a resource says how much of it there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import TableError, table_of
from stowplan.framework import ObjectStore, Snapshot
from stowplan.inputs.counts import count_of
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_tracked
from stowplan.objects.quantity import QuantityError
from stowplan.testing.builders import MakeError, node, pod


class DrawError(ValueError):
    """An invalid drawing: names the line, the value and what was expected."""

    def __init__(self, line: int, what: str) -> None:
        """line: counted from 1 in the text."""
        super().__init__(f"drawing, line {line}: {what}")


class Drawing:
    """A drawn cluster. nodes, pods: by name, in the order of their lines."""

    def __init__(self, nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> None:
        self.nodes = dict(nodes)
        self.pods = dict(pods)
        self.table: NodeTable = table_of(nodes.values(), (p for p in pods.values() if p.node_name))

    @property
    def pending(self) -> tuple[Pod, ...]:
        """The pods that are on no node."""
        return tuple(p for p in self.pods.values() if not p.node_name)

    def snapshot(self, objects: Iterable[Object] = ()) -> Snapshot:
        """The cluster as a snapshot. objects: those beside nodes and pods."""
        return Snapshot(self.table, ObjectStore(objects))


def draw(text: str) -> Drawing:
    """The cluster of a drawing; raises DrawError."""
    found: dict[str, dict[str, Any]] = {"node": {}, "pod": {}}
    header: list[str] = []
    for line, row in enumerate(text.splitlines(), start=1):
        cells = row.split()
        if not cells:
            header = []
        elif not header:
            header = cells
            if header[0] not in found:
                raise DrawError(line, f"table of {header[0]!r}; expected one of node, pod")
        else:
            made = _made(line, header, cells)
            if made.name in found[header[0]]:
                raise DrawError(line, f"{header[0]} {made.name!r} appears twice")
            found[header[0]][made.name] = made
    try:
        return Drawing(found["node"], found["pod"])
    except (TableError, QuantityError) as problem:
        raise DrawError(len(text.splitlines()), str(problem)) from problem


def _made(line: int, header: list[str], cells: list[str]) -> Any:
    if len(cells) != len(header):
        wanted = f"{len(header)} ({' '.join(header)})"
        raise DrawError(line, f"{count_of(len(cells), 'cell')}; expected {wanted}")
    kind, name = header[0], cells[0]
    columns, build = (_NODE, node) if kind == "node" else (_POD, pod)
    given: dict[str, Any] = {}
    resources: dict[str, str] = {}
    for column, cell in zip(header[1:], cells[1:], strict=True):
        if cell == "-":
            continue
        if column in columns:
            try:
                given[column] = columns[column](cell)
            except ValueError as problem:
                raise DrawError(line, f"{column} {cell!r}: {problem}") from problem
        elif is_tracked(column):
            resources[column] = cell
        else:
            known = ", ".join(columns)
            raise DrawError(line, f"column {column!r}; expected one of {known} or a resource")
    try:
        built: object = build(name, resources=resources, **given)
    except (MakeError, QuantityError) as problem:
        raise DrawError(line, f"{kind} {name!r}: {problem}") from problem
    return built


def _texts(cell: str) -> list[str]:
    return cell.split(",")


def _pairs(cell: str) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in cell.split(","))}


def _whole(cell: str) -> int:
    if not cell.lstrip("-").isdecimal():
        raise ValueError("expected a whole number")
    return int(cell)


def _truth(cell: str) -> bool:
    if cell not in ("yes", "no"):
        raise ValueError("expected yes or no")
    return cell == "yes"


_NODE: dict[str, Callable[[str], Any]] = {
    "cpu": str,
    "memory": str,
    "pods": _whole,
    "zone": str,
    "region": str,
    "labels": _pairs,
    "taints": _texts,
    "cordoned": _truth,
    "images": _pairs,
    "features": _texts,
}

_POD: dict[str, Callable[[str], Any]] = {
    "on": str,
    "nominated": str,
    "namespace": str,
    "cpu": str,
    "memory": str,
    "labels": _pairs,
    "priority": _whole,
    "image": str,
    "ports": _texts,
    "node_selector": _pairs,
    "tolerations": _texts,
    "gates": _texts,
    "claims": _texts,
}
