"""What plugins say about the pods of a node that has changed, or that a pod has left: events, and
pods that serve no other pod any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stowplan.framework import ObjectChange
from stowplan.objects.node import Node
from stowplan.scheduler.context import SchedulerContext

ACTION = "NodeUpdated"


def warn_of_node_update(context: SchedulerContext, before: Node, after: Node) -> None:
    """Record what the plugins of all profiles and sessions warn of, each event once."""
    frameworks = (*context.frameworks.values(), *context.session_frameworks.values())
    calls = [
        call
        for framework in dict.fromkeys(frameworks)
        for member in framework.members.values()
        if (call := member.calls["node_updated"]) is not None
    ]
    if not calls:
        return
    row = context.cache.nodes.row(after.name)
    pods = tuple(info.pod for info in context.cache.nodes.pods[row])
    found = {
        (warning.pod.uid, warning.reason, warning.message): warning
        for call in calls
        for warning in call(before, after, pods)
    }
    for key in sorted(found):
        warning = found[key]
        context.outbox.record(warning.pod, "Warning", warning.reason, ACTION, warning.message)


def delete_unused_pods(context: SchedulerContext, node: str) -> None:
    """Delete the pods of a node that serve no other pod any more, as the plugins of all profiles
    and sessions see it; one that changes meanwhile stays."""
    calls: dict[Callable[..., Any], None] = {}
    # A loop, because this is called for every pod that is deleted.
    for frameworks in (context.frameworks, context.session_frameworks):
        for framework in frameworks.values():
            if framework.unused_pods_calls:
                calls |= dict.fromkeys(framework.unused_pods_calls)
    row = context.cache.nodes.row(node) if calls else -1
    if row < 0:
        return
    pods = tuple(info.pod for info in context.cache.nodes.pods[row])
    unused = {pod.uid: pod for call in calls for pod in call(pods)}
    for uid, pod in sorted(unused.items()):
        context.outbox.write(uid, ObjectChange(pod, {}))
