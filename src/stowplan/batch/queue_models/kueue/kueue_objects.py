"""Objects of Kueue: ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload and others.

Only fields that decide about quota. Defaults are those with which Kueue reads absent fields.

Source: Kueue `main` of 2026-08-22, API kueue.x-k8s.io/v1beta2.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import Object, Time, Value
from stowplan.objects.node import Taint
from stowplan.objects.pod import PodSpec, Toleration
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import LabelSelector

NEVER = "Never"
BY_USAGE, NOT_BY_USAGE = "UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"
"""Modes of an admission scope."""
ZERO_TIME = -62135596800.0
"""Seconds since 1970 of a time that is absent (year 1)."""


def seconds(time: Time | None) -> float:
    """A timestamp in seconds since 1970; ZERO_TIME if absent."""
    return ZERO_TIME if time is None else time.timestamp()


class ResourceQuotaValue(Value, frozen=True):
    """Quota of one resource in one flavor; absent limits are unlimited."""

    name: str = ""
    nominal_quota: Quantity = 0
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Value, frozen=True):
    """Quotas of one flavor."""

    name: str = ""
    resources: tuple[ResourceQuotaValue, ...] = ()


class KueueResourceGroup(Value, frozen=True):
    """Resources that are given in the same flavors, in the order in which they are tried."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()

    @property
    def flavor_names(self) -> list[str]:
        """Names of the flavors, in order."""
        return [one.name for one in self.flavors]


class BorrowWithinCohort(Value, frozen=True):
    """Preemption of others while borrowing."""

    policy: str = NEVER
    max_priority_threshold: int | None = None


class ClusterQueuePreemption(Value, frozen=True):
    """Whom workloads of a queue may preempt.

    A policy that is absent beside others permits no victim, but is not Never to Kueue's code: with
    fair sharing it lets preemption be tried while borrowing. (The API server fills in Never.)
    """

    within_cluster_queue: str = ""
    reclaim_within_cohort: str = ""
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort()


class FlavorFungibility(Value, frozen=True):
    """When the next flavor is tried."""

    when_can_borrow: str = "MayStopSearch"
    when_can_preempt: str = "TryNextFlavor"
    preference: str = "BorrowingOverPreemption"


class AdmissionCheckRule(Value, frozen=True):
    """A check of a queue; without flavors it holds for all."""

    name: str = ""
    on_flavors: tuple[str, ...] = ()


class AdmissionChecksStrategy(Value, frozen=True):
    """Checks of a queue."""

    admission_checks: tuple[AdmissionCheckRule, ...] = ()


class KueueFairSharing(Value, frozen=True):
    """Weight of a queue or cohort; 1 if absent."""

    weight: Quantity | None = None


class AdmissionScope(Value, frozen=True):
    """Whether the usage of LocalQueues orders the workloads of a queue."""

    admission_mode: str = ""


class KueueClusterQueueSpec(Value, frozen=True):
    """`spec` of a ClusterQueue."""

    cohort_name: str = ""
    resource_groups: tuple[KueueResourceGroup, ...] = ()
    namespace_selector: LabelSelector | None = None
    queueing_strategy: str = "BestEffortFIFO"
    preemption: ClusterQueuePreemption = ClusterQueuePreemption(NEVER, NEVER)
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: str | None = None
    fair_sharing: KueueFairSharing | None = None
    admission_scope: AdmissionScope | None = None


class KueueClusterQueue(Object, frozen=True):
    """A ClusterQueue."""

    spec: KueueClusterQueueSpec = KueueClusterQueueSpec()


class CohortSpec(Value, frozen=True):
    """`spec` of a Cohort."""

    parent_name: str = ""
    resource_groups: tuple[KueueResourceGroup, ...] = ()
    fair_sharing: KueueFairSharing | None = None


class Cohort(Object, frozen=True):
    """A Cohort."""

    spec: CohortSpec = CohortSpec()


class LocalQueueSpec(Value, frozen=True):
    """`spec` of a LocalQueue."""

    cluster_queue: str = ""
    stop_policy: str | None = None
    fair_sharing: KueueFairSharing | None = None


