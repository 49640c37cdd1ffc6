"""Cluster events: what changed, which plugins asked to hear of it, and what they make of it.

A plugin that refuses pods says in `events_to_register` which changes can turn its refusal, each
with a hint: a function that looks at the object before and after the change and says whether
this pod is worth another attempt. The scheduling queue asks the hints of the plugins that refused
a pod, and of no others.

Source: kube-scheduler v1.36, framework interface types and events.go, scheduler.go
buildQueueingHintMap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum, IntFlag
from typing import Any

import msgspec

from stowplan.columns.pods.podinfo import reports_resources
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import Quantity, exact
from stowplan.objects.requests import pod_requests

POD = "Pod"
ASSIGNED_POD = "AssignedPod"
UNSCHEDULABLE_POD = "UnschedulablePod"
NODE = "Node"
PERSISTENT_VOLUME = "PersistentVolume"
PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
STORAGE_CLASS = "storage.k8s.io/StorageClass"
CSI_NODE = "storage.k8s.io/CSINode"
CSI_DRIVER = "storage.k8s.io/CSIDriver"
CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
DEVICE_CLASS = "resource.k8s.io/DeviceClass"
POD_GROUP = "scheduling.k8s.io/PodGroup"
SCV = "scvs.v1.core.run-linux.com"
WILDCARD = "*"

RESOURCES = (
    POD,
    ASSIGNED_POD,
    UNSCHEDULABLE_POD,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    CSI_NODE,
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    DEVICE_CLASS,
    POD_GROUP,
)
"""Every resource that an event may name; custom resources are written `PLURAL.VERSION.GROUP`."""

RESOURCE_OF_KIND = {resource.rpartition("/")[2]: resource for resource in RESOURCES} | {"Scv": SCV}
"""Kind of an object, such as `CSINode` -> the resource that its events name."""


class Action(IntFlag):
    """What happened to an object, as bits; UPDATE and ALL are unions.

    The order of the bits counts: an event only matches a registration that is not smaller.
    """

    ADD = 1 << 0
    DELETE = 1 << 1
    UPDATE_NODE_ALLOCATABLE = 1 << 2
    UPDATE_NODE_LABEL = 1 << 3
    UPDATE_NODE_TAINT = 1 << 4
    UPDATE_NODE_CONDITION = 1 << 5
    UPDATE_NODE_ANNOTATION = 1 << 6
    UPDATE_NODE_DECLARED_FEATURE = 1 << 7
    UPDATE_POD_LABEL = 1 << 8
    UPDATE_POD_SCALE_DOWN = 1 << 9
    UPDATE_POD_TOLERATION = 1 << 10
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 1 << 11
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 1 << 12
    UPDATE = (1 << 13) - 1 - 0b11
    ALL = (1 << 13) - 1

    @property
    def title(self) -> str:
        """The original's spelling, `UpdateNodeTaint` for one; "" for other unions."""
        return _TITLES.get(int(self), "")


_TITLES = {
    int(action): "".join(word.capitalize() for word in str(action.name).split("_"))
    for action in [*Action, Action.UPDATE, Action.ALL]
}
ACTION_OF_TITLE = {title: Action(number) for number, title in _TITLES.items()}
"""`UpdateNodeTaint` -> Action.UPDATE_NODE_TAINT, and so on."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """A change of some object of a resource; custom_label: shown in place of the usual label."""

    resource: str
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """How metrics and logs name the event: `NodeAdd`, `AssignedPodUpdatePodLabel`."""
        return self.custom_label or f"{self.resource}{self.action.title}"

    @property
    def is_wildcard(self) -> bool:
        """True for an event that may help every pod."""
        return self.resource == WILDCARD and self.action == Action.ALL


ASSIGNED_POD_ADD = ClusterEvent(ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_POD_ADD = ClusterEvent(UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(UNSCHEDULABLE_POD, Action.UPDATE)
ANYTHING = ClusterEvent(WILDCARD, Action.ALL)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(WILDCARD, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent(WILDCARD, Action.ALL, "ForceActivate")


def event_matches(registered: ClusterEvent, incoming: ClusterEvent) -> bool:
    """True when an event that happened is one that somebody registered for.

    A registration of Pod hears of assigned and of unschedulable pods. A registered UPDATE hears
    of every special update, but a special one does not hear of a plain UPDATE.
    """
    if registered.is_wildcard:
        return True
    same = registered.resource in (WILDCARD, incoming.resource) or (
        registered.resource == POD and incoming.resource in (ASSIGNED_POD, UNSCHEDULABLE_POD)
    )
    wanted, happened = int(registered.action), int(incoming.action)
    return same and wanted & happened != 0 and happened <= wanted


class QueueingHint(IntEnum):
    """What a hint says: leave the pod where it is, or try it again."""

    SKIP = 0
    QUEUE = 1

    @property
    def title(self) -> str:
        """The original's spelling."""
        return "Queue" if self else "QueueSkip"


