"""Jobs of Volcano: what its webhooks refuse of new and of changed ones.

Differs: the pod templates of a Job are looked at when its pods are created.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/jobs/validate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import stored_object, stored_objects
from stowplan.apiserver.admission.queues.volcano_group_admission import (
    OPEN,
    QUEUES,
    TWO_TIERS,
    states_two_tiers,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.volcano.job_defaults import DEFAULT_QUEUE, DEFAULT_TASK

JOBS = "batch.volcano.sh/jobs"
ROOT = "root"

ANY_EVENT = "*"
EVENTS = (
    ANY_EVENT, "PodFailed", "PodEvicted", "PodPending", "Unknown", "TaskCompleted", "TaskFailed",
    "JobUpdated",
)  # fmt: skip
"""Events that a policy may name."""

ACTIONS = (
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob",
    "CompleteJob", "ResumeJob",
)  # fmt: skip
"""Actions that a policy may name."""

PLUGINS = frozenset(
    {"ssh", "env", "svc", "tensorflow", "mpi", "pytorch", "hcclrank", "ray"},
)
"""Plugins of Jobs."""

CHANGEABLE = (
    "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under spec` "
    "and `PriorityClassName`"
)


def job_problem(call: ApiCall, job: Tree, old: Tree | None) -> str:
    """Why a Job may not be created or changed, "" if it may."""
    tasks = (job.get("spec") or {}).get("tasks") or ()
    if not tasks and old is None:
        return "No task specified in job spec"
    if old is None:
        return "; ".join(_creation_problems(call, job))
    return next(_change_problems(job, old), "")


def _creation_problems(call: ApiCall, job: Tree) -> Iterator[str]:
    spec, tasks = job["spec"], job["spec"]["tasks"]
    if states_two_tiers(spec.get("networkTopology")):
        yield TWO_TIERS
    seen: set[str] = set()
    for task, name in zip(tasks, _names(tasks), strict=True):
        replicas, least = task.get("replicas") or 0, task.get("minAvailable")
        if replicas < 0 or (least or 0) < 0:
            field = "replicas" if replicas < 0 else "minAvailable"
            yield f"'{field}' must be >= 0 in task: {name}"
        if least is not None and least > replicas:
            yield f"'minAvailable' is greater than 'replicas' in task: {name}, job: {_name(job)}"
        if name in seen:
            yield f"duplicated task name {name}"
            break
        seen.add(name)
        yield from _policy_problems(task.get("policies") or (), "spec.tasks.policies")
        yield from _partition_problems(task, name, _name(job))
    if (spec.get("minAvailable") or 0) > sum(task.get("replicas") or 0 for task in tasks):
        yield "job 'minAvailable' should not be greater than total replicas in tasks"
    yield from _policy_problems(spec.get("policies") or (), "spec.policies")
    for plugin in spec.get("plugins") or ():
        if plugin not in PLUGINS:
            yield f"unable to find job plugin: {plugin}"
    yield from _volume_problems(spec.get("volumes") or ())
    yield from _queue_problems(call, spec.get("queue") or DEFAULT_QUEUE)
    if not _is_acyclic(tasks):
        yield ("job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)")


def _name(job: Tree) -> str:
    return str(job["metadata"].get("name") or "")


def _names(tasks: Iterable[Tree]) -> list[str]:
    return [str(task.get("name") or f"{DEFAULT_TASK}{i}") for i, task in enumerate(tasks)]


def _is_acyclic(tasks: Iterable[Tree]) -> bool:
    """True unless tasks depend on each other in a circle, or on one that does not exist."""
    given = list(tasks)
    names = _names(given)
    above = {
        name: list((task.get("dependsOn") or {}).get("name") or ())
        for name, task in zip(names, given, strict=True)
    }
    if any(one not in above for needed in above.values() for one in needed):
        return False
    try:
        TopologicalSorter(above).prepare()
    except CycleError:
        return False
    return True


def _volume_problems(volumes: Iterable[Tree]) -> Iterator[str]:
    seen: set[str] = set()
    for volume in volumes:
        path, claim = volume.get("mountPath") or "", volume.get("volumeClaim")
        if not path:
            yield "mountPath is required"
        elif path in seen:
            yield f"duplicated mountPath: {path}"
        elif claim is None and not volume.get("volumeClaimName"):
            yield "either VolumeClaim or VolumeClaimName must be specified"
        elif claim is not None and volume.get("volumeClaimName"):
            yield (
                "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
                "If you want to create a new PVC, you do not need to specify VolumeClaimName"
            )
        seen.add(path)


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


def _partition_problems(task: Tree, name: str, job: str) -> Iterator[str]:
    parts, where = task.get("partitionPolicy"), f"in task: {name}, job: {job}"
    if not parts:
        return
    total, size = parts.get("totalPartitions") or 0, parts.get("partitionSize") or 0
    fewest, least = parts.get("minPartitions") or 0, task.get("minAvailable")
    if total <= 0:
        yield f"'TotalPartitions' must be greater than 0 {where}"
    elif size <= 0:
        yield f"'PartitionSize' must be greater than 0 {where}"
    elif (task.get("replicas") or 0) != total * size:
        yield f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}"
    elif least is not None and fewest > 0 and fewest * size != least:
        yield f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"
    if states_two_tiers(parts.get("networkTopology")):
        yield TWO_TIERS


def _policy_problems(policies: Iterable[Tree], path: str) -> Iterator[str]:
    """The first thing that is wrong with the policies at a path."""
    problem = next(_policies_problems(list(policies), path), "")
    if problem:
        yield (
            f"{problem}; valid events are {' '.join(EVENTS)}, valid actions are {' '.join(ACTIONS)}"
        )


def _policies_problems(policies: list[Tree], path: str) -> Iterator[str]:
    events: set[str] = set()
    codes: set[int] = set()
    for policy in policies:
        named, code = _events(policy), policy.get("exitCode")
        if named and code is not None:
            yield "must not specify event and exitCode simultaneously"
        elif not named and code is None:
            yield "either event and exitCode should be specified"
        elif code is not None:
            if code == 0:
                yield "0 is not a valid error code"
            if code in codes:
                yield f"duplicate exitCode {code}"
            codes.add(code)
        for event in named:
            if event not in EVENTS:
                yield f'{path}: Invalid value: "{event}": invalid policy event'
            if policy.get("action") not in ACTIONS:
                action = policy.get("action") or ""
                yield f'{path}: Invalid value: "{action}": invalid policy action'
            if event in events:
                yield f"duplicate event {event}  across different policy"
            events.add(event)
    if ANY_EVENT in events and len(events) > 1:
        yield "if there's * here, no other policy should be here"


def _events(policy: Tree) -> list[str]:
    """The events of a policy, each once."""
    named = [*(policy.get("events") or ()), policy.get("event")]
    return list(dict.fromkeys(str(event) for event in named if event))


def _change_problems(job: Tree, old: Tree) -> Iterator[str]:
    spec, before = job.get("spec") or {}, old.get("spec") or {}
    tasks = spec.get("tasks") or []
    for task, name in zip(tasks, _names(tasks), strict=True):
        replicas, least = task.get("replicas") or 0, task.get("minAvailable")
        if replicas < 0:
            yield f"'replicas' must be >= 0 in task: {name}"
        if least is not None and least < 0:
            yield f"'minAvailable' must be >= 0 in task: {name}"
        if least is not None and least > replicas:
            yield f"'minAvailable' must be <= 'replicas' in task: {name}"
        yield from _partition_problems(task, name, _name(job))
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
