"""Pod groups and queues, for gang scheduling and fair sharing.

Three API groups define the same kinds: kube-batch's two and Volcano's. The fields here are those
that all of them have, and those of current queues that are supported.

Source: kube-batch v0.5, apis/scheduling; volcano.sh/apis, scheduling/v1beta1.
"""

from __future__ import annotations

from msgspec import field

from stowplan.objects.meta import NamespacedObject, Object, Time, Value
from stowplan.objects.quantity import Quantity

VOLCANO_API_VERSION = "scheduling.volcano.sh/v1beta1"
GROUP_API_VERSIONS = (
    "scheduling.incubator.k8s.io/v1alpha1",
    "scheduling.sigs.dev/v1alpha2",
    VOLCANO_API_VERSION,
)
"""apiVersions of PodGroup and Queue."""

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""Annotations that name a pod's group; the first non-empty one counts."""

UNSCHEDULABLE = "Unschedulable"


class PodGroupSpec(Value, frozen=True):
    """`spec` of a PodGroup."""

    min_member: int = 0
    queue: str = ""
    priority_class_name: str = ""


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


class QueueSpec(Value, frozen=True):
    """`spec` of a Queue. reclaimable: False forbids reclaim by others; Volcano only."""

    weight: int = 0
    capability: dict[str, Quantity] = {}
    reclaimable: bool | None = None


class QueueStatus(Value, frozen=True):
    """`status` of a Queue. state: Open, Closing or Closed; Volcano only."""

    state: str = ""


class Queue(Object, frozen=True):
    """A Queue: groups share the cluster by the weights of their queues."""

    api_version: str = GROUP_API_VERSIONS[0]
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()
