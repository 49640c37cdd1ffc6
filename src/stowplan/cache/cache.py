"""Scheduler cache: nodes, the pods on them, and the pods assumed on them.

A pod is assumed on its node as soon as it is decided, until the watch confirms it, it is forgotten
(the binding failed) or, where a limit is set, the assumption expires: the API accepted the binding
and the watch does not confirm it. The node table owns the pods of every node, also of deleted
nodes; the cache adds which pods are assumed, and until when.

Source: kube-scheduler v1.36, backend/cache; of the limit v1.22, internal/cache FinishBinding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.invariants import InvariantBroken, validate
from stowplan.columns.nodetable import TableError
from stowplan.framework import Nominations, ObjectStore, Snapshot
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod


class CacheError(ValueError):
    """A change that contradicts the cache's state."""


class Cache:
    """The cluster state that decisions read. Times are whole nanoseconds."""

    def __init__(self, assume_limit_s: float | None = None) -> None:
        """assume_limit_s: how long an assumption lasts after the API accepted the binding; None, as
        in 1.36: without limit."""
        self.nodes = NodeTable()
        self.object_store = ObjectStore()
        self.nominations = Nominations()
        self._snapshot = Snapshot(self.nodes, self.object_store, self.nominations)
        self._node_changes = 0
        self._limit = None if assume_limit_s is None else round(assume_limit_s * SECOND)
        self._assumed: set[str] = set()
        # All assumptions have the same limit, so this is in order of expiry.
        self._expiry: dict[str, int] = {}

    def use_nominations(self, nominations: Nominations) -> None:
        """Set the nominations that snapshots show; the queue owns them."""
        self.nominations = nominations
        self._snapshot = Snapshot(self.nodes, self.object_store, nominations)

    def snapshot(self) -> Snapshot:
        """The state for one attempt: columns, node order and image counts are brought up to
        date."""
        self.nodes.refresh()
        return self._snapshot

    @property
    def version(self) -> tuple[int, int]:
        """Revision token; changes with every change of a node or of the object store."""
        return self._node_changes, self.object_store.version

    # Assumed pods.

    def assume(self, pod: Pod, node_name: str) -> None:
        """Count `pod` on a node. Raises CacheError when it is on one already."""
        try:
            self.nodes.add_pod(pod, node_name)
        except TableError as contradiction:
            raise CacheError(f"pod {pod.key} cannot be assumed: {contradiction}") from contradiction
        self._assumed.add(pod.uid)

    def note_assumed(self, uids: Iterable[str]) -> None:
        """Mark pods that were added to the table as assumed."""
        self._assumed.update(uids)

    def expect(self, uid: str, now: int) -> None:
        """Start the limit, if any, of an assumption whose binding the API accepted."""
        if self._limit is not None and uid in self._assumed:
            self._expiry.pop(uid, None)
            self._expiry[uid] = now + self._limit

    def forget(self, uid: str) -> PodInfo | None:
        """Drop an assumption and remove the pod; None when the pod is not assumed."""
        if uid not in self._assumed:
            return None
        self._settle(uid)
        return self.nodes.remove_pod(uid)

    def is_assumed(self, uid: str) -> bool:
        """True until the watch confirms the pod."""
        return uid in self._assumed

    def assumed(self) -> frozenset[str]:
        """The uids of all assumed pods."""
        return frozenset(self._assumed)

    def expire(self, now: int) -> list[str]:
        """Forget the assumptions past their limit and return their uids, oldest first."""
        due = []
        for uid, at in self._expiry.items():
            if at > now:
                break
            due.append(uid)
        for uid in due:
            self.forget(uid)
        return due

    def next_expiry(self) -> int | None:
        """When the next assumption expires; None without one."""
        return next(iter(self._expiry.values()), None)

    def _settle(self, uid: str) -> None:
        self._assumed.discard(uid)
        if self._expiry:
            self._expiry.pop(uid, None)

    # Watch events.

    def put_pod(self, pod: Pod) -> None:
        """A bound pod was added or updated.

        Ends the assumption: on the same node it is confirmed, on another node the watch decides.
        """
        uid = pod.uid
        self._settle(uid)
        if self.nodes.knows_pod(uid):
            self.nodes.update_pod(pod)
        else:
            self.nodes.add_pod(pod)

    def drop_pod(self, uid: str) -> PodInfo | None:
        """Remove a deleted pod, assumed or not; None when it was on no node."""
        self._settle(uid)
        return self.nodes.remove_pod(uid) if self.nodes.knows_pod(uid) else None

    def drop_pods(self, uids: Sequence[str]) -> None:
        """Remove deleted pods of nodes that exist, one after the other."""
        self._assumed.difference_update(uids)
        for uid in uids if self._expiry else ():
            self._expiry.pop(uid, None)
        self.nodes.remove_pods(uids)

    def put_node(self, node: Node) -> Node | None:
        """Add or update a node; returns its previous version, None when it is new."""
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
        """Remove a node; its pods stay in the table until the watch deletes them. None when
        unknown."""
        row = self.nodes.row(name)
        if row < 0:
            return None
        node = self.nodes.nodes[row]
        self._node_changes += 1
        self.nodes.remove_node(name)
        return node

    def validate(self) -> None:
        """Compare all incrementally kept state with a rebuild; raises InvariantBroken."""
        validate(self.nodes)
        lost = sorted(uid for uid in self._assumed if not self.nodes.knows_pod(uid))
        if lost:
            raise InvariantBroken(f"cache: assumed pods that are on no node: {lost[:5]}")
        unassumed = sorted(self._expiry.keys() - self._assumed)
        if unassumed:
            raise InvariantBroken(f"cache: pods that expire and are not assumed: {unassumed[:5]}")
        times = list(self._expiry.values())
        if times != sorted(times):
            raise InvariantBroken(f"cache: expiries out of order: {times[:5]}")
