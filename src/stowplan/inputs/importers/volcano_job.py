"""Volcano Jobs: a PodGroup and the pods of all tasks.

Source: Volcano v1.13, pkg/controllers/job and the defaults of its webhooks.
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
    pod_group,
    pod_of,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

DEFAULT_SCHEDULER = "volcano"
UNMODELLED = (
    "spec.plugins", "spec.policies", "spec.volumes", "spec.minSuccess", "spec.networkTopology",
    "spec.tasks[].dependsOn", "spec.tasks[].minAvailable", "spec.tasks[].policies",
    "spec.tasks[].topologyPolicy", "spec.tasks[].partitionPolicy",
)  # fmt: skip
_ENDED = ("Aborting", "Aborted", "Completing", "Completed", "Terminating", "Terminated", "Failed")


class VolcanoTaskSpec(Value, frozen=True):
    """An entry of `spec.tasks`."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    template: dict[str, Any] = {}


class VolcanoJobSpec(Value, frozen=True):
    """`spec` of a Volcano Job."""

    scheduler_name: str = ""
    min_available: int = 0
    queue: str = ""
    priority_class_name: str = ""
    tasks: tuple[VolcanoTaskSpec, ...] = ()


class VolcanoJobState(Value, frozen=True):
    """`status.state` of a Volcano Job."""

    phase: str = ""


class VolcanoJobStatus(Value, frozen=True):
    """`status` of a Volcano Job."""

    state: VolcanoJobState = VolcanoJobState()


class VolcanoJob(Imported, frozen=True):
    """A Volcano Job."""

    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus = VolcanoJobStatus()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """The PodGroup and the pods of a Volcano Job that are not in the input."""
    job = decode_object(tree, VolcanoJob, "")
    if job.status.state.phase in _ENDED:
        return
    tasks = [checked(task.replicas, tree, f"spec.tasks[{i}].replicas")
             for i, task in enumerate(job.spec.tasks)]  # fmt: skip
    uid = job.metadata.uid
    group = known.group_of("Job", job.key) or (f"{job.name}-{uid}" if uid else job.name)
    queue, made = known.queue(tree["metadata"], job.namespace)
    yield from made
    if not known.has_group(f"{job.namespace}/{group}"):
        needed = job.spec.min_available or sum(
            one.replicas if one.min_available is None else one.min_available
            for one in job.spec.tasks
        )
        yield pod_group(
            tree, group, needed,
            queue=queue or job.spec.queue, priority_class=job.spec.priority_class_name,
        )  # fmt: skip
    for place, (task, replicas) in enumerate(zip(job.spec.tasks, tasks, strict=True)):
        yield from _pods(tree, job, task, place, replicas, group, known)


def _pods(
    tree: Tree,
    job: VolcanoJob,
    task: VolcanoTaskSpec,
    place: int,
    replicas: int,
    group: str,
    known: ImportLookup,
) -> Iterator[Tree]:
    meta = mapping(task.template, "metadata")
    name = task.name or meta.get("name") or f"default{place}"
    spec = dict(mapping(task.template, "spec"))
    spec.setdefault("schedulerName", job.spec.scheduler_name or DEFAULT_SCHEDULER)
    template = {"metadata": {**meta, "annotations": _annotations(meta, job, name)}, "spec": spec}
    for index in range(replicas):
        pod = f"{job.name}-{name}-{index}"
        if not known.has(Pod, f"{namespace_of(tree)}/{pod}"):
            labels = {
                "volcano.sh/job-name": job.name,
                "volcano.sh/job-namespace": job.namespace,
                "volcano.sh/queue-name": job.spec.queue or "default",
                "volcano.sh/task-spec": name,
                "volcano.sh/task-index": str(index),
            }
            yield pod_of(tree, pod, template, labels, group)


def _annotations(meta: Tree, job: VolcanoJob, task: str) -> Tree:
    return {
        **mapping(meta, "annotations"),
        "volcano.sh/job-name": job.name,
        "volcano.sh/queue-name": job.spec.queue or "default",
        "volcano.sh/task-spec": task,
    }
