"""Volcano Jobs expanded: the PodGroup of a Job, and its pods.

Source: volcano master of 2026-08-20, pkg/controllers/job/job_controller_actions.go,
job_controller_util.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from stowplan.controller_runtime.object_fields import controller_reference
from stowplan.controllers.volcano.volcano_kinds import BATCH_VERSION, SCHEDULING_VERSION
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.quantity import format_quantity

GROUP_NAME = "scheduling.k8s.io/group-name"
JOB_NAME, JOB_NAMESPACE = "volcano.sh/job-name", "volcano.sh/job-namespace"
QUEUE_NAME, TASK_SPEC = "volcano.sh/queue-name", "volcano.sh/task-spec"
TASK_INDEX, JOB_VERSION = "volcano.sh/task-index", "volcano.sh/job-version"
RETRY_COUNT, TEMPLATE = "volcano.sh/job-retry-count", "volcano.sh/template-uid"
PARTITION = "volcano.sh/partition-id"

_INHERITED_ANNOTATIONS = (
    "volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable",
)  # fmt: skip
_INHERITED_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")


def group_name_of(job: Tree) -> str:
    """Name of the PodGroup of a Job."""
    meta = job["metadata"]
    return f"{meta['name']}-{meta['uid']}" if meta.get("uid") else str(meta["name"])


def pod_name_of(job: Tree, task: Tree, index: int) -> str:
    """Name of a pod of a Job."""
    return f"{job['metadata']['name']}-{task['name']}-{index}"


def group_of_job(job: Tree, priorities: Mapping[str, int] | None = None) -> Tree:
    """The PodGroup of a Job with defaults. priorities: values of PriorityClasses."""
    meta, spec = job["metadata"], job["spec"]
    made: Tree = {
        "minMember": spec["minAvailable"],
        "minTaskMember": {task["name"]: task["minAvailable"] for task in spec["tasks"]},
        "queue": spec["queue"],
        "minResources": _least(spec["tasks"], spec["minAvailable"], priorities or {}),
    }
    if spec.get("priorityClassName"):
        made["priorityClassName"] = spec["priorityClassName"]
    if spec.get("networkTopology"):
        made["networkTopology"] = copy.deepcopy(spec["networkTopology"])
    policies = [policy for task in spec["tasks"] for policy in _sub_groups(task)]
    if policies:
        made["subGroupPolicy"] = policies
    return {
        "apiVersion": SCHEDULING_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": group_name_of(job),
            "namespace": meta.get("namespace") or "default",
            "annotations": dict(meta.get("annotations") or {}),
            "labels": dict(meta.get("labels") or {}),
            "ownerReferences": [controller_reference(job, "Job", BATCH_VERSION)],
        },
        "spec": made,
    }


def _sub_groups(task: Tree) -> Iterable[Tree]:
    """The sub-groups of a task with partitions."""
    parts = task.get("partitionPolicy")
    if not parts:
        return
    policy: Tree = {
        "name": task["name"],
        "labelSelector": {"matchLabels": {TASK_SPEC: task["name"]}},
        "matchLabelKeys": [PARTITION],
        "subGroupSize": parts.get("partitionSize"),
    }
    if parts.get("minPartitions"):
        policy["minSubGroups"] = parts["minPartitions"]
    if parts.get("networkTopology"):
        policy["networkTopology"] = copy.deepcopy(parts["networkTopology"])
    yield policy


def _least(tasks: list[Tree], n_pods: int, priorities: Mapping[str, int]) -> Tree:
    """What the minimum of a Job requests: pods of tasks with a high priority first, of each task
    its minimum before the rest of any."""
    ordered = sorted(
        tasks,
        key=lambda task: -priorities.get(task["template"]["spec"].get("priorityClassName", ""), 0),
    )
    counts: list[tuple[Tree, int]] = [(task, task["minAvailable"]) for task in ordered]
    counts += [(task, task["replicas"] - task["minAvailable"]) for task in ordered]
    amounts: dict[str, int] = {}
    n_all = 0
    for task, available in counts:
        n_taken = max(min(available, n_pods), 0)
        n_pods, n_all = n_pods - n_taken, n_all + n_taken
        pod = convert({"metadata": {}, "spec": task["template"]["spec"]}, Pod)
        for name, n in requested(pod).items():
            amounts[name] = amounts.get(name, 0) + n * n_taken
    found = {name: format_quantity(name, n) for name, n in amounts.items() if n}
    return {**found, "pods": str(n_all)}


def pod_of_job(job: Tree, task: Tree, index: int) -> Tree:
    """A pod of a Job with defaults."""
    meta, status = job["metadata"], job.get("status") or {}
    template = copy.deepcopy(task["template"])
    spec, own = template["spec"], template.get("metadata") or {}
    spec["schedulerName"] = spec.get("schedulerName") or job["spec"]["schedulerName"]
    if job["spec"].get("priorityClassName"):
        spec.setdefault("priorityClassName", job["spec"]["priorityClassName"])
    given, labelled = meta.get("annotations") or {}, meta.get("labels") or {}
    annotations = {
        **(own.get("annotations") or {}),
        TASK_INDEX: str(index),
        TASK_SPEC: task["name"],
        GROUP_NAME: group_name_of(job),
        JOB_NAME: meta["name"],
        QUEUE_NAME: job["spec"]["queue"],
        JOB_VERSION: str(status.get("version") or 0),
        TEMPLATE: f"{meta['name']}-{task['name']}",
        RETRY_COUNT: str(status.get("retryCount") or 0),
        **{key: given[key] for key in _INHERITED_ANNOTATIONS if key in given},
    }
    labels = {
        **(own.get("labels") or {}),
        TASK_INDEX: str(index),
        JOB_NAME: meta["name"],
        TASK_SPEC: task["name"],
        JOB_NAMESPACE: meta.get("namespace") or "default",
        QUEUE_NAME: job["spec"]["queue"],
        **{key: labelled[key] for key in _INHERITED_LABELS if key in labelled},
    }
    size = (task.get("partitionPolicy") or {}).get("partitionSize") or 0
    if task.get("partitionPolicy"):
        labels[PARTITION] = str(index // size if size > 0 else 0)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name_of(job, task, index),
            "namespace": meta.get("namespace") or "default",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_reference(job, "Job", BATCH_VERSION)],
        },
        "spec": spec,
    }
