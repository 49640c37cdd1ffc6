"""Pod disruption budgets: what is valid.

Source: kubernetes v1.36, pkg/apis/policy/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.apps.workloads import int_or_percent, percent_at_most_100
from stowplan.apis.kind.strategy import BuiltinStrategy
from stowplan.apis.machinery.errors import Cause, invalid, not_supported
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks

Tree = dict[str, Any]

_EVICTION = ("AlwaysAllow", "IfHealthyBudget")
_EMPTY_STATUS = {
    "disruptionsAllowed": 0,
    "currentHealthy": 0,
    "desiredHealthy": 0,
    "expectedPods": 0,
}


def pod_disruption_budget(obj: Tree) -> Iterator[Cause]:
    """One bound, and a selector."""
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = internal_form("policy/v1.PodDisruptionBudgetSpec", spec)
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from int_or_percent(spec[name], f"spec.{name}")
            yield from percent_at_most_100(spec[name], f"spec.{name}")
    yield from field_checks.selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION:
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION)


def pod_disruption_budget_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """Numbers that are not negative."""
    for name in _EMPTY_STATUS:
        yield from field_checks.not_negative(new["status"].get(name, 0), f"status.{name}")


POD_DISRUPTION_BUDGET = BuiltinStrategy(
    pod_disruption_budget, status=_EMPTY_STATUS, counted=("spec",), unconditional=False
)
