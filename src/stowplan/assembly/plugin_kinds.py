"""The kinds beside pods and nodes that plugins read: what they declare by `reads`, and the kinds of
the events that they register."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.framework import Framework
from stowplan.framework.clusterevents import RESOURCE_OF_KIND
from stowplan.framework.runtime.declarations import declaration_of
from stowplan.objects import storage
from stowplan.objects.devices import device, device_claim
from stowplan.objects.devices.scv import Scv
from stowplan.objects.meta import Object

Kinds = tuple[type[Object], ...]

VOLUME_AND_DEVICE_KINDS: Kinds = (
    storage.PersistentVolume,
    storage.PersistentVolumeClaim,
    storage.StorageClass,
    storage.CSINode,
    storage.CSIDriver,
    storage.CSIStorageCapacity,
    storage.VolumeAttachment,
    device_claim.ResourceClaim,
    device.ResourceSlice,
    device.DeviceClass,
    device.DeviceTaintRule,
)
_OF_EVENTS: Kinds = (*VOLUME_AND_DEVICE_KINDS, Scv)
_KIND_OF_RESOURCE = {RESOURCE_OF_KIND[kind.__name__]: kind for kind in _OF_EVENTS}


def kinds_read_by(frameworks: Iterable[Framework]) -> Kinds:
    """The kinds that the plugins of some frameworks read."""
    found: dict[type[Object], None] = {}
    for framework in frameworks:
        for member in framework.members.values():
            found |= dict.fromkeys(kinds_of(member.plugin))
    return tuple(found)


def kinds_of(plugin: Any) -> Iterable[type[Object]]:
    """The kinds that a plugin reads."""
    yield from declaration_of(plugin).reads or ()
    if hasattr(plugin, "events_to_register"):
        for registered in plugin.events_to_register():
            kind = _KIND_OF_RESOURCE.get(registered.event.resource)
            if kind is not None:
                yield kind
