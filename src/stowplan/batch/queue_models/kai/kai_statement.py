"""Changes of a session of KAI-Scheduler that belong together: kept, or undone one by one.

An undone change stays in the list with a note that it was undone; undoing the note makes the change
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import KaiStatus, KaiTask

EVICT, PIPELINE, ALLOCATE, UNDO = "evict", "pipeline", "allocate", "undo"


class _Change:
    """One change. undoes: place of the change that an UNDO undoes. origin: the node from which a
    pod was evicted."""

    __slots__ = ("kind", "origin", "redo", "reverse", "task", "undoes")

    def __init__(
        self,
        kind: str,
        task: KaiTask | None,
        reverse: Callable[[], None],
        redo: Callable[[], None],
        undoes: int = -1,
        origin: KaiNode | None = None,
    ) -> None:
        self.kind = kind
        self.task = task
        self.reverse = reverse
        self.redo = redo
        self.undoes = undoes
        self.origin = origin


class KaiStatement:
    """A list of changes on a session. n_victims: pods that it was to release together."""

    def __init__(self, session: KaiSession) -> None:
        self._session = session
        self.n_victims = 0
        self._changes: list[_Change] = []
        # The first change that undoes another, by its place; the places of evictions, by pod.
        self._undone: dict[int, int] = {}
        self._evictions: dict[str, list[int]] = {}

    def checkpoint(self) -> int:
        """The present length, for `rollback`."""
        return len(self._changes)

    def rollback(self, checkpoint: int) -> None:
        """Undo all changes since a checkpoint."""
        for i in range(len(self._changes) - 1, checkpoint - 1, -1):
            self._undo(i)
        for i in range(checkpoint, len(self._changes)):
            change = self._changes[i]
            if change.kind == UNDO and self._undone.get(change.undoes) == i:
                del self._undone[change.undoes]
            elif change.kind == EVICT and change.task is not None:
                self._evictions[change.task.uid].remove(i)
        del self._changes[checkpoint:]

    def _append(self, change: _Change) -> None:
        place = len(self._changes)
        self._changes.append(change)
        if change.kind == UNDO:
            self._undone.setdefault(change.undoes, place)
        elif change.kind == EVICT and change.task is not None:
            self._evictions.setdefault(change.task.uid, []).append(place)

    def discard(self) -> None:
        """Undo all changes."""
        self.rollback(0)

    def evict(self, task: KaiTask) -> None:
        """A pod is released."""
        session = self._session
        node = session.nodes[task.node]
        status, groups, was_virtual = task.status, task.groups, task.is_virtual
        numa, devices = task.numa, task.devices
        session.jobs[task.job].update(task, KaiStatus.RELEASING)
        node.update(task)
        session.on_placed(task, -1)

        def reverse() -> None:
            session.jobs[task.job].update(task, status)
            task.groups = groups
            task.numa, task.devices = numa, devices
            task.is_virtual = was_virtual
            if task.key in node.tasks:
                node.update(task)
            else:
                node.add(task)
            session.on_placed(task)

        self._append(_Change(EVICT, task, reverse, lambda: self.evict(task), origin=node))
        task.is_virtual = True

    def pipeline(self, task: KaiTask, node_name: str, moves: bool) -> bool:
        """A pod waits for resources of a node. moves: a pod that is on the node already is counted
        anew; otherwise its eviction is undone, unless it goes to another card."""
        session = self._session
        node = session.nodes[node_name]
        placed = node.tasks.get(task.key)
        changes_card = (
            placed is not None
            and bool(task.groups)
            and task.has_share
            and task.groups != placed.groups
        )
        changes_zone = placed is not None and bool(task.numa) and task.numa != placed.numa
        if placed is not None and not moves and not changes_card and not changes_zone:
            task.groups, task.numa = placed.groups, placed.numa
            return self._undo_eviction(task)
        status, was_virtual, origin, groups = task.status, task.is_virtual, task.node, task.groups
        numa = placed.numa if placed is not None and changes_zone else task.numa
        devices = task.devices
        session.jobs[task.job].update(task, KaiStatus.PIPELINED)
        task.node = node_name
        if placed is not None and changes_card:
            groups = placed.groups
            node.add(task, may_move=True)
        elif placed is not None:
            node.update(task)
        elif not node.add(task):
            return False
        session.on_placed(task)

        def reverse() -> None:
            session.jobs[task.job].update(task, status)
            task.groups = groups
            task.is_virtual = was_virtual
            task.devices = devices
            session.nodes[task.node].remove(task)
            session.on_placed(task, -1)
            task.node = origin
            task.numa = numa

        def redo() -> None:
            self.pipeline(task, node_name, True)

        self._append(_Change(PIPELINE, task, reverse, redo))
        task.is_virtual = True
        return True

    def allocate(self, task: KaiTask, node_name: str) -> bool:
        """A pod gets a place on a node."""
        session = self._session
        was_virtual = task.is_virtual
        session.jobs[task.job].update(task, KaiStatus.ALLOCATED)
        task.node = node_name
        if not session.nodes[node_name].add(task):
            return False
        session.on_placed(task)

        def redo() -> None:
            self.allocate(task, node_name)

        self._append(_Change(ALLOCATE, task, lambda: self._unallocate(task, was_virtual), redo))
        task.is_virtual = True
        return True

    def _unallocate(self, task: KaiTask, was_virtual: bool) -> None:
        session = self._session
        session.jobs[task.job].update(task, KaiStatus.PENDING)
        session.nodes[task.node].remove(task)
        task.is_virtual = was_virtual
        session.on_placed(task, -1)
        task.node = ""

    def wait_together(self, job: KaiJob) -> None:
        """Make all placed pods of a job wait, because some of its gang do."""
        for change in list(self._changes):
            task = change.task
            if change.kind != ALLOCATE or task is None or task.job != job.uid:
                continue
            node = task.node
            self._unallocate(task, True)
            self.pipeline(task, node, True)
        self._changes = [
            change
            for change in self._changes
            if change.kind != ALLOCATE or change.task is None or change.task.job != job.uid
        ]
        changes, self._changes, self._undone, self._evictions = self._changes, [], {}, {}
        for change in changes:
            self._append(change)

    def commit(self) -> list[KaiTask]:
        """Make the changes final; returns the pods that are evicted."""
        session = self._session
        evicted = []
        for i, change in enumerate(self._changes):
            task = change.task
            if task is None or not self._holds(i):
                continue
            if change.kind == EVICT:
                if session.options.evicts_once and task.key in session.evicts:
                    self._keep_evicted(change, task)
                    continue
                session.evicts.append(task.key)
                evicted.append(task)
                task.is_virtual = False
                session.jobs[task.job].last_eviction = session.now
            elif change.kind == ALLOCATE:
                session.binds[task.key] = task.node
                session.jobs[task.job].update(task, KaiStatus.BINDING)
                task.is_virtual = False
        self._changes, self._undone, self._evictions = [], {}, {}
        return evicted

    def _keep_evicted(self, change: _Change, task: KaiTask) -> None:
        """An eviction fails because the pod is gone: it counts again on the node from which it was
        evicted, beside the place that it waits for, as in the original."""
        assert change.origin is not None
        change.origin.update(task)
        self._session.on_placed(task)

    def _undo_eviction(self, task: KaiTask) -> bool:
        for i in self._evictions.get(task.uid, ()):
            if self._holds(i):
                self._undo(i)
                return True
        return False

    def _undo(self, place: int) -> None:
        if not self._holds(place):
            return
        change = self._changes[place]
        change.reverse()

        def redo() -> None:
            self._undo(place)

        self._append(_Change(UNDO, None, change.redo, redo, place))

    def _holds(self, place: int) -> bool:
        undone = self._undone.get(place)
        return undone is None or not self._holds(undone)


def evict_all(statement: KaiStatement, tasks: Sequence[KaiTask]) -> None:
    """Release pods."""
    statement.n_victims = len(tasks)
    for task in tasks:
        statement.evict(task)
