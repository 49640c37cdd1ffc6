"""What is left on a node beside the pod that preempts, where pods matter by what they request only.

Source: kube-scheduler v1.36, plugins/noderesources/fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.columns import NodeInfo, PodInfo
from stowplan.objects.quantity import INT64_MAX
from stowplan.plugins.resources.fit import RequestedResources


class RemainingResources:
    """Slots and amounts that are left, as whole numbers: pods come back while there is enough."""

    __slots__ = ("_left", "_slots")

    def __init__(
        self, wanted: RequestedResources, node: NodeInfo, crowd: Sequence[PodInfo]
    ) -> None:
        """wanted: what the pod asks for. crowd: the nominated pods that it must count as placed.

        With both of them there is room on `node`.
        """
        self._slots = node.pod_limit - len(node.pods) - len(crowd) - 1
        self._left = {
            name: node.free(name) - amount - _requested_sum(crowd, name) for name, amount in wanted
        }

    def takes(self, info: PodInfo) -> bool:
        """True when the pod may come back; then it has."""
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
    """True where sums stay within 64 bits, whichever of `pods` are put on `node`."""
    for name, amount in wanted:
        requests = [info.footprint.requested.get(name, 0) for info in pods]
        held = node.requested.get(name, 0)
        if min(requests, default=0) < 0 or held < 0 or amount + held + sum(requests) > INT64_MAX:
            return False
    return True


def _requested_sum(pods: Sequence[PodInfo], resource: str) -> int:
    return sum(info.footprint.requested.get(resource, 0) for info in pods)
