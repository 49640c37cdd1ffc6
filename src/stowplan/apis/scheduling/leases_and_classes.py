"""Leases, priority classes and runtime classes: what is valid and what stays.

Source: kubernetes v1.36, pkg/apis/{coordination,scheduling,node}/validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core import pod_scheduling
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported, required
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks, resource_requirements

Tree = dict[str, Any]

_PRIORITY_MAX = 1_000_000_000
_SYSTEM = "system-"
_SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def lease(obj: Tree) -> Iterator[Cause]:
    """Times that make sense."""
    spec = obj["spec"]
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    changes = spec.get("leaseTransitions")
    if changes is not None and changes < 0:
        yield invalid("spec.leaseTransitions", changes, field_checks.NOT_NEGATIVE)
    strategy = spec.get("strategy")
    if strategy is not None:
        if "/" in strategy:
            yield from field_checks.qualified_name(strategy, "spec.strategy.strategy")
        elif strategy != "OldestEmulationVersion":
            yield not_supported("spec.strategy.strategy", strategy, ["OldestEmulationVersion"])
    if spec.get("preferredHolder") and not strategy:
        text = "may only be specified if `strategy` is defined"
        yield forbidden_field("spec.preferredHolder", text)


def priority_class(obj: Tree) -> Iterator[Cause]:
    """Below the priorities of the system, unless it is one of the system's."""
    name, value = obj["metadata"].get("name", ""), obj["value"]
    if name.startswith(_SYSTEM):
        if _SYSTEM_CLASSES.get(name) != value or obj.get("globalDefault"):
            text = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {_reserved_priority(name, value)}"
            )
            yield forbidden_field("metadata.name", text)
    elif value > _PRIORITY_MAX:
        text = f"maximum allowed value of a user defined priority is {_PRIORITY_MAX}"
        yield forbidden_field("value", text)
    policy = obj.get("preemptionPolicy")
    if policy is not None:
        policies = ("PreemptLowerPriority", "Never")
        yield from field_checks.supported_value(policy, policies, "preemptionPolicy")


def _reserved_priority(name: str, value: int) -> str:
    known = _SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if known != value:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false"


def priority_class_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The value stays."""
    if new["value"] != old["value"]:
        yield forbidden_field("value", "may not be changed in an update.")
    yield from field_checks.immutable(
        new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy"
    )


class PriorityClassStrategy(BuiltinStrategy):
    """Priority classes count their changes, which are few."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        new["metadata"]["generation"] = old["metadata"].get("generation", 1)


def runtime_class(obj: Tree) -> Iterator[Cause]:
    """A handler's name, what it costs, and where it is."""
    if not obj["handler"]:
        yield required("handler")
    else:
        yield from field_checks.dns_label(obj["handler"], "handler")
    fixed = obj.get("overhead", {}).get("podFixed", {})
    for name, value in sorted(fixed.items()):
        here = f"overhead.podFixed[{name}]"
        yield from resource_requirements.validate_container_resource_name(name, here)
        yield from resource_requirements.validate_resource_quantity(name, value, here)
    scheduling = obj.get("scheduling", {})
    yield from field_checks.labels(scheduling.get("nodeSelector", {}), "scheduling.nodeSelector")
    yield from pod_scheduling.tolerations(
        scheduling.get("tolerations", []), "scheduling.tolerations"
    )


def runtime_class_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The handler stays."""
    yield from field_checks.immutable(new["handler"], old["handler"], "handler")


LEASE = BuiltinStrategy(lease, create_on_update=True, unconditional=False)
PRIORITY_CLASS = PriorityClassStrategy(priority_class, priority_class_update, counted=("metadata",))
RUNTIME_CLASS = BuiltinStrategy(
    runtime_class, runtime_class_update, create_on_update=True, unconditional=False
)