QUEUE_SKIP = QueueingHint.SKIP
QUEUE_POD = QueueingHint.QUEUE

QueueingHintFn = Callable[[Pod, Any, Any], QueueingHint]
"""(pod, object before or None, object after or None) -> whether the change may help the pod.

In doubt a hint says QUEUE: a needless attempt costs little, a missed one leaves a pod parked.
"""


class ClusterEventWithHint(msgspec.Struct, frozen=True):
    """What a plugin registers; without a hint every such event is worth another attempt."""

    event: ClusterEvent
    hint: QueueingHintFn | None = None


def on(resource: str, action: Action, hint: QueueingHintFn | None = None) -> ClusterEventWithHint:
    """A registration, spelt short."""
    return ClusterEventWithHint(ClusterEvent(resource, action), hint)


EVERY_EVENT: tuple[ClusterEventWithHint, ...] = tuple(
    on(resource, Action.ALL)
    for resource in (
        POD,
        NODE,
        PERSISTENT_VOLUME,
        PERSISTENT_VOLUME_CLAIM,
        CSI_NODE,
        CSI_DRIVER,
        CSI_STORAGE_CAPACITY,
        STORAGE_CLASS,
        RESOURCE_CLAIM,
        DEVICE_CLASS,
    )
)
"""What a plugin hears that can refuse pods and registers nothing itself."""


def with_node_taint_events(
    events: Iterable[ClusterEventWithHint],
) -> tuple[ClusterEventWithHint, ...]:
    """`events`, and every UpdateNodeTaint where they ask for Node/Add but not for that.

    The rule is the original's remedy for a fault that it has mended since; its queue still
    follows it, so pods wake up by it.
    """
    asked = tuple(events)
    of_nodes = Action(0)
    for one in asked:
        if one.event.resource == NODE:
            of_nodes |= one.event.action
    if Action.ADD in of_nodes and Action.UPDATE_NODE_TAINT not in of_nodes:
        return (*asked, on(NODE, Action.UPDATE_NODE_TAINT))
    return asked


def pod_update_events(old: Pod, new: Pod) -> tuple[ClusterEvent, ...]:
    """The events that an update of a pod stands for, in the original's order.

    Where nothing special changed it is one plain UPDATE.
    Differs: `status.extendedResourceClaimStatus` is not read.
    """
    found = []
    if old.labels != new.labels:
        found.append(Action.UPDATE_POD_LABEL)
    if _is_scaled_down(old, new):
        found.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        found.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    # The API lets tolerations be added only, so the number tells.
    if len(old.tolerations) != len(new.tolerations):
        found.append(Action.UPDATE_POD_TOLERATION)
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        found.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    resource = ASSIGNED_POD if new.node_name else UNSCHEDULABLE_POD
    return tuple(ClusterEvent(resource, action) for action in found or [Action.UPDATE])


def _is_scaled_down(old: Pod, new: Pod) -> bool:
    """True when some request shrank or vanished.

    Differs: amounts are compared in base units, where the original compares thousandths of
    bytes and counts too.
    """
    if old.spec == new.spec and not (reports_resources(old) or reports_resources(new)):
        return False
    left = pod_requests(new, use_status=True)
    asked = pod_requests(old, use_status=True)
    return any(name not in left or amount > left[name] for name, amount in asked.items())


def node_update_events(old: Node, new: Node) -> tuple[ClusterEvent, ...]:
    """The events that an update of a node stands for, in the original's order; often none."""
    found = []
    if old.spec.unschedulable and not new.spec.unschedulable:
        found.append(Action.UPDATE_NODE_TAINT)
    if not _same_quantities(old.status.allocatable, new.status.allocatable):
        found.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.labels != new.labels:
        found.append(Action.UPDATE_NODE_LABEL)
    if old.taints != new.taints:
        found.append(Action.UPDATE_NODE_TAINT)
    if _condition_states(old) != _condition_states(new):
        found.append(Action.UPDATE_NODE_CONDITION)
    if old.metadata.annotations != new.metadata.annotations:
        found.append(Action.UPDATE_NODE_ANNOTATION)
    if old.status.declared_features != new.status.declared_features:
        found.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return tuple(ClusterEvent(NODE, action) for action in found)


def _condition_states(node: Node) -> dict[str, str]:
    return {c.type: c.status for c in node.status.conditions}


def _same_quantities(old: dict[str, Quantity], new: dict[str, Quantity]) -> bool:
    """True for the same resources with equal amounts, however they are written."""
    if old == new:
        return True
    if old.keys() != new.keys():
        return False
    pairs = ((exact(old[name]), exact(new[name])) for name in old if old[name] != new[name])
    return not any(before > after or after > before for before, after in pairs)


def event_labels(events: Sequence[ClusterEvent]) -> list[str]:
    """Their labels, in the same order."""
    return [event.label for event in events]
