"""Hierarchical dominant shares: a tree of queues with jobs as leaves.

An inner node has the dominant share of its children, as if those that are not saturated had all
been scaled to the smallest of their shares.

Source: volcano master of 2026-08-20, pkg/scheduler/plugins/drf/drf.go.
"""

from __future__ import annotations

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, share_of
from stowplan.batch.queue_models.volcano.volcano_queue import VolcanoQueue
from stowplan.batch.queue_models.volcano.volcano_session_job import VolcanoSessionJob


def dominant_share(amount: VolcanoAmount, total: VolcanoAmount) -> float:
    """The largest share of a resource of the cluster."""
    shares = (share_of(amount.get(name), total.get(name)) for name in total.names())
    return max(shares, default=0.0)


class ShareNode:
    """A node of the tree. request: of a job; None for an inner node."""

    __slots__ = ("allocated", "children", "is_saturated", "request", "share", "weight")

    def __init__(self, weight: float, request: VolcanoAmount | None = None) -> None:
        self.weight, self.request = weight, request
        self.allocated = VolcanoAmount()
        self.share = 0.0
        self.is_saturated = False
        self.children: dict[str, ShareNode] = {}

    def copy(self) -> ShareNode:
        """A copy of the whole subtree."""
        made = ShareNode(self.weight, self.request)
        made.allocated, made.share = self.allocated.copy(), self.share
        made.is_saturated = self.is_saturated
        made.children = {name: child.copy() for name, child in self.children.items()}
        return made


class ShareTree:
    """The tree. total: resources of the cluster. allocated: what all jobs have."""

    def __init__(self, total: VolcanoAmount) -> None:
        self._total = total
        self.allocated = VolcanoAmount()
        self._root = ShareNode(1.0)

    def copy(self) -> ShareTree:
        """A copy to try changes on."""
        made = ShareTree(self._total)
        made.allocated, made._root = self.allocated.copy(), self._root.copy()
        return made

    def put(self, queue: VolcanoQueue, job: VolcanoSessionJob, amount: VolcanoAmount) -> None:
        """Set what a job has, and compute all shares anew."""
        node, weights = self._root, queue.weights.split("/")
        for depth, name in enumerate(queue.hierarchy.split("/")[1:], start=1):
            if name not in node.children:
                text = weights[depth] if depth < len(weights) else ""
                node.children[name] = ShareNode(_weight(text))
            node = node.children[name]
        leaf = node.children[job.uid] = ShareNode(1.0, job.total_request)
        leaf.allocated, leaf.share = amount, dominant_share(amount, self._total)
        total = self._total
        demanding = {n for n in total.names() if self.allocated.get(n) < total.get(n)}
        self._update(self._root, demanding)

    def _update(self, node: ShareNode, demanding: set[str]) -> None:
        if node.request is not None:
            node.is_saturated = _is_saturated(node.allocated, node.request, demanding)
            return
        least = 1.0
        for child in node.children.values():
            self._update(child, demanding)
            if child.share != 0 and not child.is_saturated:
                least = min(least, dominant_share(child.allocated, self._total))
        node.allocated = VolcanoAmount()
        for child in node.children.values():
            if child.share == 0:
                continue
            amount = child.allocated
            if not child.is_saturated:
                amount = amount.copy().multiply(least / child.share)
            node.allocated.add(amount)
        node.share = dominant_share(node.allocated, self._total)
        node.is_saturated = all(child.is_saturated for child in node.children.values())

    def compare(self, left: VolcanoQueue, right: VolcanoQueue) -> float:
        """Below 0 if `left` comes before `right`: the first difference on the way to them."""
        first, second = self._root, self._root
        paths = left.hierarchy.split("/"), right.hierarchy.split("/")
        depth = min(len(path) for path in paths)
        for i in range(depth):
            if first.is_saturated != second.is_saturated:
                return 1.0 if first.is_saturated else -1.0
            shares = first.share / first.weight, second.share / second.weight
            if shares[0] != shares[1]:
                return shares[0] - shares[1]
            if i < depth - 1:
                nodes = first.children.get(paths[0][i + 1]), second.children.get(paths[1][i + 1])
                if nodes[0] is None or nodes[1] is None:
                    return 0.0
                first, second = nodes[0], nodes[1]
        return 0.0


def _is_saturated(allocated: VolcanoAmount, request: VolcanoAmount, demanding: set[str]) -> bool:
    """True if a job has all that it requests of some resource, or requests one that is used up."""
    for name in allocated.names():
        asked = request.get(name)
        if asked != 0 and (allocated.get(name) >= asked or name not in demanding):
            return True
    return False


def _weight(text: str) -> float:
    try:
        return max(float(text), 1.0)
    except ValueError:
        return 1.0
