"""JobSets: their Jobs, as one gang.

A JobSet defines no gang; with a batch scheduler users want all of its pods or none, so minMember of
its PodGroup is the number of all pods. Profiles ignore PodGroups.

Source: sigs.k8s.io/jobset v0.10, pkg/controllers/jobset_controller.go and its webhooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.inputs.importers.imported_objects import (
    Condition,
    Imported,
    ImportLookup,
    Tree,
    in_group,
    is_over,
    mapping,
    namespace_of,
    owner_of,
    pod_group,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.meta import Value
from stowplan.objects.workload import Job

UNMODELLED = (
    "spec.startupPolicy", "spec.replicatedJobs[].dependsOn", "spec.failurePolicy",
    "spec.successPolicy", "spec.coordinator", "spec.volumeClaimPolicies", "spec.managedBy",
)  # fmt: skip
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


class ReplicatedJob(Value, frozen=True):
    """An entry of `spec.replicatedJobs`. template: of a Job."""

    name: str = ""
    replicas: int | None = None
    template: dict[str, Any] = {}


class JobSetSpec(Value, frozen=True):
    """`spec` of a JobSet."""

    replicated_jobs: tuple[ReplicatedJob, ...] = ()
    suspend: bool = False


class JobSetStatus(Value, frozen=True):
    """`status` of a JobSet."""

    terminal_state: str = ""
    conditions: tuple[Condition, ...] = ()


class JobSet(Imported, frozen=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


class JobPodCounts(Value, frozen=True):
    """The fields of a Job's spec that determine how many pods run at once."""

    parallelism: int | None = None
    completions: int | None = None

    def pods(self, tree: Tree, path: str) -> int:
        """Pods that run at once; raises DecodeError."""
        parallelism = checked(self.parallelism, tree, f"{path}.parallelism")
        completions = checked(self.completions, tree, f"{path}.completions", parallelism)
        return min(parallelism, completions)


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A JobSet, its PodGroup, and those of its Jobs that are not in the input."""
    job_set = decode_object(tree, JobSet, "")
    queue, made = known.queue(tree["metadata"], job_set.namespace)
    ended = job_set.status.terminal_state or is_over(
        job_set.status.conditions, "Completed", "Failed"
    )
    if ended or (job_set.spec.suspend and not known.is_queued(tree)):
        return
    yield tree
    yield from made
    if EXCLUSIVE in job_set.metadata.annotations:
        known.remark(f"JobSet: the annotation {EXCLUSIVE} is not modelled")
    group = known.group_of("JobSet", job_set.key) or job_set.name
    jobs: list[Tree] = []
    n_pods = 0
    for place, one in enumerate(job_set.spec.replicated_jobs):
        path = f"spec.replicatedJobs[{place}]"
        spec = dict(mapping(one.template, "spec"))
        counts = decode_object(
            {"kind": "JobSet", "metadata": tree["metadata"], **spec}, JobPodCounts, ""
        )
        per_job = counts.pods(tree, f"{path}.template.spec")
        replicas = checked(one.replicas, tree, f"{path}.replicas")
        n_pods += replicas * per_job
        spec.setdefault("completionMode", "Indexed")
        spec.setdefault("completions", counts.parallelism or 1)
        jobs += [_job(tree, one, spec, n, len(jobs) + n, group) for n in range(replicas)]
    if not known.has_group(f"{job_set.namespace}/{group}"):
        yield pod_group(tree, group, n_pods, queue=queue)
    for job in jobs:
        if not known.has(Job, f"{job_set.namespace}/{job['metadata']['name']}"):
            yield job


def _job(tree: Tree, one: ReplicatedJob, spec: Tree, index: int, overall: int, group: str) -> Tree:
    name = tree["metadata"]["name"]
    marks = {
        "jobset.sigs.k8s.io/jobset-name": name,
        "jobset.sigs.k8s.io/replicatedjob-name": one.name,
        "jobset.sigs.k8s.io/job-index": str(index),
        "jobset.sigs.k8s.io/job-global-index": str(overall),
    }
    template = mapping(spec, "template")
    meta = in_group(mapping(template, "metadata"), group)
    inner = {
        **meta,
        "labels": {**mapping(meta, "labels"), **marks},
        "annotations": {**meta["annotations"], **marks},
    }
    outer = mapping(one.template, "metadata")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{name}-{one.name}-{index}",
            "namespace": namespace_of(tree),
            "labels": {**mapping(outer, "labels"), **marks},
            "ownerReferences": owner_of(tree),
        },
        "spec": {**spec, "suspend": False, "template": {**template, "metadata": inner}},
    }
