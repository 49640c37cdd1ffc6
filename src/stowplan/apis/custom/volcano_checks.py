"""What Volcano's definitions and webhooks refuse in Queues, PodGroups and HyperNodes on their own,
whatever else is in the cluster.

Differs: patterns of HyperNodes are compiled as Python's; those of Go that it does not know are
refused. A weight of 0 is none, as its webhook sets it to 1.

Source: volcano master of 2026-08-20, config/crd/volcano/bases, pkg/webhooks/admission.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stowplan.apis.machinery.errors import INVALID, Cause, invalid
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import QuantityError, amount

TWO_TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)


def queue_causes(queue: Tree) -> Iterator[Cause]:
    """Causes of a Queue."""
    spec = queue.get("spec") or {}
    weight = spec.get("weight") or 0
    if weight < 0:
        text = "spec.weight in body should be greater than or equal to 1"
        yield invalid("spec.weight", weight, text)
    try:
        for path, text in amount_problems(spec):
            yield Cause(path, INVALID, text)
    except QuantityError:
        # Types are judged before.
        return


def amount_problems(spec: Tree) -> Iterator[tuple[str, str]]:
    """(path, text): nothing negative; guaranteed at most what is deserved, and that at most the
    capability. Raises QuantityError."""
    given = {"capability": spec.get("capability"), "deserved": spec.get("deserved")}
    given["guarantee.resource"] = (spec.get("guarantee") or {}).get("resource")
    for field, amounts in given.items():
        for name, n in (amounts or {}).items():
            if amount(name, n) < 0:
                wrong = f'Invalid value: "{n}": {field_checks.NOT_NEGATIVE}'
                yield f"spec.{field}.{name}", wrong
    deserved, capability = spec.get("deserved") or {}, spec.get("capability") or {}
    for name, least in (given["guarantee.resource"] or {}).items():
        path, limit = f"spec.deserved.{name}", f"guarantee[{name}]={least}"
        if name not in deserved:
            yield path, f"deserved[{name}] must be >= {limit}"
        elif amount(name, deserved[name]) < amount(name, least):
            yield path, f"deserved[{name}]={deserved[name]} must be >= {limit}"
    for name, n in deserved.items():
        if name in capability and amount(name, n) > amount(name, capability[name]):
            limit = f"capability[{name}]={capability[name]}"
            yield f"spec.deserved.{name}", f"deserved[{name}]={n} must be <= {limit}"


def group_causes(group: Tree) -> Iterator[Cause]:
    """Causes of a PodGroup."""
    spec = group.get("spec") or {}
    yield from field_checks.not_negative(spec.get("minMember"), "spec.minMember")
    for text in tier_problems(spec):
        yield Cause("", INVALID, text)


def tier_problems(spec: Tree) -> Iterator[str]:
    """Topologies of a PodGroup with a tier by number and by name."""
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


def hyper_node_causes(hyper_node: Tree) -> Iterator[Cause]:
    """Causes of a HyperNode."""
    for path, text in member_problems(hyper_node.get("spec") or {}):
        yield Cause(path, INVALID, text)


def member_problems(spec: Tree) -> Iterator[tuple[str, str]]:
    """(path, text): what is wrong with the members of a HyperNode."""
    members = spec.get("members") or ()
    if not members:
        yield "spec.members", "Invalid value: []: member must have at least one member"
    for member in members:
        selector = member.get("selector") or {}
        pattern = (selector.get("regexMatch") or {}).get("pattern") or ""
        try:
            re.compile(pattern)
        except re.error as problem:
            yield (
                "spec.members.selector.regexMatch.pattern",
                f'Invalid value: "{pattern}": member regexMatch pattern is invalid: {problem}',
            )
