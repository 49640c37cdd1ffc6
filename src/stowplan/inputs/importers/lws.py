"""LeaderWorkerSets: the leader and the workers of each group.

Source: sigs.k8s.io/lws v0.7, pkg/controllers and pkg/utils/pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.inputs.importers.imported_objects import (
    Imported,
    ImportLookup,
    Tree,
    mapping,
    namespace_of,
    owner_of,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.kai.grouping.leader_worker_set import GROUP_INDEX, SIZE, WORKER_INDEX
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

UNMODELLED = (
    "spec.rolloutStrategy",
    "spec.networkConfig",
    "spec.leaderWorkerTemplate.restartPolicy",
)
_NAME = "leaderworkerset.sigs.k8s.io/name"


class LeaderWorkerTemplate(Value, frozen=True):
    """`spec.leaderWorkerTemplate`. leader_template: None for the workers' template."""

    size: int | None = None
    leader_template: dict[str, Any] | None = None
    worker_template: dict[str, Any] = {}


class LeaderWorkerSetSpec(Value, frozen=True):
    """`spec` of a LeaderWorkerSet."""

    replicas: int | None = None
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Imported, frozen=True):
    """A LeaderWorkerSet."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A LeaderWorkerSet, and those of its pods that are not in the input."""
    found = decode_object(tree, LeaderWorkerSet, "")
    yield tree
    template = found.spec.leader_worker_template
    size = checked(template.size, tree, "spec.leaderWorkerTemplate.size")
    replicas = checked(found.spec.replicas, tree, "spec.replicas")
    checked(size * replicas, tree, "spec.replicas")
    leader = template.leader_template
    for group in range(replicas):
        for index in range(size):
            name = f"{found.name}-{group}" + (f"-{index}" if index else "")
            if not known.has(Pod, f"{found.namespace}/{name}"):
                is_leader = index == 0 and leader is not None
                used = leader if is_leader and leader is not None else template.worker_template
                yield _pod(tree, name, used, (group, index, size))


def _pod(tree: Tree, name: str, template: Tree, place: tuple[int, int, int]) -> Tree:
    """A pod. place: (index of its group, index in it, number of pods in it)."""
    meta = mapping(template, "metadata")
    group, index, size = place
    labels = {
        **mapping(meta, "labels"),
        _NAME: tree["metadata"]["name"],
        GROUP_INDEX: str(group),
        WORKER_INDEX: str(index),
    }
    made = {
        "name": name,
        "namespace": namespace_of(tree),
        "labels": labels,
        "annotations": {**mapping(meta, "annotations"), SIZE: str(size)},
        "ownerReferences": owner_of(tree),
    }
    created = tree["metadata"].get("creationTimestamp")
    made |= {"creationTimestamp": created} if created else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": mapping(template, "spec")}
