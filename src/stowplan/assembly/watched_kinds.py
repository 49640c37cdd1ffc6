"""The kinds beside pods and nodes that a live scheduler has to watch for a configuration.

They are what its plugins declare by `reads`, and the kinds of the events that they register.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.framework import Framework
from stowplan.framework.clusterevents import RESOURCE_OF_KIND
from stowplan.framework.runtime.declarations import declaration_of
from stowplan.objects import storage
from stowplan.objects.devices import device
from stowplan.objects.devices.scv import Scv
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

Kinds = tuple[type[Object], ...]

SESSIONS_READ: Kinds = (PodGroup, Queue, PriorityClass, PodDisruptionBudget)

VOLUME_AND_DEVICE_KINDS: Kinds = (
    storage.PersistentVolume,
    storage.PersistentVolumeClaim,
    storage.StorageClass,
    storage.CSINode,
    storage.CSIDriver,
    storage.CSIStorageCapacity,
    storage.VolumeAttachment,
    device.ResourceClaim,
    device.ResourceSlice,
    device.DeviceClass,
)
_OF_1_13: Kinds = (storage.PersistentVolume, storage.PersistentVolumeClaim, storage.StorageClass)
_OF_EVENTS: Kinds = (*VOLUME_AND_DEVICE_KINDS, Scv)
_KIND_OF_RESOURCE = {RESOURCE_OF_KIND[kind.__name__]: kind for kind in _OF_EVENTS}


def kinds_read(deciders: Deciders) -> Kinds:
    """Every kind beside pods and nodes that decisions read; raises ContractError."""
    found: dict[type[Object], None] = {}
    built = frameworks_for(deciders.configuration, deciders.registry)
    for framework in built.values():
        found |= dict.fromkeys(_read_by(framework))
    if deciders.batch is not None:
        found |= dict.fromkeys(SESSIONS_READ)
        if deciders.compat:
            found |= dict.fromkeys(_OF_1_13)
        else:
            found |= dict.fromkeys(_read_by(deciders.framework()))
    return tuple(found)


def _read_by(framework: Framework) -> Iterable[type[Object]]:
    for member in framework.members.values():
        yield from kinds_of(member.plugin)


def kinds_of(plugin: Any) -> Iterable[type[Object]]:
    """The kinds that a plugin reads."""
    yield from declaration_of(plugin).reads or ()
    if hasattr(plugin, "events_to_register"):
        for registered in plugin.events_to_register():
            kind = _KIND_OF_RESOURCE.get(registered.event.resource)
            if kind is not None:
                yield kind
