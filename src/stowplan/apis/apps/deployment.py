"""Deployment.

Source: kubernetes v1.36, pkg/registry/apps, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import (
    PodTemplateStrategy,
    internal_update_strategy,
    is_zero_int_or_percent,
    validate_int_or_percent,
    validate_percent_at_most_100,
    validate_replica_counts,
    validate_selected_template,
    validate_workload_selector,
)
from stowplan.apis.kind.printing import (
    NONE,
    TEMPLATE_COLUMNS,
    PrintedTable,
    containers_of,
    selector_text,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, immutable_fields
from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.subresources.scale import scale_subresource
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
DeploymentStrategyType DeploymentConditionType = string

Deployment -- manages ReplicaSets: replicas and rolling updates.
  +PartialObjectMetadata
  spec DeploymentSpec -- desired state.
  status DeploymentStatus -- last observed state.

DeploymentSpec
  replicas int32? =1 -- number of pods.
  selector LabelSelector?! -- its pods; must match the template's labels.
  template core.PodTemplateSpec! -- the pods to run.
  strategy DeploymentStrategy ~retainKeys -- how old pods are replaced.
  minReadySeconds int32 -- time a pod must be ready to count as available.
  revisionHistoryLimit int32? =10 -- old ReplicaSets to keep for rollbacks.
  paused bool -- changes of the template are not rolled out.
  progressDeadlineSeconds int32? =600 -- a rollout without progress has failed after it.

DeploymentStrategy
  type DeploymentStrategyType =RollingUpdate -- Recreate or RollingUpdate.
  rollingUpdate RollingUpdateDeployment? -- bounds of a rolling update.

RollingUpdateDeployment
  maxUnavailable IntOrString? -- number or percentage; 25% by default.
  maxSurge IntOrString? -- number or percentage above replicas; 25% by default.

DeploymentStatus
  observedGeneration int64 -- generation that the controller has seen.
  replicas int32 -- pods of the deployment.
  updatedReplicas int32 -- pods with the present template.
  readyReplicas int32 -- pods that are ready.
  availableReplicas int32 -- pods ready for minReadySeconds.
  unavailableReplicas int32 -- pods still needed.
  terminatingReplicas int32? -- pods that are being deleted.
  conditions [DeploymentCondition] ~merge:type -- Available, Progressing and ReplicaFailure.
  collisionCount int32? -- collisions of names of ReplicaSets.

DeploymentCondition
  type DeploymentConditionType! -- Available, Progressing or ReplicaFailure.
  status core.ConditionStatus! -- True, False or Unknown.
  lastUpdateTime Time -- when the condition was written last.
  +core.ConditionChange
"""


def _set_strategy_defaults(one: Tree) -> None:
    if one["type"] == "RollingUpdate":
        rolling = one.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.not_negative(spec.get("replicas", 0), "spec.replicas")
    yield from validate_workload_selector(spec["selector"], "deployment")
    yield from validate_selected_template(spec, "invalid label selector")
    yield from _validate_strategy(spec["strategy"])
    ready = spec.get("minReadySeconds", 0)
    counts = ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    yield from field_checks.not_negative_fields(spec, counts, "spec")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= ready:
        text = "must be greater than minReadySeconds"
        yield invalid("spec.progressDeadlineSeconds", deadline, text)


def _validate_strategy(strategy: Tree) -> Iterator[Cause]:
    path = "spec.strategy"
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field(f"{path}.rollingUpdate", text)
    elif strategy["type"] == "RollingUpdate":
        yield from _validate_rolling_update(rolling or {}, f"{path}.rollingUpdate", "maxSurge")
    else:
        yield not_supported(path, internal_update_strategy(strategy), ["Recreate", "RollingUpdate"])


def _validate_rolling_update(rolling: Tree, path: str, other: str) -> Iterator[Cause]:
    missing, more = rolling.get("maxUnavailable", 0), rolling.get(other, 0)
    yield from validate_int_or_percent(missing, f"{path}.maxUnavailable")
    yield from validate_int_or_percent(more, f"{path}.{other}")
    if is_zero_int_or_percent(missing) and is_zero_int_or_percent(more):
        yield invalid(f"{path}.maxUnavailable", missing, f"may not be 0 when `{other}` is 0")
    yield from validate_percent_at_most_100(missing, f"{path}.maxUnavailable")


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    status, before = new["status"], old["status"]
    counts = ("updatedReplicas", "readyReplicas", "availableReplicas")
    yield from field_checks.not_negative_fields(
        status, ("observedGeneration", "replicas", *counts, "unavailableReplicas"), "status"
    )
    yield from validate_replica_counts(status, counts)
    count, was = status.get("collisionCount"), before.get("collisionCount")
    if was is not None and count is None:
        yield invalid("status.collisionCount", None, "cannot be unset")
    elif was is not None and count is not None and count < was:
        yield invalid("status.collisionCount", count, "cannot be decremented")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    return [
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        *containers_of(spec["template"]),
        selector_text(spec["selector"]).replace(NONE, ""),
    ]


class DeploymentStrategy(PodTemplateStrategy):
    """A deployment: its annotations go to its replica sets, so they count as its spec does."""

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        meta, before = new["metadata"], old["metadata"]
        same_spec = new["spec"] == old["spec"]
        if same_spec and (meta.get("annotations") or {}) != (before.get("annotations") or {}):
            meta["generation"] = meta.get("generation", 0) + 1


KIND = KindRegistration(
    group="apps",
    kind="Deployment",
    types=TYPES,
    defaults={"apps/v1.DeploymentStrategy": _set_strategy_defaults},
    strategy=DeploymentStrategy(
        _validate, immutable_fields("spec.selector", check=_validate), status={}, counted=("spec",)
    ),
    status=StatusStrategy(_validate_status_update, meta=("labels",)),
    short_names=("deploy",),
    categories=("all",),
    table=PrintedTable(
        f"Name, Ready, Up-to-date, Available, Age, {TEMPLATE_COLUMNS}, Selector+", _cells
    ),
    subresources=(scale_subresource(),),
)
