"""Queueing hints of DynamicResources: resource claims, classes and slices that are added or
changed.

Source: kube-scheduler v1.36, plugins/dynamicresources.
"""

from __future__ import annotations

from collections.abc import Callable

from stowplan.framework import Status
from stowplan.framework.clusterevents import (
    DEVICE_CLASS,
    NODE,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Action,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.devices.device import ResourceClaim
from stowplan.objects.pod import Pod
from stowplan.plugins.pod_hints import queueing_hint

ResourceClaimsOf = Callable[[Pod], tuple[ResourceClaim, ...] | Status]
"""The resource claims of a pod, or why some are missing."""

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE


def dynamic_resources_events(claims_of: ResourceClaimsOf) -> tuple[ClusterEventWithHint, ...]:
    """Events that DynamicResources registers."""

    def after_claim(pod: Pod, old: ResourceClaim | None, new: ResourceClaim) -> QueueingHint:
        claims = claims_of(pod)
        if isinstance(claims, Status):
            return QUEUE_SKIP
        # Devices that another claim releases may serve this pod.
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return QUEUE_POD
        if not any(claim.metadata.uid == new.metadata.uid for claim in claims):
            return QUEUE_SKIP
        return queueing_hint(old is None or old.status != new.status)

    def after_pod(pod: Pod, old: Pod, new: Pod) -> QueueingHint:
        return queueing_hint(new.uid == pod.uid and not isinstance(claims_of(new), Status))

    of_nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
    return (
        on(NODE, of_nodes),
        on(RESOURCE_CLAIM, _ADD_OR_UPDATE, after_claim),
        on(POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, after_pod),
        on(DEVICE_CLASS, _ADD_OR_UPDATE),
        on(RESOURCE_SLICE, _ADD_OR_UPDATE),
    )
