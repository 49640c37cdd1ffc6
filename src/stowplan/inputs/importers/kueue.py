"""Jobs with Kueue's label: gangs in the queue of their LocalQueue.

Kueue admits a Job as a whole once its ClusterQueue has quota; here it counts as admitted.

Source: sigs.k8s.io/kueue v0.14, pkg/controller/jobs/job.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.inputs.importers.imported_objects import (
    ImportLookup,
    Tree,
    in_group,
    mapping,
    pod_group,
)
from stowplan.inputs.importers.jobset import JobPodCounts
from stowplan.inputs.manifests import decode_object
from stowplan.objects.workload import Job

UNMODELLED: tuple[str, ...] = ()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """The Job, admitted, and its PodGroup."""
    job: Job = decode_object(tree, Job, "")
    queue, made = known.queue(tree["metadata"], job.namespace)
    yield from made
    counts = JobPodCounts(job.spec.parallelism, job.spec.completions)
    group = known.group_of("Job", job.key) or job.name
    if not known.has_group(f"{job.namespace}/{group}"):
        yield pod_group(tree, group, counts.pods(tree, "spec"), queue=queue)
    spec = mapping(tree, "spec")
    template = mapping(spec, "template")
    inner = {**template, "metadata": in_group(mapping(template, "metadata"), group)}
    yield {**tree, "spec": {**spec, "suspend": False, "template": inner}}
