"""Dry runs: edits applied to the columns, one attempt, and everything undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from stowplan.columns import NodeTable
from stowplan.columns.overlay import Overlay
from stowplan.cycle.attempt import Attempt, filter_pod
from stowplan.framework import Framework, ObjectStore, Snapshot
from stowplan.framework.object_store import key_of
from stowplan.insight.changes.edits import (
    AddNodeEdit,
    Edit,
    FreeEdit,
    NodeEdit,
    ObjectEdit,
    PodEdit,
    in_order,
)
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class DryRun:
    """Tries edits for one pod. Costs what the edits change, and one attempt.

    The snapshot must be the caller's own: it changes while an edit is tried.
    """

    def __init__(self, pod: Pod, snapshot: Snapshot, framework: Framework) -> None:
        self.pod = pod
        self.snapshot = snapshot
        self.framework = framework
        self.n_attempts = 0

    def lets_run(self, edits: Sequence[Edit]) -> bool:
        """True when a node takes the pod after these edits."""
        with self.applied(edits) as pod:
            return self.fits(self.attempt(pod))

    def attempt(self, pod: Pod) -> Attempt:
        """Filter a pod on the present state."""
        self.n_attempts += 1
        return filter_pod(pod, self.snapshot, self.framework)

    def fits(self, attempt: Attempt) -> bool:
        """True when an attempt found a node."""
        return attempt.failure is None and attempt.passed.shape[0] > 0

    @contextmanager
    def applied(self, edits: Sequence[Edit]) -> Iterator[Pod]:
        """The pod after the edits, on the changed columns; they are as before on exit."""
        table = self.snapshot.nodes
        pod = self.pod
        with ExitStack() as undo:
            for edit in in_order(edits):
                match edit:
                    case PodEdit():
                        pod = replace(pod, spec=edit.change(pod.spec)[0])
                    case NodeEdit():
                        undo.enter_context(_changed_node(table, edit))
                    case ObjectEdit():
                        undo.enter_context(_changed_object(self.snapshot.object_store, edit))
                    case AddNodeEdit():
                        undo.enter_context(_added_node(table, edit.node))
                        undo.enter_context(_added_slices(self.snapshot.object_store, edit))
            free = [edit for edit in edits if isinstance(edit, FreeEdit)]
            if free:
                overlay = undo.enter_context(Overlay(table))
                for edit in free:
                    _free(table, overlay, edit)
            yield pod


@contextmanager
def _changed_node(table: NodeTable, edit: NodeEdit) -> Iterator[None]:
    before = table.nodes[table.row(edit.node)]
    table.update_node(edit.change(before)[0])
    try:
        yield
    finally:
        table.update_node(before)


@contextmanager
def _changed_object(store: ObjectStore, edit: ObjectEdit) -> Iterator[None]:
    kind, key = type(edit.value), key_of(edit.value)
    # Of edits of the same object each changes what the one before has left.
    before: Object | None = store.find(kind, key)
    assert before is not None, f"{key} is an object of the snapshot"
    store.put(edit.change(before)[0])
    try:
        yield
    finally:
        store.put(before)


@contextmanager
def _added_slices(store: ObjectStore, edit: AddNodeEdit) -> Iterator[None]:
    for one in edit.slices:
        store.put(one)
    try:
        yield
    finally:
        for one in edit.slices:
            store.drop(type(one), one.name)


@contextmanager
def _added_node(table: NodeTable, node: Node) -> Iterator[None]:
    table.add_node(node)
    try:
        yield
    finally:
        table.remove_node(node.name)


def _free(table: NodeTable, overlay: Overlay, edit: FreeEdit) -> None:
    taken = [overlay.take(info.uid, table.row(info.pod.node_name)) for info in edit.victims]
    for info in taken:
        target = edit.moves.get(info.uid)
        if target is not None:
            overlay.place(info, table.row(target))
