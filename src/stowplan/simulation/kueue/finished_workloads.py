"""Workloads of jobs that have ended: they hold no quota, and no admission reports them."""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.batch.queue_models.kueue.admission_workload import FINISHED
from stowplan.batch.queue_models.kueue.reports.workload_reports import WorkloadReport
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import QUEUE_LABEL, namespace_of
from stowplan.objects.encoding.tree import Tree

_ENDS = ("Complete", "Failed", "Completed", "Succeeded")
"""Conditions of jobs that have ended."""


def finished_workloads(cluster: Cluster) -> Iterator[WorkloadReport]:
    """Of the Workloads that are Finished, and of ended jobs without one."""
    known: set[tuple[str, str]] = set()
    for tree in cluster.kueue_objects:
        ended = _condition(tree, (FINISHED,)) if tree["kind"] == "Workload" else None
        if ended is not None:
            found = _of_workload(tree, ended)
            known.add((found.namespace, found.job))
            yield found
    for tree in cluster.queued:
        ended = _condition(tree, _ENDS)
        if ended is None:
            continue
        found = _of_job(tree, ended)
        if (found.namespace, found.job) not in known:
            yield found


def _of_workload(tree: Tree, ended: Tree) -> WorkloadReport:
    spec, name = tree.get("spec") or {}, str(tree["metadata"].get("name"))
    owners = tree["metadata"].get("ownerReferences") or ()
    titles = [f"{str(one.get('kind')).lower()}/{one.get('name')}" for one in owners]
    if len(titles) > 1:
        titles = [f"podgroup/{name}"]
    admission = (tree.get("status") or {}).get("admission") or {}
    return WorkloadReport(
        namespace_of(tree),
        titles[0] if titles else f"workload/{name}",
        str(spec.get("queueName") or ""),
        str(admission.get("clusterQueue") or ""),
        int(spec.get("priority") or 0),
        sum(int(one.get("count") or 0) for one in spec.get("podSets") or ()),
        FINISHED,
        str(ended.get("reason") or ""),
        str(ended.get("message") or ""),
        name=name,
    )


def _of_job(tree: Tree, ended: Tree) -> WorkloadReport:
    meta, spec = tree["metadata"], tree.get("spec") or {}
    n_pods = spec.get("completions") or spec.get("parallelism") or 0
    return WorkloadReport(
        namespace_of(tree),
        f"{str(tree['kind']).lower()}/{meta.get('name')}",
        str((meta.get("labels") or {}).get(QUEUE_LABEL) or ""),
        "",
        0,
        n_pods if isinstance(n_pods, int) else 0,
        FINISHED,
        str(ended.get("reason") or ended.get("type")),
        str(ended.get("message") or ""),
    )


def _condition(tree: Tree, types: tuple[str, ...]) -> Tree | None:
    """The first condition of these types that is True."""
    conditions: list[Tree] = (tree.get("status") or {}).get("conditions") or []
    found = (one for one in conditions if one.get("type") in types and one.get("status") == "True")
    return next(found, None)
