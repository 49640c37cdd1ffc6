"""The kinds beside pods and nodes that a live scheduler has to watch for a configuration."""

from __future__ import annotations

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.assembly.plugin_kinds import Kinds, kinds_read_by
from stowplan.objects import storage
from stowplan.objects.devices.device import DeviceTaintRule
from stowplan.objects.podgroup import PodGroup, Queue
from stowplan.objects.scheduling_group import SchedulingGroup
from stowplan.objects.workload import PodDisruptionBudget, PriorityClass

SESSIONS_READ: Kinds = (PodGroup, Queue, PriorityClass, PodDisruptionBudget)

_OF_1_13: Kinds = (storage.PersistentVolume, storage.PersistentVolumeClaim, storage.StorageClass)


def kinds_read(deciders: Deciders) -> Kinds:
    """Every kind beside pods and nodes that decisions read; raises ContractError."""
    found = dict.fromkeys(
        kinds_read_by(
            frameworks_for(deciders.configuration, deciders.registry, deciders.gates).values()
        )
    )
    if not deciders.gates.dra_device_taint_rules:
        found.pop(DeviceTaintRule, None)
    if deciders.gates.generic_workload:
        found[SchedulingGroup] = None
    if deciders.batch is not None:
        found |= dict.fromkeys(SESSIONS_READ)
        if deciders.batch.queue_model is not None:
            # Imported here: profiles have no queue model.
            from stowplan.assembly.sessions.queue_models import QUEUE_MODELS

            model = QUEUE_MODELS[deciders.batch.queue_model.model]
            settings = model.settings(deciders.batch, deciders.compat)
            found |= dict.fromkeys(model.reads(settings))
        if deciders.compat:
            found |= dict.fromkeys(_OF_1_13)
        else:
            found |= dict.fromkeys(kinds_read_by([deciders.framework()]))
    return tuple(found)
