"""What binding a pod's volumes changes in the cluster, as values.

Reserve decides which volumes name which claims from now on and which claims get a node selected,
and lets the world be seen so at once, for the next pod's sake. PreBind has the changes written;
then the volume controller and the drivers do the rest, and the pod waits until `progress` says that
all is done.

Unproved: recorded answers end where a node is chosen; this was read off the source.

Source: kube-scheduler v1.36, plugins/volumebinding: AssumePodVolumes, RevertAssumedPodVolumes,
bindAPIUpdate and checkBindings.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.framework import OK, Code, ObjectChange, Status, World, error
from stowplan.objects.node import Node
from stowplan.objects.selectors import node_selector_error
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.csi_translation import TranslationError, plugin_of, translated
from stowplan.plugins.volume_claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    is_fully_bound,
    not_found,
)
from stowplan.plugins.volume_index import migrated_plugins
from stowplan.plugins.volume_matching import bound_to, selected_for
from stowplan.plugins.volume_reach import is_reached, reach_of_volume
from stowplan.plugins.volume_search import Found

WAIT = Status(Code.WAIT)


class VolumeUpdate(msgspec.Struct, frozen=True):
    """A volume that is to name a claim. `after` is `before` where it is seen to name it already."""

    claim: PersistentVolumeClaim
    before: PersistentVolume
    after: PersistentVolume

    @property
    def change(self) -> ObjectChange:
        """What is to be written: also where another pod has decided on it, who may not do it."""
        patch: dict[str, Any] = {
            "spec": {"claimRef": msgspec.to_builtins(self.after.spec.claim_ref)}
        }
        mark = self.after.metadata.annotations.get(BOUND_BY_CONTROLLER)
        if mark is not None:
            patch["metadata"] = {"annotations": {BOUND_BY_CONTROLLER: mark}}
        return ObjectChange(self.after, patch)


class ClaimUpdate(msgspec.Struct, frozen=True):
    """A claim that is to be provisioned for a node."""

    before: PersistentVolumeClaim
    after: PersistentVolumeClaim

    @property
    def change(self) -> ObjectChange:
        """What is to be written."""
        node = self.after.metadata.annotations[SELECTED_NODE]
        return ObjectChange(self.after, {"metadata": {"annotations": {SELECTED_NODE: node}}})


class Reservation(msgspec.Struct, frozen=True):
    """What binding a pod to a node does to volumes and claims: nothing where all are bound."""

    node_name: str
    volumes: tuple[VolumeUpdate, ...] = ()
    claims: tuple[ClaimUpdate, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when nothing has to be done before the pod is bound."""
        return not self.volumes and not self.claims

    @property
    def changes(self) -> tuple[ObjectChange, ...]:
        """What is to be written, in this order."""
        of_claims = tuple(update.change for update in self.claims)
        return tuple(update.change for update in self.volumes) + of_claims

    def apply(self, world: World) -> None:
        """Make the world look as if the updates had been made: other pods must see them."""
        for volume in self.volumes:
            if volume.after is not volume.before:
                world.assume(volume.after)
        for claim in self.claims:
            world.assume(claim.after)

    def revert(self, world: World) -> None:
        """Take the updates back where nothing newer has arrived; harmless when done twice.

        Differs: where two pods share a claim, the original also takes back what the other of them
        had decided on for a volume.
        """
        for volume in self.volumes:
            if volume.after is not volume.before:
                world.restore(volume.after)
        for claim in self.claims:
            world.restore(claim.after)


def reservation(found: Found, node_name: str) -> Reservation:
    """What to do so that the node can serve the claims as was found."""
    return Reservation(
        node_name,
        tuple(
            VolumeUpdate(claim, volume, bound_to(volume, claim)) for claim, volume in found.static
        ),
        tuple(ClaimUpdate(p.claim, selected_for(p.claim, node_name)) for p in found.dynamic),
    )


def progress(reserved: Reservation, world: World, node: Node) -> Status:
    """How far the binding has come, as the cluster shows it.

    Success: every claim is bound. Wait: not yet. Error: it cannot end well, the pod must be tried
    again. The cluster must show what was written; that, the time limit, and that the pod is still
    there, are the caller's.
    """
    for volume in reserved.volumes:
        status = _volume_progress(volume, world, node)
        if not status.is_success:
            return status
    for claim in reserved.claims:
        status = _claim_progress(claim, world, node)
        if not status.is_success:
            return status
    return OK


def _volume_progress(update: VolumeUpdate, world: World, node: Node) -> Status:
    name, key = update.after.name, update.claim.key
    volume = world.observed(PersistentVolume, name)
    claim = world.observed(PersistentVolumeClaim, key)
    if volume is None:
        return failed(f"failed to check binding: {not_found('persistentvolumes', name)}")
    if claim is None:
        return failed(f"failed to check binding: {not_found('persistentvolumeclaims', key)}")
    try:
        mismatch = _mismatch(volume, world, node)
    except TranslationError as fault:
        return failed(f"failed to translate pv to csi: could not translate pv: {fault}")
    if mismatch:
        return failed(mismatch)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return failed(f'ClaimRef got reset for pv "{name}"')
    if claim.spec.volume_name not in ("", name):
        # Differs: the original binds the pod all the same, to a node that the volume of its claim
        # may not reach. That is where an earlier write was done and its answer lost.
        return failed(f'pvc "{claim.name}" is bound to pv "{claim.spec.volume_name}"')
    return OK if is_fully_bound(claim) else WAIT


def _claim_progress(update: ClaimUpdate, world: World, node: Node) -> Status:
    key = update.after.key
    claim = world.observed(PersistentVolumeClaim, key)
    if claim is None:
        missing = not_found("persistentvolumeclaims", key)
        return failed(f"failed to check provisioning pvc: {missing}")
    if not claim.metadata.annotations:
        return failed(f'selectedNode annotation reset for PVC "{claim.name}"')
    if claim.metadata.annotations.get(SELECTED_NODE) != node.name:
        return failed(f'provisioning failed for PVC "{claim.name}"')
    if claim.spec.volume_name:
        volume = world.observed(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return WAIT
        try:
            mismatch = _mismatch(volume, world, node)
        except TranslationError as fault:
            return failed(f"could not translate pv: {fault}")
        if mismatch:
            return failed(mismatch)
    return OK if is_fully_bound(claim) else WAIT


def _mismatch(volume: PersistentVolume, world: World, node: Node) -> str:
    """Why the node cannot reach the volume; "" when it can. Raises TranslationError."""
    plugin = plugin_of(volume.spec)
    on_node = migrated_plugins(world.find(CSINode, node.name))
    if plugin is not None and plugin.is_migrated and plugin.name in on_node:
        volume = translated(volume, plugin)
    if is_reached(reach_of_volume(volume), node.labels):
        return ""
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    faults = node_selector_error(required) if required is not None else None
    why = faults or "no matching NodeSelectorTerms"
    return f'pv "{volume.name}" node affinity doesn\'t match node "{node.name}": {why}'


def failed(text: str) -> Status:
    """Binding the volumes cannot end well."""
    return error(f"binding volumes: {text}")
