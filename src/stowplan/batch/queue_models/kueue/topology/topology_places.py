"""Domains of a topology for one flavor: what is free in each, and how many pods fit.

A domain holds the nodes with the same values of all labels down to a level. With the level
`kubernetes.io/hostname` a leaf is a node, and taints, selectors and affinity of pods count.

Source: Kueue, pkg/cache/scheduler: tas_topology_tree.go, tas_flavor.go, tas_flavor_snapshot.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from stowplan.batch.queue_models.kueue.admission_workload import DomainValues, PlaceUse, Requests
from stowplan.batch.queue_models.kueue.kueue_objects import PodSetTopologyRequest, ResourceFlavor
from stowplan.batch.queue_models.kueue.quota.quota_amounts import request_amount
from stowplan.objects.node import HOSTNAME_LABEL, Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.quantity import INT64_MAX

_PODS_MAX = 2**31 - 1


def count_in(requests: Mapping[str, int], capacity: Mapping[str, int]) -> int:
    """How often requests fit; 0 for no requests."""
    if not requests:
        return 0
    counts = [
        _PODS_MAX if n == 0 else max(0, min(capacity.get(name, 0) // n, _PODS_MAX))
        for name, n in requests.items()
    ]
    return min(counts)


class TopologyDomain:
    """A domain, and what the search counts in it.

    pods, slices: that fit. pods_led, slices_led: beside a leader. leaders: 1 if a leader fits.
    affinity: preferred node affinity, summed.
    """

    __slots__ = (
        "affinity", "children", "leaders", "node", "parent", "pods", "pods_led", "slices",
        "slices_led", "values",
    )  # fmt: skip

    def __init__(self, values: DomainValues, node: Node | None = None) -> None:
        self.values = values
        self.node = node
        self.parent: TopologyDomain | None = None
        self.children: list[TopologyDomain] = []
        self.affinity = 0
        self.clear()

    def clear(self) -> None:
        """Nothing fits."""
        self.pods = self.slices = self.pods_led = self.slices_led = self.leaders = 0

    def copied(self) -> TopologyDomain:
        """A copy without relatives."""
        other = TopologyDomain(self.values, self.node)
        other.affinity, other.leaders = self.affinity, self.leaders
        other.pods, other.slices = self.pods, self.slices
        other.pods_led, other.slices_led = self.pods_led, self.slices_led
        return other


class TopologyPlaces:
    """The domains of a flavor.

    levels: labels, the widest first. per_level: domains of each level by values. leaves: domain
    id -> leaf; the id of a node's domain is its host name only.
    """

    def __init__(self, levels: Sequence[str], flavor: ResourceFlavor) -> None:
        self.levels = tuple(levels)
        self.flavor = flavor
        self.ends_at_nodes = bool(levels) and levels[-1] == HOSTNAME_LABEL
        self.per_level: list[dict[DomainValues, TopologyDomain]] = [{} for _ in levels]
        self.leaves: dict[DomainValues, TopologyDomain] = {}
        self.free: dict[DomainValues, Requests] = {}
        self.used: dict[DomainValues, Requests] = {}
        self.matched: set[tuple[str, str]] = set()

    def with_nodes(self, nodes: Iterable[Node], pods: Mapping[str, Sequence[Pod]]) -> None:
        """Add the nodes that count. pods: that others run, by node name."""
        labels = self.flavor.spec.node_labels
        for node in nodes:
            if node.spec.unschedulable or not _is_ready(node):
                continue
            if any(node.labels.get(key) != value for key, value in labels.items()):
                continue
            if all(level in node.labels for level in self.levels):
                self._add_node(node, pods.get(node.name, ()))

    def _add_node(self, node: Node, pods: Sequence[Pod]) -> None:
        values = tuple(node.labels[level] for level in self.levels)
        key = values[-1:] if self.ends_at_nodes else values
        if key not in self.leaves:
            leaf = TopologyDomain(values, node if self.ends_at_nodes else None)
            self.leaves[key] = leaf
            self.free[key] = {}
            self._join(leaf)
        free = self.free[key]
        for name, quantity in node.status.allocatable.items():
            n = request_amount(name, quantity)
            free[name] = min(free.get(name, 0) + n, INT64_MAX)
        for pod in pods:
            _add(free, pod_requests(pod, use_status=False), -1)
            _add(free, {"pods": 1}, -1)

    def _join(self, domain: TopologyDomain) -> None:
        self.per_level[len(domain.values) - 1][domain.values] = domain
        above = domain.values[:-1]
        if not above:
            return
        parent = self.per_level[len(above) - 1].get(above)
        if parent is None:
            parent = TopologyDomain(above)
            self._join(parent)
        domain.parent = parent
        parent.children.append(domain)

    def change_usage(self, use: PlaceUse, sign: int) -> None:
        """Add (1) or remove (-1) pods."""
        held = self.used.setdefault(use.values, {})
        _add(held, use.per_pod, sign * use.count)
        _add(held, {"pods": use.count}, sign)

    def remaining(self, key: DomainValues, *, is_empty: bool) -> Requests:
        """What is free in a leaf. is_empty: as if no workload ran."""
        found = dict(self.free[key])
        if not is_empty:
            _add(found, self.used.get(key, {}), -1)
        return found

    def fits(self, use: PlaceUse) -> bool:
        """Whether pods fit in their domain."""
        if use.values not in self.leaves:
            return False
        return count_in(use.per_pod, self.remaining(use.values, is_empty=False)) >= use.count

    def level_of(self, request: PodSetTopologyRequest | None) -> str | None:
        """The level that a request names, or implies."""
        if request is None:
            return None
        if request.required is not None:
            return request.required
        if request.preferred is not None:
            return request.preferred
        if request.slices:
            return self.levels[0]
        return self.levels[-1] if request.unconstrained else None

    def has_levels(self, request: PodSetTopologyRequest) -> bool:
        """Whether all levels of a request exist."""
        levels = [self.level_of(request), *(one.topology for one in request.slices)]
        return all(level in self.levels for level in levels)


def _add(total: Requests, amounts: Mapping[str, int], factor: int) -> None:
    for name, n in amounts.items():
        total[name] = total.get(name, 0) + n * factor


def _is_ready(node: Node) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


CountOf = Callable[[TopologyDomain], int]
