"""Assumed volume bindings of a pod, as values.

Reserve decides which volumes name which claims and which claims get a node selected, and shows this
to the next pods at once. PreBind writes the changes; then the volume controller and the drivers do
the rest, and the pod waits until `check_bindings` reports success.

Unproved: recorded answers end where a node is chosen; this was read off the source.

Source: kube-scheduler v1.36, plugins/volumebinding: AssumePodVolumes, RevertAssumedPodVolumes,
bindAPIUpdate and checkBindings.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import OK, Code, ObjectChange, ObjectStore, Status, error
from stowplan.objects.node import Node
from stowplan.objects.selectors import node_selector_error
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.csi_translation import (
    TranslationError,
    in_tree_plugin_of,
    translate_in_tree_volume,
)
from stowplan.plugins.volumes.volume_claims import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    is_fully_bound,
    not_found_message,
)
from stowplan.plugins.volumes.volume_index import migrated_plugins
from stowplan.plugins.volumes.volume_matching import claim_with_selected_node, volume_bound_to_claim
from stowplan.plugins.volumes.volume_search import PodVolumeBindings
from stowplan.plugins.volumes.volume_topology import topology_admits, volume_topology

WAIT = Status(Code.WAIT)


class AssumedVolume(msgspec.Struct, frozen=True):
    """A volume to be bound to a claim. `after` is `before` where it already names it."""

    claim: PersistentVolumeClaim
    before: PersistentVolume
    after: PersistentVolume

    @property
    def change(self) -> ObjectChange:
        """The change to write: also where another pod decided on it, whose write may fail."""
        patch: dict[str, Any] = {
            "spec": {"claimRef": msgspec.to_builtins(self.after.spec.claim_ref)}
        }
        mark = self.after.metadata.annotations.get(BOUND_BY_CONTROLLER_ANNOTATION)
        if mark is not None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER_ANNOTATION: mark}}
        return ObjectChange(self.after, patch)


class AssumedClaim(msgspec.Struct, frozen=True):
    """A claim to be provisioned for a node."""

    before: PersistentVolumeClaim
    after: PersistentVolumeClaim

    @property
    def change(self) -> ObjectChange:
        """The change to write."""
        node = self.after.metadata.annotations[SELECTED_NODE_ANNOTATION]
        return ObjectChange(
            self.after, {"metadata": {"annotations": {SELECTED_NODE_ANNOTATION: node}}}
        )


class AssumedPodVolumes(msgspec.Struct, frozen=True):
    """The changes to volumes and claims of binding a pod to a node: none where all are bound."""

    node_name: str
    volumes: tuple[AssumedVolume, ...] = ()
    claims: tuple[AssumedClaim, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when nothing has to be done before the pod is bound."""
        return not self.volumes and not self.claims

    @property
    def changes(self) -> tuple[ObjectChange, ...]:
        """The changes to write, in this order."""
        of_claims = tuple(update.change for update in self.claims)
        return tuple(update.change for update in self.volumes) + of_claims

    def apply(self, object_store: ObjectStore) -> None:
        """Apply the changes to the object store, so that other pods see them."""
        for volume in self.volumes:
            if volume.after is not volume.before:
                object_store.assume(volume.after)
        for claim in self.claims:
            object_store.assume(claim.after)

    def revert(self, object_store: ObjectStore) -> None:
        """Revert the changes where nothing newer has arrived; harmless when done twice.

        Differs: where two pods share a claim, the original also reverts what the other of them
        decided for a volume.
        """
        for volume in self.volumes:
            if volume.after is not volume.before:
                object_store.restore(volume.after)
        for claim in self.claims:
            object_store.restore(claim.after)


