"""PriorityClass.

Source: kubernetes v1.36, pkg/registry/scheduling/priorityclass, pkg/apis/scheduling/validation.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, forbidden_field
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
PriorityClass -- maps a name to a priority.
  +PartialObjectMetadata
  value int32! -- priority of pods that name the class.
  globalDefault bool -- used by pods that name no class.
  description string -- when to use the class.
  preemptionPolicy core.PreemptionPolicy? =PreemptLowerPriority -- Never, or PreemptLowerPriority.
"""
PATH = "scheduling.k8s.io/priorityclasses"
USER_PRIORITY_MAX = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_SYSTEM_DESCRIPTIONS = {
    "system-node-critical": (
        "Used for system critical pods that must not be moved from their current node."
    ),
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another "
        "node if necessary."
    ),
}
PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


def _validate(obj: Tree) -> Iterator[Cause]:
    """The value is at most USER_PRIORITY_MAX, except for system classes."""
    name, value = obj["metadata"].get("name", ""), obj["value"]
    if name.startswith(SYSTEM_PREFIX):
        if SYSTEM_CLASSES.get(name) != value or obj.get("globalDefault"):
            text = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {_reserved_name_problem(name, value)}"
            )
            yield forbidden_field("metadata.name", text)
    elif value > USER_PRIORITY_MAX:
        text = f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"
        yield forbidden_field("value", text)
    policy = obj.get("preemptionPolicy")
    if policy is not None:
        policies = (PREEMPT_LOWER_PRIORITY, "Never")
        yield from field_checks.supported_value(policy, policies, "preemptionPolicy")


def _reserved_name_problem(name: str, value: int) -> str:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if known != value:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false"


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    if new["value"] != old["value"]:
        yield forbidden_field("value", "may not be changed in an update.")
    yield from field_checks.immutable(
        new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy"
    )


class PriorityClassStrategy(BuiltinStrategy):
    """Priority classes: updates keep the generation."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        new["metadata"]["generation"] = old["metadata"].get("generation", 1)


def system_priority_classes() -> Iterator[Tree]:
    """The classes that every cluster has (pkg/registry/scheduling/rest)."""
    for name, value in SYSTEM_CLASSES.items():
        yield {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": _SYSTEM_DESCRIPTIONS[name],
        }


KIND = KindRegistration(
    group="scheduling.k8s.io",
    kind="PriorityClass",
    types=TYPES,
    namespaced=False,
    strategy=PriorityClassStrategy(_validate, _validate_update, counted=("metadata",)),
    short_names=("pc",),
    table=PrintedTable(
        "Name, Value:integer=value, Global-Default:boolean=globalDefault, Age, "
        "PreemptionPolicy=preemptionPolicy"
    ),
)
