"""Objects of Volcano: what its webhooks add and refuse; queues here, others in
`queues/volcano_group_admission.py` and `queues/volcano_job_admission.py`.

A cycle of parents is refused as a tree that is too deep, as in Volcano.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/queues, jobs/mutate, podgroups/mutate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stowplan.apis.custom.custom_kinds import has_right_types
from stowplan.apis.custom.volcano_checks import amount_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation.field_checks import NOT_NEGATIVE
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
    stored_objects,
    targets,
    typed,
)
from stowplan.apiserver.admission.queues.volcano_group_admission import (
    POD_GROUPS,
    PROBLEMS,
    QUEUES,
)
from stowplan.apiserver.admission.queues.volcano_job_admission import JOBS, job_problem
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.podgroup import VOLCANO_QUEUE_ANNOTATION
from stowplan.objects.quantity import QuantityError, amount, format_quantity
from stowplan.objects.volcano.job_defaults import set_job_defaults

ROOT, DEFAULT = "root", "default"
STATES = ("Open", "Closed")
DEPTH_MAX = 5
HIERARCHY, WEIGHTS = "volcano.sh/hierarchy", "volcano.sh/hierarchy-weights"
ROOT_PROTECTED = (
    "root queue's resource attributes (capability, deserved, guarantee) cannot be modified"
)
UNREADABLE = "quantities must match the regular expression of resource quantities"

_OF_VOLCANO = frozenset({QUEUES, JOBS, *PROBLEMS})


class VolcanoAdmission(AdmissionPluginBase):
    """Adds the defaults that Volcano adds, and refuses what it would refuse."""

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Changes the object that is created; one with values of wrong types is refused later."""
        if obj is None or old is not None or not _is_readable(call, obj):
            return
        if targets(call, QUEUES):
            _set_queue_defaults(obj)
        elif targets(call, JOBS) and (obj.get("spec") or {}).get("tasks"):
            set_job_defaults(obj)
        elif targets(call, POD_GROUPS):
            _set_queue_of_group(call, obj)

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403; values of wrong types are refused by `CustomObjectChecks`."""
        if not (_is_readable(call, obj) and _is_readable(call, old)):
            return
        why = ""
        if targets(call, QUEUES):
            why = _deletion_problem(call) if obj is None else _queue_problem(call, obj, old)
        elif targets(call, JOBS) and obj is not None:
            why = job_problem(call, obj, old)
        elif obj is not None and not call.subresource and call.resource.path in PROBLEMS:
            why = PROBLEMS[call.resource.path](call, obj, old)
        if why:
            raise admission_forbidden(call, obj, why)


def _is_readable(call: ApiCall, obj: Tree | None) -> bool:
    """True unless an object of Volcano has values of wrong types."""
    path = call.resource.path
    if obj is None or call.subresource or path not in _OF_VOLCANO:
        return True
    # The status of a new object is dropped, and that of a stored one is checked when it is written.
    return has_right_types({**typed(obj, call), "status": None})


def _set_queue_defaults(queue: Tree) -> None:
    spec = queue["spec"] = queue.get("spec") or {}
    notes = queue["metadata"].get("annotations") or {}
    path, weights = notes.get(HIERARCHY, ""), notes.get(WEIGHTS, "")
    if path and weights and not path.startswith(ROOT):
        notes |= {HIERARCHY: f"{ROOT}/{path}", WEIGHTS: f"1/{weights}"}
    if spec.get("reclaimable") is None:
        spec["reclaimable"] = True
    spec["weight"] = spec.get("weight") or 1


def _set_queue_of_group(call: ApiCall, group: Tree) -> None:
    """A PodGroup in the default queue is in that of its namespace, if that has one."""
    spec = group["spec"] = group.get("spec") or {}
    if (spec.get("queue") or DEFAULT) != DEFAULT:
        return
    found = stored_object(call, "namespaces", "", group["metadata"].get("namespace") or "")
    notes = ((found or {}).get("metadata") or {}).get("annotations") or {}
    spec["queue"] = notes.get(VOLCANO_QUEUE_ANNOTATION) or DEFAULT


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
    """The texts of the webhook."""
    for path, text in amount_problems(spec):
        yield f"requestBody.{path}: {text}" if NOT_NEGATIVE in text else f"{path}: {text}"


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
