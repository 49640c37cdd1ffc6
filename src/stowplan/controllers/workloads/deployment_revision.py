"""The new ReplicaSet of a Deployment, and the revision annotations.

Source: kube-controller-manager v1.36, pkg/controller/deployment/util/deployment_util.go.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence

from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controllers.workloads.rolling_update import ReplicaSetSize, RollingUpdateLimits
from stowplan.objects.encoding.tree import Tree

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    "deprecated.deployment.rollback.to",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
}
_HISTORY_CHARACTERS_MAX = 2000
_SAFE_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Tree, collisions: int | None) -> str:
    """Value of the pod-template-hash label.

    Differs: the original hashes the memory image of its Go value, which cannot be reproduced
    elsewhere; here the canonical JSON is hashed, so that names are as long but not the same.
    """
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    data = text.encode()
    if collisions is not None:
        data += collisions.to_bytes(8, "little")
    return name_hash(data)


def name_hash(data: bytes) -> str:
    """A hash for names: FNV-1a of 32 bits, encoded."""
    number = 0x811C9DC5
    for byte in data:
        number = ((number ^ byte) * 0x01000193) & 0xFFFFFFFF
    return encoded_hash(number)


def encoded_hash(number: int) -> str:
    """A hash as it occurs in names: without vowels, so that it spells no words."""
    return "".join(_SAFE_LETTERS[ord(digit) % len(_SAFE_LETTERS)] for digit in str(number))


def same_template(one: Tree, other: Tree) -> bool:
    """True when two pod templates are equal, the hash label aside."""
    return _without_hash(one) == _without_hash(other)


def _without_hash(template: Tree) -> Tree:
    meta = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH_LABEL}
    meta["labels"] = labels
    return {**template, "metadata": {k: v for k, v in meta.items() if v}}


def by_creation(sets: Iterable[Tree]) -> list[Tree]:
    """Oldest first."""
    return sorted(sets, key=lambda each: (created(each), each["metadata"]["name"]))


def created(obj: Tree) -> float:
    """Creation time in Unix seconds."""
    return unix_seconds(obj["metadata"].get("creationTimestamp"))


def find_new_replica_set(deployment: Tree, sets: Iterable[Tree]) -> Tree | None:
    """The ReplicaSet of the current template, the oldest of several; None before it is created."""
    wanted = deployment["spec"]["template"]
    found = (each for each in by_creation(sets) if same_template(each["spec"]["template"], wanted))
    return next(found, None)


def revision(obj: Tree) -> int:
    """Number in the revision annotation; 0 if absent or invalid."""
    text = (obj["metadata"].get("annotations") or {}).get(REVISION, "")
    return uint_or_none(text) or 0


def next_revision(old_sets: Sequence[Tree]) -> int:
    """One more than the highest revision of the old ReplicaSets."""
    return max((revision(each) for each in old_sets), default=0) + 1


def annotate(newest: Tree, deployment: Tree, number: int) -> bool:
    """Update the annotations of the new ReplicaSet; True if that changed any."""
    annotations = newest["metadata"].setdefault("annotations", {})
    before = dict(annotations)
    for name, value in (deployment["metadata"].get("annotations") or {}).items():
        if name not in _NOT_COPIED:
            annotations[name] = value
    old = annotations.get(REVISION)
    known = uint_or_none(old or "0")
    if known is None:
        return bool(annotations != before)
    if known < number:
        annotations[REVISION] = str(number)
        if old is not None:
            _append_revision_history(annotations, old)
    return bool(annotations != before)


def _append_revision_history(annotations: dict[str, str], old: str) -> None:
    """Record the revision that a ReplicaSet had before a rollback to it."""
    kept = [each for each in annotations.get(REVISION_HISTORY, "").split(",") if each]
    while kept and len(",".join([*kept, old])) > _HISTORY_CHARACTERS_MAX:
        kept.pop(0)
    annotations[REVISION_HISTORY] = ",".join([*kept, old])


def size_annotations(limits: RollingUpdateLimits) -> dict[str, str]:
    """Annotations with the Deployment's size, which show later that it was scaled."""
    return {DESIRED_REPLICAS: str(limits.replicas), MAX_REPLICAS: str(limits.most)}


def replica_set_size(each: Tree) -> ReplicaSetSize:
    """A ReplicaSet in the form that `rolling_update` uses."""
    most = (each["metadata"].get("annotations") or {}).get(MAX_REPLICAS, "")
    return ReplicaSetSize(
        name=each["metadata"]["name"],
        wanted=each["spec"].get("replicas", 0),
        available=(each.get("status") or {}).get("availableReplicas", 0),
        created=created(each),
        most_before=uint_or_none(most) or 0,
    )


def new_replica_set(
    deployment: Tree, owner_ref: Tree, number: int, replicas: int, limits: RollingUpdateLimits
) -> Tree:
    """The ReplicaSet to create for the current template."""
    spec = deployment["spec"]
    template = copy.deepcopy(spec["template"])
    hash_ = template_hash(spec["template"], (deployment.get("status") or {}).get("collisionCount"))
    meta = template.setdefault("metadata", {})
    meta["labels"] = {**(meta.get("labels") or {}), HASH_LABEL: hash_}
    selector = copy.deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: hash_}
    name = deployment["metadata"]["name"][: 253 - 1 - len(hash_)]
    made: Tree = {
        "kind": "ReplicaSet",
        "apiVersion": "apps/v1",
        "metadata": {
            "name": f"{name}-{hash_}",
            "namespace": deployment["metadata"]["namespace"],
            "labels": dict(meta["labels"]),
            "annotations": {},
            "ownerReferences": [owner_ref],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
        "status": {"replicas": 0},
    }
    if spec.get("minReadySeconds"):
        made["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    annotate(made, deployment, number)
    made["metadata"]["annotations"].update(size_annotations(limits))
    return made
