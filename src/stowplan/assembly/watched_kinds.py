"""Object kinds beside pods and nodes that a configuration's rules read, and a live scheduler
watches.

Rules declare them by `reads_objects` and by the events that can resolve their refusals. Kinds that
in-tree rules read without declaring them are listed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.framework import Framework
from stowplan.framework.clusterevents import RESOURCE_OF_KIND
from stowplan.objects.device import DeviceClass, ResourceClaim, ResourceSlice
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.scv import Scv
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stowplan.objects.workload import (
    Namespace,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)

Kinds = tuple[type[Object], ...]

_VOLUMES: Kinds = (PersistentVolume, PersistentVolumeClaim)
_SELECTORS: Kinds = (Service, ReplicationController, ReplicaSet, StatefulSet)

UNDECLARED_READS: dict[str, Kinds] = {
    "DefaultPreemption": (PodDisruptionBudget,),
    "NodeVolumeLimits": (*_VOLUMES, StorageClass, CSIDriver),
    "NodeResourcesFit": (DeviceClass,),
    "yoda": (Scv,),
    "InterPodAffinityPriority": (Namespace,),
    "MatchInterPodAffinity": (Namespace,),
    "CheckServiceAffinity": _SELECTORS,
    "ServiceAntiAffinityPriority": _SELECTORS,
    "SelectorSpreadPriority": _SELECTORS,
    "ServiceSpreadingPriority": _SELECTORS,
    "CheckVolumeBinding": (*_VOLUMES, StorageClass),
    "NoVolumeZoneConflict": (*_VOLUMES, StorageClass),
    "MaxCSIVolumeCountPred": _VOLUMES,
    "MaxEBSVolumeCount": _VOLUMES,
    "MaxGCEPDVolumeCount": _VOLUMES,
    "MaxAzureDiskVolumeCount": _VOLUMES,
}
"""Rule -> kinds, for rules that do not declare them."""

SESSIONS_READ: Kinds = (PodGroup, Queue, PriorityClass, PodDisruptionBudget)

_OF_EVENTS: Kinds = (
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CSINode,
    CSIDriver,
    CSIStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    Scv,
)
_KIND_OF_RESOURCE = {RESOURCE_OF_KIND[kind.__name__]: kind for kind in _OF_EVENTS}


def kinds_read(deciders: Deciders) -> Kinds:
    """Every kind beside pods and nodes that decisions read; raises ContractError."""
    found: dict[type[Object], None] = {}
    built = frameworks_for(deciders.configuration, deciders.registry)
    for framework in built.values():
        found |= dict.fromkeys(_read_by(framework))
    if deciders.batch is not None:
        found |= dict.fromkeys(SESSIONS_READ)
        if deciders.compat.rules_of_1_13:
            found |= dict.fromkeys((*_VOLUMES, StorageClass))
        else:
            found |= dict.fromkeys(_read_by(deciders.framework()))
    return tuple(found)


def _read_by(framework: Framework) -> Iterable[type[Object]]:
    for member in framework.members.values():
        yield from kinds_of(member.plugin)


def kinds_of(plugin: Any) -> Iterable[type[Object]]:
    """Kinds that one rule reads."""
    yield from getattr(plugin, "reads_objects", ())
    yield from UNDECLARED_READS.get(getattr(plugin, "name", ""), ())
    if hasattr(plugin, "events_to_register"):
        for registered in plugin.events_to_register():
            kind = _KIND_OF_RESOURCE.get(registered.event.resource)
            if kind is not None:
                yield kind
