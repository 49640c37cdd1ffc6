"""Cards that the pods on nodes have, followed by delta.

The cards of a pod are those of its gpu-index annotation, else those that Reserve chose for it. For
a pod with neither, as in a dry run, cards are assumed: those with the least left that suffice,
after all known ones and in the order of the pods' uids, so that they depend on no history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from stowplan.columns.array_types import Bools
from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.table_watcher import TableWatcher
from stowplan.framework import NodeInfo, PodInfo
from stowplan.objects.devices.gpu_cards import (
    CARD_MILLI,
    CARDS_MAX,
    COUNT_KEY,
    INDEX_KEY,
    MILLI_KEY,
    MODEL_KEY,
    CardState,
    GpuShareRequest,
    card_indices,
    is_whole,
    whole_number,
)
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.gpu_share.card_table import CardTable
from stowplan.plugins.gpu_share.conventions.mixed_nodes import is_by_milli, is_on_unknown_card
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.scores.fgd import cards_by_left


class PodOnCards(NamedTuple):
    """A pod on a node. cards: None where they are assumed. is_unknown: see
    `is_on_unknown_card`."""

    info: PodInfo
    request: GpuShareRequest
    cards: tuple[int, ...] | None
    is_unknown: bool = False

    @property
    def cpu_milli(self) -> int:
        """CPU that the node counts for the pod."""
        return self.info.footprint.requested.get("cpu", 0)

    @property
    def uses(self) -> tuple[object, ...]:
        """Equal for versions of a pod that take the same of a node."""
        request = self.request
        return self.cpu_milli, request.num, request.milli, self.cards, self.is_unknown


def gpu_request_of(info: PodInfo) -> GpuShareRequest:
    """The request of a pod's annotations. Without gpu-milli it requests no cards."""
    text = info.pod.metadata.annotations.get
    cpu_milli, _ = info.footprint.nonzero
    return _parsed(cpu_milli, text(COUNT_KEY), text(MILLI_KEY), text(MODEL_KEY), text(INDEX_KEY))


@lru_cache(maxsize=8192)
def _parsed(
    cpu_milli: int, count: str | None, milli: str | None, models: str | None, index: str | None
) -> GpuShareRequest:
    per_card = whole_number(milli)
    if per_card <= 0:
        return GpuShareRequest(cpu_milli)
    cards = None if index is None else card_indices(index)
    return GpuShareRequest(cpu_milli, whole_number(count), per_card, models or "", cards)


def request_problem(pod: Pod) -> str:
    """Why no card can ever serve a pod's annotations, "" if one may.

    Differs: the original reads what is not a number as 0, that is as no request for cards.
    """
    notes = pod.metadata.annotations
    if MILLI_KEY not in notes:
        return ""
    return _problem(notes[MILLI_KEY], notes.get(COUNT_KEY), notes.get(INDEX_KEY))


@lru_cache(maxsize=8192)
def _problem(milli: str, count: str | None, index: str | None) -> str:
    if not is_whole(milli) or not 0 <= whole_number(milli) <= CARD_MILLI:
        wanted = f"a whole number from 0 to {CARD_MILLI}, the thousandths of each card"
        return f"annotation {MILLI_KEY}: got {milli[:40]!r}, wanted {wanted}"
    if not whole_number(milli):
        return ""
    if count is None or not is_whole(count) or whole_number(count) < 1:
        got = "none" if count is None else repr(count[:40])
        return f"annotation {COUNT_KEY}: got {got}, wanted a whole number of at least 1"
    cards = () if index is None else card_indices(index)
    if cards is None or (index is not None and len(set(cards)) != whole_number(count)):
        wanted = f"{count} different cards, such as {'0' if whole_number(count) == 1 else '0-1'}"
        return f"annotation {INDEX_KEY}: got {(index or '')[:40]!r}, wanted {wanted}"
    return ""


def gpu_node_of(node: NodeInfo) -> tuple[int, int, str]:
    """Allocatable CPU (milli), number of cards (at most CARDS_MAX) and their model."""
    return _cards_offered(node.allocatable, node.labels)


def _cards_offered(offered: Mapping[str, int], labels: Mapping[str, str]) -> tuple[int, int, str]:
    n_cards = min(max(offered.get(COUNT_KEY, 0), 0), CARDS_MAX)
    return offered.get("cpu", 0), n_cards, labels.get(MODEL_KEY, "")


