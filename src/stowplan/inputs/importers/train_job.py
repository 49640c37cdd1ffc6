"""TrainJobs, expanded through the JobSet of their runtime's template.

Source: kubeflow trainer v2.1, pkg/runtime/framework/plugins (jobset, plainml, torch).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.config.strict_decoder import format_value
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
    "spec.runtimePatches", "spec.activeDeadlineSeconds", "spec.managedBy",
)  # fmt: skip
_OF_RUNTIME = ("spec.mlPolicy.mpi", "spec.mlPolicy.flux", "spec.mlPolicy.torch.elasticPolicy")
STEP_LABEL = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE = "node"
"""Name of the trainer's job and container in runtimes."""


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


def _runtime(tree: Tree, job: TrainJob, known: ImportLookup) -> TrainingRuntime:
    reference = job.spec.runtime_ref
    is_namespaced = reference.kind == "TrainingRuntime"
    key = f"{namespace_of(tree)}/{reference.name}" if is_namespaced else reference.name
    found = known.sources.get((f"{reference.kind}.trainer.kubeflow.org", key))
    if found is None:
        known.remark(
            f"{reference.kind} {key} is not in the input: its TrainJobs have numNodes pods that"
            " request trainer.resourcesPerNode"
        )
        return TrainingRuntime()
    unmodelled = used(found, _OF_RUNTIME)
    if unmodelled:
        known.remark(f"{reference.kind} {key}: not modelled: {list_names(unmodelled)}")
    runtime: TrainingRuntime = decode_object(found, TrainingRuntime, "")
    return runtime


def _job_set(tree: Tree, job: TrainJob, runtime: TrainingRuntime) -> Tree:
    template = runtime.spec.template
    given = _mappings(template.spec, "replicatedJobs") or [{"name": NODE, "template": {}}]
    nodes = job.spec.trainer.num_nodes
    if nodes is None:
        nodes = runtime.spec.ml_policy.num_nodes
    checked(nodes, tree, "spec.trainer.numNodes")
    jobs = [_trained(one, nodes, job) if _is_trainer(one) else one for one in given]
    labels = {**mapping(template.metadata, "labels"), **job.spec.labels}
    meta = tree["metadata"]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {**meta, "labels": {**labels, **mapping(meta, "labels")}},
        "spec": {**template.spec, "suspend": False, "replicatedJobs": jobs},
    }


def _is_trainer(one: Tree) -> bool:
    labels = mapping(mapping(mapping(one, "template"), "metadata"), "labels")
    step = labels.get(STEP_LABEL)
    return bool(step == "trainer" if step else one.get("name") == NODE)


def _trained(one: Tree, nodes: int | None, job: TrainJob) -> Tree:
    """The trainer's replicated job with the nodes and resources of the TrainJob."""
    template = mapping(one, "template")
    spec = dict(mapping(template, "spec"))
    if nodes is not None:
        spec |= {"parallelism": nodes, "completions": nodes}
    pods = mapping(spec, "template")
    pod_spec = dict(mapping(pods, "spec"))
    containers = [dict(each) for each in _mappings(pod_spec, "containers")] or [{"name": NODE}]
    resources = job.spec.trainer.resources_per_node
    if resources is not None:
        named = [each for each in containers if each.get("name") == NODE]
        (named or containers)[0]["resources"] = resources
    pod_spec["containers"] = containers
    spec["template"] = {**pods, "spec": pod_spec}
    return {**one, "template": {**template, "spec": spec}}


def _mappings(tree: Tree, name: str) -> list[Tree]:
    """A field with a list of mappings; raises DecodeError."""
    found = tree.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise DecodeError(mismatch(format_value(found), "a list of mappings"), name)
    return found
