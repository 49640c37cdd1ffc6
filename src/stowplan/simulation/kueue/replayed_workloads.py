"""Workloads of a replay: what is created for Kueue's controllers, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from stowplan.batch.queue_models.kueue.reports.workload_reports import WorkloadSummary
from stowplan.controller_runtime.object_times import unix_seconds
from stowplan.controllers.kueue.kueue_kinds import (
    POD_GROUP_COUNT,
    POD_GROUP_LABEL,
    PRIORITY_LABEL,
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
from stowplan.simulation.kueue.queued_jobs import owner_of_pod, owner_of_tree

_GROUPS = ("PodGroup", "Queue")


class ReplayedWorkload(WorkloadSummary, frozen=True):
    """A Workload at the end of a replay.

    created_s, admitted_s, finished_s: seconds since the start, None: not. wait_s: until it was
    admitted last.
    """

    created_s: float = 0.0
    admitted_s: float | None = None
    finished_s: float | None = None
    wait_s: float | None = None


def replayed_workloads(
    trees: Iterable[Tree], start_s: float, titles: Mapping[tuple[str, str], str]
) -> list[ReplayedWorkload]:
    """All Workloads, in the order in which they were created. titles: see `group_titles`."""
    found = [_replayed(tree, start_s, titles) for tree in trees]
    return sorted(found, key=lambda one: (one.created_s, one.namespace, one.job))


def group_titles(cluster: Cluster) -> dict[tuple[str, str], str]:
    """Namespace and name of a group of pods that stands for a job -> the job, as `jobset/train`."""
    owners = [owner_of_tree(tree) for tree in cluster.queued if not _is_batch(tree)]
    return {key[1:]: f"{key[0].lower()}/{key[2]}" for key in owners}


def _replayed(
    tree: Tree, start_s: float, titles: Mapping[tuple[str, str], str]
) -> ReplayedWorkload:
    meta, spec, status = tree["metadata"], tree["spec"], tree.get("status") or {}
    created = unix_seconds(meta.get("creationTimestamp")) - start_s
    admitted = _since(tree, ADMITTED, start_s)
    admission = status.get("admission") or {}
    kinds = ((FINISHED, "Finished"), (ADMITTED, "Admitted"), (QUOTA_RESERVED, "QuotaReserved"))
    state = next((name for kind, name in kinds if is_true(tree, kind)), "Pending")
    waits = condition_of(tree, QUOTA_RESERVED) or {}
    owners = meta.get("ownerReferences") or ()
    owner = next((f"{one['kind'].lower()}/{one['name']}" for one in owners), "")
    if any(one["name"] != meta["name"] and one["kind"] == "Pod" for one in owners):
        owner = titles.get((meta["namespace"], meta["name"]), owner)
    if len(owners) > 1:
        owner = titles.get((meta["namespace"], meta["name"]), f"podgroup/{meta['name']}")
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
        {
            one["name"]: dict(one.get("flavors") or {})
            for one in admission.get("podSetAssignments") or ()
        },
        created_s=created,
        admitted_s=admitted,
        finished_s=_since(tree, FINISHED, start_s),
        wait_s=None if admitted is None else admitted - created,
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

    Jobs with a queue, JobSets and jobs of Kubeflow stand in place of their pods. Other jobs with a
    queue, and TrainJobs without a runtime, have no controller here: their pods are pod groups of
    Kueue. Groups that reading made of jobs are left out.
    """
    read = {_identity(tree) for tree in cluster.manifests}
    job_sets = {owner_of_tree(tree): tree for tree in _runnable(cluster.job_sets)}
    owners = {owner_of_tree(tree): tree for tree in cluster.queued} | job_sets
    jobs = [tree for tree in cluster.queued if tree["kind"] == "Job" and _is_batch(tree)]
    for tree in (*cluster.kueue_objects, *job_sets.values(), *jobs):
        if _identity(tree) not in read:
            yield tree
    of_pods = {pod.key: owner_of_pod(pod, owners) for pod in cluster.pods}
    sizes = Counter(of_pods.values())
    for tree in documents:
        identity = _identity(tree)
        if identity in read:
            yield tree
            continue
        if tree["kind"] in _GROUPS:
            continue
        owner = of_pods.get("/".join(identity[1:])) if tree["kind"] == "Pod" else None
        if owner is None:
            yield tree
        elif owner[0] != "Job" and owner not in job_sets:
            yield _in_group(tree, owners.get(owner, tree), owner[2], sizes[owner])


def _runnable(job_sets: list[Tree]) -> Iterator[Tree]:
    """All but TrainJobs whose runtime is not among them."""
    known = {(tree["kind"], tree["metadata"]["name"]) for tree in job_sets}
    for tree in job_sets:
        reference = (tree.get("spec") or {}).get("runtimeRef") or {}
        runtime = reference.get("kind") or "ClusterTrainingRuntime", reference.get("name")
        if tree["kind"] != "TrainJob" or runtime in known:
            yield tree


def _is_batch(tree: Tree) -> bool:
    return str(tree.get("apiVersion", "")).startswith("batch/")


def _identity(tree: Tree) -> tuple[str, str, str]:
    return str(tree["kind"]), namespace_of(tree), str(tree["metadata"].get("name"))


def _in_group(tree: Tree, owner: Tree, group: str, size: int) -> Tree:
    """A pod of a job as one of a pod group in the queue of the job."""
    meta = dict(tree["metadata"])
    queue = (owner["metadata"].get("labels") or {}).get(QUEUE_LABEL, "")
    own = {
        key: value
        for key, value in (owner["metadata"].get("labels") or {}).items()
        if key == PRIORITY_LABEL
    }
    marks = {QUEUE_LABEL: queue, POD_GROUP_LABEL: group, **own}
    meta["labels"] = {**(meta.get("labels") or {}), **marks}
    meta["annotations"] = {**(meta.get("annotations") or {}), POD_GROUP_COUNT: str(size)}
    spec = tree["spec"]
    if owner is not tree and spec.get("restartPolicy", "Always") == "Always":
        # Pods of jobs end; a template of Kubeflow need not say so.
        spec = {**spec, "restartPolicy": "Never"}
    return {**tree, "metadata": meta, "spec": spec}