class AdmissionFairSharingStatus(Value, frozen=True):
    """What a LocalQueue has used, decayed."""

    consumed_resources: dict[str, Quantity] = {}


class LocalQueueFairSharingStatus(Value, frozen=True):
    """`status.fairSharing` of a LocalQueue."""

    admission_fair_sharing_status: AdmissionFairSharingStatus = AdmissionFairSharingStatus()


class LocalQueueStatus(Value, frozen=True):
    """`status` of a LocalQueue."""

    fair_sharing: LocalQueueFairSharingStatus = LocalQueueFairSharingStatus()


class LocalQueue(Object, frozen=True):
    """A LocalQueue."""

    spec: LocalQueueSpec = LocalQueueSpec()
    status: LocalQueueStatus = LocalQueueStatus()


class ResourceFlavorSpec(Value, frozen=True):
    """`spec` of a ResourceFlavor."""

    node_labels: dict[str, str] = {}
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None


class ResourceFlavor(Object, frozen=True):
    """A ResourceFlavor."""

    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class TopologyLevel(Value, frozen=True):
    """A level of a topology."""

    node_label: str = ""


class TopologySpec(Value, frozen=True):
    """`spec` of a Topology; the widest level is first."""

    levels: tuple[TopologyLevel, ...] = ()


class Topology(Object, frozen=True):
    """A Topology."""

    spec: TopologySpec = TopologySpec()


class KueueCondition(Value, frozen=True):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: Time | None = None


class AdmissionCheckSpec(Value, frozen=True):
    """`spec` of an AdmissionCheck."""

    controller_name: str = ""


class AdmissionCheckStatus(Value, frozen=True):
    """`status` of an AdmissionCheck."""

    conditions: tuple[KueueCondition, ...] = ()


class AdmissionCheck(Object, frozen=True):
    """An AdmissionCheck."""

    spec: AdmissionCheckSpec = AdmissionCheckSpec()
    status: AdmissionCheckStatus = AdmissionCheckStatus()

    @property
    def is_active(self) -> bool:
        """Whether its controller has declared it active."""
        return any(c.type == "Active" and c.status == "True" for c in self.status.conditions)


class SliceConstraint(Value, frozen=True):
    """Groups of `size` pods share a domain of the level `topology`."""

    topology: str = ""
    size: int = 0


