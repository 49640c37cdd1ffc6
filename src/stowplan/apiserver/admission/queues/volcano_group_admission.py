"""PodGroups and HyperNodes of Volcano: what its webhooks refuse.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/podgroups/validate,
hypernodes/validate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stowplan.apis.custom.volcano_checks import member_problems, tier_problems
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import stored_object
from stowplan.objects.encoding.tree import Tree

QUEUES = "scheduling.volcano.sh/queues"
POD_GROUPS = "scheduling.volcano.sh/podgroups"
HYPER_NODES = "topology.volcano.sh/hypernodes"
OPEN = "Open"


def group_problem(call: ApiCall, group: Tree, old: Tree | None) -> str:
    """Why a PodGroup may not be created, "" if it may; changes are not looked at."""
    if old is not None:
        return ""
    return "; ".join(_group_problems(call, group.get("spec") or {}))


def _group_problems(call: ApiCall, spec: Tree) -> Iterator[str]:
    name = spec.get("queue")
    queue = stored_object(call, QUEUES, "", name) if name else None
    if name and queue is None and name != "default":
        yield f'unable to find queue: queues "{name}" not found'
    elif queue is not None:
        state = (queue.get("status") or {}).get("state") or OPEN
        if state != OPEN:
            yield (
                f"can only submit PodGroup to queue with state `{OPEN}`, queue `{name}` status is "
                f"`{state}`."
            )
    yield from tier_problems(spec)


def hyper_node_problem(call: ApiCall, hyper_node: Tree, old: Tree | None) -> str:
    """Why a HyperNode may not be stored, "" if it may."""
    found = member_problems(hyper_node.get("spec") or {})
    return next((f"{path}: {text}" for path, text in found), "")


PROBLEMS: dict[str, Callable[[ApiCall, Tree, Tree | None], str]] = {
    POD_GROUPS: group_problem,
    HYPER_NODES: hyper_node_problem,
}
"""Resource path -> what refuses its objects."""
