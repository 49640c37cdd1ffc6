"""DaemonSet.

Source: kubernetes v1.36, pkg/registry/apps, pkg/apis/apps/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.core.workload_validation import (
    TEMPLATE_PATH,
    PodTemplateStrategy,
    internal_update_strategy,
    is_zero_int_or_percent,
    validate_int_or_percent,
    validate_percent_at_most_100,
    validate_pod_template,
)
from stowplan.apis.kind.printing import (
    TEMPLATE_COLUMNS,
    PrintedTable,
    containers_of,
    joined_labels,
    selector_text,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import StatusStrategy, immutable_fields
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.machinery.strconv import NumError, parse_int
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
DaemonSetUpdateStrategyType DaemonSetConditionType = string

DaemonSet -- runs one pod on every eligible node.
  +PartialObjectMetadata
  spec DaemonSetSpec -- desired state.
  status DaemonSetStatus -- last observed state.

DaemonSetSpec
  selector LabelSelector?! -- its pods; must match the template's labels.
  template core.PodTemplateSpec! -- the pods to run; its node selector chooses nodes.
  updateStrategy DaemonSetUpdateStrategy -- how old pods are replaced.
  minReadySeconds int32 -- time a pod must be ready to count as available.
  revisionHistoryLimit int32? =10 -- old revisions to keep.

DaemonSetUpdateStrategy
  type DaemonSetUpdateStrategyType =RollingUpdate -- RollingUpdate or OnDelete.
  rollingUpdate RollingUpdateDaemonSet? -- bounds of a rolling update.

RollingUpdateDaemonSet
  maxUnavailable IntOrString? -- number or percentage; 1 by default.
  maxSurge IntOrString? -- nodes that may have an old and a new pod; 0 by default.

DaemonSetStatus
  currentNumberScheduled int32! -- nodes that should have a pod and have one.
  numberMisscheduled int32! -- nodes that should have none and have one.
  desiredNumberScheduled int32! -- nodes that should have a pod.
  numberReady int32! -- nodes with a ready pod.
  observedGeneration int64 -- generation that the controller has seen.
  updatedNumberScheduled int32 -- nodes with a pod of the present template.
  numberAvailable int32 -- nodes with an available pod.
  numberUnavailable int32 -- nodes that lack an available pod.
  collisionCount int32?
  conditions [DaemonSetCondition] ~merge:type

DaemonSetCondition
  type DaemonSetConditionType!
  status core.ConditionStatus!
  +core.ConditionChange
"""
_EMPTY_COUNTS = (
    *("currentNumberScheduled", "numberMisscheduled"),
    *("desiredNumberScheduled", "numberReady"),
)
_GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"


def _set_strategy_defaults(one: Tree) -> None:
    """A rolling update replaces the pod of one node at a time."""
    if one["type"] == "RollingUpdate":
        rolling = one.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


class DaemonSetStrategy(PodTemplateStrategy):
    """DaemonSet: an annotation has the generation of the template."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        obj["metadata"].setdefault("annotations", {})[_GENERATION_ANNOTATION] = "1"

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        annotations = old["metadata"].get("annotations", {})
        try:
            number = parse_int(annotations.get(_GENERATION_ANNOTATION, "0"))
        except NumError:
            number = 0
        if new["spec"]["template"] != old["spec"]["template"]:
            number += 1
        if number:
            new["metadata"].setdefault("annotations", {})[_GENERATION_ANNOTATION] = str(number)


def _validate(obj: Tree) -> Iterator[Cause]:
    spec = obj["spec"]
    yield from field_checks.selector(spec["selector"], "spec.selector")
    found = spec["template"]["metadata"].get("labels")
    readable = not any(field_checks.selector(spec["selector"], "spec.selector"))
    if readable and not field_checks.matches(spec["selector"], found or {}):
        text = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", found, text)
    if spec["selector"] is not None and field_checks.is_empty_selector(spec["selector"]):
        yield invalid("spec.selector", spec["selector"], "empty selector is invalid for daemonset")
    yield from validate_pod_template(spec["template"], TEMPLATE_PATH)
    policy = spec["template"]["spec"]["restartPolicy"]
    if policy != "Always":
        yield not_supported("spec.template.spec.restartPolicy", policy, ["Always"])
    if "activeDeadlineSeconds" in spec["template"]["spec"]:
        text = "activeDeadlineSeconds in DaemonSet is not Supported"
        yield forbidden_field("spec.template.spec.activeDeadlineSeconds", text)
    yield from field_checks.not_negative_fields(spec, ("minReadySeconds",), "spec")
    strategy = spec["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        yield from _validate_rolling_update(strategy.get("rollingUpdate"))
    elif strategy["type"] != "OnDelete":
        wanted = ["RollingUpdate", "OnDelete"]
        yield not_supported("spec.updateStrategy", internal_update_strategy(strategy), wanted)
    yield from field_checks.not_negative_fields(spec, ("revisionHistoryLimit",), "spec")


def _validate_rolling_update(rolling: Tree | None) -> Iterator[Cause]:
    path = "spec.updateStrategy.rollingUpdate"
    if rolling is None:
        yield required(path)
        return
    missing, more = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    for name, value in (("maxUnavailable", missing), ("maxSurge", more)):
        yield from validate_int_or_percent(value, f"{path}.{name}")
        yield from validate_percent_at_most_100(value, f"{path}.{name}")
    if is_zero_int_or_percent(missing) and is_zero_int_or_percent(more):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")
    elif not is_zero_int_or_percent(missing) and not is_zero_int_or_percent(more):
        yield invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    for name, value in new["status"].items():
        if isinstance(value, int):
            yield from field_checks.not_negative(value, f"status.{name}")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    return [
        joined_labels(spec["template"]["spec"].get("nodeSelector")),
        *containers_of(spec["template"]),
        selector_text(spec["selector"]),
    ]


KIND = KindRegistration(
    group="apps",
    kind="DaemonSet",
    types=TYPES,
    defaults={"apps/v1.DaemonSetUpdateStrategy": _set_strategy_defaults},
    strategy=DaemonSetStrategy(
        _validate,
        immutable_fields("spec.selector", check=_validate),
        status=dict.fromkeys(_EMPTY_COUNTS, 0),
        counted=("spec",),
    ),
    status=StatusStrategy(_validate_status_update),
    short_names=("ds",),
    categories=("all",),
    table=PrintedTable(
        "Name, Desired:integer=status.desiredNumberScheduled, "
        "Current:integer=status.currentNumberScheduled, Ready:integer=status.numberReady, "
        "Up-to-date:integer=status.updatedNumberScheduled, "
        f"Available:integer=status.numberAvailable, Node Selector, Age, {TEMPLATE_COLUMNS}, "
        "Selector+",
        _cells,
    ),
)
