"""Objects of Volcano: what its webhooks refuse; queues and Jobs here, others in
`queues/volcano_group_admission.py`.

A cycle of parents is refused as a tree that is too deep, as in Volcano.

Differs: Volcano's webhooks also apply the defaults, which here the controllers do.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/queues/validate, jobs/validate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
    targets,
)
from stowplan.apiserver.admission.queues.volcano_group_admission import (
    PROBLEMS,
    TWO_TIERS,
    states_two_tiers,
)
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import QuantityError, amount, format_quantity

QUEUES, JOBS = "scheduling.volcano.sh/queues", "batch.volcano.sh/jobs"
ROOT, DEFAULT = "root", "default"
STATES = ("Open", "Closed")
DEPTH_MAX = 5
HIERARCHY, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
ROOT_PROTECTED = (
    "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
)
UNREADABLE = "quantities must match the regular expression of resource quantities"

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


class VolcanoAdmission(AdmissionPluginBase):
    """Refuses what Volcano would refuse."""

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        why = ""
        if targets(call, QUEUES):
            why = _deletion_problem(call) if obj is None else _queue_problem(call, obj, old)
        elif targets(call, JOBS) and obj is not None:
            why = _job_problem(call, obj, is_new=old is None)
        elif obj is not None and not call.subresource and call.resource.path in PROBLEMS:
            why = PROBLEMS[call.resource.path](call, obj, old)
        if why:
            raise admission_forbidden(call, obj, why)


def _deletion_problem(call: ApiCall) -> str:
    if call.name in (ROOT, DEFAULT):
        return f"`{call.name}` queue can not be deleted"
    children = [one["metadata"]["name"] for one in _children(call, call.name)]
    if children:
        return (
            f"queue {call.name} can not be deleted because it has {len(children)} child queues: "
            f"{', '.join(sorted(children))}"
        )
    return ""


def _queue_problem(call: ApiCall, queue: Tree, old: Tree | None) -> str:
    state = (queue.get("status") or {}).get("state")
    if state and state not in (*STATES, "Closing"):
        return f"queue state must be in [{' '.join(STATES)}]"
    try:
        problems = [*_amount_problems(queue.get("spec") or {}), *_path_problems(call, queue)]
        if old is None or _parent(old) != _parent(queue):
            problems += _place_problems(call, queue)
        if old is not None and queue["metadata"]["name"] == ROOT and _changes(queue, old):
            problems.append(ROOT_PROTECTED)
        if old is None or _parent(old) != _parent(queue) or _changes(queue, old):
            problems += _sum_problems(call, queue)
    except QuantityError:
        return UNREADABLE
    return next(iter(problems), "")


def _changes(queue: Tree, old: Tree) -> bool:
    """True where the amounts of a queue change."""
    fields = ("capability", "deserved", "guarantee")
    return any(_amounts(queue, name) != _amounts(old, name) for name in fields)


def _path_problems(call: ApiCall, queue: Tree) -> Iterator[str]:
    """The annotations of hierarchical drf: as many weights as names, and no queue above others."""
    notes = queue["metadata"].get("annotations") or {}
    path, weights = notes.get(HIERARCHY, ""), notes.get(WEIGHTS, "")
    if not path and not weights:
        return
    if len(path.split("/")) != len(weights.split("/")):
        yield f"{HIERARCHY} must have the same length with {WEIGHTS}"
        return
    for weight in weights.split("/"):
        try:
            if float(weight) <= 0:
                yield f"{weight} in the {weights} must be larger than 0"
        except ValueError:
            yield f"{weight} in the {weights} is invalid number"
    for other in stored_objects(call, QUEUES):
        name = other["metadata"]["name"]
        below = (other["metadata"].get("annotations") or {}).get(HIERARCHY, "")
        if name != queue["metadata"]["name"] and below.startswith(f"{path}/"):
            yield f"{path} is not allowed to be in the sub path of {below} of queue {name}"


def _amount_problems(spec: Tree) -> Iterator[str]:
    """Nothing negative; guaranteed at most what is deserved, and that at most the capability."""
    given = {"capability": spec.get("capability"), "deserved": spec.get("deserved")}
    given["guarantee.resource"] = (spec.get("guarantee") or {}).get("resource")
    for field, amounts in given.items():
        for name, n in (amounts or {}).items():
            if amount(name, n) < 0:
                yield (
                    f'requestBody.spec.{field}.{name}: Invalid value: "{n}": must be greater than '
                    "or equal to 0"
                )
    deserved, capability = spec.get("deserved") or {}, spec.get("capability") or {}
    for name, least in ((spec.get("guarantee") or {}).get("resource") or {}).items():
        limit = f"guarantee[{name}]={least}"
        if name not in deserved:
            yield f"spec.deserved.{name}: deserved[{name}] must be >= {limit}"
        elif amount(name, deserved[name]) < amount(name, least):
            yield f"spec.deserved.{name}: deserved[{name}]={deserved[name]} must be >= {limit}"
    for name, n in deserved.items():
        if name in capability and amount(name, n) > amount(name, capability[name]):
            limit = f"capability[{name}]={capability[name]}"
            yield f"spec.deserved.{name}: deserved[{name}]={n} must be <= {limit}"


def _place_problems(call: ApiCall, queue: Tree) -> Iterator[str]:
    """The parent exists, and the tree is not too deep."""
    name, parent = queue["metadata"]["name"], _parent(queue)
    if name == ROOT:
        return
    if parent == name:
        yield f"queue {name} cannot use itself as parent"
        return
    depth = 1
    while parent not in ("", ROOT):
        depth += 1
        if depth > DEPTH_MAX:
            yield f"queue {name} exceeds the maximum allowed depth of {DEPTH_MAX}"
            return
        found = queue if parent == name else stored_object(call, QUEUES, "", parent)
        if found is None:
            yield f'failed to get parent queue of queue {name}: queues "{parent}" not found'
            return
        parent = _parent(found)
    yield from _parent_problems(call, name, _parent(queue))


def _parent_problems(call: ApiCall, name: str, parent_name: str) -> Iterator[str]:
    """A queue that has pods of its own takes no queue below it."""
    parent = stored_object(call, QUEUES, "", parent_name) if parent_name != ROOT else None
    if parent is None or _children(call, parent_name):
        return
    n_pods = ((parent.get("status") or {}).get("allocated") or {}).get("pods") or "0"
    if amount("pods", n_pods) > 0:
        yield (
            f"queue {parent_name} cannot be the parent queue of queue {name} because it has "
            f"allocated Pods: {n_pods}"
        )


def _sum_problems(call: ApiCall, queue: Tree) -> Iterator[str]:
    """Children together guarantee and deserve at most what their parent does, and no capability
    exceeds that of a parent."""
    name, parent_name = queue["metadata"]["name"], _parent(queue)
    if name == ROOT:
        return
    parent = stored_object(call, QUEUES, "", parent_name) if parent_name != ROOT else None
    if parent is not None:
        siblings = [one for one in _children(call, parent_name) if one["metadata"]["name"] != name]
        yield from _over_sums(f"parent queue {parent_name}", parent, [*siblings, queue])
        yield from _over_capability(queue, parent, "its ancestor's")
    children = _children(call, name)
    yield from _over_sums(f"queue {name}", queue, children)
    for child in children:
        yield from _over_capability(child, queue, "its ancestor's")


def _over_sums(title: str, parent: Tree, children: Iterable[Tree]) -> Iterator[str]:
    given = list(children)
    for field in ("guarantee", "deserved"):
        for name, limit in _amounts(parent, field).items():
            total = sum(amount(name, _amounts(child, field).get(name, 0)) for child in given)
            if total > amount(name, limit):
                yield (
                    f"{title} validation failed: sum of children's {field} "
                    f"({name} {format_quantity(name, total)}) exceeds parent's {field} limit "
                    f"({name} {limit})"
                )


def _over_capability(child: Tree, parent: Tree, whose: str) -> Iterator[str]:
    above = _amounts(parent, "capability")
    for name, n in _amounts(child, "capability").items():
        if name in above and amount(name, n) > amount(name, above[name]):
            yield (
                f"queue {child['metadata']['name']} capability[{name}]={n} exceeds {whose} "
                f"capability={above[name]}"
            )


def _amounts(queue: Tree, field: str) -> Mapping[str, str]:
    found = (queue.get("spec") or {}).get(field) or {}
    amounts: Mapping[str, str] = (found.get("resource") or {}) if field == "guarantee" else found
    return amounts


def _parent(queue: Tree) -> str:
    return str((queue.get("spec") or {}).get("parent") or ROOT)


def _children(call: ApiCall, name: str) -> list[Tree]:
    return [one for one in stored_objects(call, QUEUES) if _parent(one) == name and name != ROOT]


def _job_problem(call: ApiCall, job: Tree, *, is_new: bool) -> str:
    spec = job.get("spec") or {}
    tasks = spec.get("tasks") or ()
    if not tasks:
        return "No task specified in job spec"
    names = [str(task.get("name") or f"{DEFAULT}{i}") for i, task in enumerate(tasks)]
    for name, task in zip(names, tasks, strict=True):
        replicas, least = task.get("replicas") or 0, task.get("minAvailable")
        if replicas < 0:
            return f"'replicas' must be >= 0 in task: {name}"
        if least is not None and least < 0:
            return f"'minAvailable' must be >= 0 in task: {name}"
        if least is not None and least > replicas:
            return f"'minAvailable' must be <= 'replicas' in task: {name}"
        if names.count(name) > 1:
            return f"duplicated task name {name}"
        problem = _policy_problem(task.get("policies") or (), "spec.tasks.policies")
        problem = problem or _partition_problem(task, name, job["metadata"].get("name") or "")
        if problem:
            return problem
    if (spec.get("minAvailable") or 0) > sum(task.get("replicas") or 0 for task in tasks):
        return "job 'minAvailable' must not be greater than total replicas"
    problem = _policy_problem(spec.get("policies") or (), "spec.policies")
    if problem or states_two_tiers(spec.get("networkTopology")):
        return problem or TWO_TIERS
    return _job_queue_problem(call, spec.get("queue") or DEFAULT) if is_new else ""


def _partition_problem(task: Tree, name: str, job: str) -> str:
    """What is wrong with the partitions of a task, "" for nothing."""
    parts, where = task.get("partitionPolicy"), f"in task: {name}, job: {job}"
    if not parts:
        return ""
    total, size = parts.get("totalPartitions") or 0, parts.get("partitionSize") or 0
    fewest, least = parts.get("minPartitions") or 0, task.get("minAvailable")
    if total <= 0:
        return f"'TotalPartitions' must be greater than 0 {where}"
    if size <= 0:
        return f"'PartitionSize' must be greater than 0 {where}"
    if (task.get("replicas") or 0) != total * size:
        return f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}"
    if least is not None and fewest > 0 and fewest * size != least:
        return f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"
    return TWO_TIERS if states_two_tiers(parts.get("networkTopology")) else ""


def _job_queue_problem(call: ApiCall, name: str) -> str:
    queue = stored_object(call, QUEUES, "", name)
    if queue is None:
        return "" if name == DEFAULT else f'unable to find job queue: queues "{name}" not found'
    state = (queue.get("status") or {}).get("state") or STATES[0]
    if state != STATES[0]:
        return f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`"
    if name == ROOT:
        return "can not submit job to root queue"
    if _children(call, name):
        return f"can only submit job to leaf queue, queue `{name}` has child queues"
    return ""


def _policy_problem(policies: Iterable[Tree], path: str) -> str:
    """The first thing that is wrong with the policies at a path, "" for nothing."""
    problem = next(_problems(list(policies), path), "")
    if not problem:
        return ""
    return f"{problem}; valid events are {' '.join(EVENTS)}, valid actions are {' '.join(ACTIONS)}"


def _problems(policies: list[Tree], path: str) -> Iterator[str]:
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
                yield f"duplicate event {event} across different policy"
            events.add(event)
    if ANY_EVENT in events and len(events) > 1:
        yield "if there's * here, no other policy should be here"


def _events(policy: Tree) -> list[str]:
    """The events of a policy, each once."""
    named = [*(policy.get("events") or ()), policy.get("event")]
    return list(dict.fromkeys(str(event) for event in named if event))
