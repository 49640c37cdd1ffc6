"""Queueing hints of the volume plugins: claims, volumes, classes and drivers that are added or
changed.

Source: kube-scheduler v1.36, plugins/volumebinding, volumezone, volumerestrictions,
nodevolumelimits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stowplan.framework.clusterevents import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    QUEUE_POD,
    QUEUE_SKIP,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    Action,
    QueueingHint,
    RegisteredEvents,
    on,
)
from stowplan.objects.pod import Pod
from stowplan.objects.quantity import value
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stowplan.objects.volume import Volume
from stowplan.plugins.pod_hints import is_assigned_or_nominated, queueing_hint
from stowplan.plugins.volumes.csi_translation import in_tree_plugin_of
from stowplan.plugins.volumes.volume_claims import (
    WAIT_FOR_FIRST_CONSUMER,
    volume_limit,
    volume_uses_of,
)
from stowplan.plugins.volumes.volume_index import MIGRATED_PLUGINS

_ADD_OR_UPDATE = Action.ADD | Action.UPDATE


def volume_binding_events() -> RegisteredEvents:
    """Events that VolumeBinding registers."""
    return (
        on(STORAGE_CLASS, _ADD_OR_UPDATE, after_storage_class),
        on(PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, after_claim),
        on(PERSISTENT_VOLUME, _ADD_OR_UPDATE),
        on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        on(CSI_NODE, _ADD_OR_UPDATE, after_migration),
        on(CSI_DRIVER, Action.UPDATE, after_csi_driver),
        on(CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE, after_capacity),
    )


def volume_zone_events(
    topologies_of: Callable[[PersistentVolume], Iterable[object]],
) -> RegisteredEvents:
    """Events that VolumeZone registers. topologies_of: the topology of a volume's labels."""

    def after_volume(pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> QueueingHint:
        return queueing_hint(old is None or list(topologies_of(old)) != list(topologies_of(new)))

    return (
        on(STORAGE_CLASS, Action.ADD, after_wait_for_first_consumer_class),
        on(NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
        on(PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE, after_named_claim),
        on(PERSISTENT_VOLUME, _ADD_OR_UPDATE, after_volume),
    )


def volume_restrictions_events(
    conflicts_with_pod: Callable[[Volume, Pod], bool],
) -> RegisteredEvents:
    """Events that VolumeRestrictions registers.

    conflicts_with_pod: a volume and one of the pod's may not be used on one node.
    """

    def after_delete(pod: Pod, old: Pod, new: None) -> QueueingHint:
        if old.namespace != pod.namespace:
            return QUEUE_SKIP
        if any(conflicts_with_pod(volume, old) for volume in volume_uses_of(pod.spec).disks):
            return QUEUE_POD
        mine = set(volume_uses_of(pod.spec).named_claims)
        return queueing_hint(any(name in mine for name in volume_uses_of(old.spec).named_claims))

    return (
        on(POD, Action.DELETE, after_delete),
        on(NODE, Action.ADD),
        on(PERSISTENT_VOLUME_CLAIM, Action.ADD, after_named_claim),
    )


def node_volume_limits_events() -> RegisteredEvents:
    """Events that NodeVolumeLimits registers."""
    return (
        on(CSI_NODE, Action.ADD),
        on(CSI_NODE, Action.UPDATE, after_limits),
        on(POD, Action.DELETE, after_pod_with_volumes_deleted),
        on(PERSISTENT_VOLUME_CLAIM, Action.ADD, after_claim),
        on(VOLUME_ATTACHMENT, Action.DELETE, after_detachment),
    )


# Claims.


def after_claim(
    pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> QueueingHint:
    """A claim of the pod, named by it or generated for it."""
    names = (use.claim_name(pod) for use in volume_uses_of(pod.spec).claims)
    return queueing_hint(new.namespace == pod.namespace and new.name in names)


def after_named_claim(
    pod: Pod, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim
) -> QueueingHint:
    """A claim that the pod names."""
    return queueing_hint(
        new.namespace == pod.namespace and new.name in volume_uses_of(pod.spec).named_claims
    )


# Classes, drivers, capacity.


def after_storage_class(pod: Pod, old: StorageClass | None, new: StorageClass) -> QueueingHint:
    """A new class, or one that allows other topologies."""
    return queueing_hint(old is None or old.allowed_topologies != new.allowed_topologies)


def after_wait_for_first_consumer_class(
    pod: Pod, old: StorageClass | None, new: StorageClass
) -> QueueingHint:
    """A class that waits for the first consumer."""
    return queueing_hint(new.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER)


def after_migration(pod: Pod, old: CSINode | None, new: CSINode) -> QueueingHint:
    """The migrated plugins of a node changed."""
    if old is None:
        return QUEUE_POD
    before, after = old.metadata.annotations, new.metadata.annotations
    return queueing_hint(before.get(MIGRATED_PLUGINS, "") != after.get(MIGRATED_PLUGINS, ""))


def after_csi_driver(pod: Pod, old: CSIDriver, new: CSIDriver) -> QueueingHint:
    """The driver of one of the pod's inline volumes no longer tracks capacity."""
    if not old.spec.storage_capacity or new.spec.storage_capacity:
        return QUEUE_SKIP
    drivers = (volume.csi.driver for volume in pod.spec.volumes if volume.csi is not None)
    return queueing_hint(new.name in drivers)


def after_capacity(
    pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity
) -> QueueingHint:
    """Larger volumes can be provisioned than before."""
    if old is None:
        return QUEUE_POD
    before, after = volume_limit(old), volume_limit(new)
    if after is None:
        return QUEUE_SKIP
    return queueing_hint(before is None or value(after) > value(before))


# Limits.


def after_limits(pod: Pod, old: CSINode, new: CSINode) -> QueueingHint:
    """A driver of the node attaches more volumes than before; no limit counts as 0."""
    before, after = _limits(old), _limits(new)
    return queueing_hint(any(limit > before.get(name, 0) for name, limit in after.items()))


def _limits(node: CSINode) -> dict[str, int]:
    return {
        driver.name: (driver.allocatable.count or 0) if driver.allocatable is not None else 0
        for driver in node.spec.drivers
    }


def after_pod_with_volumes_deleted(pod: Pod, old: Pod, new: None) -> QueueingHint:
    """An assigned pod with volumes that a CSI driver may have attached was deleted."""
    return queueing_hint(
        is_assigned_or_nominated(old) and any(map(_is_attachable, old.spec.volumes))
    )


def after_detachment(pod: Pod, old: VolumeAttachment, new: None) -> QueueingHint:
    """A volume was detached that may be of one of the pod's drivers."""
    return queueing_hint(
        any(
            volume.persistent_volume_claim is not None or _driver_of(volume) == old.spec.attacher
            for volume in pod.spec.volumes
        )
    )


def _is_attachable(volume: Volume) -> bool:
    """True for a volume with a claim, and for a migrated in-tree one."""
    has_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return has_claim or in_tree_plugin_of(volume) is not None


def _driver_of(volume: Volume) -> str | None:
    """The CSI driver that serves an in-tree volume."""
    plugin = in_tree_plugin_of(volume)
    return None if plugin is None else plugin.driver