class PodSetTopologyRequest(Value, frozen=True):
    """Where the pods of a pod set may be, relative to each other."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: tuple[SliceConstraint, ...] = ()
    pod_set_group_name: str | None = None

    @property
    def slices(self) -> tuple[SliceConstraint, ...]:
        """Slices, the widest first."""
        if self.podset_slice_required_topology_constraints:
            return self.podset_slice_required_topology_constraints
        if self.pod_set_slice_required_topology is None:
            return ()
        return (
            SliceConstraint(self.pod_set_slice_required_topology, self.pod_set_slice_size or 0),
        )

    @property
    def is_explicit(self) -> bool:
        """Whether it asks for a place at all."""
        return (
            self.unconstrained is not None
            or self.required is not None
            or self.preferred is not None
            or bool(self.slices)
        )


class KueuePodTemplate(Value, frozen=True, gc=True):
    """`template` of a pod set."""

    spec: PodSpec = PodSpec()


class PodSet(Value, frozen=True, gc=True):
    """Equal pods of a workload."""

    name: str = "main"
    count: int = 1
    min_count: int | None = None
    template: KueuePodTemplate = KueuePodTemplate()
    topology_request: PodSetTopologyRequest | None = None


class PreemptionGate(Value, frozen=True):
    """`spec.preemptionGates[]`."""

    name: str = ""


class KueueWorkloadSpec(Value, frozen=True, gc=True):
    """`spec` of a Workload."""

    queue_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()
    priority: int | None = None
    active: bool | None = None
    preemption_gates: tuple[PreemptionGate, ...] = ()


class PodSetAdmission(Value, frozen=True, gc=True):
    """`status.admission.podSetAssignments[]`; the topology as it is written, see
    `topology_slices`."""

    name: str = "main"
    flavors: dict[str, str] = {}
    resource_usage: dict[str, Quantity] = {}
    count: int | None = None
    topology_assignment: TopologyAssignmentValue | None = None
    delayed_topology_request: str | None = None


class TopologyUniversalValue(Value, frozen=True):
    """One value for all domains of a slice, or one each."""

    universal: str | None = None
    individual: TopologyIndividualValues | None = None


class TopologyIndividualValues(Value, frozen=True):
    """Values of a level, one per domain, with what they have in common left out."""

    prefix: str = ""
    suffix: str = ""
    roots: tuple[str, ...] = ()


class TopologyPodCounts(Value, frozen=True):
    """Numbers of pods per domain."""

    universal: int | None = None
    individual: tuple[int, ...] = ()


class TopologySlice(Value, frozen=True):
    """Domains of an assignment, in columns."""

    domain_count: int = 0
    pod_counts: TopologyPodCounts = TopologyPodCounts()
    values_per_level: tuple[TopologyUniversalValue, ...] = ()


class TopologyAssignmentValue(Value, frozen=True):
    """`topologyAssignment`."""

    levels: tuple[str, ...] = ()
    slices: tuple[TopologySlice, ...] = ()

    def domains(self) -> list[tuple[tuple[str, ...], int]]:
        """Values of each domain, the widest level first, and its number of pods."""
        found = []
        for one in self.slices:
            for i in range(one.domain_count):
                values = tuple(_value_at(level, i) for level in one.values_per_level)
                counts = one.pod_counts
                count = counts.individual[i] if counts.universal is None else counts.universal
                found.append((values, count))
        return found


def _value_at(level: TopologyUniversalValue, i: int) -> str:
    if level.universal is not None:
        return level.universal
    held = level.individual or TopologyIndividualValues()
    return f"{held.prefix}{held.roots[i]}{held.suffix}"


class WorkloadAdmission(Value, frozen=True, gc=True):
    """`status.admission`."""

    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAdmission, ...] = ()


class PodSetUpdate(Value, frozen=True, gc=True):
    """What a check adds to the pods of a pod set."""

    name: str = ""
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class AdmissionCheckState(Value, frozen=True, gc=True):
    """State of a check for a workload: Pending, Ready, Retry or Rejected."""

    name: str = ""
    state: str = ""
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class ReclaimablePods(Value, frozen=True):
    """Pods of a pod set whose quota is no longer needed."""

    name: str = ""
    count: int = 0


class RequeueState(Value, frozen=True):
    """`status.requeueState`."""

    requeue_at: Time | None = None


class UnhealthyNode(Value, frozen=True):
    """`status.unhealthyNodes[]`."""

    name: str = ""


class KueueWorkloadStatus(Value, frozen=True, gc=True):
    """`status` of a Workload."""

    admission: WorkloadAdmission | None = None
    conditions: tuple[KueueCondition, ...] = ()
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    reclaimable_pods: tuple[ReclaimablePods, ...] = ()
    requeue_state: RequeueState | None = None
    unhealthy_nodes: tuple[UnhealthyNode, ...] = ()


class Workload(Object, frozen=True, gc=True):
    """A Workload: what a job asks quota for."""

    spec: KueueWorkloadSpec = KueueWorkloadSpec()
    status: KueueWorkloadStatus = KueueWorkloadStatus()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class KueueNamespace(Object, frozen=True):
    """A namespace, for its labels."""


class KueueLimits(Value, frozen=True):
    """An entry of `spec.limits` of a LimitRange."""

    type: str = ""
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}


class KueueLimitRangeSpec(Value, frozen=True):
    """`spec` of a LimitRange."""

    limits: tuple[KueueLimits, ...] = ()


class KueueLimitRange(Object, frozen=True):
    """A LimitRange."""

    spec: KueueLimitRangeSpec = field(default_factory=KueueLimitRangeSpec)
