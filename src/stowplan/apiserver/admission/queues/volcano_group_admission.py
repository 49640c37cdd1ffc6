"""PodGroups and HyperNodes of Volcano: what its webhooks refuse.

Source: volcano master of 2026-08-20, pkg/webhooks/admission/podgroups/validate,
hypernodes/validate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import stored_object
from stowplan.objects.encoding.tree import Tree

QUEUES = "scheduling.volcano.sh/queues"
POD_GROUPS = "scheduling.volcano.sh/podgroups"
HYPER_NODES = "topology.volcano.sh/hypernodes"
OPEN = "Open"
TWO_TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)


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
    if states_two_tiers(spec.get("networkTopology")):
        yield f"{TWO_TIERS}."
    for policy in spec.get("subGroupPolicy") or ():
        if states_two_tiers(policy.get("networkTopology")):
            yield f"in subGroupPolicy '{policy.get('name') or ''}': {TWO_TIERS}."
            return


def states_two_tiers(topology: Tree | None) -> bool:
    """True for a network topology with a tier by number and by name."""
    given = topology or {}
    return given.get("highestTierAllowed") is not None and bool(given.get("highestTierName"))


def hyper_node_problem(call: ApiCall, hyper_node: Tree, old: Tree | None) -> str:
    """Why a HyperNode may not be stored, "" if it may.

    Differs: patterns are compiled as Python's; those of Go that it does not know are refused.
    """
    members = (hyper_node.get("spec") or {}).get("members") or ()
    if not members:
        return "spec.members: Invalid value: []: member must have at least one member"
    for member in members:
        selector = member.get("selector") or {}
        pattern = (selector.get("regexMatch") or {}).get("pattern") or ""
        try:
            re.compile(pattern)
        except re.error as problem:
            return (
                f'spec.members.selector.regexMatch.pattern: Invalid value: "{pattern}": member '
                f"regexMatch pattern is invalid: {problem}"
            )
    return ""


PROBLEMS: dict[str, Callable[[ApiCall, Tree, Tree | None], str]] = {
    POD_GROUPS: group_problem,
    HYPER_NODES: hyper_node_problem,
}
"""Resource path -> what refuses its objects."""
