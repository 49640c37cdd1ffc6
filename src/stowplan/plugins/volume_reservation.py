"""What binding a pod's volumes changes in the cluster: kept as values until somebody does it.

Reserve decides which volumes name which claims from now on and which claims get a node selected.
Whoever runs the cycle puts these objects into its world at once, so that the next pod sees them,
and sends the differences to the API server before the pod is bound; then the volume controller and
the drivers do the rest, and the pod waits until `progress` says that all is done.

Unproved: recorded answers end where a node is chosen; this was read off the source.

Source: kube-scheduler v1.36, plugins/volumebinding: AssumePodVolumes, RevertAssumedPodVolumes,
bindAPIUpdate and checkBindings.
"""

from __future__ import annotations

import msgspec

from stowplan.framework import OK, Code, Status, World, error
from stowplan.objects.node import Node
from stowplan.objects.selectors import node_selector_error
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.csi_translation import TranslationError, plugin_of, translated
from stowplan.plugins.volume_claims import SELECTED_NODE, is_fully_bound, not_found
from stowplan.plugins.volume_index import migrated_plugins
from stowplan.plugins.volume_matching import bound_to, selected_for
from stowplan.plugins.volume_reach import is_reached, reach_of_volume
from stowplan.plugins.volume_search import Found

WAIT = Status(Code.WAIT)


class VolumeUpdate(msgspec.Struct, frozen=True):
    """A volume that is to name a claim. `after` is `before` where it names it already."""

    claim: PersistentVolumeClaim
    before: PersistentVolume
    after: PersistentVolume


class ClaimUpdate(msgspec.Struct, frozen=True):
    """A claim that is to be provisioned for a node."""

    before: PersistentVolumeClaim
    after: PersistentVolumeClaim


class Reservation(msgspec.Struct, frozen=True):
    """What binding a pod to a node does to volumes and claims: nothing where all are bound."""

    node_name: str
    volumes: tuple[VolumeUpdate, ...] = ()
    claims: tuple[ClaimUpdate, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when nothing has to be done before the pod is bound."""
        return not self.volumes and not self.claims

    def apply(self, world: World) -> None:
        """Make the world look as if the updates had been made: other pods must see them."""
        for volume in self.volumes:
            if volume.after is not volume.before:
                world.put(volume.after)
        for claim in self.claims:
            world.put(claim.after)

    def revert(self, world: World) -> None:
        """Take the updates back where nothing newer has arrived; harmless when done twice."""
        for volume in self.volumes:
            if world.find(PersistentVolume, volume.after.name) is volume.after:
                world.put(volume.before)
        for claim in self.claims:
            if world.find(PersistentVolumeClaim, claim.after.key) is claim.after:
                world.put(claim.before)


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
    """How far the binding has come once the updates are sent, as the world shows it.

    Success: every claim is bound. Wait: not yet. Error: it cannot end well, the pod must be tried
    again. The node and the pod must still be there; that and the time limit are the caller's.
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
    volume = world.find(PersistentVolume, name)
    claim = world.find(PersistentVolumeClaim, key)
    if volume is None:
        return _failed(f"failed to check binding: {not_found('persistentvolumes', name)}")
    if claim is None:
        return _failed(f"failed to check binding: {not_found('persistentvolumeclaims', key)}")
    if _is_unseen(update, volume):
        return WAIT
    try:
        mismatch = _mismatch(volume, world, node)
    except TranslationError as fault:
        return _failed(f"failed to translate pv to csi: could not translate pv: {fault}")
    if mismatch:
        return _failed(mismatch)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return _failed(f'ClaimRef got reset for pv "{name}"')
    return OK if is_fully_bound(claim) else WAIT


def _claim_progress(update: ClaimUpdate, world: World, node: Node) -> Status:
    key = update.after.key
    claim = world.find(PersistentVolumeClaim, key)
    if claim is None:
        missing = not_found("persistentvolumeclaims", key)
        return _failed(f"failed to check provisioning pvc: {missing}")
    if _is_unseen(update, claim):
        return WAIT
    if not claim.metadata.annotations:
        return _failed(f'selectedNode annotation reset for PVC "{claim.name}"')
    if claim.metadata.annotations.get(SELECTED_NODE) != node.name:
        return _failed(f'provisioning failed for PVC "{claim.name}"')
    if claim.spec.volume_name:
        volume = world.find(PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return WAIT
        try:
            mismatch = _mismatch(volume, world, node)
        except TranslationError as fault:
            return _failed(f"could not translate pv: {fault}")
        if mismatch:
            return _failed(mismatch)
    return OK if is_fully_bound(claim) else WAIT


def _is_unseen(
    update: VolumeUpdate | ClaimUpdate, now: PersistentVolume | PersistentVolumeClaim
) -> bool:
    """True while the world still holds our own idea of the object, or what was there before."""
    return update.after is not update.before and (now is update.after or now is update.before)


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


def _failed(text: str) -> Status:
    return error(f"binding volumes: {text}")
