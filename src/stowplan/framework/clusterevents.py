"""Cluster events, the events that plugins register for, and their queueing hints.

A plugin that rejects pods lists in `events_to_register` the changes that may make a rejected pod
schedulable, each with a hint: a function of the object before and after the change that decides
whether this pod is requeued. The scheduling queue calls only the hints of the plugins that rejected
a pod.

Source: kube-scheduler v1.36, framework interface types and events.go, scheduler.go
buildQueueingHintMap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING, Any

import msgspec

from stowplan._deprecated import deprecated_names
from stowplan.columns.pods.podinfo import reports_resources
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import pod_requests
from stowplan.objects.quantity import Quantity, exact

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
DEVICE_TAINT_RULE = "resource.k8s.io/DeviceTaintRule"
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
    DEVICE_TAINT_RULE,
    POD_GROUP,
)
"""Every resource that an event can name; custom resources are written `PLURAL.VERSION.GROUP`."""

RESOURCE_OF_KIND = {resource.rpartition("/")[2]: resource for resource in RESOURCES} | {
    "Scv": SCV,
    "SchedulingGroup": POD_GROUP,
}
"""Kind of an object, such as `CSINode` -> resource of its events."""


class Action(IntFlag):
    """Action type of an event, as bits; UPDATE and ALL are unions.

    The order of the bits matters: an event only matches a registration that is not smaller.
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
        """The original's name, such as `UpdateNodeTaint`; "" for other unions."""
        return _TITLES.get(int(self), "")


_TITLES = {
    int(action): "".join(word.capitalize() for word in str(action.name).split("_"))
    for action in [*Action, Action.UPDATE, Action.ALL]
}
ACTION_OF_TITLE = {title: Action(number) for number, title in _TITLES.items()}
"""`UpdateNodeTaint` -> Action.UPDATE_NODE_TAINT, and so on."""


class ClusterEvent(msgspec.Struct, frozen=True, cache_hash=True):
    """A change of an object of a resource. custom_label: replaces the default label."""

    resource: str
    action: Action
    custom_label: str = ""

    @property
    def label(self) -> str:
        """Name in metrics and logs: `NodeAdd`, `AssignedPodUpdatePodLabel`."""
        return self.custom_label or f"{self.resource}{self.action.title}"

    @property
    def is_wildcard(self) -> bool:
        """True for the event that matches every registration."""
        return self.resource == WILDCARD and self.action == Action.ALL


