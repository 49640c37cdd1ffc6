"""GPUs of nodes: reported cards, and reservations that no report includes yet.

A report has the free memory of a card. A pod that was placed a moment ago uses none yet, so its
memory is reserved: the requested amount, on each of its cards, or the whole card where it requests
none. The binding writes the cards on the pod, so that a scheduler that is started again has the
same reservations. A reservation ends when the pod is unreserved, when it is deleted, or when a
report includes its use: one that is later than the start of its containers, or, where that start is
unknown, the next one after the pod was seen running.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from weakref import WeakKeyDictionary

import msgspec

from stowplan.framework import NodeTable, PodInfo
from stowplan.framework.handle_state import HandleState
from stowplan.objects.devices.scv import Scv
from stowplan.objects.pod import Pod
from stowplan.plugins.yoda.gpu_request import is_gpu_pod
from stowplan.plugins.yoda.scv_devices import CARDS_KEY, CardShares, parse_shares


class GpuReservation(msgspec.Struct):
    """The reservation of a pod.

    is_seen: the pod has been on its node. report_when_running: the report of the time when it was
    seen running, None until then.
    """

    uid: str
    shares: CardShares
    is_seen: bool = False
    is_running: bool = False
    report_when_running: Scv | None = None


class GpuLedger:
    """Reservations of pods, by node. One for all profiles of a scheduler."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, GpuReservation]] = {}
        self._node_of: dict[str, str] = {}
        # Node -> uids of pods on it whose reservation has ended.
        self._included: dict[str, set[str]] = {}
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

    def shares_on(self, node: str, but: Collection[str] = ()) -> list[CardShares]:
        """What the pods on a node hold. but: uids to leave out."""
        return [hold.shares for hold in self.on(node, but)]

    def hold(self, pod: Pod, node: str, shares: CardShares) -> None:
        """Reserve cards of a node for a pod, in place of its earlier reservation."""
        self.drop(pod.uid)
        self._node_of[pod.uid] = node
        self._by_node.setdefault(node, {})[pod.uid] = GpuReservation(pod.uid, shares)
        self._note(node)

    def read_pods(self, node: str, pods: Iterable[PodInfo]) -> None:
        """Reserve the cards that the binding has written on the pods of a node, unless a report
        includes them already: after a restart nothing else knows them."""
        bound = {
            info.uid: info.pod
            for info in pods
            if CARDS_KEY in info.pod.metadata.annotations and is_gpu_pod(info.pod)
        }
        included = self._included.pop(node, set()) & bound.keys()
        if included:
            self._included[node] = included
        for uid, pod in bound.items():
            if uid not in included and uid not in self._node_of:
                shares = parse_shares(pod.metadata.annotations[CARDS_KEY])
                if shares:
                    self.hold(pod, node, shares)

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
                self._included.setdefault(node, set()).add(hold.uid)
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
