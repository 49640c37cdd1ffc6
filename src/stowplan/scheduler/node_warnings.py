"""Events about pods whose node has changed under them, as plugins see it."""

from __future__ import annotations

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