def assume_cards(left: list[int], requests: Iterable[tuple[str, GpuShareRequest]]) -> None:
    """Take the cards of pods whose cards are unknown, in place. requests: by uid.

    Where too few cards suffice, all that is left of those with the most left is taken: the pod runs
    on the node, and on some card.
    """
    for _, request in sorted(requests, key=lambda one: one[0]):
        num = max(request.num, 0)
        suiting = cards_by_left(left, request)[:num]
        for card in suiting:
            left[card] -= request.milli
        others = [card for card in range(len(left)) if card not in suiting]
        others.sort(key=lambda card: (-left[card], card))
        for card in others[: num - len(suiting)] if request.milli > 0 else ():
            left[card] = min(left[card], 0)


class CardLedger(TableWatcher):
    """The cards of one node table, kept as its pods change, in dry runs as well.

    inventories: by plugin, their `GpuCardInventory`. chosen: by uid, the cards that a session has
    chosen for pods that are about to be bound.
    """

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._cards = CardTable()
        self._pods: list[dict[str, PodOnCards]] = []
        self._nodes: list[Node | None] = []
        self._assumed_rows: dict[int, int] = {}
        self._unknown_rows: dict[int, int] = {}
        self._reserved: dict[str, tuple[int, ...]] = {}
        self.chosen: dict[str, tuple[int, ...]] = {}
        self._marks = -1, -1
        self.inventories: dict[object, Any] = {}

    def begin(self) -> None:
        """See `TableWatcher.begin`."""
        table = self._table
        self._add_rows(table.n_nodes)
        for row, pods in enumerate(table.pods):
            for info in pods:
                self.pod_added(row, info)
        table.watch_changes(self)

    # Cards of pods.

    def cards_of(self, pod: Pod, request: GpuShareRequest) -> tuple[int, ...] | None:
        """The cards of a placed pod; None where they are unknown."""
        if request.milli <= 0:
            return ()
        return self._reserved.get(pod.uid, request.prescribed)

    def remember(self, uid: str) -> None:
        """Keep the reservation of a pod as a choice for its binding."""
        if uid in self._reserved:
            self.chosen[uid] = self._reserved[uid]

    def reserve(self, uid: str, row: int, cards: tuple[int, ...]) -> None:
        """Give cards to a pod that is assumed on a row."""
        self._reserved[uid] = cards
        self._again(row, uid)

    def unreserve(self, uid: str, row: int) -> None:
        """Take them back."""
        if self._reserved.pop(uid, None) is not None:
            self._again(row, uid)

    def _again(self, row: int, uid: str) -> None:
        placed = self._pods[row].get(uid) if 0 <= row < len(self._pods) else None
        if placed is not None:
            self.pod_removed(row, placed.info)
            self._take(row, placed.info)

    # Reading.

    def kind_index(self, kind: str) -> int:
        """See `CardTable.kind_index`."""
        return self._cards.kind_index(kind)

    def models(self) -> list[str]:
        """The models of cards, as in `columns`."""
        self._follow()
        return self._cards.models

    def columns(self) -> GpuCardColumns:
        """All rows; read-only."""
        self._follow()
        columns = self._cards.columns()
        for row in self._assumed_rows:
            left = columns.left[row, : columns.n_cards[row]].tolist()
            assume_cards(left, self._assumed(self._pods[row].values()))
            columns.left[row, : columns.n_cards[row]] = left
        return columns

    def unknown_cards(self) -> Bools:
        """bool (n_nodes,): `holds_unknown_cards` of each row."""
        nodes = self._table.nodes
        found = np.zeros(len(nodes), dtype=np.bool_)
        for row in self._unknown_rows:
            found[row] = is_by_milli(nodes[row])
        return found

    def state(self, node: NodeInfo, without: str = "") -> CardState:
        """A node by its own pods, which a dry run may have changed. without: uid of a pod that does
        not count."""
        pods = []
        for info in node.pods:
            if info.uid != without:
                request = gpu_request_of(info)
                pods.append(PodOnCards(info, request, self.cards_of(info.pod, request)))
        capacity, n_cards, model = gpu_node_of(node)
        left = [CARD_MILLI] * n_cards
        kinds: dict[str, int] = {}
        cpu_used = 0
        for pod in pods:
            cpu_used += pod.cpu_milli
            for card in pod.cards or ():
                if card < n_cards:
                    left[card] -= pod.request.milli
            if pod.request.kind is not None:
                kinds[pod.request.kind] = kinds.get(pod.request.kind, 0) + 1
        assume_cards(left, self._assumed(pods))
        return CardState(capacity, capacity - cpu_used, tuple(left), model, kinds)

    @staticmethod
    def _assumed(pods: Iterable[PodOnCards]) -> Sequence[tuple[str, GpuShareRequest]]:
        return [(pod.info.uid, pod.request) for pod in pods if pod.cards is None]

    def _follow(self) -> None:
        """Apply changes of nodes."""
        table = self._table
        rows = table.rows_since(self._marks)
        self._marks = table.marks
        nodes, known = table.nodes, self._nodes
        those = range(len(nodes)) if rows is None else [row for row in rows if row < len(nodes)]
        changed = [row for row in those if nodes[row] is not known[row]]
        for row in changed:
            known[row] = nodes[row]
        self._cards.set_nodes(
            changed,
            [_cards_offered(allocatable_amounts(nodes[row]), nodes[row].labels) for row in changed],
        )

    # Changes of the table.

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Take the pod's cards."""
        if info.pod.node_name:
            # Where the watch shows no cards another client has bound the pod, and not to those
            # that are reserved.
            self._reserved.pop(info.uid, None)
        self._take(row, info)

    def _on_cards(self, info: PodInfo) -> PodOnCards:
        request = gpu_request_of(info)
        if request.prescribed is not None:
            # The pod was created with its cards.
            self._reserved.pop(info.uid, None)
        is_unknown = request.milli <= 0 and is_on_unknown_card(info.pod, info.footprint.requested)
        return PodOnCards(info, request, self.cards_of(info.pod, request), is_unknown)

    def _take(self, row: int, info: PodInfo) -> None:
        pod = self._on_cards(info)
        self._pods[row][info.uid] = pod
        if pod.request.milli > 0:
            # The table does not count a change of annotations, or of reservations, as one.
            self._table.journal.touch(row)
        self._cards.add_pod(row, pod.cpu_milli, pod.request, pod.cards or ())
        if pod.cards is None:
            self._assumed_rows[row] = self._assumed_rows.get(row, 0) + 1
        if pod.is_unknown:
            self._unknown_rows[row] = self._unknown_rows.get(row, 0) + 1

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Give the pod's cards back."""
        pod = self._pods[row].pop(info.uid)
        self._cards.remove_pod(row, pod.cpu_milli, pod.request, pod.cards or ())
        if pod.cards is None:
            _count_down(self._assumed_rows, row)
        if pod.is_unknown:
            _count_down(self._unknown_rows, row)

    def pod_replaced(self, row: int, before: PodInfo, after: PodInfo) -> None:
        """Nothing else than the new version where it has the cards that the pod had."""
        if after.pod.node_name:
            self._reserved.pop(after.uid, None)
        pod = self._on_cards(after)
        if pod.uses == self._pods[row][after.uid].uses:
            self._pods[row][after.uid] = pod
        else:
            self.pod_removed(row, before)
            self._take(row, after)

    def row_added(self, row: int) -> None:
        """Add a row; its node is read when columns are."""
        self._add_rows(1)

    def _add_rows(self, n: int) -> None:
        self._cards.add_rows(n)
        self._pods += [{} for _ in range(n)]
        self._nodes += [None] * n

    def row_moved(self, source: int, target: int) -> None:
        """Move a row."""
        self._cards.move_row(source, target)
        self._pods[target], self._pods[source] = self._pods[source], {}
        self._nodes[target] = self._nodes[source]
        for counts in (self._assumed_rows, self._unknown_rows):
            if source in counts:
                counts[target] = counts.pop(source)

    def row_dropped(self, row: int) -> None:
        """Remove the last row."""
        self._cards.drop_row()
        self._pods.pop()
        self._nodes.pop()


def _count_down(counts: dict[int, int], row: int) -> None:
    counts[row] -= 1
    if not counts[row]:
        del counts[row]
