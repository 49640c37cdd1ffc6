"""Pod disruption budgets: what is valid.

Source: kubernetes v1.36, pkg/apis/policy/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.cluster.errors import Cause, invalid, not_supported
from stowplan.cluster.kinds import checks
from stowplan.cluster.kinds.basics import Plain
from stowplan.cluster.kinds.workloads import int_or_percent, not_over_100
from stowplan.cluster.schema.internal import internal

Tree = dict[str, Any]

_EVICTION = ("AlwaysAllow", "IfHealthyBudget")
_NOTHING = {
    "disruptionsAllowed": 0,
    "currentHealthy": 0,
    "desiredHealthy": 0,
    "expectedPods": 0,
}


def budget(obj: Tree) -> Iterator[Cause]:
    """One bound, and a selector."""
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = internal("policy/v1.PodDisruptionBudgetSpec", spec)
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from int_or_percent(spec[name], f"spec.{name}")
            yield from not_over_100(spec[name], f"spec.{name}")
    yield from checks.selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION:
        yield not_supported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION)


def budget_status(new: Tree, old: Tree) -> Iterator[Cause]:
    """Numbers that are not negative."""
    for name in _NOTHING:
        yield from checks.not_negative(new["status"].get(name, 0), f"status.{name}")


BUDGET = Plain(budget, status=_NOTHING, counted=("spec",), unconditional=False)
