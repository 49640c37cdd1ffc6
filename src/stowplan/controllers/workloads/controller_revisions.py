"""ControllerRevisions: the past pod templates of a StatefulSet or DaemonSet.

Source: kube-controller-manager v1.36, pkg/controller/history/controller_history.go.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controller_runtime.resource_paths import CONTROLLER_REVISIONS
from stowplan.controllers.workloads.deployment_revision import encoded_hash
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

HASH_LABEL = "controller-revision-hash"
"""Label of pods: name (StatefulSet) or hash (DaemonSet) of the revision of their template."""
_REVISION_HASH_LABEL = "controller.kubernetes.io/hash"
_PREFIX_LETTERS_MAX = 223
_GO_ESCAPES = {
    ord("<"): "\\u003c",
    ord(">"): "\\u003e",
    ord("&"): "\\u0026",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def revision_data(template: Tree) -> Tree:
    """The strategic merge patch that restores a pod template."""
    return {"spec": {"template": {**copy.deepcopy(template), "$patch": "replace"}}}


def template_of(revision: Tree) -> Tree:
    """The pod template that a revision restores."""
    template = copy.deepcopy(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return dict(template)


def revision_hash(data: Tree, collisions: int) -> str:
    """Hash of a revision's data: FNV-1 (32 bits) of its JSON as Go writes it, and the count."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    number = 0x811C9DC5
    for byte in f"{text.translate(_GO_ESCAPES)}{collisions}".encode():
        number = (number * 0x01000193 & 0xFFFFFFFF) ^ byte
    return encoded_hash(number)


def new_revision(owner: Tree, owner_ref: Tree, number: int, collisions: int) -> Tree:
    """The ControllerRevision of the current pod template of `owner`."""
    template = owner["spec"]["template"]
    data = revision_data(template)
    hash_ = revision_hash(data, collisions)
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {
        "kind": "ControllerRevision",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": _name(owner, hash_),
            "namespace": owner["metadata"]["namespace"],
            "labels": {**labels, _REVISION_HASH_LABEL: hash_},
            "annotations": dict(owner["metadata"].get("annotations") or {}),
            "ownerReferences": [owner_ref],
        },
        "data": data,
        "revision": number,
    }


def create_revision(api: Store, owner: Tree, revision: Tree, collisions: int) -> tuple[Tree, int]:
    """Create a revision; returns it and the collision count.

    An existing one with the same data is returned instead; one of other data with that name
    increments the count, which gives another name.
    """
    namespace = owner["metadata"]["namespace"]
    while True:
        name = _name(owner, revision_hash(revision["data"], collisions))
        revision["metadata"]["name"] = name
        try:
            return api.create(CONTROLLER_REVISIONS, revision), collisions
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        found = api.get(CONTROLLER_REVISIONS, namespace, name)
        if found is not None and found["data"] == revision["data"]:
            return found, collisions
        collisions += 1


def set_number(api: Store, revision: Tree, number: int) -> Tree:
    """The revision with this number, stored."""
    if revision["revision"] == number:
        return revision
    return api.update(CONTROLLER_REVISIONS, {**revision, "revision": number})


def by_number(revisions: Iterable[Tree]) -> list[Tree]:
    """Lowest number first; of equal ones the oldest."""

    def rank(each: Tree) -> tuple[int, float, str]:
        meta = each["metadata"]
        return each["revision"], unix_seconds(meta.get("creationTimestamp")), meta["name"]

    return sorted(revisions, key=rank)


def delete_revision(api: Store, revision: Tree) -> None:
    """Delete a revision."""
    meta = revision["metadata"]
    api.delete(CONTROLLER_REVISIONS, meta["namespace"], meta["name"])


def _name(owner: Tree, hash_: str) -> str:
    return f"{owner['metadata']['name'][:_PREFIX_LETTERS_MAX]}-{hash_}"
