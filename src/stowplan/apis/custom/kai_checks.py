"""What KAI-Scheduler's definitions and webhooks refuse in its objects, beside wrong types.

Differs: an amount below 0 that is not -1 is refused as well, and so are a duration that is none and
a parent that is the queue itself; KAI takes them, and starts no job by them, or does not read them.
A Queue needs no `resources`: its quotas and limits are 0 then.

Source: KAI-Scheduler, deployments/kai-scheduler/crds, pkg/apis/scheduling/v2alpha2/
podgroup_webhook.go, pkg/admission/webhook/topologyhooks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

from stowplan.apis.machinery.errors import (
    INVALID,
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
    too_many,
)
from stowplan.objects.encoding import duration
from stowplan.objects.encoding.tree import Tree

PREEMPTIBILITY = ("preemptible", "non-preemptible")
LEVELS_MAX = 16
LEVEL_NAME_MAX = 316
HOST_LABEL = "kubernetes.io/hostname"
_SUB_GROUP_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LEVEL_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


def queue_causes(queue: Tree) -> Iterator[Cause]:
    """Causes of a Queue."""
    spec = queue.get("spec") or {}
    parent = spec.get("parentQueue")
    if parent and parent == (queue.get("metadata") or {}).get("name"):
        yield invalid("spec.parentQueue", parent, "a queue is not its own parent")
    for name in ("preemptMinRuntime", "reclaimMinRuntime"):
        yield from _duration(spec, name)
    for resource, amounts in (spec.get("resources") or {}).items():
        for field, amount in (amounts or {}).items():
            least = "at least 0" if field == "overQuotaWeight" else "at least 0, or -1 for no limit"
            is_unlimited = amount == -1 and field != "overQuotaWeight"
            if not is_unlimited and not (amount >= 0 and math.isfinite(amount)):
                # JSON, in which other causes print values, has no infinity.
                text = f"Invalid value: {amount}: expected a number of {least}"
                yield Cause(f"spec.resources.{resource}.{field}", INVALID, text)


def _duration(spec: Tree, name: str) -> Iterator[Cause]:
    text = spec.get(name)
    if text is None:
        return
    try:
        duration.parse(text)
    except ValueError as error:
        yield invalid(f"spec.{name}", text, f"expected {error}")


def group_causes(group: Tree) -> Iterator[Cause]:
    """Causes of a PodGroup."""
    spec = group.get("spec") or {}
    for name in ("preemptionDelay", "stalenessGracePeriod"):
        yield from _duration(spec, name)
    given = spec.get("preemptibility")
    if given and given not in PREEMPTIBILITY:
        yield not_supported("spec.preemptibility", given, PREEMPTIBILITY)
    yield from _minimums(spec, "spec")
    groups = _sub_groups(spec)
    for i, one in enumerate(groups):
        yield from _minimums(one, f"spec.subGroups[{i}]")
    yield from _tree_of(groups)


def group_warnings(group: Tree) -> Iterator[str]:
    """Minimums of a PodGroup that no number of pods reaches, which KAI's webhook warns about."""
    spec = group.get("spec") or {}
    groups = _sub_groups(spec)
    n_children = Counter(one.get("parent") or "" for one in groups)
    nodes = [("spec", "", spec)]
    nodes += [(f"spec.subGroups[{i}]", one.get("name") or "", one) for i, one in enumerate(groups)]
    for path, name, one in nodes:
        least, n = one.get("minSubGroup"), n_children[name]
        # A leaf with one is refused.
        if least is not None and least > n and (n or path == "spec"):
            yield (
                f"{path}.minSubGroup: {least} is more than the number of child subGroups ({n}): "
                "its pods wait until there are as many"
            )


def _sub_groups(spec: Tree) -> list[Tree]:
    return [one or {} for one in spec.get("subGroups") or ()]


def _minimums(spec: Tree, path: str) -> Iterator[Cause]:
    for name in ("minMember", "minSubGroup"):
        least = spec.get(name)
        if least is not None and least < 0:
            text = f"{path}.{name} in body should be greater than or equal to 0"
            yield invalid(f"{path}.{name}", least, text)
    if spec.get("minMember") is not None and spec.get("minSubGroup") is not None:
        yield forbidden_field(path, "minMember and minSubGroup are mutually exclusive")


