"""Kinds of KAI-Scheduler in their published shapes: Queue, PodGroup and Topology.

Amounts of a Queue: cards, milli-cpu, and memory in 10^6 bytes; -1 is unlimited.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import NamespacedObject, Object, Value

KAI_QUEUE_API_VERSION = "scheduling.run.ai/v2"
KAI_GROUP_API_VERSION = "scheduling.run.ai/v2alpha2"
KAI_TOPOLOGY_API_VERSION = "kai.scheduler/v1alpha1"
KAI_GROUP_ANNOTATION = "pod-group-name"
"""Annotation that names a pod's PodGroup."""
KAI_PRIORITY_CLASSES = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""Priority classes that KAI installs."""
SUB_GROUP_LABEL = "kai.scheduler/subgroup-name"
"""Label that names a pod's sub-group."""


class KaiTopologyConstraint(Value, frozen=True):
    """`topologyConstraint` of a group or sub-group."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(Value, frozen=True):
    """An entry of `subGroups`."""

    name: str
    parent: str | None = None
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiQueueResource(Value, frozen=True):
    """Quota, limit and weight of one resource of a queue."""

    quota: float = 0.0
    limit: float = 0.0
    over_quota_weight: float = 0.0


class KaiQueueResources(Value, frozen=True):
    """`resources` of a queue."""

    cpu: KaiQueueResource = KaiQueueResource()
    memory: KaiQueueResource = KaiQueueResource()
    gpu: KaiQueueResource = KaiQueueResource()


class KaiQueueSpec(Value, frozen=True):
    """`spec` of a queue."""

    display_name: str = ""
    parent_queue: str = ""
    priority: int | None = None
    resources: KaiQueueResources | None = None
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class KaiQueueObject(Object, frozen=True):
    """A Queue, scheduling.run.ai/v2."""

    api_version: str = KAI_QUEUE_API_VERSION
    spec: KaiQueueSpec = KaiQueueSpec()


class KaiPodGroupSpec(Value, frozen=True):
    """`spec` of a pod group."""

    queue: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    priority_class_name: str = ""
    preemptibility: str = ""
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    topology_constraint: KaiTopologyConstraint = KaiTopologyConstraint()


class KaiSchedulingCondition(Value, frozen=True):
    """An entry of `status.schedulingConditions`."""

    type: str = ""
    status: str = ""
    message: str = ""
    transition_id: str = field(default="", name="transitionID")


class KaiPodGroupStatus(Value, frozen=True):
    """`status` of a pod group, as far as it is read."""

    scheduling_conditions: tuple[KaiSchedulingCondition, ...] = ()


class KaiPodGroupObject(NamespacedObject, frozen=True):
    """A PodGroup, scheduling.run.ai/v2alpha2."""

    api_version: str = KAI_GROUP_API_VERSION
    spec: KaiPodGroupSpec = KaiPodGroupSpec()
    status: KaiPodGroupStatus = KaiPodGroupStatus()


class KaiTopologyLevel(Value, frozen=True):
    """An entry of `levels`."""

    node_label: str
    alias: str = ""


class KaiTopologySpec(Value, frozen=True):
    """`spec` of a topology."""

    levels: tuple[KaiTopologyLevel, ...] = ()


class KaiTopologyObject(Object, frozen=True):
    """A Topology, kai.scheduler/v1alpha1."""

    api_version: str = KAI_TOPOLOGY_API_VERSION
    spec: KaiTopologySpec = KaiTopologySpec()
