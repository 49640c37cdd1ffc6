"""Cache: nodes, the pods on them, and the pods assumed on them.

A pod is assumed on its node the moment it is decided, and stays so until the watch confirms it,
somebody forgets it (the binding was refused), or, where a limit is set, the assumption expires.
The node table is the one owner of who is where; the cache knows only who is assumed, until when.

Source: kube-scheduler v1.36, backend/cache.
"""

from __future__ import annotations

from stowplan.columns import NodeTable, PodInfo
from stowplan.columns.audit import InvariantBroken, validate
from stowplan.framework import Nominations, Snapshot, World
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

NEVER = float("inf")


class CacheError(ValueError):
    """A change that contradicts what the cache holds."""


class Cache:
    """The state of the cluster as far as decisions read it."""

    def __init__(self, assume_limit_s: float | None = None) -> None:
        """assume_limit_s: how long an assumption holds unconfirmed; None, as in 1.36, for ever."""
        self.nodes = NodeTable()
        self.world = World()
        self.nominations = Nominations()
        self._snapshot = Snapshot(self.nodes, self.world, self.nominations)
        self._limit_s = assume_limit_s
        self._assumed: dict[str, float] = {}

    def nominate_by(self, nominations: Nominations) -> None:
        """Let decisions read these nominations; the queue owns them."""
        self.nominations = nominations
        self._snapshot = Snapshot(self.nodes, self.world, nominations)

    def snapshot(self) -> Snapshot:
        """The state for one attempt: live columns, node order and image counts taken over."""
        self.nodes.refresh()
        return self._snapshot

    # Assumed pods.

    def assume(self, pod: Pod, node_name: str, now: float) -> None:
        """Count `pod` as being on a node. Raises CacheError when it is on one already."""
        if self.nodes.knows_pod(pod.uid):
            raise CacheError(f"pod {pod.key} ({pod.uid}) is assumed on {node_name!r} twice")
        self.nodes.add_pod(pod, node_name)
        self._assumed[pod.uid] = NEVER if self._limit_s is None else now + self._limit_s

    def forget(self, uid: str) -> PodInfo | None:
        """Take back an assumption; None when the pod is not assumed (any more)."""
        if self._assumed.pop(uid, None) is None:
            return None
        return self.nodes.remove_pod(uid)

    def is_assumed(self, uid: str) -> bool:
        """True while the watch has not confirmed the pod."""
        return uid in self._assumed

    def expire(self, now: float) -> list[PodInfo]:
        """Forget the assumptions whose limit is over, the oldest first."""
        due = [uid for uid, deadline in self._assumed.items() if deadline <= now]
        return [info for info in map(self.forget, due) if info is not None]

    def next_expiry(self) -> float:
        """When the next assumption expires; infinity when none does."""
        return min(self._assumed.values(), default=NEVER)

    # What the watch says.

    def put_pod(self, pod: Pod) -> PodInfo | None:
        """A bound pod is there or has changed; returns it as it was before, None when new.

        An assumption ends here: on the same node it is confirmed, on another the watch is right.
        """
        before = self.nodes.pod(pod.uid)
        self._assumed.pop(pod.uid, None)
        if before is not None:
            self.nodes.remove_pod(pod.uid)
        self.nodes.add_pod(pod)
        return before

    def drop_pod(self, uid: str) -> PodInfo | None:
        """A bound pod is gone; None when it was not known."""
        self._assumed.pop(uid, None)
        return self.nodes.remove_pod(uid) if self.nodes.knows_pod(uid) else None

    def put_node(self, node: Node) -> Node | None:
        """A node is there or has changed; returns it as it was before, None when new."""
        row = self.nodes.row(node.name)
        if row < 0:
            self.nodes.add_node(node)
            return None
        before = self.nodes.nodes[row]
        self.nodes.update_node(node)
        return before

    def drop_node(self, name: str) -> Node | None:
        """A node is gone; its pods stay known until the watch drops them. None when unknown."""
        row = self.nodes.row(name)
        if row < 0:
            return None
        node = self.nodes.nodes[row]
        self.nodes.remove_node(name)
        return node

    def validate(self) -> None:
        """Compare everything kept by delta with a rebuild; raises InvariantBroken."""
        validate(self.nodes)
        lost = [uid for uid in self._assumed if not self.nodes.knows_pod(uid)]
        if lost:
            raise InvariantBroken(f"cache: assumed pods that are on no node: {lost[:5]}")
