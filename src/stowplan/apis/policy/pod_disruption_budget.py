"""PodDisruptionBudget.

Source: kubernetes v1.36, pkg/registry/policy/poddisruptionbudget,
pkg/apis/policy/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import (
    validate_int_or_percent,
    validate_percent_at_most_100,
)
from stowplan.apis.kind.conditions import set_status_condition
from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.schema.internal_form import internal_form
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

PATH = "policy/poddisruptionbudgets"

TYPES = """
UnhealthyPodEvictionPolicyType = string

PodDisruptionBudget -- limits voluntary disruptions of a set of pods.
  +PartialObjectMetadata
  spec PodDisruptionBudgetSpec -- desired state.
  status PodDisruptionBudgetStatus -- last observed state.

PodDisruptionBudgetSpec
  minAvailable IntOrString? -- number or percentage that must stay healthy.
  selector LabelSelector? ~replace -- its pods; all of the namespace with {}.
  maxUnavailable IntOrString? -- number or percentage that may be away.
  unhealthyPodEvictionPolicy UnhealthyPodEvictionPolicyType? -- IfHealthyBudget or AlwaysAllow.

PodDisruptionBudgetStatus
  observedGeneration int64 -- generation that the controller has seen.
  disruptedPods {Time} -- evicted pods that are not gone yet.
  disruptionsAllowed int32! -- evictions that are allowed now.
  currentHealthy int32! -- healthy pods.
  desiredHealthy int32! -- healthy pods that must be there.
  expectedPods int32! -- pods that count.
  conditions [Condition] ~merge:type
"""
_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_EMPTY_STATUS = dict.fromkeys(_COUNTS, 0)


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    if "minAvailable" in spec and "maxUnavailable" in spec:
        printed = internal_form("policy/v1.PodDisruptionBudgetSpec", spec)
        yield invalid("spec", printed, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            yield from validate_int_or_percent(spec[name], f"spec.{name}")
            yield from validate_percent_at_most_100(spec[name], f"spec.{name}")
    yield from field_checks.selector(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    yield from field_checks.one_of(policy, _EVICTION_POLICIES, "spec.unhealthyPodEvictionPolicy")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    return [str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A"))]


def set_disruption_allowed(
    conditions: list[Tree], allowed: int, generation: int, now: float
) -> None:
    """Set the condition DisruptionAllowed from the number of allowed disruptions."""
    enough = allowed > 0
    entry = {
        "type": "DisruptionAllowed",
        "status": "True" if enough else "False",
        "observedGeneration": generation,
        "reason": "SufficientPods" if enough else "InsufficientPods",
        "message": "",
    }
    set_status_condition(conditions, entry, now)


KIND = KindRegistration(
    group="policy",
    kind="PodDisruptionBudget",
    types=TYPES,
    strategy=BuiltinStrategy(
        _validate,
        status=_EMPTY_STATUS,
        counted=("spec",),
        unconditional=False,
        names=PATH_SEGMENT_NAME,
    ),
    status=StatusStrategy(
        lambda new, old: field_checks.not_negative_fields(new["status"], _COUNTS, "status")
    ),
    short_names=("pdb",),
    table=PrintedTable(
        "Name, Min Available, Max Unavailable, "
        "Allowed Disruptions:integer=status.disruptionsAllowed, Age",
        _cells,
    ),
)
