"""Queues, groups and priority classes for scripts, and the configuration of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, PodGroupStatus, Queue, QueueSpec
from stowplan.objects.workload import PriorityClass

Settings = dict[str, str]

ACTIONS = "reclaim, allocate, backfill, preempt"
TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
OPTIONS = {"bind_failures": "bindFailures", "policy": "bindFailurePolicy"}


def configured(settings: Iterable[str]) -> str:
    """A configuration from `actions=allocate,preempt bind_failures=2`."""
    stated = dict(setting.split("=", 1) for setting in settings)
    actions = stated.pop("actions", ACTIONS).replace(",", ", ").replace("  ", " ")
    options = {OPTIONS.get(key, key): value for key, value in stated.items()}
    block = "".join(f"  {key}: {value}\n" for key, value in options.items())
    return f'actions: "{actions}"{TIERS}' + (f"batch:\n{block}" if block else "")


def annotations(group: str) -> dict[str, str]:
    """Annotations of a pod in a group."""
    return {"scheduling.k8s.io/group-name": group} if group else {}


def queue(name: str, version: str, settings: Settings) -> Queue:
    """A queue."""
    meta = ObjectMeta(name=name, uid=name, resource_version=version)
    return Queue(metadata=meta, spec=QueueSpec(weight=int(settings.get("weight", "1"))))


def group(name: str, version: str, settings: Settings) -> PodGroup:
    """A group. phase: phase of its status."""
    meta = ObjectMeta(name=name, namespace="default", uid=name, resource_version=version)
    spec = PodGroupSpec(
        min_member=int(settings.get("min", "1")),
        queue=settings.get("queue", ""),
        priority_class_name=settings.get("priority", ""),
    )
    status = PodGroupStatus(phase=settings.get("phase", ""))
    return PodGroup(metadata=meta, spec=spec, status=status)


def priority(name: str, version: str, settings: Settings) -> PriorityClass:
    """A priority class."""
    meta = ObjectMeta(name=name, uid=name, resource_version=version)
    return PriorityClass(metadata=meta, value=int(settings["value"]))


KINDS: dict[str, Callable[[str, str, Settings], Object]] = {
    "queue": queue,
    "group": group,
    "priority": priority,
}


def status_line(status: PodGroupStatus) -> str:
    """A status on one line."""
    counts = f"{status.running} running, {status.succeeded} succeeded, {status.failed} failed"
    stated = (f"; {c.type} {c.status} {c.reason}: {c.message}" for c in status.conditions)
    return f"{status.phase or 'no phase'}, {counts}{''.join(stated)}"