ASSIGNED_POD_ADD = ClusterEvent(ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_POD_ADD = ClusterEvent(UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_UPDATE = ClusterEvent(UNSCHEDULABLE_POD, Action.UPDATE)
ANYTHING = ClusterEvent(WILDCARD, Action.ALL)
UNSCHEDULABLE_TIMEOUT = ClusterEvent(WILDCARD, Action.ALL, "UnschedulableTimeout")
FORCE_ACTIVATE = ClusterEvent(WILDCARD, Action.ALL, "ForceActivate")
CONFIGURATION_CHANGE = ClusterEvent(WILDCARD, Action.ALL, "ConfigurationChange")


def event_matches(registered: ClusterEvent, incoming: ClusterEvent) -> bool:
    """True when an incoming event matches a registered one.

    A registration of Pod matches events of assigned and of unschedulable pods. A registered UPDATE
    matches every specific update; a specific one does not match a plain UPDATE.
    """
    if registered.is_wildcard:
        return True
    same = registered.resource in (WILDCARD, incoming.resource) or (
        registered.resource == POD and incoming.resource in (ASSIGNED_POD, UNSCHEDULABLE_POD)
    )
    wanted, happened = int(registered.action), int(incoming.action)
    return same and wanted & happened != 0 and happened <= wanted


class QueueingHint(IntEnum):
    """Result of a hint: leave the pod where it is, or requeue it."""

    SKIP = 0
    QUEUE = 1

    @property
    def title(self) -> str:
        """The original's name."""
        return "Queue" if self else "QueueSkip"


QUEUE_SKIP = QueueingHint.SKIP
QUEUE_POD = QueueingHint.QUEUE

QueueingHintFn = Callable[[Pod, Any, Any], QueueingHint]
"""(pod, object before or None, object after or None) -> whether the change may make the pod
schedulable.

When uncertain, a hint returns QUEUE: a needless attempt costs little, a missed one leaves the pod
unschedulable.
"""


class EventKeys(msgspec.Struct, frozen=True):
    """What a change and a pod have in common where the change may concern the pod, so that the hint
    is not asked about all others.

    of_change: the key of a change, given the object before and after; None where it may concern any
    pod. of_pod: the keys of a pod; a function of the pod alone, the same for all instances of the
    plugin.
    """

    of_change: Callable[[Any, Any], Hashable | None]
    of_pod: Callable[[Pod], Iterable[Hashable]]


class ClusterEventWithHint(msgspec.Struct, frozen=True):
    """An event that a plugin registers for; without a hint every such event requeues the pod.
    keys: pods without the key of a change are left where they are."""

    event: ClusterEvent
    hint: QueueingHintFn | None = None
    keys: EventKeys | None = None


RegisteredEvents = tuple[ClusterEventWithHint, ...]


def on(
    resource: str,
    action: Action,
    hint: QueueingHintFn | None = None,
    keys: EventKeys | None = None,
) -> ClusterEventWithHint:
    """Shorthand for a registration."""
    return ClusterEventWithHint(ClusterEvent(resource, action), hint, keys)


EVERY_EVENT: RegisteredEvents = tuple(
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
"""Registration of a plugin that can reject pods and has no `events_to_register`."""


def with_node_taint_events(events: Iterable[ClusterEventWithHint]) -> RegisteredEvents:
    """`events`, with UpdateNodeTaint added where they contain Node/Add but not it.

    A workaround of the original for a defect that it has fixed since; its queue still applies it,
    so pods are requeued by it.
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
    """The events that a pod update consists of, in the original's order.

    A single plain UPDATE where nothing specific changed. Differs:
    `status.extendedResourceClaimStatus` is not read.
    """
    found = []
    if old.labels != new.labels:
        found.append(Action.UPDATE_POD_LABEL)
    if _is_scaled_down(old, new):
        found.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        found.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    # The API only lets tolerations be added, so comparing their number is enough.
    if len(old.tolerations) != len(new.tolerations):
        found.append(Action.UPDATE_POD_TOLERATION)
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        found.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    resource = ASSIGNED_POD if new.node_name else UNSCHEDULABLE_POD
    return tuple(ClusterEvent(resource, action) for action in found or [Action.UPDATE])


def _is_scaled_down(old: Pod, new: Pod) -> bool:
    """True when a request became smaller or was removed.

    Differs: quantities are compared in base units; the original compares bytes and counts in
    thousandths too.
    """
    if old.spec == new.spec and not (reports_resources(old) or reports_resources(new)):
        return False
    left = pod_requests(new, use_status=True)
    asked = pod_requests(old, use_status=True)
    return any(name not in left or amount > left[name] for name, amount in asked.items())


def node_update_events(old: Node, new: Node) -> tuple[ClusterEvent, ...]:
    """The events that a node update consists of, in the original's order; often none."""
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
    """True for the same resources with equal quantities, however they are written."""
    if old == new:
        return True
    if old.keys() != new.keys():
        return False
    pairs = ((exact(old[name]), exact(new[name])) for name in old if old[name] != new[name])
    return not any(before > after or after > before for before, after in pairs)


def event_labels(events: Sequence[ClusterEvent]) -> list[str]:
    """Labels of the events, in the same order."""
    return [event.label for event in events]


_OLD_NAMES = {
    "EventWithHint": "ClusterEventWithHint",
    "Hint": "QueueingHintFn",
    "SKIP_POD": "QUEUE_SKIP",
    "labels_of": "event_labels",
    "matches": "event_matches",
    "node_changes": "node_update_events",
    "pod_changes": "pod_update_events",
}
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
