"""Queueing hints of NodeResourcesFit: were resources freed, and are they enough for the pod.

Source: kube-scheduler v1.36, plugins/noderesources/fit.go; dynamic-resource-allocation
extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.framework import ObjectStore
from stowplan.framework.clusterevents import (
    DEVICE_CLASS,
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.objects.devices.device import DEVICE_CLASS_PREFIX, DeviceClass
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import is_scalar, pod_requests, requested
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint

RequestedResourcesOf = Callable[[Pod], tuple[tuple[str, int], ...]]
"""(resource, amount in base units) of a pod's requests, every amount above 0."""


def fit_events(
    wanted: RequestedResourcesOf, object_store: Callable[[], ObjectStore], *, devices: bool
) -> RegisteredEvents:
    """Events that NodeResourcesFit registers.

    object_store: the current one, for its device classes. devices: whether a class may provide an
    extended resource (a feature gate).
    """

    def delegated(resource: str) -> bool:
        return devices and is_scalar(resource) and _has_class(resource, object_store())

    def after_node(pod: Pod, old: Node | None, new: Node) -> QueueingHint:
        offered = allocatable_amounts(new)
        if not _fits_empty_node(wanted(pod), offered, delegated):
            return QUEUE_SKIP
        if old is None:
            return QUEUE_POD
        return queueing_hint(
            _has_more_allocatable(wanted(pod), allocatable_amounts(old), offered, delegated)
        )

    events = (
        on(POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, after_pod_freed),
        on(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, after_node),
    )
    if not devices:
        return events
    return (*events, on(DEVICE_CLASS, Action.ADD | Action.UPDATE, after_device_class))


def after_pod_freed(pod: Pod, old: Pod, new: Pod | None) -> QueueingHint:
    """An assigned pod was deleted; a bound pod, or the pod itself, was scaled down."""
    if new is None:
        return queueing_hint(is_assigned_or_nominated(old))
    if new.uid == pod.uid:
        return QUEUE_POD
    if not new.node_name:
        return QUEUE_SKIP
    before, after = requested(old), requested(new)
    return queueing_hint(
        any(
            before.get(name, 0) > after.get(name, 0)
            for name, amount in requested(pod).items()
            if amount != 0
        )
    )


def after_device_class(pod: Pod, old: DeviceClass | None, new: DeviceClass) -> QueueingHint:
    """A device class now provides an extended resource that the pod requests."""
    named = new.spec.extended_resource_name
    asked = pod_requests(pod, use_status=False)
    if old is None:
        if DEVICE_CLASS_PREFIX + new.name in asked:
            return QUEUE_POD
    elif (old.spec.extended_resource_name or "") == (named or ""):
        return QUEUE_SKIP
    return queueing_hint(named is not None and named in asked)


def _has_class(resource: str, object_store: ObjectStore) -> bool:
    """True when a device class provides the resource, by its name or its `extendedResourceName`."""
    if resource.startswith(DEVICE_CLASS_PREFIX):
        name = resource.removeprefix(DEVICE_CLASS_PREFIX)
        if object_store.find(DeviceClass, name) is not None:
            return True
    return any(one.spec.extended_resource_name == resource for one in object_store.all(DeviceClass))


def _fits_empty_node(
    wanted: tuple[tuple[str, int], ...],
    offered: dict[str, int],
    delegated: Callable[[str], bool],
) -> bool:
    """True when the pod would fit on the empty node."""
    return offered.get("pods", 0) >= 1 and all(
        amount <= offered.get(name, 0) or (offered.get(name, 0) <= 0 and delegated(name))
        for name, amount in wanted
    )


def _has_more_allocatable(
    wanted: tuple[tuple[str, int], ...],
    before: dict[str, int],
    after: dict[str, int],
    delegated: Callable[[str], bool],
) -> bool:
    """True when the node has more of a resource that the pod requests, or more pod slots."""
    return after.get("pods", 0) > before.get("pods", 0) or any(
        after.get(name, 0) > before.get(name, 0) or (after.get(name, 0) <= 0 and delegated(name))
        for name, _ in wanted
    )