def assume_pod_volumes(found: PodVolumeBindings, node_name: str) -> AssumedPodVolumes:
    """The changes after which the node can serve the claims."""
    return AssumedPodVolumes(
        node_name,
        tuple(
            AssumedVolume(claim, volume, volume_bound_to_claim(volume, claim))
            for claim, volume in found.static
        ),
        tuple(
            AssumedClaim(p.claim, claim_with_selected_node(p.claim, node_name))
            for p in found.dynamic
        ),
    )


def check_bindings(reserved: AssumedPodVolumes, object_store: ObjectStore, node: Node) -> Status:
    """Progress of the binding, from the observed objects.

    Success: every claim is bound. Wait: not yet. Error: it cannot succeed, the pod must be tried
    again. The caller checks that the observed objects include what was written, the time limit, and
    that the pod still exists.
    """
    for volume in reserved.volumes:
        status = _check_volume_binding(volume, object_store, node)
        if not status.is_success:
            return status
    for claim in reserved.claims:
        status = _check_claim_provisioning(claim, object_store, node)
        if not status.is_success:
            return status
    return OK


def _check_volume_binding(update: AssumedVolume, object_store: ObjectStore, node: Node) -> Status:
    name, key = update.after.name, update.claim.key
    volume = object_store.observed(PersistentVolume, name)
    claim = object_store.observed(PersistentVolumeClaim, key)
    if volume is None:
        return binding_error(
            f"failed to check binding: {not_found_message('persistentvolumes', name)}"
        )
    if claim is None:
        return binding_error(
            f"failed to check binding: {not_found_message('persistentvolumeclaims', key)}"
        )
    try:
        mismatch = _node_affinity_mismatch(volume, object_store, node)
    except TranslationError as fault:
        return binding_error(f"failed to translate pv to csi: could not translate pv: {fault}")
    if mismatch:
        return binding_error(mismatch)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return binding_error(f'ClaimRef got reset for pv "{name}"')
    if claim.spec.volume_name not in ("", name):
        # Differs: the original binds the pod nevertheless, to a node that cannot access the volume
        # of its claim. That happens where an earlier write succeeded and its reply was lost.
        return binding_error(f'pvc "{claim.name}" is bound to pv "{claim.spec.volume_name}"')
    return OK if is_fully_bound(claim) else WAIT


def _check_claim_provisioning(
    update: AssumedClaim, object_store: ObjectStore, node: Node
) -> Status:
    key = update.after.key
    claim = object_store.observed(PersistentVolumeClaim, key)
    if claim is None:
        missing = not_found_message("persistentvolumeclaims", key)
        return binding_error(f"failed to check provisioning pvc: {missing}")
    if not claim.metadata.annotations:
        return binding_error(f'selectedNode annotation reset for PVC "{claim.name}"')
    if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) != node.name:
        return binding_error(f'provisioning failed for PVC "{claim.name}"')
    if claim.spec.volume_name:
        volume = object_store.observed(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return WAIT
        try:
            mismatch = _node_affinity_mismatch(volume, object_store, node)
        except TranslationError as fault:
            return binding_error(f"could not translate pv: {fault}")
        if mismatch:
            return binding_error(mismatch)
    return OK if is_fully_bound(claim) else WAIT


def _node_affinity_mismatch(volume: PersistentVolume, object_store: ObjectStore, node: Node) -> str:
    """Why the node cannot access the volume; "" when it can. Raises TranslationError."""
    plugin = in_tree_plugin_of(volume.spec)
    on_node = migrated_plugins(object_store.find(CSINode, node.name))
    if plugin is not None and plugin.is_migrated and plugin.name in on_node:
        volume = translate_in_tree_volume(volume, plugin)
    if topology_admits(volume_topology(volume), node.labels):
        return ""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    faults = node_selector_error(required) if required is not None else None
    why = faults or "no matching NodeSelectorTerms"
    return f'pv "{volume.name}" node affinity doesn\'t match node "{node.name}": {why}'


def binding_error(text: str) -> Status:
    """Error: the volumes cannot be bound."""
    return error(f"binding volumes: {text}")
