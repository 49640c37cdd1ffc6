"""Resize of running pods: containers get the resources that their spec asks for now.

Differs: containers are not restarted, whatever their `resizePolicy` says.

Source: kubelet v1.36, pkg/kubelet/allocation, pkg/kubelet/events/resize.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.objects.encoding.tree import Tree

PENDING = "PodResizePending"
DEFERRED = "Deferred"
_STATUSES = {"containers": "containerStatuses", "initContainers": "initContainerStatuses"}


def granted_resources(container: Tree) -> Tree:
    """What the status of a running container says about its resources."""
    resources = container.get("resources") or {}
    made: Tree = {"resources": resources}
    if resources.get("requests"):
        made["allocatedResources"] = resources["requests"]
    return made


def is_resized(pod: Tree) -> bool:
    """True if the spec asks for other resources than a running container has."""
    return any(
        "resources" in entry and entry["resources"] != (container.get("resources") or {})
        for container, entry in _running(pod)
    )


def with_granted_resources(pod: Tree) -> Tree:
    """The pod whose running containers have what the spec asks for."""
    status = dict(pod["status"])
    wanted = {container["name"]: granted_resources(container) for container, _ in _running(pod)}
    for field in _STATUSES.values():
        if field in status:
            status[field] = [{**one, **wanted.get(one["name"], {})} for one in status[field]]
    conditions = [one for one in status.get("conditions") or () if one["type"] != PENDING]
    status |= {"conditions": conditions, "observedGeneration": pod["metadata"].get("generation", 1)}
    return {**pod, "status": status}


def set_deferred(pod: Tree, message: str, now: float) -> bool:
    """Set the condition of a pod whose node lacks what it asks for; True if it says something
    new."""
    conditions = pod["status"].setdefault("conditions", [])
    generation = pod["metadata"].get("generation", 1)
    condition = {
        "type": PENDING,
        "status": "True",
        "reason": DEFERRED,
        "message": message,
        "observedGeneration": generation,
    }
    old = find_condition(conditions, PENDING)
    if old is not None and condition.items() <= old.items():
        return False
    since = format_time(now) if old is None else old.get("lastTransitionTime", format_time(now))
    condition |= {"lastProbeTime": None, "lastTransitionTime": since}
    conditions[:] = [*(one for one in conditions if one is not old), condition]
    return True


def resize_message(pod: Tree, what: str, error: str = "") -> str:
    """The text of an event about a resize."""
    summary: Tree = {}
    for field in reversed(_STATUSES):
        found = [
            {"name": one["name"], "resources": one.get("resources") or {}}
            for one in pod["spec"].get(field) or ()
        ]
        if found:
            summary[field] = found
    summary["generation"] = pod["metadata"].get("generation", 1)
    if error:
        summary["error"] = error
    return f"Pod resize {what}: {json.dumps(summary, separators=(',', ':'))}"


def _running(pod: Tree) -> Iterator[tuple[Tree, Tree]]:
    """The containers that run, with their status."""
    for field, statuses in _STATUSES.items():
        entries = {one["name"]: one for one in pod["status"].get(statuses) or ()}
        for container in pod["spec"].get(field) or ():
            entry = entries.get(container["name"])
            if entry is not None and "running" in (entry.get("state") or {}):
                yield container, entry
