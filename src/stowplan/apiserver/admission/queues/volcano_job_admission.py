"""Jobs of Volcano: what its webhooks refuse of new and of changed ones.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/jobs/validate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from stowplan.apis.custom.volcano_checks import TWO_TIERS, states_two_tiers
from stowplan.apis.custom.volcano_job_checks import (
    NO_TASK,
    creation_problems,
    job_name,
    partition_problems,
    task_names,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import stored_object, stored_objects
from stowplan.apiserver.admission.queues.volcano_group_admission import OPEN, QUEUES
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.volcano.job_defaults import DEFAULT_QUEUE

JOBS = "batch.volcano.sh/jobs"
ROOT = "root"

CHANGEABLE = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` "
    "and `PriorityClassName`"
)


def job_problem(call: ApiCall, job: Tree, old: Tree | None) -> str:
    """Why a Job may not be created or changed, "" if it may."""
    tasks = (job.get("spec") or {}).get("tasks") or ()
    if not tasks and old is None:
        return NO_TASK
    if old is None:
        queue = (job.get("spec") or {}).get("queue") or DEFAULT_QUEUE
        own = (text for _, text in creation_problems(job))
        return "; ".join((*own, *_queue_problems(call, queue)))
    return next(_change_problems(job, old), "")


def _queue_problems(call: ApiCall, name: str) -> Iterator[str]:
    queue = stored_object(call, QUEUES, "", name)
    if queue is None:
        # The default queue is made with the first change; on Volcano it is there from the start.
        if name != DEFAULT_QUEUE:
            yield f'unable to find job queue: queues "{name}" not found'
        return
    state = (queue.get("status") or {}).get("state") or OPEN
    if state != OPEN:
        yield f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`"
    if name == ROOT:
        yield "can not submit job to root queue"
        return
    parents = [(one.get("spec") or {}).get("parent") for one in stored_objects(call, QUEUES)]
    if name in parents:
        yield (
            f"can only submit job to leaf queue, queue `{name}` has {parents.count(name)} child "
            "queues"
        )


def _change_problems(job: Tree, old: Tree) -> Iterator[str]:
    spec, before = job.get("spec") or {}, old.get("spec") or {}
    tasks = spec.get("tasks") or []
    for task, name in zip(tasks, task_names(tasks), strict=True):
        replicas, least = task.get("replicas") or 0, task.get("minAvailable")
        if replicas < 0:
            yield f"'replicas' must be >= 0 in task: {name}"
        if least is not None and least < 0:
            yield f"'minAvailable' must be >= 0 in task: {name}"
        if least is not None and least > replicas:
            yield f"'minAvailable' must be <= 'replicas' in task: {name}"
        yield from partition_problems(task, name, job_name(job))
    least = spec.get("minAvailable") or 0
    if least > sum(task.get("replicas") or 0 for task in tasks):
        yield "job 'minAvailable' must not be greater than total replicas"
    if least < 0:
        yield "job 'minAvailable' must be >= 0"
    if states_two_tiers(spec.get("networkTopology")):
        yield TWO_TIERS
    if len(tasks) != len(before.get("tasks") or ()):
        yield "job updates may not add or remove tasks"
    if _fixed(spec) != _fixed(before):
        yield CHANGEABLE


def _fixed(spec: Tree) -> Any:
    """What of the spec of a Job may not change; fields that say nothing are left out."""
    made = copy.deepcopy(spec)
    for field in ("minAvailable", "priorityClassName"):
        made.pop(field, None)
    for task in made.get("tasks") or ():
        for field in ("replicas", "minAvailable"):
            task.pop(field, None)
    for volume in made.get("volumes") or ():
        if volume.get("volumeClaim") is not None:
            volume.pop("volumeClaimName", None)
    return _without_empty(made)


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        pruned = {key: _without_empty(one) for key, one in value.items()}
        return {key: one for key, one in pruned.items() if one not in (None, "", 0, {}, [])}
    return [_without_empty(one) for one in value] if isinstance(value, list) else value
