"""Jobs of Kubeflow's training operator: a PodGroup and the pods of all replicas.

Source: kubeflow training-operator v1.9, pkg/controller.v1/common and the controllers of its kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.inputs.importers.imported_objects import (
    Condition,
    Imported,
    ImportLookup,
    Tree,
    is_over,
    pod_group,
    pod_of,
    used,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

UNMODELLED = (
    "spec.elasticPolicy.maxReplicas",
    "spec.elasticPolicy.maxRestarts",
    "spec.elasticPolicy.metrics",
    "spec.runPolicy.activeDeadlineSeconds",
    "spec.runPolicy.schedulingPolicy.minResources",
    "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds",
)
MINIMUM = "spec.elasticPolicy.minReplicas"
_FIRST = ("Launcher", "Chief", "Master", "PS", "Worker")
_FIELDS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch_replica_specs"),
    "TFJob": ("tfReplicaSpecs", "tf_replica_specs"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgb_replica_specs"),
    "JAXJob": ("jaxReplicaSpecs", "jax_replica_specs"),
    "MPIJob": ("mpiReplicaSpecs", "mpi_replica_specs"),
}
"""Kind -> the field with its replicas, in its `spec` and in `TrainingJobSpec`."""
_ROLES = {"Chief": "master", "Master": "master", "Launcher": "launcher"}


class TrainingSchedulingPolicy(Value, frozen=True):
    """`spec.runPolicy.schedulingPolicy`."""

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""


class TrainingRunPolicy(Value, frozen=True):
    """`spec.runPolicy`."""

    suspend: bool = False
    scheduling_policy: TrainingSchedulingPolicy = TrainingSchedulingPolicy()


class TrainingReplicaSpec(Value, frozen=True):
    """A value of a field with replicas."""

    replicas: int | None = None
    template: dict[str, Any] = {}


class TrainingJobSpec(Value, frozen=True):
    """`spec` of a job, which has one of the fields with replicas."""

    run_policy: TrainingRunPolicy = TrainingRunPolicy()
    pytorch_replica_specs: dict[str, TrainingReplicaSpec] = {}
    tf_replica_specs: dict[str, TrainingReplicaSpec] = {}
    xgb_replica_specs: dict[str, TrainingReplicaSpec] = {}
    jax_replica_specs: dict[str, TrainingReplicaSpec] = {}
    mpi_replica_specs: dict[str, TrainingReplicaSpec] = {}


class TrainingJobStatus(Value, frozen=True):
    """`status` of a job."""

    conditions: tuple[Condition, ...] = ()


class TrainingJob(Imported, frozen=True):
    """A job."""

    spec: TrainingJobSpec = TrainingJobSpec()
    status: TrainingJobStatus = TrainingJobStatus()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A job, its PodGroup, and those of its pods that are not in the input."""
    job = decode_object(tree, TrainingJob, "")
    run = job.spec.run_policy
    if is_over(job.status.conditions, "Succeeded", "Failed"):
        return
    if run.suspend and not known.is_queued(tree):
        return
    yield tree
    field, name = _FIELDS[tree["kind"]]
    replicas: dict[str, TrainingReplicaSpec] = getattr(job.spec, name)
    order = sorted(replicas, key=lambda kind: (kind not in _FIRST, kind))
    counts = {
        kind: checked(replicas[kind].replicas, tree, f"spec.{field}.{kind}.replicas")
        for kind in order
    }
    if used(tree, [MINIMUM]):
        known.remark(f"{tree['kind']}: {MINIMUM} is a job's minimum with KAI-Scheduler alone")
    queue, made = known.queue(tree["metadata"], job.namespace)
    yield from made
    policy = run.scheduling_policy
    group = known.group_of(tree["kind"], job.key) or job.name
    if not known.has_group(f"{job.namespace}/{group}"):
        needed = policy.min_available
        yield pod_group(
            tree,
            group,
            sum(counts.values()) if needed is None else needed,
            queue=queue or policy.queue,
            priority_class=policy.priority_class,
        )
    for kind in order:
        for index in range(counts[kind]):
            name = f"{job.name}-{kind.lower()}-{index}"
            if not known.has(Pod, f"{job.namespace}/{name}"):
                labels = _labels(tree, kind, index)
                yield pod_of(tree, name, replicas[kind].template, labels, group)


def _labels(tree: Tree, kind: str, index: int) -> Tree:
    found = {
        "training.kubeflow.org/job-name": tree["metadata"]["name"],
        "training.kubeflow.org/operator-name": f"{tree['kind'].lower()}-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": kind.lower(),
    }
    role = "worker" if tree["kind"] == "MPIJob" else ""
    role = _ROLES.get(kind, role)
    return found | ({"training.kubeflow.org/job-role": role} if role else {})
