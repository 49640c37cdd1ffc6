"""What KAI-Scheduler's definitions and webhooks refuse in its objects, beside wrong types.

Differs: an amount below 0 that is not -1 is refused as well, and so is a parent that is the queue
itself; KAI takes both, and starts no job by them.

Source: KAI-Scheduler, deployments/kai-scheduler/crds, pkg/apis/scheduling/v2alpha2/
podgroup_webhook.go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stowplan.objects.encoding import duration
from stowplan.objects.kai.kai_kinds import (
    KAI_GROUP_API_VERSION,
    KAI_QUEUE_API_VERSION,
    KAI_TOPOLOGY_API_VERSION,
)

Tree = dict[str, Any]
Mistakes = Iterator[tuple[str, str]]
"""Paths of fields, and what is wrong with them."""
PREEMPTIBILITY = ("preemptible", "non-preemptible")
LEVELS_MAX = 16


def kai_mistakes(version: str, kind: str, tree: Tree) -> Mistakes:
    """Mistakes of an object of KAI, none for other kinds. tree: without values of wrong types."""
    rules = _RULES.get((version, kind))
    if rules is not None:
        yield from rules(tree.get("spec") or {}, tree)


def _of_queue(spec: Tree, tree: Tree) -> Mistakes:
    parent = spec.get("parentQueue")
    if parent and parent == (tree.get("metadata") or {}).get("name"):
        yield "spec.parentQueue", f'Invalid value: "{parent}": a queue is not its own parent'
    for name in ("preemptMinRuntime", "reclaimMinRuntime"):
        yield from _duration(spec, name)
    for resource, amounts in (spec.get("resources") or {}).items():
        for field, amount in (amounts or {}).items():
            path = f"spec.resources.{resource}.{field}"
            least = "at least 0" if field == "overQuotaWeight" else "at least 0, or -1 for no limit"
            is_unlimited = amount == -1 and field != "overQuotaWeight"
            if not is_unlimited and not (amount >= 0 and math.isfinite(amount)):
                yield path, f"Invalid value: {amount}: expected a number of {least}"


def _duration(spec: Tree, name: str) -> Mistakes:
    text = spec.get(name)
    if text is None:
        return
    try:
        duration.parse(text)
    except ValueError as error:
        yield f"spec.{name}", f'Invalid value: "{text}": expected {error}'


def _of_group(spec: Tree, _: Tree) -> Mistakes:
    for name in ("preemptionDelay", "stalenessGracePeriod"):
        yield from _duration(spec, name)
    given = spec.get("preemptibility")
    if given and given not in PREEMPTIBILITY:
        known = ", ".join(f'"{one}"' for one in PREEMPTIBILITY)
        yield "spec.preemptibility", f'Unsupported value: "{given}": supported values: {known}'
    yield from _minimums(spec, "spec")
    groups = [one or {} for one in spec.get("subGroups") or ()]
    for i, one in enumerate(groups):
        yield from _minimums(one, f"spec.subGroups[{i}]")
    yield from _tree_of(groups)


def _minimums(spec: Tree, path: str) -> Mistakes:
    for name in ("minMember", "minSubGroup"):
        least = spec.get(name)
        if least is not None and least < 0:
            text = f"{path}.{name} in body should be greater than or equal to 0"
            yield f"{path}.{name}", f"Invalid value: {least}: {text}"
    if spec.get("minMember") is not None and spec.get("minSubGroup") is not None:
        yield path, "Forbidden: minMember and minSubGroup are mutually exclusive"


def _tree_of(groups: list[Tree]) -> Mistakes:
    parents: dict[str, str] = {}
    for i, one in enumerate(groups):
        name, path = one.get("name") or "", f"spec.subGroups[{i}].name"
        if not name:
            yield path, "Required value"
        elif name in parents:
            yield path, f'Duplicate value: "{name}"'
        parents.setdefault(name, one.get("parent") or "")
    has_children = {*parents.values()}
    for i, one in enumerate(groups):
        name, parent, path = one.get("name") or "", one.get("parent"), f"spec.subGroups[{i}]"
        if parent and parent not in parents:
            yield f"{path}.parent", f'Invalid value: "{parent}": no subGroup has this name'
        elif parent and _is_below_itself(name, parents):
            yield f"{path}.parent", f'Invalid value: "{parent}": cycle detected in subgroups'
        elif name and name not in has_children and one.get("minMember") is None:
            yield f"{path}.minMember", "Required value"


def _is_below_itself(name: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    at = parents.get(name, "")
    while at and at != name and at not in seen:
        seen.add(at)
        at = parents.get(at, "")
    return at == name


def _of_topology(spec: Tree, _: Tree) -> Mistakes:
    levels = [(one or {}).get("nodeLabel") or "" for one in spec.get("levels") or ()]
    if not levels:
        yield "spec.levels", "Required value"
    if len(levels) > LEVELS_MAX:
        yield "spec.levels", f"Too many: {len(levels)}: must have at most {LEVELS_MAX} items"
    for i, label in enumerate(levels):
        path = f"spec.levels[{i}].nodeLabel"
        if not label:
            yield path, "Required value"
        elif label in levels[:i]:
            yield path, f'Duplicate value: "{label}"'


_RULES: Mapping[tuple[str, str], Callable[[Tree, Tree], Mistakes]] = {
    (KAI_QUEUE_API_VERSION, "Queue"): _of_queue,
    (KAI_GROUP_API_VERSION, "PodGroup"): _of_group,
    (KAI_TOPOLOGY_API_VERSION, "Topology"): _of_topology,
}
