"""Workloads of a replay: what is created for Kueue's controllers, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controllers.kueue.kueue_kinds import (
    POD_GROUP_COUNT,
    POD_GROUP_LABEL,
    QUEUE_LABEL,
)
from stowplan.controllers.kueue.workload_status import (
    ADMITTED,
    FINISHED,
    QUOTA_RESERVED,
    condition_of,
    is_true,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import namespace_of
from stowplan.objects.encoding.tree import Tree

_GROUPS = ("PodGroup", "Queue")
_OF_JOB_SETS = "jobset.sigs.k8s.io/jobset-name"


class ReplayedWorkload(msgspec.Struct, frozen=True):
    """A Workload at the end of a replay.

    job: as `kubectl` names it. status: Finished, Admitted, QuotaReserved or Pending. reason,
    message: of its condition QuotaReserved while it is pending. created_s, admitted_s, finished_s:
    seconds since the start, None: not. wait_s: until it was admitted last.
    """

    namespace: str
    job: str
    local_queue: str
    cluster_queue: str
    priority: int
    pods: int
    status: str
    reason: str = ""
    message: str = ""
    created_s: float = 0.0
    admitted_s: float | None = None
    finished_s: float | None = None
    wait_s: float | None = None
    flavors: dict[str, dict[str, str]] = {}


def replayed_workloads(trees: Iterable[Tree], start_s: float) -> list[ReplayedWorkload]:
    """All Workloads, in the order in which they were created."""
    found = [_replayed(tree, start_s) for tree in trees]
    return sorted(found, key=lambda one: (one.created_s, one.namespace, one.job))


def _replayed(tree: Tree, start_s: float) -> ReplayedWorkload:
    meta, spec, status = tree["metadata"], tree["spec"], tree.get("status") or {}
    created = unix_seconds(meta.get("creationTimestamp")) - start_s
    admitted = _since(tree, ADMITTED, start_s)
    admission = status.get("admission") or {}
    kinds = ((FINISHED, "Finished"), (ADMITTED, "Admitted"), (QUOTA_RESERVED, "QuotaReserved"))
    state = next((name for kind, name in kinds if is_true(tree, kind)), "Pending")
    waits = condition_of(tree, QUOTA_RESERVED) or {}
    owners = meta.get("ownerReferences") or ()
    owner = next((f"{one['kind'].lower()}/{one['name']}" for one in owners), "")
    if len(owners) > 1:
        owner = f"podgroup/{meta['name']}"
    return ReplayedWorkload(
        meta["namespace"],
        owner or f"workload/{meta['name']}",
        str(spec.get("queueName", "")),
        str(admission.get("clusterQueue", "")),
        int(spec.get("priority") or 0),
        sum(int(one.get("count", 1)) for one in spec["podSets"]),
        state,
        "" if state != "Pending" else str(waits.get("reason", "")),
        "" if state != "Pending" else str(waits.get("message", "")),
        created,
        admitted,
        _since(tree, FINISHED, start_s),
        None if admitted is None else admitted - created,
        {
            one["name"]: dict(one.get("flavors") or {})
            for one in admission.get("podSetAssignments") or ()
        },
    )


def _since(tree: Tree, kind: str, start_s: float) -> float | None:
    found = condition_of(tree, kind)
    if found is None or found.get("status") != "True":
        return None
    return unix_seconds(found.get("lastTransitionTime")) - start_s


def replay_notes(workloads: list[ReplayedWorkload]) -> list[str]:
    """How many workloads were admitted, and why the others wait."""
    waiting = [one for one in workloads if one.status in ("Pending", "QuotaReserved")]
    n_admitted = len(workloads) - len(waiting)
    return [
        f"Kueue: {n_admitted} of {len(workloads)} workloads admitted",
        *(f"{one.job} in {one.namespace}: {one.reason}: {one.message}" for one in waiting),
    ]


def queued_documents(documents: Iterable[Tree], cluster: Cluster) -> Iterator[Tree]:
    """Documents of a replay with what reading expanded for a cluster without Kueue.

    Jobs with a queue stand in place of their pods. Other jobs with a queue have no controller
    here: their pods are pod groups of Kueue. Groups that reading made of jobs are left out.
    """
    found = list(documents)
    read = {_identity(tree) for tree in cluster.manifests}
    jobs = [tree for tree in cluster.queued if tree["kind"] == "Job" and _is_batch(tree)]
    for tree in (*cluster.kueue_objects, *jobs):
        if _identity(tree) not in read:
            yield tree
    names = {_identity(tree)[1:] for tree in jobs}
    owned = {
        pod.key
        for pod in cluster.pods
        for ref in pod.metadata.owner_references
        if ref.kind == "Job" and (pod.namespace, ref.name) in names
    }
    sizes = Counter(map(_group_of, found))
    for tree in found:
        identity = _identity(tree)
        is_made = identity not in read
        if is_made and (tree["kind"] in _GROUPS or "/".join(identity[1:]) in owned):
            continue
        group = _group_of(tree) if is_made else ""
        yield _in_group(tree, group, sizes[group]) if group else tree


def _is_batch(tree: Tree) -> bool:
    return str(tree.get("apiVersion", "")).startswith("batch/")


def _identity(tree: Tree) -> tuple[str, str, str]:
    return str(tree["kind"]), namespace_of(tree), str(tree["metadata"].get("name"))


def _group_of(tree: Tree) -> str:
    """The job of a pod that reading made, "" for none with a queue."""
    labels = tree["metadata"].get("labels") or {}
    if tree["kind"] != "Pod" or not labels.get(QUEUE_LABEL) or POD_GROUP_LABEL in labels:
        return ""
    return str(labels.get(_OF_JOB_SETS) or tree["metadata"]["name"].rpartition("-")[0])


def _in_group(tree: Tree, group: str, size: int) -> Tree:
    meta = dict(tree["metadata"])
    meta["labels"] = {**(meta.get("labels") or {}), POD_GROUP_LABEL: group}
    meta["annotations"] = {**(meta.get("annotations") or {}), POD_GROUP_COUNT: str(size)}
    return {**tree, "metadata": meta}
