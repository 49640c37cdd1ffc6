"""The JobSet that the trainer of Kubeflow makes of a TrainJob and its runtime.

Source: kubeflow trainer v2.1, pkg/runtime/framework/plugins (jobset, plainml, torch);
sigs.k8s.io/kueue of 2026-08-22, pkg/controller/jobs/trainjob/trainjob_controller.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from stowplan.objects.encoding.tree import Tree

GROUP = "trainer.kubeflow.org"
TRAIN_JOBS = f"{GROUP}/trainjobs"
RUNTIMES = {
    "ClusterTrainingRuntime": f"{GROUP}/clustertrainingruntimes",
    "TrainingRuntime": f"{GROUP}/trainingruntimes",
}
"""Kind of a runtime -> path."""
STEP_LABEL = f"{GROUP}/trainjob-ancestor-step"
NODE = "node"
"""Name of the trainer's job and container in runtimes."""
KUEUE_MANAGER = "kueue.x-k8s.io/manager"
"""Manager of the runtime patch that has what an admission changes."""
_MAPPINGS = ("nodeSelector", "affinity")
_LISTS = ("tolerations", "schedulingGates")


def runtime_key(job: Tree) -> tuple[str, str, str]:
    """Path, namespace and name of the runtime of a TrainJob."""
    reference = job["spec"].get("runtimeRef") or {}
    path = RUNTIMES.get(reference.get("kind") or "ClusterTrainingRuntime", "")
    is_namespaced = path == RUNTIMES["TrainingRuntime"]
    namespace = job["metadata"]["namespace"] if is_namespaced else ""
    return path, namespace, str(reference.get("name", ""))


def child_job_set_spec(job: Tree, runtime: Tree, *, with_kueue: bool = False) -> Tree:
    """`spec` of the JobSet of a TrainJob.

    job, runtime: as stored; neither is modified. with_kueue: with what Kueue's own patch changes.
    Without a template the trainer's job is the only one.
    """
    spec = runtime.get("spec") or {}
    template = (spec.get("template") or {}).get("spec") or {}
    trainer = job["spec"].get("trainer") or {}
    nodes = trainer.get("numNodes")
    if nodes is None:
        nodes = (spec.get("mlPolicy") or {}).get("numNodes")
    jobs = copy.deepcopy(template.get("replicatedJobs") or [{"name": NODE, "template": {}}])
    for one in jobs:
        if _is_trainer(one):
            _set_trainer(one, nodes, trainer.get("resourcesPerNode"))
    for name, patch in _pod_patches(job, with_kueue=with_kueue):
        for one in jobs:
            if one.get("name") == name:
                _apply_patch(_pod_template(one), patch)
    return {**template, "suspend": False, "replicatedJobs": jobs}


def _is_trainer(one: Tree) -> bool:
    meta = (one.get("template") or {}).get("metadata") or {}
    step = (meta.get("labels") or {}).get(STEP_LABEL)
    return bool(step == "trainer" if step else one.get("name") == NODE)


def _set_trainer(one: Tree, nodes: int | None, resources: Tree | None) -> None:
    """Give the trainer's replicated job the nodes and resources of the TrainJob."""
    pods = _pod_template(one)
    if nodes is not None:
        one["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
    containers = pods["spec"].get("containers") or [{"name": NODE}]
    if resources is not None:
        named = [each for each in containers if each.get("name") == NODE]
        (named or containers)[0]["resources"] = copy.deepcopy(resources)
    pods["spec"]["containers"] = containers


def _pod_template(one: Tree) -> Tree:
    """The pod template of a replicated job, made where there is none."""
    tree = one
    for name in ("template", "spec", "template"):
        tree[name] = tree.get(name) or {}
        tree = tree[name]
    tree["spec"] = tree.get("spec") or {}
    return tree


def _pod_patches(job: Tree, *, with_kueue: bool) -> Iterator[tuple[str, Tree]]:
    """Name of a replicated job, and the patch of its pod template; of Kueue or without."""
    for one in job["spec"].get("runtimePatches") or ():
        if with_kueue or one.get("manager") != KUEUE_MANAGER:
            yield from patches_of(one)


def patches_of(runtime_patch: Tree) -> Iterator[tuple[str, Tree]]:
    """The patches of pod templates in one runtime patch."""
    found = runtime_patch.get("trainingRuntimeSpec") or {}
    for name in ("template", "spec"):
        found = found.get(name) or {}
    for one in found.get("replicatedJobs") or ():
        template = ((one.get("template") or {}).get("spec") or {}).get("template")
        if template:
            yield str(one.get("name", "")), template


def _apply_patch(template: Tree, patch: Tree) -> None:
    """Merge what of a patch decides where pods may go: mappings by key, lists by appending."""
    meta = template["metadata"] = template.get("metadata") or {}
    for name in ("labels", "annotations"):
        more = (patch.get("metadata") or {}).get(name)
        if more:
            meta[name] = {**(meta.get(name) or {}), **more}
    spec, wanted = template["spec"], patch.get("spec") or {}
    for name in _MAPPINGS:
        if wanted.get(name):
            spec[name] = {**(spec.get(name) or {}), **copy.deepcopy(wanted[name])}
    for name in _LISTS:
        old = spec.get(name) or []
        new = [copy.deepcopy(one) for one in wanted.get(name) or () if one not in old]
        if new:
            spec[name] = [*old, *new]


def add_kueue_patch(spec: Tree) -> None:
    """Give the spec of a new TrainJob the empty patch that an admission fills in."""
    patches = spec.setdefault("runtimePatches", [])
    if all(one.get("manager") != KUEUE_MANAGER for one in patches):
        empty: Tree = {"template": {"spec": {}}}
        patches.append({"manager": KUEUE_MANAGER, "trainingRuntimeSpec": empty})


def set_kueue_patches(job: Tree, replicated_jobs: list[Tree]) -> None:
    """Replace what an admission changes in a TrainJob; without any it is as it was created."""
    add_kueue_patch(job["spec"])
    for one in job["spec"]["runtimePatches"]:
        if one.get("manager") != KUEUE_MANAGER:
            continue
        template = one.setdefault("trainingRuntimeSpec", {}).setdefault("template", {})
        inner = template["spec"] = template.get("spec") or {}
        if replicated_jobs:
            inner["replicatedJobs"] = replicated_jobs
        else:
            inner.pop("replicatedJobs", None)
