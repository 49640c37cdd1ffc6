"""The volume controller and a provisioner as benchmarks play them: both act at once."""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import Object
from stowplan.objects.storage import (
    CSIVolume,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    PVSpec,
)

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"


class VolumeReplies:
    """Binds claims to the volumes that name them, and provisions those with a selected node."""

    def __init__(self) -> None:
        self._claims: dict[str, PersistentVolumeClaim] = {}

    def observe(self, event: Event) -> None:
        """Remember the claims of a workload."""
        if isinstance(event, happened.ObjectAdded | happened.ObjectUpdated):
            value = event.value
            if isinstance(value, PersistentVolumeClaim):
                self._claims[value.key] = value

    def written(self, value: Object) -> list[Event]:
        """What follows the write of an object."""
        if isinstance(value, PersistentVolume) and value.spec.claim_ref is not None:
            reference = value.spec.claim_ref
            claim = self._claims.get(f"{reference.namespace}/{reference.name}")
            return [] if claim is None else [self._bound(claim, value.name)]
        if isinstance(value, PersistentVolumeClaim):
            self._claims[value.key] = value
            if SELECTED_NODE in value.metadata.annotations and not value.spec.volume_name:
                volume = _provisioned(value)
                return [happened.ObjectAdded(volume), self._bound(value, volume.name)]
        return []

    def _bound(self, claim: PersistentVolumeClaim, volume: str) -> Event:
        annotations = {**claim.metadata.annotations, BIND_COMPLETED: "yes"}
        after = replace(
            claim,
            metadata=replace(
                claim.metadata,
                annotations=annotations,
                resource_version=f"{claim.metadata.resource_version}0",
            ),
            spec=replace(claim.spec, volume_name=volume),
            status=PhaseStatus("Bound"),
        )
        self._claims[claim.key] = after
        return happened.ObjectUpdated(after)


def _provisioned(claim: PersistentVolumeClaim) -> PersistentVolume:
    name = f"pvc-{claim.metadata.uid}"
    return PersistentVolume(
        metadata=replace(claim.metadata, name=name, namespace="", uid=name, annotations={}),
        spec=PVSpec(
            access_modes=claim.spec.access_modes,
            storage_class_name=claim.spec.storage_class_name or "",
            claim_ref=ObjectReference(
                kind="PersistentVolumeClaim",
                namespace=claim.namespace,
                name=claim.name,
                uid=claim.metadata.uid,
            ),
            csi=CSIVolume("csi.example.com", name),
        ),
        status=PhaseStatus("Bound"),
    )