def _tree_of(groups: list[Tree]) -> Iterator[Cause]:
    parents: dict[str, str] = {}
    for i, one in enumerate(groups):
        name, path = one.get("name") or "", f"spec.subGroups[{i}].name"
        if not name:
            yield required(path)
        elif name in parents:
            yield duplicate(path, name)
        else:
            yield from _named(name, path, _SUB_GROUP_NAME)
        parents.setdefault(name, one.get("parent") or "")
    has_children = {*parents.values()}
    for i, one in enumerate(groups):
        name, parent, path = one.get("name") or "", one.get("parent"), f"spec.subGroups[{i}]"
        if parent and parent not in parents:
            yield invalid(f"{path}.parent", parent, "no subGroup has this name")
        elif parent and _is_below_itself(name, parents):
            yield invalid(f"{path}.parent", parent, "cycle detected in subgroups")
        elif name:
            yield from _own_minimum(one, path, is_leaf=name not in has_children)


def _own_minimum(one: Tree, path: str, *, is_leaf: bool) -> Iterator[Cause]:
    """Sub-groups without children count pods, others sub-groups."""
    has_members, has_groups = (one.get(n) is not None for n in ("minMember", "minSubGroup"))
    if has_members and has_groups:
        return
    if is_leaf and has_groups:
        yield forbidden_field(f"{path}.minSubGroup", "a subGroup without children has minMember")
    elif is_leaf and not has_members:
        yield required(f"{path}.minMember")
    elif not is_leaf and has_members:
        yield forbidden_field(f"{path}.minMember", "a subGroup with children has minSubGroup")


def _is_below_itself(name: str, parents: Mapping[str, str]) -> bool:
    seen: set[str] = set()
    at = parents.get(name, "")
    while at and at != name and at not in seen:
        seen.add(at)
        at = parents.get(at, "")
    return at == name


def topology_changes(topology: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an update of a Topology: its labels do not change once it has levels."""
    new, before = (
        [
            str((one or {}).get("nodeLabel") or "")
            for one in (tree.get("spec") or {}).get("levels") or ()
        ]
        for tree in (topology, old)
    )
    if new and before and new != before:
        text = "nodeLabel structure is immutable; only aliases may be edited"
        yield invalid("spec.levels", ",".join(new), text)


def topology_causes(topology: Tree) -> Iterator[Cause]:
    """Causes of a Topology."""
    levels = [one or {} for one in (topology.get("spec") or {}).get("levels") or ()]
    labels = [one.get("nodeLabel") or "" for one in levels]
    if not labels:
        yield required("spec.levels")
    if len(labels) > LEVELS_MAX:
        yield too_many("spec.levels", len(labels), LEVELS_MAX)
    aliases: set[str] = set()
    for i, label in enumerate(labels):
        path = f"spec.levels[{i}].nodeLabel"
        if not label:
            yield required(path)
        elif label in labels[:i]:
            yield duplicate(path, label)
        elif label == HOST_LABEL and i < len(labels) - 1:
            yield invalid(path, label, "must be the lowest level")
        else:
            yield from _named(label, path, _LEVEL_NAME)
        yield from _alias(levels[i].get("alias") or "", f"spec.levels[{i}].alias", labels, aliases)


def _alias(alias: str, path: str, labels: list[str], seen: set[str]) -> Iterator[Cause]:
    """seen: aliases of the levels before, to which it is added."""
    if not alias:
        return
    if alias in seen or alias in labels:
        yield duplicate(path, alias)
    seen.add(alias)
    yield from _named(alias, path, _LEVEL_NAME)


def _named(name: str, path: str, pattern: str) -> Iterator[Cause]:
    if not re.fullmatch(pattern.strip("^$"), name):
        yield invalid(path, name, f"{path} in body should match '{pattern}'")
    if len(name) > LEVEL_NAME_MAX:
        yield invalid(path, name, f"{path} in body should be at most {LEVEL_NAME_MAX} chars long")
