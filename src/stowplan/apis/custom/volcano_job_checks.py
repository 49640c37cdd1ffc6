"""What Volcano's webhooks refuse in a Job on its own, whatever else is in the cluster.

Differs: the pod templates of a Job are looked at when its pods are created.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/jobs/validate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from stowplan.apis.custom.volcano_checks import TWO_TIERS, states_two_tiers
from stowplan.apis.machinery.errors import INVALID, Cause
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.volcano.job_defaults import DEFAULT_TASK

NO_TASK = "No task specified in job spec"
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


def job_causes(job: Tree) -> Iterator[Cause]:
    """Causes of a Job."""
    for path, text in creation_problems(job):
        yield Cause(path, INVALID, text)


def creation_problems(job: Tree) -> Iterator[tuple[str, str]]:
    """(path, text): what is wrong with a new Job, whatever else is in the cluster."""
    spec = job.get("spec") or {}
    tasks = [one or {} for one in spec.get("tasks") or ()]
    if not tasks:
        yield "spec.tasks", NO_TASK
    if states_two_tiers(spec.get("networkTopology")):
        yield "spec.networkTopology", TWO_TIERS
    yield from _tasks_problems(tasks, job_name(job))
    n_pods = [task.get("replicas") or 0 for task in tasks]
    if min(n_pods, default=0) >= 0 and (spec.get("minAvailable") or 0) > sum(n_pods):
        text = "job 'minAvailable' should not be greater than total replicas in tasks"
        yield "spec.minAvailable", text
    for text in _policy_problems(spec.get("policies") or (), "spec.policies"):
        yield "", text
    for plugin in spec.get("plugins") or ():
        if plugin not in PLUGINS:
            yield "spec.plugins", f"unable to find job plugin: {plugin}"
    for text in _volume_problems(spec.get("volumes") or ()):
        yield "spec.volumes", text
    if not _is_acyclic(tasks):
        text = "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"
        yield "spec.tasks", text


def _tasks_problems(tasks: list[Tree], job: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for i, (task, name) in enumerate(zip(tasks, task_names(tasks), strict=True)):
        path = f"spec.tasks[{i}]"
        replicas, least = task.get("replicas") or 0, task.get("minAvailable")
        if replicas < 0 or (least or 0) < 0:
            field = "replicas" if replicas < 0 else "minAvailable"
            yield f"{path}.{field}", f"'{field}' must be >= 0 in task: {name}"
        if least is not None and least > replicas >= 0:
            text = f"'minAvailable' is greater than 'replicas' in task: {name}, job: {job}"
            yield f"{path}.minAvailable", text
        if name in seen:
            yield f"{path}.name", f"duplicated task name {name}"
            break
        seen.add(name)
        for text in _policy_problems(task.get("policies") or (), "spec.tasks.policies"):
            yield "", text
        for text in partition_problems(task, name, job):
            yield f"{path}.partitionPolicy", text


def job_name(job: Tree) -> str:
    """The name of a Job, "" where the server makes one."""
    return str((job.get("metadata") or {}).get("name") or "")


def task_names(tasks: Iterable[Tree]) -> list[str]:
    """Names of tasks, with the default for those without one."""
    return [str(task.get("name") or f"{DEFAULT_TASK}{i}") for i, task in enumerate(tasks)]


def _is_acyclic(tasks: Iterable[Tree]) -> bool:
    """True unless tasks depend on each other in a circle, or on one that does not exist."""
    given = list(tasks)
    names = task_names(given)
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


def partition_problems(task: Tree, name: str, job: str) -> Iterator[str]:
    """What is wrong with the partitions of a task. name, job: of the task and its Job."""
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
