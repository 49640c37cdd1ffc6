"""Volumes, claims and their classes for scripts, from settings."""

from __future__ import annotations

from collections.abc import Callable

from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.selectors import NodeSelector
from stowplan.objects.storage import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    PVSpec,
    StorageClass,
    VolumeNodeAffinity,
)
from stowplan.objects.volume import PVCSpec, VolumeResources
from stowplan.plugins.volumes.volume_claims import (
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    WAIT_FOR_FIRST_CONSUMER,
)
from stowplan.testing.builders import HOSTNAME, node_term

Settings = dict[str, str]


def storage_class(name: str, version: str, settings: Settings) -> StorageClass:
    """A class with WaitForFirstConsumer. provisioner: none by default."""
    return StorageClass(
        metadata=ObjectMeta(name=name, uid=name, resource_version=version),
        provisioner=settings.get("provisioner", "kubernetes.io/no-provisioner"),
        volume_binding_mode=WAIT_FOR_FIRST_CONSUMER,
    )


def volume(name: str, version: str, settings: Settings) -> PersistentVolume:
    """A volume of 10Gi. node: the only node that reaches it. claim: its claimRef."""
    node, claim = settings.get("node"), settings.get("claim")
    terms = () if node is None else (node_term(f"{HOSTNAME}={node}"),)
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=name, resource_version=version),
        spec=PVSpec(
            capacity={"storage": "10Gi"},
            storage_class_name=settings.get("class", "local"),
            claim_ref=None if claim is None else reference(claim),
            node_affinity=VolumeNodeAffinity(NodeSelector(terms)) if terms else None,
        ),
        status=PhaseStatus("Available" if claim is None else "Bound"),
    )


def reference(claim: str) -> ObjectReference:
    """claimRef of a volume."""
    return ObjectReference("v1", "PersistentVolumeClaim", "default", claim, claim)


def claim(name: str, version: str, settings: Settings) -> PersistentVolumeClaim:
    """A claim of 5Gi. volume: it is bound to. node: selected node for provisioning."""
    node, bound = settings.get("node"), settings.get("volume", "")
    annotations = ({} if node is None else {SELECTED_NODE_ANNOTATION: node}) | (
        {BIND_COMPLETED_ANNOTATION: "yes"} if bound else {}
    )
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=name,
            resource_version=version,
            annotations=annotations,
        ),
        spec=PVCSpec(
            resources=VolumeResources({"storage": "5Gi"}),
            storage_class_name=settings.get("class", "local"),
            volume_name=bound,
        ),
        status=PhaseStatus("Bound" if bound else "Pending"),
    )


KINDS: dict[str, Callable[[str, str, Settings], Object]] = {
    "class": storage_class,
    "volume": volume,
    "claim": claim,
}
"""Command -> factory of its object, from name, version and settings."""
