"""FrameworkCards: GPU cards of a session's nodes, counted by the plugin GpuShare.

There is one account of cards: that of the node table, which filters, preemption and dry runs of
profiles read as well. What a session places is an overlay of the table, so its cards are
reservations in that account. A session chooses the cards when it places a pod, since pods that fit
in one order need not fit in another, and the binding takes the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.nodes import SessionNodes
from stowplan.columns import NodeInfo, PodInfo
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import CycleState, Snapshot, Status
from stowplan.framework.runtime.framework import Framework
from stowplan.plugins.gpu_share.card_plugin import CardPlugin
from stowplan.plugins.gpu_share.conventions import hami, volcano_vgpu

IGNORED = {
    volcano_vgpu.CONVENTION.name: (
        volcano_vgpu.MEMORY, volcano_vgpu.PERCENTAGE, volcano_vgpu.CORES,
    ),
    hami.CONVENTION.name: (hami.MEMORY, hami.PERCENTAGE, hami.CORES),
}  # fmt: skip
"""Convention -> resources that nodes do not offer as amounts, or that say less than the cards."""

_UNKNOWN = object()


class _CardRequest:
    """Requests of equal tasks. refusal: of PreFilter, None where it passes."""

    __slots__ = ("refusal", "state")

    def __init__(self, state: CycleState, refusal: Status | None) -> None:
        self.state = state
        self.refusal = refusal


def gpu_plugin(framework: Framework) -> CardPlugin | None:
    """The plugin of a framework that counts cards; None for none."""
    found = (member.plugin for member in framework.members.values())
    return next((one for one in found if isinstance(one, CardPlugin)), None)


class FrameworkCards:
    """See `SessionCards`."""

    def __init__(
        self, framework: Framework, plugin: CardPlugin, snapshot: Snapshot, nodes: SessionNodes
    ) -> None:
        """plugin: of the framework. snapshot: of the session's node table."""
        self._framework, self._plugin = framework, plugin
        self._snapshot, self._nodes = snapshot, nodes
        self.ignored: Collection[str] = frozenset(
            name for used in plugin.args.conventions for name in IGNORED.get(used, ())
        )
        # By uid, and by spec and annotations.
        self._keys: dict[str, Hashable] = {}
        self._kinds: dict[Hashable, Hashable] = {}
        self._requests: dict[Hashable, _CardRequest] = {}
        self._taken: dict[str, tuple[TaskInfo, int, CycleState]] = {}
        plugin.forget_choices(snapshot)

    def request(self, task: TaskInfo) -> Hashable:
        """See `SessionCards.request`."""
        key = self._keys.get(task.uid, _UNKNOWN)
        if key is _UNKNOWN:
            # Most tasks request no cards, and many are of one spec.
            kind = id(task.pod.spec), self._framework.annotations_of(task.pod)
            key = self._kinds.get(kind, _UNKNOWN)
            if key is _UNKNOWN:
                key = self._kinds[kind] = self._key(task)
            self._keys[task.uid] = key
        return key

    def _key(self, task: TaskInfo) -> Hashable:
        state = CycleState()
        status = self._plugin.pre_filter(task.pod, self._snapshot, state)
        if status.is_skip:
            return None
        key = self._plugin.signature(task.pod)
        self._requests[key] = _CardRequest(state, None if status.is_success else status)
        return key

    def fits(self, task: TaskInfo, rows: Ints, *, later: bool) -> Bools:
        """See `SessionCards.fits`.

        Differs: with pipelined pods on a node, idle cards are those that neither they nor the pods
        that will leave have, though a pipelined pod takes nothing that is idle.
        """
        key = self.request(task)
        if key is None:
            return np.ones(rows.shape[0], dtype=np.bool_)
        asked = self._requests[key]
        if asked.refusal is not None:
            return np.zeros(rows.shape[0], dtype=np.bool_)
        codes = self._plugin.filter_column(self._snapshot.nodes, rows, asked.state)
        fits: Bools = codes == 0
        changed = self._nodes.rows_in_transition(later=later)
        if changed:
            for place, row in enumerate(rows.tolist()):
                if row in changed:
                    fits[place] = self._status(task, row, asked, later=later).is_success
        return fits

    def _status(
        self,
        task: TaskInfo,
        row: int,
        asked: _CardRequest,
        *,
        later: bool,
        without: Collection[str] = (),
    ) -> Status:
        node = self._node(row, {*without, *(self._nodes.leaving_on(row) if later else ())})
        return self._plugin.filter(task.pod, node, asked.state)

    def _node(self, row: int, without: Collection[str]) -> NodeInfo:
        """A node without some pods, and with those that it is held for."""
        info = self._snapshot.nodes.info(row)
        node = NodeInfo(info.node, [one for one in info.pods if one.uid not in without])
        for task in self._nodes.held_on(row):
            node.add_pod(PodInfo.of(task.pod))
        return node

    def fits_without(self, task: TaskInfo, row: int, victims: Collection[str]) -> bool:
        """See `SessionCards.fits_without`."""
        key = self.request(task)
        if key is None:
            return True
        asked = self._requests[key]
        if asked.refusal is not None:
            return False
        return self._status(task, row, asked, later=True, without=victims).is_success

    def refusals(self, task: TaskInfo, rows: Ints) -> Mapping[str, int]:
        """See `SessionCards.refusals`."""
        key = self.request(task)
        if key is None:
            return {}
        asked = self._requests[key]
        if asked.refusal is not None:
            return {asked.refusal.message: int(rows.shape[0])}
        found = (self._status(task, row, asked, later=True) for row in rows.tolist())
        return Counter(one.message for one in found if not one.is_success)

    # Cards of placed tasks.

    def take(self, task: TaskInfo, row: int, *, later: bool) -> str:
        """See `SessionCards.take`."""
        if self.request(task) is None:
            return ""
        state = CycleState()
        status = self._plugin.pre_filter(task.pod, self._snapshot, state)
        if status.is_success:
            with self._seen(row, later=later):
                status = self._plugin.reserve(task.pod, self._nodes.names[row], state)
        if not status.is_success:
            return status.message
        self._taken[task.uid] = task, row, state
        return ""

    @contextmanager
    def _seen(self, row: int, *, later: bool) -> Iterator[None]:
        """The table while a task is placed: without the pods that will leave, and with those that
        the node is held for."""
        overlay = self._nodes.overlay
        mark = overlay.mark()
        for uid in sorted(self._nodes.leaving_on(row)) if later else ():
            overlay.take(uid, row)
        for task in self._nodes.held_on(row):
            overlay.place(PodInfo.of(task.pod), row)
        yield
        overlay.rollback(mark)

    def give_back(self, task: TaskInfo, row: int) -> None:
        """See `SessionCards.give_back`."""
        known = self._taken.pop(task.uid, None)
        if known is not None:
            self._plugin.unreserve(task.pod, self._nodes.names[row], known[2])

    def close(self) -> None:
        """See `SessionCards.close`."""
        for task, row, state in self._taken.values():
            self._plugin.remember_choice(task.pod, self._snapshot)
            self._plugin.unreserve(task.pod, self._nodes.names[row], state)
        self._taken.clear()
