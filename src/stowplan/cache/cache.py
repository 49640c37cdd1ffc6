"""Cache: nodes, the pods on them, and the pods assumed on them.

A pod is assumed on its node the moment it is decided, and stays so until the watch confirms it,
somebody forgets it (the binding was refused), or, where a limit is set, the assumption expires:
the API has said that the pod is bound and the watch does not confirm it. The node table is the one
owner of who is where, ghosts of nodes included; the cache knows only who is assumed, until when.

Source: kube-scheduler v1.36, backend/cache; of the limit v1.22, internal/cache FinishBinding.
"""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.invariants import InvariantBroken, validate
from stowplan.columns.nodetable import TableError
from stowplan.framework import Nominations, ObjectStore, Snapshot
from stowplan.messages.durations import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class CacheError(ValueError):
    """A change that contradicts what the cache holds."""


class Cache:
    """The state of the cluster as far as decisions read it. Times are whole nanoseconds."""

    def __init__(self, assume_limit_s: float | None = None) -> None:
        """assume_limit_s: how long an assumption holds after the API has taken the binding; None,
        as in 1.36, for ever."""
        self.nodes = NodeTable()
        self.object_store = ObjectStore()
        self.nominations = Nominations()
        self._snapshot = Snapshot(self.nodes, self.object_store, self.nominations)
        self._node_changes = 0
        self._limit = None if assume_limit_s is None else round(assume_limit_s * SECOND)
        self._assumed: set[str] = set()
        # All have the same limit, so they are in the order in which they expire.
        self._expiry: dict[str, int] = {}

    def use_nominations(self, nominations: Nominations) -> None:
        """Let decisions read these nominations; the queue owns them."""
        self.nominations = nominations
        self._snapshot = Snapshot(self.nodes, self.object_store, nominations)

    def snapshot(self) -> Snapshot:
        """The state for one attempt: live columns, node order and image counts taken over."""
        self.nodes.refresh()
        return self._snapshot

    @property
    def version(self) -> tuple[int, int]:
        """Another one when a node or an object beside nodes and pods has changed."""
        return self._node_changes, self.object_store.version

    # Assumed pods.

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count `pod` as being on a node. Raises CacheError when it is on one already."""
        try:
            self.nodes.add_pod(pod, node_name)
        except TableError as contradiction:
            raise CacheError(f"pod {pod.key} cannot be assumed: {contradiction}") from contradiction
        self._assumed.add(pod.uid)

    def note_assumed(self, uids: Iterable[str]) -> None:
        """Pods that have been entered in the table are assumed to be on their nodes."""
        self._assumed.update(uids)

    def expect(self, uid: str, now: int) -> None:
        """The API has taken the binding: the watch should confirm it within the limit, if any."""
        if self._limit is not None and uid in self._assumed:
            self._expiry.pop(uid, None)
            self._expiry[uid] = now + self._limit

    def forget(self, uid: str) -> PodInfo | None:
        """Take back an assumption; None when the pod is not assumed (any more)."""
        if uid not in self._assumed:
            return None
        self._settle(uid)
        return self.nodes.remove_pod(uid)

    def is_assumed(self, uid: str) -> bool:
        """True while the watch has not confirmed the pod."""
        return uid in self._assumed

    def assumed(self) -> frozenset[str]:
        """The uids of all assumed pods."""
        return frozenset(self._assumed)

    def expire(self, now: int) -> list[str]:
        """Forget the assumptions whose limit is over; their uids, the oldest first."""
        due = []
        for uid, at in self._expiry.items():
            if at > now:
                break
            due.append(uid)
        for uid in due:
            self.forget(uid)
        return due

    def next_expiry(self) -> int | None:
        """When the next assumption expires; None when none does."""
        return next(iter(self._expiry.values()), None)

    def _settle(self, uid: str) -> None:
        self._assumed.discard(uid)
        if self._expiry:
            self._expiry.pop(uid, None)

    # What the watch says.

    def put_pod(self, pod: Pod) -> None:
        """A bound pod is there or has changed.

        An assumption ends here: on the same node it is confirmed, on another the watch is right.
        """
        uid = pod.uid
        self._settle(uid)
        if self.nodes.knows_pod(uid):
            self.nodes.update_pod(pod)
        else:
            self.nodes.add_pod(pod)

    def drop_pod(self, uid: str) -> PodInfo | None:
        """A pod on a node, assumed or not, is gone; None when it was on none."""
        self._settle(uid)
        return self.nodes.remove_pod(uid) if self.nodes.knows_pod(uid) else None

    def put_node(self, node: Node) -> Node | None:
        """A node is there or has changed; returns it as it was before, None when new."""
        row = self.nodes.row(node.name)
        if row < 0:
            self._node_changes += 1
            self.nodes.add_node(node)
            return None
        before = self.nodes.nodes[row]
        if before is not node:
            self._node_changes += 1
            self.nodes.update_node(node)
        return before

    def drop_node(self, name: str) -> Node | None:
        """A node is gone; its pods stay known until the watch drops them. None when unknown."""
        row = self.nodes.row(name)
        if row < 0:
            return None
        node = self.nodes.nodes[row]
        self._node_changes += 1
        self.nodes.remove_node(name)
        return node

    def validate(self) -> None:
        """Compare everything kept by delta with a rebuild; raises InvariantBroken."""
        validate(self.nodes)
        lost = sorted(uid for uid in self._assumed if not self.nodes.knows_pod(uid))
        if lost:
            raise InvariantBroken(f"cache: assumed pods that are on no node: {lost[:5]}")
        stray = sorted(self._expiry.keys() - self._assumed)
        if stray:
            raise InvariantBroken(f"cache: pods that expire and are not assumed: {stray[:5]}")
        times = list(self._expiry.values())
        if times != sorted(times):
            raise InvariantBroken(f"cache: expiries out of order: {times[:5]}")
