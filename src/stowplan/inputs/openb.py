"""OpenB: nodes and pods of a production GPU cluster, published as CSV.

A pod requests `stowplan.dev/gpu-milli`, thousandths of cards, and also `nvidia.com/gpu` when it
needs whole cards; a node offers both. The model of a node's cards is its label
`nvidia.com/gpu.product`, as set by NVIDIA's feature discovery; a pod that names models requires one
of them by node affinity. Times become creation timestamps since 1970, and an annotation with the
run time: from scheduling (else from creation) to deletion.

Both also have the annotations and amounts of open-gpu-share, by which the plugin GpuShare places
pods card by card. Without a configuration it filters; one without it adds up the cards of a node.

Source: "Beware of Fragmentation" (Weng et al., USENIX ATC 2023), the trace published with it.
"""

from __future__ import annotations

import csv
import datetime
import math
from collections.abc import Callable, Iterator, Mapping

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.objects.devices.gpu_cards import CARD_MILLI, COUNT_KEY, MILLI_KEY, MODEL_KEY
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, Node, NodeStatus
from stowplan.objects.pod import (
    Affinity,
    Container,
    NodeAffinity,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    label_value_errors,
)

GPU_MILLI = "stowplan.dev/gpu-milli"
GPU = "nvidia.com/gpu"
MODEL_LABEL = "nvidia.com/gpu.product"
PODS_PER_NODE = 110
CARDS_COUNTED = (
    "GPU cards are counted one by one, nodes are scored without them; a configuration with GpuShare"
    " chooses by cards (see docs/gpu-sharing.md)"
)
CARDS_ADDED_UP = (
    "the GPU cards of a node count as one amount, since the configuration does not enable GpuShare"
    " (see docs/gpu-sharing.md)"
)

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")

_AMOUNT_MAX = 10**12
_SECONDS_MAX = 253_402_300_799
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class OpenBRow:
    """A line of a file with its cells by column; accessors raise InputError."""

    def __init__(self, source: str, line: int, cells: Mapping[str, str]) -> None:
        self.source = source
        self.line = line
        self.cells = cells

    @property
    def place(self) -> str:
        """Its position in the file."""
        return f"line {self.line}"

    def text(self, column: str) -> str:
        """A non-empty cell."""
        if not self.cells[column]:
            raise self.refused(column, "a name")
        return self.cells[column]

    def count(self, column: str, most: int = _AMOUNT_MAX) -> int:
        """A cell as a whole number of at least 0."""
        cell = self.cells[column]
        if not (cell.isascii() and cell.isdigit() and len(cell) <= 15 and int(cell) <= most):
            raise self.refused(column, f"a whole number from 0 to {most}")
        return int(cell)

    def models(self, column: str) -> tuple[str, ...]:
        """A cell as sorted, distinct models separated by `|`; empty when absent."""
        models = sorted({model for model in self.cells.get(column, "").split("|") if model})
        if any(label_value_errors(model) for model in models):
            raise self.refused(column, "models that are valid label values, separated by |")
        return tuple(models)

    def time(self, column: str) -> datetime.datetime | None:
        """A cell as seconds; None when empty or absent."""
        cell = self.cells.get(column, "")
        if not cell:
            return None
        try:
            seconds = float(cell)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _SECONDS_MAX:
            raise self.refused(column, f"seconds, from 0 to {_SECONDS_MAX}")
        return _EPOCH + datetime.timedelta(seconds=seconds)

    def refused(self, column: str, expected: str) -> InputError:
        """The error for a cell."""
        got = repr(self.cells[column]) if self.cells[column] else ""
        return InputError(self.source, f"{self.place}, {column}", got, expected)


