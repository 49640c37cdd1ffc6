"""One node with its pods, as scalar methods of plugins read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from stowplan.columns.pods.podinfo import WILDCARD_IP, PodInfo, Port
from stowplan.objects.node import Node, Taint
from stowplan.objects.pod_requests import is_scalar
from stowplan.objects.quantity import Quantity, amount

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})

ImageStates = Mapping[str, tuple[int, int]]


class NodeInfo:
    """A node, its pods and their sums.

    Sums are computed from the pods, not from the columns, so that comparing a plugin's scalar and
    column methods also checks the columns. A NodeInfo may be changed (`add_pod`, `remove_pod`) for
    a dry run; its table does not change.
    """

    __slots__ = ("_allocatable", "_nonzero", "_requested", "images", "node", "pods", "used_ports")

    def __init__(
        self,
        node: Node,
        pods: Iterable[PodInfo] = (),
        used_ports: Iterable[Port] | None = None,
        images: ImageStates | None = None,
    ) -> None:
        """used_ports: as kept by the owner; default: the ports of `pods`.

        images: image name -> (bytes, number of nodes that have it).
        """
        self.node = node
        self.pods = list(pods)
        if used_ports is None:
            used_ports = (port for info in self.pods for port in info.footprint.ports)
        self.used_ports = set(used_ports)
        self.images: ImageStates = images or {}
        self._allocatable: dict[str, int] | None = None
        self._requested: dict[str, int] | None = None
        self._nonzero: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"NodeInfo({self.name!r}, pods={len(self.pods)})"

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return self.node.labels

    @property
    def taints(self) -> tuple[Taint, ...]:
        """The node's taints."""
        return self.node.taints

    @property
    def unschedulable(self) -> bool:
        """True for a cordoned node."""
        return self.node.spec.unschedulable

    @property
    def allocatable(self) -> dict[str, int]:
        """Allocatable amounts, base units by resource name."""
        if self._allocatable is None:
            self._allocatable = allocatable_amounts(self.node)
        return self._allocatable

    @property
    def pod_limit(self) -> int:
        """Maximum number of pods."""
        return self.allocatable.get("pods", 0)

    @property
    def requested(self) -> dict[str, int]:
        """Sum of the pods' requests, base units by resource name."""
        if self._requested is None:
            total: dict[str, int] = {}
            for info in self.pods:
                for name, value in info.footprint.requested.items():
                    total[name] = total.get(name, 0) + value
            self._requested = {name: wrapped(value) for name, value in total.items()}
        return self._requested

    def set_requested(self, amounts: dict[str, int]) -> None:
        """Set `requested` where it is known; it may have amounts of 0."""
        self._requested = amounts

    @property
    def nonzero_requested(self) -> tuple[int, int]:
        """(milli-CPU, bytes): the sum with defaults for containers that request none."""
        if self._nonzero is None:
            shares = [info.footprint.nonzero for info in self.pods]
            self._nonzero = wrapped(sum(s[0] for s in shares)), wrapped(sum(s[1] for s in shares))
        return self._nonzero

    def free(self, resource: str) -> int:
        """Free amount of a resource, base units; negative on an overcommitted node."""
        return wrapped(self.allocatable.get(resource, 0) - self.requested.get(resource, 0))

    def port_conflicts(self, port: Port) -> bool:
        """True when a pod uses the port on the same or on every address."""
        ip, protocol, number = port
        if ip == WILDCARD_IP:
            return any(p[1:] == (protocol, number) for p in self.used_ports)
        return port in self.used_ports or (WILDCARD_IP, protocol, number) in self.used_ports

    def add_pod(self, info: PodInfo) -> None:
        """Add a pod, last."""
        self.pods.append(info)
        self.used_ports.update(info.footprint.ports)
        self._requested = self._nonzero = None

    def remove_pod(self, uid: str) -> PodInfo:
        """Remove a pod; the last pod takes its position. Raises KeyError when it is not on the
        node.

        A port becomes free with the first of the pods that use it, as in the original.
        """
        index = next((i for i, info in enumerate(self.pods) if info.uid == uid), -1)
        if index < 0:
            raise KeyError(f"pod {uid} is not on node {self.name}")
        info = self.pods[index]
        last = self.pods.pop()
        if last is not info:
            self.pods[index] = last
        self.used_ports.difference_update(info.footprint.ports)
        self._requested = self._nonzero = None
        return info

    def copy(self) -> NodeInfo:
        """A copy, for a dry run."""
        return NodeInfo(self.node, self.pods, self.used_ports, self.images)


def wrapped(amount: int) -> int:
    """A sum as a 64-bit integer: it wraps around, as in the columns and in Go."""
    if -(2**63) <= amount < 2**63:
        return amount
    return (amount + 2**63) % 2**64 - 2**63


def allocatable_amounts(node: Node) -> dict[str, int]:
    """`status.allocatable` in base units (milli-CPU, bytes, counts) by resource name.

    Only the resources that scheduling tracks. Raises QuantityError for a malformed quantity.
    """
    return dict(_amounts(tuple(node.status.allocatable.items())))


@lru_cache(maxsize=1 << 12)
def _amounts(quantities: tuple[tuple[str, Quantity], ...]) -> dict[str, int]:
    """Amounts of a shape of nodes, of which there are few."""
    return {name: amount(name, q) for name, q in quantities if name in NATIVE or is_scalar(name)}


def differences(before: Node, after: Node) -> tuple[bool, bool]:
    """(whether a column differs, whether anything but amounts differs)."""
    old, new = before.status, after.status
    reshaped = (
        before.labels != after.labels
        or before.spec != after.spec
        or old.images != new.images
        or old.declared_features != new.declared_features
    )
    return reshaped or old.allocatable != new.allocatable, reshaped
