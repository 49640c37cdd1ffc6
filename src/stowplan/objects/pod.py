"""Pods, with the fields that scheduling reads.

Source: Kubernetes core/v1 API, v1.36.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import NamespacedObject, Time, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import LabelSelector, NodeSelector, PreferredSchedulingTerm
from stowplan.objects.volume import Volume

DEFAULT_SCHEDULER = "default-scheduler"


class ResourceClaimUse(Value, frozen=True):
    """An entry of a container's `resources.claims`."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Value, frozen=True):
    """`resources` of a container or of a pod; quantities unparsed, see `quantity`."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(Value, frozen=True):
    """An entry of a container's `ports`."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class ContainerRestartRule(Value, frozen=True):
    """An entry of a container's `restartPolicyRules`."""

    action: str = ""


class Container(Value, frozen=True):
    """A container, init container or sidecar (an init container with restartPolicy Always)."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()

    @property
    def is_sidecar(self) -> bool:
        """True for an init container that runs beside the regular containers."""
        return self.restart_policy == "Always"


class Toleration(Value, frozen=True):
    """An entry of `spec.tolerations`."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeAffinity(Value, frozen=True):
    """`affinity.nodeAffinity`."""

    required: NodeSelector | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Value, frozen=True):
    """One term of pod affinity or anti-affinity.

    `matchLabelKeys` and `mismatchLabelKeys` are left out: the API server merges them into
    `labelSelector` before a scheduler sees the pod.
    """

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class WeightedPodAffinityTerm(Value, frozen=True):
    """A preferred term and its weight."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Value, frozen=True):
    """`affinity.podAffinity` or `affinity.podAntiAffinity`: the two have the same shape."""

    required: tuple[PodAffinityTerm, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Value, frozen=True):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Value, frozen=True):
    """An entry of `spec.topologySpreadConstraints`."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class PodSchedulingGate(Value, frozen=True):
    """An entry of `spec.schedulingGates`."""

    name: str = ""


class PodResourceClaim(Value, frozen=True):
    """An entry of `spec.resourceClaims`: a claim by name, or the template of one."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Value, frozen=True):
    """`schedulingGroup`: the group that the pod is scheduled with, in its namespace.

    The API server refuses one without a name.
    """

    pod_group_name: str | None = None


class PodSpec(Value, frozen=True, dict=True, gc=True):
    """`spec` of a pod. Pods of one template may share one PodSpec object."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = DEFAULT_SCHEDULER
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    scheduling_group: PodSchedulingGroup | None = None


class PodCondition(Value, frozen=True):
    """An entry of `status.conditions`."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class ContainerRunning(Value, frozen=True):
    """`running` of a container's state."""

    started_at: Time | None = None


class ContainerTerminated(Value, frozen=True):
    """`terminated` of a container's state."""

    finished_at: Time | None = None


class ContainerState(Value, frozen=True):
    """`state` of a container; waiting is not read."""

    running: ContainerRunning | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(Value, frozen=True):
    """Status of a container: since when it runs, and its resources for resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] = {}
    state: ContainerState | None = None


class PodResourceClaimStatus(Value, frozen=True):
    """The claim that was generated for an entry of `spec.resourceClaims`."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Value, frozen=True):
    """`status` of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] = ()
    nominated_node_name: str = ""
    start_time: Time | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, Quantity] = {}
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    qos_class: str = ""


FINISHED_PHASES = ("Succeeded", "Failed")
"""All containers have terminated."""


class Pod(NamespacedObject, frozen=True):
    """A pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> str:
        """`metadata.uid`, or `NAMESPACE/NAME` where absent."""
        return self.metadata.uid or self.key

    @property
    def node_name(self) -> str:
        """The node the pod is bound to, or ""."""
        return self.spec.node_name

    @property
    def priority(self) -> int:
        """`spec.priority`; 0 where absent."""
        return self.spec.priority or 0

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """`spec.tolerations`."""
        return self.spec.tolerations

    @property
    def is_finished(self) -> bool:
        """True when all containers have terminated: the pod uses no resources of its node."""
        return self.status.phase in FINISHED_PHASES
