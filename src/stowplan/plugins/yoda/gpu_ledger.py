"""GPUs of nodes: reported cards, and reservations that no report includes yet.

A report has the free memory of a card. A pod that was placed a moment ago uses none yet, so its
memory is reserved: the requested amount, on each of its cards, or the whole card where it requests
none. The reservation ends when the pod is unreserved, when it is deleted, or when a report includes
its use: one that is later than the start of its containers, or, where that start is unknown, the
next one after the pod was seen running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from stowplan.framework import NodeTable
from stowplan.framework.handle_state import HandleState
from stowplan.objects.devices.scv import Scv
from stowplan.objects.pod import Pod
from stowplan.plugins.yoda.gpu_request import GpuRequest

AMOUNT_MAX = 2**50
"""Larger amounts of a report count as this, so that no sum wraps."""


class Gpu(NamedTuple):
    """A card of a report, every amount from 0 to the bound; units as in `objects.devices.scv`."""

    id: int
    is_healthy: bool
    power: int
    total_memory: int
    clock: int
    free: int
    core: int
    bandwidth: int


class GpuReport(NamedTuple):
    """The content of a node's Scv. n_cards: the number that it states. total, free: MiB of all
    cards."""

    gpus: tuple[Gpu, ...]
    n_cards: int
    total: int
    free: int


def gpu_report_of(scv: Scv, bound: int) -> GpuReport:
    """The report with every amount from 0 to `bound`, at most 2^64 - 1."""

    def bounded(amount: int) -> int:
        return min(max(amount, 0), bound)

    status = scv.status
    gpus = tuple(
        Gpu(
            card.id,
            card.is_healthy,
            bounded(card.power),
            bounded(card.total_memory),
            bounded(card.clock),
            bounded(card.free_memory),
            bounded(card.core),
            bounded(card.bandwidth),
        )
        for card in status.card_list
    )
    total, free = bounded(status.total_memory_sum), bounded(status.free_memory_sum)
    return GpuReport(gpus, bounded(status.card_number), total, free)


class AvailableCard(NamedTuple):
    """A card and its remaining free memory. is_open: False where a pod reserves all of it."""

    gpu: Gpu
    memory: int
    is_open: bool

    def suits(self, demand: GpuRequest) -> bool:
        """True for a card that satisfies this request."""
        return (
            self.is_open
            and self.gpu.is_healthy
            and self.memory >= (demand.memory or 0)
            and demand.clock in (None, self.gpu.clock)
        )


class GpuReservation(msgspec.Struct):
    """The reservation of a pod.

    cards: by id. memory: MiB of each, None for all. is_seen: the pod has been on its node.
    report_when_running: the report of the time when it was seen running, None until then.
    """

    uid: str
    cards: tuple[int, ...]
    memory: int | None
    is_seen: bool = False
    is_running: bool = False
    report_when_running: Scv | None = None


def choose_cards(cards_left: Sequence[AvailableCard], demand: GpuRequest) -> tuple[int, ...] | None:
    """The ids of the cards that a pod reserves: those that satisfy it with the least left, so that
    the others remain whole; None where there are too few."""
    if demand.n_cards > len(cards_left):
        return None
    suiting = sorted(
        (left.memory, place) for place, left in enumerate(cards_left) if left.suits(demand)
    )
    if len(suiting) < demand.n_cards:
        return None
    return tuple(cards_left[place].gpu.id for _, place in suiting[: demand.n_cards])


def available_cards(
    gpus: Sequence[Gpu], reservations: Collection[GpuReservation]
) -> list[AvailableCard]:
    """Every card with what the reservations leave of it."""
    if not reservations:
        return [AvailableCard(gpu, gpu.free, True) for gpu in gpus]
    return [
        _available_card(gpu, [hold for hold in reservations if gpu.id in hold.cards])
        for gpu in gpus
    ]


def _available_card(gpu: Gpu, reservations: Sequence[GpuReservation]) -> AvailableCard:
    if any(hold.memory is None for hold in reservations):
        return AvailableCard(gpu, 0, False)
    return AvailableCard(
        gpu, max(0, gpu.free - sum(hold.memory or 0 for hold in reservations)), True
    )


class GpuLedger:
    """Reservations of pods, by node. One for all profiles of a scheduler."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, GpuReservation]] = {}
        self._node_of: dict[str, str] = {}
        # Node -> when its reservations changed last; the latest comes last.
        self._changed: dict[str, int] = {}
        self.version = 0

    @classmethod
    def of(cls, shared: HandleState) -> GpuLedger:
        """The ledger of the profiles that share this handle state."""
        ledger = _LEDGERS.get(shared)
        if ledger is None:
            ledger = _LEDGERS[shared] = cls()
        return ledger

    def on(self, node: str, but: Collection[str] = ()) -> list[GpuReservation]:
        """The reservations on a node, in order of creation. but: uids to leave out."""
        return [hold for uid, hold in self._by_node.get(node, {}).items() if uid not in but]

    def hold(self, pod: Pod, node: str, cards: tuple[int, ...], memory: int | None) -> None:
        """Reserve cards of a node for a pod, in place of its earlier reservation."""
        self.drop(pod.uid)
        self._node_of[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = GpuReservation(pod.uid, cards, memory)
        self._note(node)

    def drop(self, uid: str) -> None:
        """End the reservation of a pod, if it has one."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            reservations = self._by_node[node]
            del reservations[uid]
            if not reservations:
                del self._by_node[node]
            self._note(node)

    def _note(self, node: str) -> None:
        self.version += 1
        self._changed.pop(node, None)
        self._changed[node] = self.version

    def nodes(self) -> tuple[str, ...]:
        """The nodes with reservations."""
        return tuple(self._by_node)

    def has(self, node: str) -> bool:
        """True when a node has reservations."""
        return node in self._by_node

    def changed_since(self, version: int) -> Iterator[str]:
        """The nodes whose reservations changed since a version."""
        for node in reversed(self._changed):
            if self._changed[node] <= version:
                return
            yield node

    def settle(self, node: str, table: NodeTable, scv: Scv | None) -> None:
        """End the reservations on a node that are over. scv: the node's current report."""
        for hold in self.on(node):
            if _is_reservation_expired(hold, table, scv):
                self.drop(hold.uid)


_LEDGERS: WeakKeyDictionary[HandleState, GpuLedger] = WeakKeyDictionary()


def _is_reservation_expired(hold: GpuReservation, table: NodeTable, scv: Scv | None) -> bool:
    info = table.pod(hold.uid)
    if info is None:
        # Before it has been seen it is not in the table yet.
        return hold.is_seen
    hold.is_seen = True
    pod = info.pod
    if pod.status.phase != "Running":
        return False
    started = [
        status.state.running.started_at
        for status in pod.status.container_statuses
        if status.state is not None and status.state.running is not None
    ]
    times = [time for time in started if time is not None]
    updated = None if scv is None else scv.status.update_time
    if times and updated is not None:
        return updated > max(times)
    if not hold.is_running:
        hold.is_running, hold.report_when_running = True, scv
        return False
    return scv is not hold.report_when_running
