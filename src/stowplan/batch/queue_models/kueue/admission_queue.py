"""ClusterQueues as cycles see them, and the cluster in which they are.

Source: Kueue, pkg/cache/scheduler: clusterqueue.go, snapshot.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stowplan.batch.queue_models.kueue.admission_workload import ADMITTED, AdmissionWorkload, Usage
from stowplan.batch.queue_models.kueue.kueue_objects import (
    BY_USAGE,
    AdmissionCheck,
    KueueClusterQueue,
    KueueResourceGroup,
    ResourceFlavor,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.preemption.eviction_memory import EvictionMemory
from stowplan.batch.queue_models.kueue.quota.local_queue_usage import LocalQueueUsage
from stowplan.batch.queue_models.kueue.quota.quota_amounts import FlavorResource
from stowplan.batch.queue_models.kueue.quota.quota_tree import QuotaNode, QuotaTree
from stowplan.batch.queue_models.kueue.topology.topology_places import TopologyPlaces

PROVISIONING = "kueue.x-k8s.io/provisioning-request"
MULTI_KUEUE = "kueue.x-k8s.io/multikueue"


class AdmissionQueue:
    """A ClusterQueue. workloads: that hold quota, by key. generation: counts what may make a
    search for flavors outdated."""

    def __init__(self, queue: KueueClusterQueue, flavors: Mapping[str, ResourceFlavor]) -> None:
        self.name = queue.name
        self.spec = queue.spec
        self.node = QuotaNode(queue.name, is_queue=True)
        self.workloads: dict[str, AdmissionWorkload] = {}
        self.generation = 0
        self.groups = queue.spec.resource_groups
        names = [name for group in self.groups for name in group.flavor_names]
        self.topologies = {
            name: topology
            for name in names
            if name in flavors and (topology := flavors[name].spec.topology_name) is not None
        }
        self.is_topology_only = all(name in self.topologies for name in names)
        strategy = queue.spec.admission_checks_strategy
        self.checks = {
            one.name: frozenset(one.on_flavors or names)
            for one in (strategy.admission_checks if strategy is not None else ())
        }
        self.missing_flavors = [name for name in names if name not in flavors]
        self.delays_topology = False
        self.provisioned: frozenset[str] = frozenset()

    @property
    def is_by_usage(self) -> bool:
        """Whether the usage of LocalQueues orders its workloads, where that counts at all."""
        scope = self.spec.admission_scope
        return scope is not None and scope.admission_mode == BY_USAGE

    def group_of(self, resource: str) -> KueueResourceGroup | None:
        """The group that covers a resource."""
        return next((one for one in self.groups if resource in one.covered_resources), None)

    def admitted_by(self, local_queue: str) -> dict[str, int]:
        """What admitted workloads of a LocalQueue use: resource -> base units."""
        found: dict[str, int] = {}
        for one in self.workloads.values():
            if one.queue_name == local_queue and one.is_condition(ADMITTED):
                for (_, resource), n in one.usage.quota.items():
                    found[resource] = found.get(resource, 0) + n
        return found

    def counted_requests(
        self, workload: AdmissionWorkload, options: KueueOptions
    ) -> dict[str, int]:
        """What a workload asks for, as far as it counts: resource -> base units."""
        found: dict[str, int] = {}
        for demand in workload.demands:
            for name, n in demand.requests.items():
                if not options.ignores_undeclared or self.group_of(name) is not None:
                    found[name] = found.get(name, 0) + n
        return found

    def is_ready(self, checks: Mapping[str, AdmissionCheck], topologies: Iterable[str]) -> bool:
        """Whether nothing keeps the queue from admitting; notes which checks delay topology."""
        held = [checks.get(name) for name in self.checks]
        kinds = {name: checks[name].spec.controller_name for name in self.checks if name in checks}
        multi = [name for name, kind in kinds.items() if kind == MULTI_KUEUE]
        provisioning = [name for name, kind in kinds.items() if kind == PROVISIONING]
        self.delays_topology = bool(multi)
        self.provisioned = frozenset(name for one in provisioning for name in self.checks[one])
        if self.spec.stop_policy not in (None, "None") or self.missing_flavors:
            return False
        if any(one is None or not one.is_active for one in held):
            return False
        if len(multi) > 1 or (multi and provisioning):
            return False
        every = {name for group in self.groups for name in group.flavor_names}
        if any(self.checks[name] != every for name in multi):
            return False
        return bool(multi) or set(self.topologies.values()) <= set(topologies)


class AdmissionSnapshot:
    """Quota, workloads and places while a cycle tries things out.

    queues: active ones. places: of flavors with a topology, by flavor. evictions: those that are
    not repeated; None where they may be. usage: of LocalQueues; None where it does not count.
    """

    def __init__(
        self,
        queues: dict[str, AdmissionQueue],
        tree: QuotaTree,
        flavors: Mapping[str, ResourceFlavor],
        places: dict[str, TopologyPlaces],
        options: KueueOptions,
        cycle: int,
        evictions: EvictionMemory | None = None,
        usage: LocalQueueUsage | None = None,
    ) -> None:
        self.queues = queues
        self.tree = tree
        self.flavors = flavors
        self.places = places
        self.options = options
        self.cycle = cycle
        self.evictions = evictions
        self.usage = usage

    def add_usage(self, queue: AdmissionQueue, usage: Usage) -> None:
        """Use quota and places."""
        queue.node.add_usage(usage.quota)
        self._use_places(queue, usage, 1)

    def remove_usage(self, queue: AdmissionQueue, usage: Usage) -> None:
        """Free quota and places."""
        queue.node.remove_usage(usage.quota)
        self._use_places(queue, usage, -1)

    def add(self, workload: AdmissionWorkload) -> None:
        """Put a workload back."""
        queue = self.queues[workload.cluster_queue]
        queue.workloads[workload.key] = workload
        self.add_usage(queue, workload.usage)

    def remove(self, workload: AdmissionWorkload) -> None:
        """Take a workload away."""
        queue = self.queues[workload.cluster_queue]
        del queue.workloads[workload.key]
        self.remove_usage(queue, workload.usage)

    def free_usage_of(self, workloads: Iterable[AdmissionWorkload]) -> None:
        """Free what workloads use, without taking them out of their queues."""
        for one in workloads:
            self.remove_usage(self.queues[one.cluster_queue], one.usage)

    def use_again(self, workloads: Iterable[AdmissionWorkload]) -> None:
        """Undo `free_usage_of`."""
        for one in workloads:
            self.add_usage(self.queues[one.cluster_queue], one.usage)

    def _use_places(self, queue: AdmissionQueue, usage: Usage, sign: int) -> None:
        for use in usage.places:
            if use.flavor in queue.topologies and use.flavor in self.places:
                self.places[use.flavor].change_usage(use, sign)


def uses_any(workload: AdmissionWorkload, pairs: Iterable[FlavorResource]) -> bool:
    """Whether a workload has one of the pairs assigned."""
    wanted = set(pairs)
    return any(
        (flavor, name) in wanted for one in workload.demands for name, flavor in one.flavors.items()
    )
