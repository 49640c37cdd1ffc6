"""TrainJobs, expanded through the JobSet of their runtime's template.

Source: kubeflow trainer v2.1, pkg/runtime/framework/plugins (jobset, plainml, torch).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.config.strict_decoder import format_value
from stowplan.controllers.kueue.train_jobs import child_job_set_spec
from stowplan.inputs.importers import jobset
from stowplan.inputs.importers.imported_objects import (
    Condition,
    Imported,
    ImportLookup,
    Tree,
    is_over,
    key_of,
    list_names,
    mapping,
    namespace_of,
    used,
)
from stowplan.inputs.importers.replica_counts import checked
from stowplan.inputs.input_error import mismatch
from stowplan.inputs.manifests import decode_object
from stowplan.objects.encoding.json_codec import DecodeError
from stowplan.objects.meta import Value

UNMODELLED = (
    "spec.initializer", "spec.podSpecOverrides", "spec.podTemplateOverrides",
    "spec.activeDeadlineSeconds", "spec.managedBy",
)  # fmt: skip
_OF_RUNTIME = ("spec.mlPolicy.mpi", "spec.mlPolicy.flux", "spec.mlPolicy.torch.elasticPolicy")


class TrainingRuntimeRef(Value, frozen=True):
    """`spec.runtimeRef`."""

    name: str = ""
    kind: str = "ClusterTrainingRuntime"


class Trainer(Value, frozen=True):
    """`spec.trainer`."""

    num_nodes: int | None = None
    resources_per_node: dict[str, Any] | None = None


class TrainJobSpec(Value, frozen=True):
    """`spec` of a TrainJob."""

    runtime_ref: TrainingRuntimeRef = TrainingRuntimeRef()
    trainer: Trainer = Trainer()
    suspend: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class TrainJobStatus(Value, frozen=True):
    """`status` of a TrainJob."""

    conditions: tuple[Condition, ...] = ()


class TrainJob(Imported, frozen=True):
    """A TrainJob."""

    spec: TrainJobSpec = TrainJobSpec()
    status: TrainJobStatus = TrainJobStatus()


class MLPolicy(Value, frozen=True):
    """`spec.mlPolicy` of a runtime."""

    num_nodes: int | None = None


class JobSetTemplate(Value, frozen=True):
    """`spec.template` of a runtime."""

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}


class TrainingRuntimeSpec(Value, frozen=True):
    """`spec` of a runtime."""

    ml_policy: MLPolicy = MLPolicy()
    template: JobSetTemplate = JobSetTemplate()


class TrainingRuntime(Imported, frozen=True):
    """A TrainingRuntime or ClusterTrainingRuntime."""

    spec: TrainingRuntimeSpec = TrainingRuntimeSpec()


def expand(tree: Tree, known: ImportLookup) -> Iterator[Tree]:
    """A TrainJob, its JobSet with the PodGroup, and those of its Jobs that are not in the input."""
    job = decode_object(tree, TrainJob, "")
    if is_over(job.status.conditions, "Complete", "Failed"):
        return
    if job.spec.suspend and not known.is_queued(tree):
        return
    yield tree
    # An existing JobSet is imported itself.
    if ("JobSet.jobset.x-k8s.io", key_of(tree)) not in known.sources:
        yield from jobset.expand(_job_set(tree, job, _runtime(tree, job, known)), known)


def _runtime(tree: Tree, job: TrainJob, known: ImportLookup) -> Tree:
    """The runtime of a TrainJob; empty if it is not in the input."""
    reference = job.spec.runtime_ref
    is_namespaced = reference.kind == "TrainingRuntime"
    key = f"{namespace_of(tree)}/{reference.name}" if is_namespaced else reference.name
    found = known.sources.get((f"{reference.kind}.trainer.kubeflow.org", key))
    if found is None:
        known.remark(
            f"{reference.kind} {key} is not in the input: its TrainJobs have numNodes pods that"
            " request trainer.resourcesPerNode"
        )
        return {}
    unmodelled = used(found, _OF_RUNTIME)
    if unmodelled:
        known.remark(f"{reference.kind} {key}: not modelled: {list_names(unmodelled)}")
    return found


def _job_set(tree: Tree, job: TrainJob, found: Tree) -> Tree:
    runtime = decode_object(found, TrainingRuntime, "") if found else TrainingRuntime()
    template = runtime.spec.template
    for one in _mappings(template.spec, "replicatedJobs"):
        _mappings(mapping(_pod_template(one), "spec"), "containers")
    nodes = job.spec.trainer.num_nodes
    if nodes is None:
        nodes = runtime.spec.ml_policy.num_nodes
    checked(nodes, tree, "spec.trainer.numNodes")
    labels = {**mapping(template.metadata, "labels"), **job.spec.labels}
    meta = tree["metadata"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {**meta, "labels": {**labels, **mapping(meta, "labels")}},
        "spec": child_job_set_spec(tree, found),
    }


def _pod_template(one: Tree) -> Tree:
    return mapping(mapping(mapping(one, "template"), "spec"), "template")


def _mappings(tree: Tree, name: str) -> list[Tree]:
    """A field with a list of mappings; raises DecodeError."""
    found = tree.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise DecodeError(mismatch(format_value(found), "a list of mappings"), name)
    return found
