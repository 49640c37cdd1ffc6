"""Cluster: what a simulation starts from, and reading it from the files that a user names."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import msgspec

from stowplan.columns.nodetable import NodeTable
from stowplan.framework import World
from stowplan.objects.codec import DecodeError
from stowplan.objects.manifests import Inventory
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.population import populate
from stowplan.sim.documents import Document, decoded, documents
from stowplan.sim.files import File, files_at
from stowplan.sim.input_error import InputError
from stowplan.sim.openb import NOTE, OpenB

CSV = ".csv"
_LATEST = datetime.max.replace(tzinfo=UTC)


class Cluster(msgspec.Struct):
    """Nodes, pods and everything else that decisions read.

    pods: bound, pending and finished, in the order of their files. objects: the other kinds.
    ignored: kind -> how many objects of it were passed over, as scheduling does not read it.
    notes: what a user should know about the model. inputs: file -> SHA-256 of its content,
    unpacked.
    """

    nodes: list[Node]
    pods: list[Pod]
    objects: list[Object] = []
    ignored: dict[str, int] = {}
    notes: list[str] = []
    inputs: dict[str, str] = {}

    def __repr__(self) -> str:
        pods = f"{len(self.pods):,} pods, {len(self.pending()):,} of them pending"
        return f"Cluster({len(self.nodes):,} nodes, {pods})"

    def table(self) -> NodeTable:
        """A fresh table of the nodes and the pods that are bound to them."""
        table = NodeTable()
        for node in self.nodes:
            table.add_node(node)
        for pod in self.bound():
            table.add_pod(pod)
        table.refresh()
        return table

    def world(self) -> World:
        """A fresh world of the objects."""
        return World(self.objects)

    def bound(self) -> list[Pod]:
        """The pods that have a node and are not finished."""
        return [pod for pod in self.pods if pod.node_name and not pod.is_finished]

    def pending(self) -> list[Pod]:
        """The pods that wait for a node, in the order of their arrival.

        That is by creation time; those that have none come last, in the order of their files.
        Pods that are being deleted are no longer waiting.
        """
        waiting = (
            pod
            for pod in self.pods
            if not pod.node_name and not pod.is_finished and pod.metadata.deletion_timestamp is None
        )
        return sorted(waiting, key=lambda pod: pod.metadata.creation_timestamp or _LATEST)


def read_cluster(paths: str | Path | Iterable[str | Path]) -> Cluster:
    """The cluster that files describe: manifests, dumps, OpenB CSVs, directories of them.

    `-` is standard input. Raises InputError.
    """
    named = [paths] if isinstance(paths, str | Path) else list(paths)
    if not named:
        raise InputError("cluster", "", "no path", "at least one")
    reading = _Reading()
    with _collector_paused():
        for file in files_at(named):
            reading.take(file)
        return reading.cluster(", ".join(map(str, named)))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Nothing that is read is garbage, and looking for some costs more than the reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.trace = OpenB()
        self.notes: list[str] = []
        self.inputs: dict[str, str] = {}

    def take(self, file: File) -> None:
        """Take in a file; raises InputError."""
        self.inputs[file.source] = sha256(file.data).hexdigest()
        if _is_csv(file):
            self._take_csv(file)
            return
        for document in documents(file.data, file.source, file.suffix.removeprefix(".")):
            self._take_document(document)

    def _take_document(self, document: Document) -> None:
        place = f"{document.source}: {document.place}"
        try:
            self.inventory.add_document(document.tree, place)
        except DecodeError as problem:
            raise InputError.at(place, problem.path, problem.what) from None
        except RecursionError:
            wanted = "nesting that objects have"
            raise InputError(document.source, document.place, "deeper nesting", wanted) from None

    def _take_csv(self, file: File) -> None:
        if NOTE not in self.notes:
            self.notes.append(NOTE)
        for place, found in self.trace.objects(decoded(file.data, file.source), file.source):
            try:
                self.inventory.add(found, f"{file.source}: {place}")
            except DecodeError as problem:
                where = f"{place}: {problem.path}"
                raise InputError.at(file.source, where, problem.what) from None

    def cluster(self, named: str) -> Cluster:
        """The cluster that has been read; raises InputError when it has no nodes."""
        try:
            population = populate(self.inventory)
        except DecodeError as problem:
            raise InputError.at("", "", problem) from None
        nodes = list(self.inventory.all(Node))
        if not nodes:
            got = f"no nodes ({len(population.pods)} pods)"
            raise InputError(named, "", got, "a cluster with at least one node")
        return Cluster(
            nodes=nodes,
            pods=population.pods,
            objects=population.objects,
            ignored=dict(sorted(self.inventory.ignored.items())),
            notes=self.notes,
            inputs=self.inputs,
        )


def _is_csv(file: File) -> bool:
    """By name, or where the name says nothing, by the look of the first line."""
    if file.suffix in (".yaml", ".yml", ".json"):
        return False
    first = file.data[:200].lstrip(b"\xef\xbb\xbf").split(b"\n")[0]
    return file.suffix == CSV or first.startswith((b"sn,", b"name,"))
