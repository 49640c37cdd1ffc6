"""Edits of claims for all pods of a gang, and of the devices of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from stowplan.framework.object_store import key_of
from stowplan.insight.changes import device_edits
from stowplan.insight.changes.edits import ObjectEdit
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod


def is_of_template(edit: object) -> bool:
    """True for an edit of a claim that was made from a template: each pod has its own."""
    return isinstance(edit, ObjectEdit) and bool(edit.template)


def text_for(edit: ObjectEdit, pods: Sequence[Pod]) -> str:
    """The change in words, made to the claims of all these pods."""
    if len(pods) < 2 or not edit.template:
        return edit.text
    those = f"the claims of ResourceClaimTemplate {edit.template}"
    return edit.text.replace(f"claim {edit.value.name}", those, 1)


def edits_for(edit: ObjectEdit, pods: Sequence[Pod], objects: Iterable[Object]) -> list[ObjectEdit]:
    """The edit for each object that it changes: the claims that pods have for the same use.
    pods: with the one whose claim the edit names. Of several edits only the first one names the
    template."""
    names = _names(edit, pods)
    names.discard(edit.value.name)
    others = [
        replace(edit, value=one, template="")
        for one in objects
        if names and isinstance(one, ResourceClaim) and one.name in names
        if one.namespace == pods[0].namespace
    ]
    return [edit, *others]


def _names(edit: ObjectEdit, pods: Sequence[Pod]) -> set[str]:
    """Names of the claims that pods have for the same use as one has the claim of the edit."""
    if not is_of_template(edit):
        return set()
    statuses = (one for pod in pods for one in pod.status.resource_claim_statuses)
    made = [(one.name, one.resource_claim_name) for one in statuses]
    uses = {use for use, name in made if name == edit.value.name}
    return {name for use, name in made if use in uses and name}


def lowered_counts(pod: Pod, objects: Iterable[Object]) -> list[list[ObjectEdit]]:
    """For each request of the claims of a pod that have no devices yet: fewer devices, from one
    less down to one."""
    made = {
        one.resource_claim_name: one.name
        for one in pod.status.resource_claim_statuses
        if one.resource_claim_name
    }
    templates = {one.name: one.resource_claim_template_name for one in pod.spec.resource_claims}
    named = {one.resource_claim_name for one in pod.spec.resource_claims}
    claims = [
        one
        for one in objects
        if isinstance(one, ResourceClaim)
        and one.namespace == pod.namespace
        and one.name in {*named, *made}
        and one.status.allocation is None
    ]
    return [
        device_edits.lower_counts(place)
        for claim in claims
        for place in device_edits.places_of(claim, templates.get(made.get(claim.name, "")) or "")
    ]


def with_edits(objects: Sequence[Object], edits: Iterable[ObjectEdit]) -> list[Object]:
    """The objects after the edits, which are made in their order."""
    found = {(type(one), key_of(one)): one for one in objects}
    for edit in edits:
        key = type(edit.value), key_of(edit.value)
        # Of edits of the same object each changes what the one before has left.
        found[key] = edit.change(found.get(key, edit.value))[0]
    return list(found.values())
