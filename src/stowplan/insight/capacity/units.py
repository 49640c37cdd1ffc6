"""Units of capacity: the pods that are counted together, and further copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import owners_of, pod_group_of
from stowplan.objects.devices.device_claim import ResourceClaim, ResourceClaimStatus
from stowplan.objects.kai.kai_kinds import KAI_GROUP_ANNOTATION, KaiPodGroupObject
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.pod import Pod, PodResourceClaimStatus
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup
from stowplan.objects.storage import PersistentVolumeClaim
from stowplan.objects.volume import Volume

Group: TypeAlias = PodGroup | KaiPodGroupObject
GROUP_KINDS = (PodGroup, KaiPodGroupObject)
N = TypeVar("N", bound=NamespacedObject)

_ANNOTATIONS = (*GROUP_ANNOTATIONS, KAI_GROUP_ANNOTATION)


class Unit(msgspec.Struct, frozen=True):
    """Pods that are placed together or not at all.

    name: `deployment/web`, `podgroup/train`, `pod/a`. kind: `pod`, `gang` or `workload`. pods: of
    one unit. group: its PodGroup.
    """

    name: str
    kind: str
    pods: tuple[Pod, ...]
    group: Group | None = None


class UnitCopy(msgspec.Struct, frozen=True):
    """One more unit: pods, and the objects that they need beside them."""

    pods: tuple[Pod, ...]
    objects: tuple[Object, ...] = ()


def units_of(workload: Cluster) -> list[Unit]:
    """The units of a workload, in the order of its pods.

    A PodGroup is one unit of its first minMember pods, one with sub-groups of all; of all other
    pods each template is a unit of one pod. Several units make another one: the whole workload.
    """
    groups = {one.key: one for one in workload.objects if isinstance(one, GROUP_KINDS)}
    members: dict[tuple[str, str], list[Pod]] = {}
    for pod in workload.pods:
        members.setdefault(_unit_key(pod, groups), []).append(pod)
    units = [_unit(kind, name, pods, groups) for (kind, name), pods in members.items()]
    if len(units) > 1:
        units.append(Unit("all of them", "workload", tuple(workload.pods)))
    return units


def _unit_key(pod: Pod, groups: Mapping[str, Group]) -> tuple[str, str]:
    group = pod_group_of(pod)
    if group in groups:
        return "gang", group
    owners = owners_of(pod)
    if not owners:
        return "pod", f"pod/{pod.name}"
    kind, name = owners[-1]
    return "pod", f"{kind.lower()}/{name}"


def _unit(kind: str, name: str, pods: list[Pod], groups: Mapping[str, Group]) -> Unit:
    if kind == "pod":
        return Unit(name, kind, (pods[0],))
    group = groups[name]
    least = max(group.spec.min_member or 0, 1)
    if isinstance(group, KaiPodGroupObject) and group.spec.sub_groups:
        least = len(pods)
    return Unit(f"podgroup/{group.name}", kind, tuple(pods[:least]), group)


class UnitCopier:
    """Makes copies of a unit: pods with names of their own, with claims and PodGroups of their
    own."""

    def __init__(self, unit: Unit, workload: Cluster) -> None:
        self.unit = unit
        claims = (one for one in workload.objects if isinstance(one, PersistentVolumeClaim))
        self._claims = {claim.key: claim for claim in claims}
        devices = (one for one in workload.objects if isinstance(one, ResourceClaim))
        self._device_claims = {claim.key: claim for claim in devices}
        self._groups = {one.key: one for one in workload.objects if isinstance(one, GROUP_KINDS)}

    def copy(self, number: int) -> UnitCopy:
        """Copy `number` of the unit."""
        objects: dict[str, Object] = {}
        pods = tuple(self._pod(pod, f"-copy-{number}", objects) for pod in self.unit.pods)
        return UnitCopy(pods, tuple(objects.values()))

    def _pod(self, pod: Pod, suffix: str, objects: dict[str, Object]) -> Pod:
        """A copy of one pod; its own objects are added to `objects`."""
        old = pod.metadata
        annotations = old.annotations
        group = self._groups.get(pod_group_of(pod))
        if group is not None:
            copied = _renamed(group, group.name + suffix)
            objects[f"PodGroup {copied.key}"] = copied
            named = {key: copied.name for key in _ANNOTATIONS if annotations.get(key)}
            annotations = {**annotations, **named}
        name, uid = old.name + suffix, f"{pod.uid or pod.key}{suffix}"
        spec = pod.spec
        volumes = tuple(self._volume(one, pod, name, uid, objects) for one in spec.volumes)
        if volumes != spec.volumes:
            spec = replace(spec, volumes=volumes)
        made = pod.status.resource_claim_statuses
        status = pod.status
        if made:
            copies = tuple(self._device_claim(one, pod, suffix, uid, objects) for one in made)
            status = replace(status, resource_claim_statuses=copies)
        meta = replace(old, name=name, uid=uid, annotations=annotations)
        return replace(pod, metadata=meta, spec=spec, status=status)

    def _device_claim(
        self,
        made: PodResourceClaimStatus,
        pod: Pod,
        suffix: str,
        uid: str,
        objects: dict[str, Object],
    ) -> PodResourceClaimStatus:
        """The claim of a copy, for one that was made for the pod from a template."""
        claim = self._device_claims.get(f"{pod.namespace}/{made.resource_claim_name}")
        if claim is None:
            return made
        copied = _renamed(claim, claim.name + suffix)
        owners = tuple(
            replace(owner, name=pod.name + suffix, uid=uid)
            for owner in claim.metadata.owner_references
        )
        metadata = replace(copied.metadata, owner_references=owners)
        copied = replace(copied, metadata=metadata, status=ResourceClaimStatus())
        objects[f"ResourceClaim {copied.key}"] = copied
        return replace(made, resource_claim_name=copied.name)

    def _volume(
        self, volume: Volume, pod: Pod, name: str, uid: str, objects: dict[str, Object]
    ) -> Volume:
        """The volume of a copy: a claim that was made for the pod alone is copied, too."""
        source = volume.persistent_volume_claim
        if volume.ephemeral is not None:
            old, new = f"{pod.name}-{volume.name}", f"{name}-{volume.name}"
        elif source is not None and source.claim_name.endswith(f"-{pod.name}"):
            old = source.claim_name
            new = f"{old.removesuffix(pod.name)}{name}"
            volume = replace(volume, persistent_volume_claim=replace(source, claim_name=new))
        else:
            return volume
        claim = self._claims.get(f"{pod.namespace}/{old}")
        if claim is None:
            return volume
        copied = _renamed(claim, new)
        if volume.ephemeral is not None:
            owners = tuple(replace(o, name=name, uid=uid) for o in claim.metadata.owner_references)
            copied = replace(copied, metadata=replace(copied.metadata, owner_references=owners))
        objects[f"PersistentVolumeClaim {copied.key}"] = copied
        return volume


def _renamed(one: N, name: str) -> N:
    """An object of another name, with a uid of its own: volumes name claims by it."""
    uid = f"{one.namespace}/{name}"
    return replace(one, metadata=replace(one.metadata, name=name, uid=uid))