class OpenBReader:
    """Reader of trace files. Pods with equal requests share one PodSpec, across files."""

    def __init__(self) -> None:
        self._specs: dict[tuple[int, int, int, int, tuple[str, ...]], PodSpec] = {}

    def objects(self, text: str, source: str) -> Iterator[tuple[str, Object]]:
        """(place, node or pod) of every line of a file; raises InputError."""
        lines = text.split("\n")
        header = _cells(lines[0], source, 1)
        read = self._reader(header, source)
        for row in _rows(lines, header, source):
            yield row.place, read(row)

    def _reader(self, header: list[str], source: str) -> Callable[[OpenBRow], Object]:
        if set(NODE_COLUMNS) <= set(header):
            return self.node
        if set(POD_COLUMNS) <= set(header):
            return self.pod
        got = repr(",".join(header)[:80]) if header else "no header"
        columns = f"{','.join(NODE_COLUMNS)} (nodes) or {','.join(POD_COLUMNS)} (pods)"
        expected = f"{columns}; --trace-format names other formats"
        raise InputError(source, "line 1", got, expected)

    def node(self, row: OpenBRow) -> Node:
        """The node of a line."""
        name = row.text("sn")
        offers: dict[str, Quantity] = {
            "cpu": f"{row.count('cpu_milli')}m",
            "memory": f"{row.count('memory_mib')}Mi",
            "pods": str(PODS_PER_NODE),
        }
        labels = {HOSTNAME_LABEL: name}
        n_cards = row.count("gpu")
        if n_cards:
            offers |= {GPU: str(n_cards), GPU_MILLI: str(n_cards * CARD_MILLI)}
            offers[COUNT_KEY] = str(n_cards)
            models = row.models("model")
            if len(models) > 1:
                raise row.refused("model", "one model")
            if models:
                labels[MODEL_LABEL] = labels[MODEL_KEY] = models[0]
        return Node(
            metadata=ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=offers)
        )

    def pod(self, row: OpenBRow) -> Pod:
        """The pod of a line."""
        shape = (
            row.count("cpu_milli"),
            row.count("memory_mib"),
            row.count("num_gpu"),
            row.count("gpu_milli", most=CARD_MILLI),
            row.models("gpu_spec"),
        )
        spec = self._specs.get(shape)
        if spec is None:
            spec = self._specs[shape] = _spec(*shape)
        created, deleted = row.time("creation_time"), row.time("deletion_time")
        began = row.time("scheduled_time") or created
        annotations = _card_annotations(shape[2], shape[3], row.cells.get("gpu_spec", ""))
        if deleted is not None and began is not None:
            runs = max(deleted - began, datetime.timedelta(0))
            annotations[RUN_ANNOTATION] = str(runs.total_seconds()).removesuffix(".0")
        meta = ObjectMeta(
            name=row.text("name"), creation_timestamp=created, annotations=annotations
        )
        return Pod(metadata=meta, spec=spec)


def _card_annotations(n_cards: int, gpu_milli: int, models: str) -> dict[str, str]:
    if not n_cards * gpu_milli:
        return {}
    found = {COUNT_KEY: str(n_cards), MILLI_KEY: str(gpu_milli)}
    return found | ({MODEL_KEY: models} if models else {})


def _spec(
    cpu_milli: int, memory_mib: int, n_cards: int, gpu_milli: int, models: tuple[str, ...]
) -> PodSpec:
    asks: dict[str, Quantity] = {"cpu": f"{cpu_milli}m", "memory": f"{memory_mib}Mi"}
    if n_cards * gpu_milli:
        asks[GPU_MILLI] = str(n_cards * gpu_milli)
        if gpu_milli == CARD_MILLI:
            asks[GPU] = str(n_cards)
    container = Container(name="main", resources=ResourceRequirements(requests=asks))
    return PodSpec(containers=(container,), affinity=_requiring(models) if models else None)


def _requiring(models: tuple[str, ...]) -> Affinity:
    requirement = NodeSelectorRequirement(key=MODEL_LABEL, operator="In", values=models)
    term = NodeSelectorTerm(match_expressions=(requirement,))
    return Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))


def _rows(lines: list[str], header: list[str], source: str) -> Iterator[OpenBRow]:
    """The lines below the header, without blank ones."""
    again = [name for index, name in enumerate(header) if name in header[:index]]
    if again:
        raise InputError(source, "line 1", f"duplicate column {again[0]!r}", "each column once")
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = _cells(line, source, number)
        if len(cells) != len(header):
            got = count_of(len(cells), "cell")
            raise InputError(source, f"line {number}", got, f"{len(header)}, as in the header")
        yield OpenBRow(source, number, dict(zip(header, cells, strict=True)))


def _cells(line: str, source: str, number: int) -> list[str]:
    try:
        found = list(csv.reader([line], strict=True))
    except csv.Error as problem:
        got = f"{line[:60]!r} ({problem})"
        raise InputError(source, f"line {number}", got, "a line of CSV") from None
    return [cell.strip() for cell in found[0]] if found else []
