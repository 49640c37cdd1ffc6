"""PyTorchJobs: a PodGroup and the pods of master and workers.

Source: kubeflow training-operator v1.9, pkg/controller.v1/common and pytorch.
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
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.manifests import decode_object
from stowplan.objects.meta import Value
from stowplan.objects.pod import Pod

UNMODELLED = (
    "spec.elasticPolicy",
    "spec.runPolicy.activeDeadlineSeconds",
    "spec.runPolicy.schedulingPolicy.minResources",
    "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds",
)
_FIRST = ("Master", "Worker")


class PyTorchSchedulingPolicy(Value, frozen=True):
    """`spec.runPolicy.schedulingPolicy`."""

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""


class PyTorchRunPolicy(Value, frozen=True):
    """`spec.runPolicy`."""

    suspend: bool = False
    scheduling_policy: PyTorchSchedulingPolicy = PyTorchSchedulingPolicy()


class PyTorchReplicaSpec(Value, frozen=True):
    """A value of `spec.pytorchReplicaSpecs`."""

    replicas: int | None = None
    template: dict[str, Any] = {}


class PyTorchJobSpec(Value, frozen=True):
    """`spec` of a PyTorchJob."""

    run_policy: PyTorchRunPolicy = PyTorchRunPolicy()
    pytorch_replica_specs: dict[str, PyTorchReplicaSpec] = {}


class PyTorchJobStatus(Value, frozen=True):
    """`status` of a PyTorchJob."""

    conditions: tuple[Condition, ...] = ()


class PyTorchJob(Imported, frozen=True):
    """A PyTorchJob."""

    spec: PyTorchJobSpec = PyTorchJobSpec()
    status: PyTorchJobStatus = PyTorchJobStatus()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """The PodGroup and the pods of a PyTorchJob that are not in the input."""
    job = decode_object(tree, PyTorchJob, "")
    run = job.spec.run_policy
    if is_over(job.status.conditions, "Succeeded", "Failed"):
        return
    if run.suspend and not known.is_queued(tree):
        return
    replicas = job.spec.pytorch_replica_specs
    order = sorted(replicas, key=lambda kind: (kind not in _FIRST, kind))
    counts = {
        kind: checked(replicas[kind].replicas, tree, f"spec.pytorchReplicaSpecs.{kind}.replicas")
        for kind in order
    }
    queue, made = known.queue(tree["metadata"], job.namespace)
    yield from made
    policy = run.scheduling_policy
    group = known.group_of("PyTorchJob", job.key) or job.name
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
                labels = _labels(job, kind, index)
                yield pod_of(tree, name, replicas[kind].template, labels, group)


def _labels(job: PyTorchJob, kind: str, index: int) -> Tree:
    found = {
        "training.kubeflow.org/job-name": job.name,
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/replica-index": str(index),
        "training.kubeflow.org/replica-type": kind.lower(),
    }
    return found | ({"training.kubeflow.org/job-role": "master"} if kind == "Master" else {})
