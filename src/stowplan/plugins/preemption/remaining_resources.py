"""Remaining resources of a node beside the preempting pod, where pods count by their requests only.

Source: kube-scheduler v1.36, plugins/noderesources/fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.columns import NodeInfo, PodInfo
from stowplan.objects.quantity import INT64_MAX
from stowplan.plugins.resources.fit import RequestedResources


class RemainingResources:
    """Remaining pod slots and amounts, as integers: pods are reprieved while they suffice."""

    __slots__ = ("_left", "_slots")

    def __init__(
        self, wanted: RequestedResources, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> None:
        """wanted: requests of the pod. nominated: the nominated pods that count as placed. With
        both of them the node is not over-committed."""
        self._slots = node.pod_limit - len(node.pods) - len(nominated) - 1
        self._left = {
            name: node.free(name) - amount - _requested_sum(nominated, name)
            for name, amount in wanted
        }

    def takes(self, info: PodInfo) -> bool:
        """True when the pod is reprieved; its requests are then subtracted."""
        requested, left = info.footprint.requested, self._left
        if self._slots < 1:
            return False
        for name, amount in left.items():
            if requested.get(name, 0) > amount:
                return False
        self._slots -= 1
        for name in left:
            left[name] -= requested.get(name, 0)
        return True


def sums_fit_int64(wanted: RequestedResources, node: NodeInfo, pods: Sequence[PodInfo]) -> bool:
    """True where sums stay within 64 bits, whichever of `pods` are on `node`."""
    for name, amount in wanted:
        requests = [info.footprint.requested.get(name, 0) for info in pods]
        held = node.requested.get(name, 0)
        if min(requests, default=0) < 0 or held < 0 or amount + held + sum(requests) > INT64_MAX:
            return False
    return True


def _requested_sum(pods: Sequence[PodInfo], resource: str) -> int:
    return sum(info.footprint.requested.get(resource, 0) for info in pods)
