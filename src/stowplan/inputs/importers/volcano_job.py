"""Volcano Jobs: a PodGroup and the pods of all tasks.

They are those that the controller of `stowplan up` creates (`volcano_job_expansion`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.custom.custom_kinds import has_right_types
from stowplan.controllers.volcano.volcano_job_expansion import (
    GROUP_NAME,
    group_name_of,
    group_of_job,
    pod_of_job,
)
from stowplan.inputs.importers.imported_objects import (
    Imported,
    ImportLookup,
    Tree,
    owner_of,
    used,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod
from stowplan.objects.volcano.job_defaults import with_job_defaults
from stowplan.objects.workload import PriorityClass

UNMODELLED = (
    "spec.plugins", "spec.policies", "spec.volumes", "spec.minSuccess", "spec.tasks[].dependsOn",
    "spec.tasks[].policies", "spec.tasks[].topologyPolicy",
)  # fmt: skip
OF_VOLCANO = ("spec.networkTopology", "spec.tasks[].minAvailable", "spec.tasks[].partitionPolicy")
"""Fields that only Volcano's sessions read."""
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
    """The PodGroup and the pods of a Volcano Job that are not in the input, as Volcano's controller
    makes them."""
    read = decode_object(tree, VolcanoJob, "")
    if not has_right_types(tree):
        # The rest of its mistakes are reported where it is read.
        return
    if read.status.state.phase in _ENDED:
        return
    for i, task in enumerate(read.spec.tasks):
        checked(task.replicas, tree, f"spec.tasks[{i}].replicas")
    for path in used(tree, OF_VOLCANO):
        known.remark(f"{path} of Volcano's Jobs counts in Volcano's sessions only")
    job = with_job_defaults(tree)
    job["metadata"].setdefault("uid", "")
    queue, made = known.queue(tree["metadata"], read.namespace)
    yield from made
    if queue:
        job["spec"]["queue"] = queue
    group = known.group_of("Job", read.key) or group_name_of(job)
    if not known.has_group(f"{read.namespace}/{group}"):
        priorities = {one.name: one.value for one in known.inventory.all(PriorityClass)}
        yield _created(tree, group_of_job(job, priorities))
    for task in job["spec"]["tasks"]:
        for index in range(task["replicas"]):
            pod = pod_of_job(job, task, index)
            if not known.has(Pod, f"{read.namespace}/{pod['metadata']['name']}"):
                pod["metadata"]["annotations"][GROUP_NAME] = group
                yield _created(tree, pod)


def _created(tree: Tree, made: Tree) -> Tree:
    """An object of a job, created with it."""
    meta = made["metadata"]
    meta["ownerReferences"] = owner_of(tree)
    created = tree["metadata"].get("creationTimestamp")
    if created:
        meta["creationTimestamp"] = created
    return made
