"""Snapshot: all state that a decision may read."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan._deprecated import deprecated_keywords, deprecated_property
from stowplan.columns import NodeTable, PodInfo
from stowplan.framework.object_store import ObjectStore
from stowplan.objects.pod import Pod

CHANGES_KEPT = 4096


class Nominations:
    """Pods nominated to a node by preemption; filters count them as placed."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        """pods: each with `status.nominatedNodeName`."""
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        # Nodes of the latest changes, and the number of older changes that were dropped.
        self._changed: list[str] = []
        self._n_forgotten = 0
        for pod in pods:
            self.add(pod, pod.status.nominated_node_name)

    def __len__(self) -> int:
        return len(self._node_of)

    @property
    def is_empty(self) -> bool:
        """True when no pod is nominated to a node: "" counts as none."""
        by_node = self._by_node
        return not by_node or (len(by_node) == 1 and "" in by_node)

    def add(self, pod: Pod, node: str) -> None:
        """Nominate a pod to a node, replacing an earlier nomination."""
        self.drop(pod.uid)
        self._by_node.setdefault(node, {})[pod.uid] = PodInfo.of(pod)
        self._node_of[pod.uid] = node
        self._note(node)

    def add_again(self, pod: Pod) -> bool:
        """Replace a pod recorded as nominated to no node by a new version; False when it is not
        recorded so."""
        uid = pod.uid
        if self._node_of.get(uid) != "":
            return False
        nowhere = self._by_node[""]
        del nowhere[uid]
        nowhere[uid] = PodInfo.of(pod)
        return True

    def drop(self, uid: str) -> None:
        """Remove a pod's nomination, if any."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]
            self._note(node)

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, or ""."""
        return self._node_of.get(uid, "")

    def pod_of(self, uid: str) -> Pod | None:
        """A nominated pod in the version that counts; None when it is not nominated."""
        node = self._node_of.get(uid)
        return None if node is None else self._by_node[node][uid].pod

    def on(self, node: str) -> tuple[PodInfo, ...]:
        """The pods nominated to a node, in order of arrival."""
        return tuple(self._by_node.get(node, {}).values())

    def counted(self, node: str, pod: Pod) -> list[PodInfo]:
        """Pods on a node that `pod` must count as placed: those of its priority or a higher one."""
        priority, uid = pod.priority, pod.uid
        return [i for i in self.on(node) if i.pod.priority >= priority and i.uid != uid]

    def nodes(self) -> tuple[str, ...]:
        """The nodes with nominations."""
        return tuple(self._by_node)

    @property
    def generation(self) -> int:
        """Number of changes so far."""
        return self._n_forgotten + len(self._changed)

    def since(self, generation: int) -> list[str] | None:
        """Nodes whose nominations changed since `generation`; None when it is too old."""
        if generation < self._n_forgotten:
            return None
        return list(dict.fromkeys(self._changed[generation - self._n_forgotten :]))

    def _note(self, node: str) -> None:
        # Every rejected pod is nominated to "", which is no node.
        if not node:
            return
        self._changed.append(node)
        if len(self._changed) > 2 * CHANGES_KEPT:
            self._n_forgotten += len(self._changed) - CHANGES_KEPT
            del self._changed[:-CHANGES_KEPT]


class Snapshot:
    """The cluster state of one decision. Plugins read it and never change it."""

    __slots__ = ("nodes", "nominations", "object_store")

    @deprecated_keywords(world="object_store")
    def __init__(
        self,
        nodes: NodeTable,
        object_store: ObjectStore | None = None,
        nominations: Nominations | None = None,
    ) -> None:
        self.nodes = nodes
        self.object_store = ObjectStore() if object_store is None else object_store
        self.nominations = Nominations() if nominations is None else nominations

    world = deprecated_property("world", "object_store")
