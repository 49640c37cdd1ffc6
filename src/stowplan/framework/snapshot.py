"""Snapshot: all that one decision may read."""

from __future__ import annotations

from collections.abc import Iterable

from stowplan.columns import NodeTable, PodInfo
from stowplan.framework.world import World
from stowplan.objects.pod import Pod


class Nominations:
    """Pending pods that preempted for a node and wait for it: counted as if they were there."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        """pods: each with `status.nominatedNodeName`."""
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        for pod in pods:
            self.add(pod, pod.status.nominated_node_name)

    def add(self, pod: Pod, node: str) -> None:
        """Nominate a pod to a node; an earlier nomination of the pod goes."""
        self.drop(pod.uid)
        self._by_node.setdefault(node, {})[pod.uid] = PodInfo.of(pod)
        self._node_of[pod.uid] = node

    def drop(self, uid: str) -> None:
        """Forget a pod's nomination, if it has one."""
        node = self._node_of.pop(uid, None)
        if node is not None:
            del self._by_node[node][uid]
            if not self._by_node[node]:
                del self._by_node[node]

    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to, or ""."""
        return self._node_of.get(uid, "")

    def on(self, node: str) -> tuple[PodInfo, ...]:
        """The pods nominated to a node, in order of arrival."""
        return tuple(self._by_node.get(node, {}).values())

    def nodes(self) -> tuple[str, ...]:
        """The nodes that have nominations."""
        return tuple(self._by_node)


class Snapshot:
    """The state of the cluster as one decision sees it. Plugins read it and never change it."""

    __slots__ = ("nodes", "nominations", "world")

    def __init__(
        self,
        nodes: NodeTable,
        world: World | None = None,
        nominations: Nominations | None = None,
    ) -> None:
        self.nodes = nodes
        self.world = World() if world is None else world
        self.nominations = Nominations() if nominations is None else nominations
