"""Groups of pods of Kubernetes itself: PodGroup and Workload of scheduling.k8s.io/v1alpha2.

kube-batch and Volcano have a kind PodGroup of their own; see `objects.podgroup`.

Source: k8s.io/api v1.36, scheduling/v1alpha2.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from stowplan.objects.meta import NamespacedObject, ObjectMeta, Time, Value
from stowplan.objects.pod import PodResourceClaim, PodResourceClaimStatus
from stowplan.objects.podgroup import PodGroupCondition

SCHEDULING_API_VERSION = "scheduling.k8s.io/v1alpha2"
"""apiVersion of both kinds."""

POD_GROUP_SCHEDULED = "PodGroupScheduled"
"""`type` of the condition that the scheduler writes."""

WHOLE_GROUP = "PodGroup"
"""`disruptionMode` of a group that is preempted whole; any other: pod by pod."""


class BasicSchedulingPolicy(Value, frozen=True):
    """`basic`: the pods are placed as they fit."""


class GangSchedulingPolicy(Value, frozen=True):
    """`gang`: at least this number of pods runs, or none."""

    min_count: int = 0


class PodGroupSchedulingPolicy(Value, frozen=True):
    """`schedulingPolicy`; where both are set `gang` counts."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class TopologyConstraint(Value, frozen=True):
    """All pods of the group go to nodes with one value of this label."""

    key: str = ""


class PodGroupSchedulingConstraints(Value, frozen=True):
    """`schedulingConstraints`; the API allows one topology."""

    topology: tuple[TopologyConstraint, ...] = ()


class PodGroupTemplate(Value, frozen=True):
    """An entry of `podGroupTemplates` of a Workload."""

    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    disruption_mode: str = ""
    priority_class_name: str = ""
    priority: int | None = None


class SchedulingWorkloadSpec(Value, frozen=True):
    """`spec` of a Workload."""

    pod_group_templates: tuple[PodGroupTemplate, ...] = ()


class SchedulingWorkload(NamespacedObject, frozen=True):
    """A Workload: the templates of its groups. A scheduler does not read it."""

    api_version: str = SCHEDULING_API_VERSION
    spec: SchedulingWorkloadSpec = SchedulingWorkloadSpec()


class WorkloadTemplateReference(Value, frozen=True):
    """`podGroupTemplateRef.workload`: the template that a group was made from."""

    workload_name: str = ""
    pod_group_template_name: str = ""


class PodGroupTemplateReference(Value, frozen=True):
    """`podGroupTemplateRef`."""

    workload: WorkloadTemplateReference | None = None


class SchedulingGroupSpec(Value, frozen=True):
    """`spec` of a PodGroup. disruption_mode: `Pod`, `PodGroup` or "" which counts as `Pod`."""

    pod_group_template_ref: PodGroupTemplateReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    disruption_mode: str = ""
    priority_class_name: str = ""
    priority: int | None = None


class SchedulingGroupCondition(Value, frozen=True):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Time | None = None


class SchedulingGroupStatus(Value, frozen=True):
    """`status` of a PodGroup."""

    conditions: tuple[SchedulingGroupCondition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class SchedulingGroupMeta(ObjectMeta, frozen=True):
    """`metadata` of a PodGroup."""

    generation: int = 0


class SchedulingGroup(NamespacedObject, frozen=True):
    """A PodGroup of Kubernetes itself: pods that name it in `spec.schedulingGroup` are scheduled
    together."""

    metadata: SchedulingGroupMeta = SchedulingGroupMeta()
    api_version: str = SCHEDULING_API_VERSION
    spec: SchedulingGroupSpec = SchedulingGroupSpec()
    status: SchedulingGroupStatus = SchedulingGroupStatus()

    @property
    def uid(self) -> str:
        """`metadata.uid`, its key where absent."""
        return self.metadata.uid or self.key

    @property
    def min_count(self) -> int | None:
        """Pods that a gang needs; None for a group that is no gang."""
        gang = self.spec.scheduling_policy.gang
        return None if gang is None else gang.min_count

    @property
    def topology_key(self) -> str | None:
        """The label whose value all nodes of the group share; None without a constraint."""
        constraints = self.spec.scheduling_constraints
        if constraints is None or not constraints.topology:
            return None
        return constraints.topology[0].key

    @property
    def priority(self) -> int:
        """`spec.priority`, 0 where absent. The queue reads that of the pods."""
        return self.spec.priority or 0


def with_conditions(
    group: SchedulingGroup, conditions: Iterable[PodGroupCondition], observed_generation: int = 0
) -> SchedulingGroup:
    """The group with these conditions, each in place of the one of its type."""
    given = tuple(
        SchedulingGroupCondition(
            one.type,
            one.status,
            one.reason,
            one.message,
            observed_generation,
            one.last_transition_time,
        )
        for one in conditions
    )
    types = {one.type for one in given}
    kept = tuple(one for one in group.status.conditions if one.type not in types)
    return replace(group, status=replace(group.status, conditions=(*kept, *given)))
