"""Pod groups and queues, for gang scheduling and fair sharing.

Three API groups define the same kinds: kube-batch's two and Volcano's. The fields here are those
that all of them have, and those of current queues that are supported.

Source: kube-batch v0.5, apis/scheduling; volcano.sh/apis, scheduling/v1beta1.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import NamespacedObject, Object, Time, Value
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import LabelSelector

VOLCANO_API_VERSION = "scheduling.volcano.sh/v1beta1"
GROUP_API_VERSIONS = (
    "scheduling.incubator.k8s.io/v1alpha1",
    "scheduling.sigs.dev/v1alpha2",
    VOLCANO_API_VERSION,
)
"""apiVersions of PodGroup and Queue."""

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations that name a pod's group; the first non-empty one counts."""

VOLCANO_QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
"""Annotation that names the queue of a pod without a group."""

UNSCHEDULABLE = "Unschedulable"


HARD_TOPOLOGY, SOFT_TOPOLOGY = "hard", "soft"
"""`mode` of a network topology."""


class NetworkTopology(Value, frozen=True):
    """`networkTopology`: how far apart in the network pods may be placed; Volcano only."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Value, frozen=True, gc=True):
    """An entry of `spec.subGroupPolicy`: how pods form sub-groups; Volcano only."""

    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Value, frozen=True, gc=True):
    """`spec` of a PodGroup. min_task_member, min_resources, network_topology, sub_group_policy:
    Volcano only."""

    min_member: int = 0
    queue: str = ""
    priority_class_name: str = ""
    min_task_member: dict[str, int] = {}
    min_resources: dict[str, Quantity] | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupCondition(Value, frozen=True):
    """An entry of `status.conditions`. transition_id: of the session that wrote it."""

    type: str = ""
    status: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class PodGroupStatus(Value, frozen=True):
    """`status` of a PodGroup."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(NamespacedObject, frozen=True):
    """A PodGroup: at least `minMember` of its pods run, or none."""

    api_version: str = GROUP_API_VERSIONS[0]
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class QueueGuarantee(Value, frozen=True):
    """`guarantee` of a Queue; Volcano only."""

    resource: dict[str, Quantity] = {}


class NodeGroups(Value, frozen=True):
    """Names of node groups that a queue must use, or avoid, and those that it had better."""

    required: tuple[str, ...] = field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[str, ...] = field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class QueueAffinity(Value, frozen=True):
    """`affinity` of a Queue; Volcano only."""

    node_group_affinity: NodeGroups | None = None
    node_group_anti_affinity: NodeGroups | None = None


class QueueSpec(Value, frozen=True):
    """`spec` of a Queue. reclaimable: False forbids reclaim by others. All but weight and
    capability: Volcano only."""

    weight: int = 0
    capability: dict[str, Quantity] = {}
    reclaimable: bool | None = None
    deserved: dict[str, Quantity] = {}
    guarantee: QueueGuarantee = QueueGuarantee()
    parent: str = ""
    priority: int = 0
    affinity: QueueAffinity | None = None


class QueueStatus(Value, frozen=True):
    """`status` of a Queue. state: Open, Closing or Closed. allocated: requests of the placed pods.
    Both: Volcano only."""

    state: str = ""
    allocated: dict[str, Quantity] = {}


class Queue(Object, frozen=True):
    """A Queue: groups share the cluster by the weights of their queues."""

    api_version: str = GROUP_API_VERSIONS[0]
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
