"""Defaults of Volcano Jobs.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/jobs/mutate/mutate_job.go.
"""

from __future__ import annotations

import copy

from stowplan.objects.encoding.tree import Tree

DEFAULT_QUEUE, DEFAULT_SCHEDULER, DEFAULT_TASK = "default", "volcano", "default"
MAX_RETRY = 3

_NEEDS = {"tensorflow": ("svc",), "mpi": ("svc", "ssh"), "pytorch": ("svc",), "ray": ("svc",)}
"""Plugin of a Job -> those that it needs."""


def with_job_defaults(job: Tree) -> Tree:
    """A copy of a Job, whose types are right, with the defaults that Volcano's webhook sets."""
    made = copy.deepcopy(job)
    set_job_defaults(made)
    return made


def set_job_defaults(job: Tree) -> None:
    """Set the defaults of a Job, whose types are right."""
    spec = job["spec"] = job.get("spec") or {}
    spec["queue"] = spec.get("queue") or DEFAULT_QUEUE
    spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
    spec["maxRetry"] = spec.get("maxRetry") or MAX_RETRY
    tasks = spec["tasks"] = spec.get("tasks") or []
    for place, task in enumerate(tasks):
        _set_task_defaults(task, place)
    spec["minAvailable"] = spec.get("minAvailable") or sum(task["minAvailable"] for task in tasks)
    for name in [*(spec.get("plugins") or ())]:
        for needed in _NEEDS.get(name, ()):
            spec["plugins"].setdefault(needed, [])


def _set_task_defaults(task: Tree, place: int) -> None:
    task["name"] = task.get("name") or f"{DEFAULT_TASK}{place}"
    task["replicas"] = task.get("replicas") or 0
    task["maxRetry"] = task.get("maxRetry") or MAX_RETRY
    if task.get("minAvailable") is None:
        parts = task.get("partitionPolicy") or {}
        least = (parts.get("minPartitions") or 0) * (parts.get("partitionSize") or 0)
        task["minAvailable"] = least or task["replicas"]
    template = task["template"] = task.get("template") or {}
    pod = template["spec"] = template.get("spec") or {}
    if pod.get("hostNetwork"):
        pod["dnsPolicy"] = pod.get("dnsPolicy") or "ClusterFirstWithHostNet"
