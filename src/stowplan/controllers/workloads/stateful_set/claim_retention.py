"""Owner references of the claims of a StatefulSet, by its claim retention policy.

With whenDeleted: Delete the StatefulSet owns the claims, with whenScaled: Delete a pod that is
scaled down owns its own; the garbage collector then deletes them with their owner.

Source: kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_utils.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stowplan.controller_runtime.object_fields import controller_reference
from stowplan.objects.encoding.tree import Tree


@dataclass(frozen=True, slots=True)
class ClaimOwners:
    """The possible owners of a claim. set, pod: references to them; the uid of a pod that does
    not exist yet is "".

    retains: True for the default policy, Retain both. set_owns, pod_owns: who should own it.
    """

    set: Tree
    pod: Tree
    retains: bool
    set_owns: bool
    pod_owns: bool


def retention_policy(owner: Tree) -> tuple[bool, bool]:
    """Whether claims are deleted when the StatefulSet is deleted, and when it is scaled down."""
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted") == "Delete", policy.get("whenScaled") == "Delete"


def claim_owners(owner: Tree, pod: str, pod_uid: str, in_range: bool) -> ClaimOwners:
    """Who should own the claims of a pod. in_range: whether the pod's ordinal is wanted."""
    when_deleted, when_scaled = retention_policy(owner)
    scaled_down = when_scaled and not in_range
    of_pod = {"metadata": {"name": pod, "uid": pod_uid}}
    return ClaimOwners(
        set=controller_reference(owner, "StatefulSet", "apps/v1"),
        pod=controller_reference(of_pod, "Pod", "v1"),
        retains=not (when_deleted or when_scaled),
        set_owns=when_deleted and not scaled_down,
        pod_owns=scaled_down,
    )


def is_stale(references: Sequence[Tree], owner: Tree) -> bool:
    """True when the first reference to an object of `owner`'s name has another uid."""
    found = next((each for each in references if _is_named_alike(each, owner)), None)
    return found is not None and found.get("uid") != owner["uid"]


def has_unexpected_controller(references: Sequence[Tree], owners: ClaimOwners) -> bool:
    """True when another object controls a claim that the policy may delete."""
    if owners.retains:
        return False
    for each in references:
        known = next((o for o in (owners.set, owners.pod) if _is_named_alike(each, o)), None)
        if known is not None:
            if each.get("uid") != known["uid"]:
                return True
        elif each.get("controller"):
            return True
    return False


def are_up_to_date(references: Sequence[Tree], owners: ClaimOwners) -> bool:
    """True when the references follow the policy, or are those of another controller."""
    if is_stale(references, owners.set) or is_stale(references, owners.pod):
        return True
    by_set, by_pod = _owns(references, owners.set), _owns(references, owners.pod)
    if has_unexpected_controller(references, owners):
        return not (by_set or by_pod)
    ours = (owners.set["uid"], owners.pod["uid"])
    if any(each.get("uid") in ours and not each.get("controller") for each in references):
        return False
    return (by_set, by_pod) == (owners.set_owns, owners.pod_owns)


def updated_references(references: Sequence[Tree], owners: ClaimOwners) -> list[Tree]:
    """The references that follow the policy."""
    ours = (owners.set, owners.pod)
    kept = [each for each in references if not any(_is_named_alike(each, o) for o in ours)]
    if has_unexpected_controller(references, owners):
        return kept
    if owners.set_owns:
        kept.append(owners.set)
    if owners.pod_owns:
        kept.append(owners.pod)
    return kept


def _is_named_alike(reference: Tree, owner: Tree) -> bool:
    return all(reference.get(name) == owner[name] for name in ("apiVersion", "kind", "name"))


def _owns(references: Sequence[Tree], owner: Tree) -> bool:
    return any(each.get("uid") == owner["uid"] for each in references)
