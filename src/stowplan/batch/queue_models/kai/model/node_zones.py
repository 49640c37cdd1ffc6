"""The NUMA zones of a cluster's nodes as sessions read them, from NodeResourceTopology objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from stowplan.batch.queue_models.kai.state.kai_amount import ResourceIndex
from stowplan.batch.queue_models.kai.state.numa_zones import GUARANTEED, NumaTopology, ZoneRules
from stowplan.batch.queue_models.kai.zone_reports import zones_of_object
from stowplan.batch.queue_models.queue_model import ModelCluster
from stowplan.objects.kai.node_topology import NodeResourceTopology
from stowplan.objects.meta import Object
from stowplan.objects.pod import Container, Pod
from stowplan.objects.quantity import Quantity, QuantityError, exact


class NodeZones:
    """The reports of nodes, where KAI-Scheduler's plugin numa is on. rules: its arguments, None
    where it is off."""

    def __init__(self) -> None:
        self.rules: ZoneRules | None = None
        self._objects: Mapping[str, Object] = {}

    def follow(self, cluster: ModelCluster, rules: ZoneRules | None) -> None:
        """Read the reports of a cluster from now on."""
        self.rules = rules
        self._objects = cluster.objects.get(NodeResourceTopology, {})

    def changed(self, cluster: ModelCluster) -> Iterator[str]:
        """Nodes whose reports have changed since the last session."""
        return (key for kind, key in cluster.changed_objects if kind is NodeResourceTopology)

    def of(self, node: str, index: ResourceIndex) -> NumaTopology | None:
        """The zones of a node; None where none count."""
        found = self._objects.get(node)
        if self.rules is None or not isinstance(found, NodeResourceTopology):
            return None
        return zones_of_object(found, index, self.rules)

    def pod(self, pod: Pod) -> Pod:
        """A pod with its QoS class, which the API server sets: pods of files have none."""
        if self.rules is None or pod.status.qos_class or not is_guaranteed_by_spec(pod):
            return pod
        return replace(pod, status=replace(pod.status, qos_class=GUARANTEED))


def is_guaranteed_by_spec(pod: Pod) -> bool:
    """Whether the QoS class of a pod is Guaranteed: it has limits of cpu and memory everywhere, and
    asks for as much.

    Source: Kubernetes 1.36, pkg/apis/core/helper/qos.
    """
    own = pod.spec.resources
    if own is not None and (own.requests or own.limits):
        return _is_guaranteed(Container(resources=own))
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return bool(containers) and all(_is_guaranteed(one) for one in containers)


def _is_guaranteed(container: Container) -> bool:
    requests, limits = container.resources.requests, container.resources.limits
    try:
        return all(
            name in limits
            and exact(limits[name]).unscaled > 0
            and _is_same(limits[name], requests.get(name, limits[name]))
            for name in ("cpu", "memory")
        )
    except QuantityError:
        return False


def _is_same(left: Quantity, right: Quantity) -> bool:
    return not (exact(left) > exact(right) or exact(right) > exact(left))
