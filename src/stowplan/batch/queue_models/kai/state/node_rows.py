"""The nodes of a session as columns, so that one look tells on which nodes a pod may fit.

Rows are in the order of names. What changes on a node is read again before the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stowplan.batch.queue_models.kai.state.kai_amount import (
    CARDS,
    CPU,
    Amount,
    ResourceIndex,
)
from stowplan.batch.queue_models.kai.state.kai_node import KaiNode
from stowplan.batch.queue_models.kai.state.kai_task import MIG, WHOLE, KaiTask

Rows: TypeAlias = npt.NDArray[np.intp]
Mask: TypeAlias = npt.NDArray[np.bool_]
Column: TypeAlias = npt.NDArray[np.float64]
READ_MAX, FITS_MAX = 10_000, 1000
"""Changes of rows, beside four of each, and requests of which it is kept where they fit."""


class _KnownFit:
    """Where a request fits. request: it, so that its id stays its own. n_seen: changes of rows that
    the mask has taken into account."""

    __slots__ = ("asked", "mask", "n_seen", "request")

    def __init__(self, request: Amount, asked: Column, mask: Mask, n_seen: int) -> None:
        self.request = request
        self.asked = asked
        self.mask = mask
        self.n_seen = n_seen


class NodeRows:
    """Amounts of nodes by resource and row. idle: what is free. later: with what is being released.
    version: grows with every change."""

    def __init__(self, nodes: Sequence[KaiNode]) -> None:
        """nodes: in the order of their names."""
        self.nodes = list(nodes)
        count = len(nodes)
        size = len(nodes[0].idle) if nodes else len(ResourceIndex(()).names)
        self._idle = np.zeros((size, count))
        self._later = np.zeros((size, count))
        self.offered = np.zeros((size, count))
        self.is_ready = np.zeros(count, dtype=np.bool_)
        self.takes_whole_cards = np.zeros(count, dtype=np.bool_)
        self.is_without_cards = np.zeros(count, dtype=np.bool_)
        self._shared: set[int] = set()
        self._affine: set[int] = set()
        self.version = 0
        self._changed: set[int] = set()
        self._n_forgotten = 0
        # Rows in the order in which they were read again; and where requests fit.
        self._read: list[int] = []
        self._fits: dict[tuple[int, bool, bool], _KnownFit] = {}
        self._by_rules: dict[str, Mask] = {}
        self._last: tuple[Sequence[KaiNode], Rows | None] | None = None
        for row, node in enumerate(nodes):
            self._take(row, node)

    def _take(self, row: int, node: KaiNode) -> None:
        node.row, node.changed_rows = row, self._changed
        self.offered[:, row] = node.allocatable
        self.is_ready[row] = node.is_ready
        self.takes_whole_cards[row] = node.takes_whole_cards
        self.is_without_cards[row] = node.is_without_cards
        self._changed.add(row)

    def replace(self, row: int, node: KaiNode, has_same_rules: bool) -> None:
        """A node was made anew. has_same_rules: with the labels and taints that it had."""
        self.nodes[row] = node
        self._take(row, node)
        if not has_same_rules:
            self._by_rules.clear()

    def refresh(self) -> None:
        """Read what has changed."""
        if not self._changed:
            return
        for row in self._changed:
            node = self.nodes[row]
            self._idle[:, row] = node.idle
            self._later[:, row] = [a + b for a, b in zip(node.idle, node.releasing, strict=True)]
            (self._shared.add if node.used_memory else self._shared.discard)(row)
            (self._affine.add if node.affine else self._affine.discard)(row)
        self._read += self._changed
        if len(self._read) > READ_MAX + 4 * len(self.nodes) or len(self._fits) > FITS_MAX:
            self._read.clear()
            self._fits.clear()
            self._n_forgotten += 1
        self._changed.clear()
        self.version += 1

    @property
    def shared(self) -> Set[int]:
        """Rows with shared cards."""
        self.refresh()
        return self._shared

    @property
    def affine(self) -> Set[int]:
        """Rows with pods that have affinity to pods."""
        self.refresh()
        return self._affine

    @property
    def later(self) -> npt.NDArray[np.float64]:
        """What is free or being released."""
        self.refresh()
        return self._later

    @property
    def mark(self) -> tuple[int, int]:
        """How far changes of rows have been read, for `changed_since`."""
        return self._n_forgotten, len(self._read)

    def changed_since(self, mark: tuple[int, int]) -> list[int] | None:
        """Rows that were read again since a mark, some of them several times; None if that is
        forgotten."""
        return self._read[mark[1] :] if mark[0] == self._n_forgotten else None

    @property
    def has_cards_or_none(self) -> bool:
        """Surely no node has less than no cards that are free, and none being released."""
        if self.shared or not self.nodes or self.nodes[0].index.has_mig:
            return False
        idle, later = self._idle[CARDS], self._later[CARDS]
        return bool((idle >= 0).all() and (later >= idle).all())

    def rows_of(self, nodes: Sequence[KaiNode]) -> Rows | None:
        """Rows of some nodes, in the order of names; None: of all."""
        if self._last is None or self._last[0] is not nodes:
            rows = None
            if len(nodes) < len(self.nodes):
                rows = np.array(sorted(node.row for node in nodes), dtype=np.intp)
            self._last = nodes, rows
        return self._last[1]

    # Fit.

    def fits(self, task: KaiTask, later: bool) -> Mask:
        """Nodes with room for a pod, by row, now or once what is being released is gone. For one
        that may share cards, nodes that may have it. The mask is the caller's."""
        return self._known_fit(task, later).copy()

    def fits_on(self, task: KaiTask, later: bool, rows: Rows) -> Mask:
        """The same for some rows."""
        mask: Mask = self._known_fit(task, later)[rows]
        return mask

    def _known_fit(self, task: KaiTask, later: bool) -> Mask:
        self.refresh()
        free = self._later if later else self._idle
        has_cards = task.kind in (WHOLE, MIG) and not task.devices
        key = id(task.request), has_cards, later
        known = self._fits.get(key)
        if known is None:
            asked = np.array([task.request]).T if self.nodes else np.zeros((len(free), 1))
            if not has_cards and self.nodes:
                asked[CARDS] = -np.inf
            mask: Mask = np.all(free >= asked, axis=0)
            known = self._fits[key] = _KnownFit(task.request, asked, mask, len(self._read))
        elif known.n_seen < len(self._read):
            rows = self._read[known.n_seen :]
            known.mask[rows] = (free[:, rows] >= known.asked).all(axis=0)
            known.n_seen = len(self._read)
        return known.mask

    def by_rules(self, task: KaiTask, fits_node: Callable[[KaiTask, KaiNode], bool]) -> Mask:
        """Nodes that node selectors, affinity and taints leave a pod; they are asked once."""
        known = self._by_rules.get(task.constraints)
        if known is None:
            answers = (fits_node(task, node) for node in self.nodes)
            known = np.fromiter(answers, dtype=np.bool_, count=len(self.nodes))
            self._by_rules[task.constraints] = known
        return known

    def room_for(self, request: Amount) -> float:
        """How many pods with a request fit on all nodes together, at most, none waiting for cards
        that it shares."""
        if not self.nodes:
            return 0.0
        later = self.later
        count: Column | None = None
        fitting = np.ones(later.shape[1], dtype=np.bool_)
        for place, asked in enumerate(request):
            if asked > 0:
                times = np.floor(later[place] / asked)
                count = times if count is None else np.minimum(count, times)
            else:
                fitting &= later[place] >= asked
        if count is None:
            return float("inf") if fitting.any() else 0.0
        return float(np.maximum(count[fitting], 0.0).sum())

    def more_room_for(
        self, request: Sequence[float], rows: Rows, freed: Sequence[npt.NDArray[np.float64]]
    ) -> float:
        """How many more pods with a request, which asks for something, fit on some nodes once
        amounts are freed there; see `KaiSession.may_have_room`."""
        chosen, places = np.unique(rows, return_inverse=True)
        amounts = np.concatenate(freed, axis=1)
        later = self.later[:, chosen]
        sums = [np.bincount(places, of_resource, len(chosen)) for of_resource in amounts]
        asked = np.array([request]).T
        return _times(asked, later + np.array(sums)) - _times(asked, later)

    def counts_for(self, request: Sequence[float], free: Column) -> Column:
        """How many pods with a request, which asks for something, fit on each node. free:
        (n_resources, n_nodes)."""
        return _counts(np.array([request]).T, free)

    def free_range(self, place: int, rows: Rows | None) -> tuple[float, float]:
        """The least and the most of cards or cpu that nodes which have any have free or being
        released; 0 without such nodes, and never less than 0 for the most."""
        later, offered = self.later[place], self.offered[place]
        if rows is not None:
            later, offered = later[rows], offered[rows]
        free = later[offered != 0]
        if not len(free):
            return 0.0, 0.0
        return float(free.min()), max(0.0, float(free.max()))


def _times(asked: Column, free: Column) -> float:
    """How many pods that ask for something there is room for. asked: (n_resources, 1). free:
    (n_resources, n_nodes)."""
    return float(_counts(asked, free).sum())


def _counts(asked: Column, free: Column) -> Column:
    """The same by node."""
    positive = asked[:, 0] > 0
    counts: Column = np.floor_divide(free[positive], asked[positive]).min(axis=0)
    counts[~np.all(free >= asked, axis=0)] = 0.0
    return counts


def card_or_cpu(task: KaiTask) -> int:
    """The resource by which a pod's nodes are packed."""
    return CARDS if task.needs_card else CPU


def best_first(scores: Column, rows: Rows) -> Iterator[int]:
    """Rows from the best score down, equal ones in their order."""
    if not len(rows):
        return
    left = scores.copy()
    for _ in range(min(len(rows), 4)):
        best = int(left.argmax())
        yield int(rows[best])
        left[best] = -np.inf
    order = np.argsort(-scores, kind="stable")
    yield from rows[order[4:]].tolist()
