"""ControllerRevisions of a DaemonSet: the current one, and the old ones up to the limit.

Source: kube-controller-manager v1.36, pkg/controller/daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller_ref_manager import claim_objects
from stowplan.controller_runtime.object_index import ObjectIndex, PodFacts
from stowplan.controller_runtime.resource_paths import CONTROLLER_REVISIONS, DAEMON_SETS, PODS
from stowplan.controllers.workloads.controller_revisions import (
    HASH_LABEL,
    delete_revision,
    revision_data,
    set_number,
)
from stowplan.controllers.workloads.deployment_revision import template_hash
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store


@dataclass(frozen=True, slots=True)
class DaemonSetHistory:
    """The revision of the current template, and all others."""

    current: Tree
    old: Sequence[Tree]

    @property
    def hash(self) -> str:
        """Label of the pods of the current template."""
        return str(self.current["metadata"]["labels"][HASH_LABEL])


def construct_history(
    api: Store, index: ObjectIndex, owner: Tree, owner_ref: Tree, pods: Sequence[PodFacts]
) -> DaemonSetHistory:
    """Claim the revisions, and create or renumber that of the current template.

    Raises ApiError if its name is taken; the next attempt uses another.
    """
    data = revision_data(owner["spec"]["template"])
    claimed = claim_objects(api, index, CONTROLLER_REVISIONS, owner, owner_ref)
    labelled = [_with_hash_label(api, each) for each in claimed]
    old = [each for each in labelled if each["data"] != data]
    equal = [each for each in labelled if each["data"] == data]
    number = max((each["revision"] for each in old), default=0) + 1
    if not equal:
        return DaemonSetHistory(_create(api, owner, owner_ref, data, number), old)
    current = _without_duplicates(api, equal, pods)
    if current["revision"] < number:
        current = set_number(api, current, number)
    return DaemonSetHistory(current, old)


def clean_up_history(
    api: Store, owner: Tree, history: DaemonSetHistory, pods: Iterable[PodFacts]
) -> None:
    """Delete the oldest revisions that no pod has beyond the limit."""
    beyond = len(history.old) - owner["spec"].get("revisionHistoryLimit", 10)
    if beyond <= 0:
        return
    live = {pod.labels.get(HASH_LABEL) for pod in pods}
    unused = [
        each for each in history.old if each["metadata"]["labels"].get(HASH_LABEL) not in live
    ]
    for each in sorted(unused, key=lambda each: int(each["revision"]))[:beyond]:
        delete_revision(api, each)


def _with_hash_label(api: Store, revision: Tree) -> Tree:
    labels = revision["metadata"].setdefault("labels", {})
    if HASH_LABEL in labels:
        return revision
    labels[HASH_LABEL] = revision["metadata"]["name"]
    return api.update(CONTROLLER_REVISIONS, revision)


def _without_duplicates(api: Store, equal: Sequence[Tree], pods: Sequence[PodFacts]) -> Tree:
    """The latest of several revisions of one template, after its label was given to all pods."""
    if len(equal) == 1:
        return equal[0]
    number = max(each["revision"] for each in equal)
    kept = [each for each in equal if each["revision"] == number][-1]
    hash_ = kept["metadata"]["labels"][HASH_LABEL]
    for pod in pods:
        found = api.get(PODS, *pod.key) if pod.labels.get(HASH_LABEL) != hash_ else None
        if found is not None:
            found["metadata"].setdefault("labels", {})[HASH_LABEL] = hash_
            api.update(PODS, found)
    for each in equal:
        if each is not kept:
            delete_revision(api, each)
    return kept


def _create(api: Store, owner: Tree, owner_ref: Tree, data: Tree, number: int) -> Tree:
    meta, template = owner["metadata"], owner["spec"]["template"]
    hash_ = template_hash(template, (owner.get("status") or {}).get("collisionCount"))
    labels = (template.get("metadata") or {}).get("labels") or {}
    made = {
        "kind": "ControllerRevision",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": f"{meta['name']}-{hash_}",
            "namespace": meta["namespace"],
            "labels": {**labels, HASH_LABEL: hash_},
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [owner_ref],
        },
        "data": data,
        "revision": number,
    }
    try:
        return api.create(CONTROLLER_REVISIONS, made)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        found = api.get(CONTROLLER_REVISIONS, meta["namespace"], f"{meta['name']}-{hash_}")
        if found is not None and found["data"] == data:
            return found
        status = owner.setdefault("status", {})
        status["collisionCount"] = status.get("collisionCount", 0) + 1
        api.update_status(DAEMON_SETS, owner)
        raise
