"""HorizontalPodAutoscaler of autoscaling/v2, the stored version.

Source: kubernetes v1.36, pkg/registry/autoscaling/horizontalpodautoscaler,
pkg/apis/autoscaling/validation, pkg/apis/autoscaling/v2/defaults.go,
pkg/printers/internalversion/printers.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import NONE, UNKNOWN, UNSET, PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import (
    Cause,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import path_segment_problems
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

TYPES = """
ScalingPolicySelect HPAScalingPolicyType MetricSourceType MetricTargetType = string
HorizontalPodAutoscalerConditionType = string

HorizontalPodAutoscaler -- scales a workload by metrics of its pods.
  kind string -- kind of the object.
  apiVersion string -- group and version of the kind.
  metadata ObjectMeta -- name, labels, annotations and more.
  spec HorizontalPodAutoscalerSpec -- desired state.
  status HorizontalPodAutoscalerStatus -- last observed state.

HorizontalPodAutoscalerSpec
  scaleTargetRef CrossVersionObjectReference! -- the workload that is scaled.
  minReplicas int32? =1 -- least number of pods.
  maxReplicas int32! -- greatest number of pods.
  metrics [MetricSpec] -- each gives a number of pods; the greatest counts.
  behavior HorizontalPodAutoscalerBehavior? -- how fast it scales up and down.

CrossVersionObjectReference
  kind string! -- kind of the object.
  name string! -- name of the object.
  apiVersion string -- group and version.

MetricSpec
  type MetricSourceType! -- Resource, ContainerResource, Pods, Object or External.
  object ObjectMetricSource?
  pods PodsMetricSource?
  resource ResourceMetricSource?
  containerResource ContainerResourceMetricSource?
  external ExternalMetricSource?

HorizontalPodAutoscalerBehavior
  scaleUp HPAScalingRules?
  scaleDown HPAScalingRules?

HPAScalingRules
  stabilizationWindowSeconds int32? -- past recommendations that are considered.
  selectPolicy ScalingPolicySelect? -- Max, Min or Disabled.
  policies [HPAScalingPolicy]? -- bounds of a change.
  tolerance Quantity? -- changes below it are ignored.

HPAScalingPolicy
  type HPAScalingPolicyType! -- Pods or Percent.
  value int32! -- greatest change in a period.
  periodSeconds int32! -- length of the period.

ObjectMetricSource
  describedObject CrossVersionObjectReference!
  target MetricTarget!
  metric MetricIdentifier!

PodsMetricSource
  metric MetricIdentifier!
  target MetricTarget!

ResourceMetricSource
  name core.ResourceName!
  target MetricTarget!

ContainerResourceMetricSource
  name core.ResourceName!
  target MetricTarget!
  container string!

ExternalMetricSource
  metric MetricIdentifier!
  target MetricTarget!

MetricIdentifier
  name string!
  selector LabelSelector?

MetricTarget
  type MetricTargetType! -- Utilization, Value or AverageValue.
  value Quantity? -- target of the metric.
  averageValue Quantity? -- target of the metric per pod.
  averageUtilization int32? -- target in percent of the requests.

HorizontalPodAutoscalerStatus
  observedGeneration int64?
  lastScaleTime Time? -- when it scaled last.
  currentReplicas int32 -- pods it saw last.
  desiredReplicas int32! -- pods it wants.
  currentMetrics [MetricStatus]!
  conditions [HorizontalPodAutoscalerCondition] ~merge:type

HorizontalPodAutoscalerCondition
  type HorizontalPodAutoscalerConditionType!
  status core.ConditionStatus!
  lastTransitionTime Time
  reason string
  message string

MetricStatus
  type MetricSourceType!
  object ObjectMetricStatus?
  pods PodsMetricStatus?
  resource ResourceMetricStatus?
  containerResource ContainerResourceMetricStatus?
  external ExternalMetricStatus?

ObjectMetricStatus
  metric MetricIdentifier!
  current MetricValueStatus!
  describedObject CrossVersionObjectReference!

PodsMetricStatus
  metric MetricIdentifier!
  current MetricValueStatus!

ResourceMetricStatus
  name core.ResourceName!
  current MetricValueStatus!

ContainerResourceMetricStatus
  name core.ResourceName!
  current MetricValueStatus!
  container string!

ExternalMetricStatus
  metric MetricIdentifier!
  current MetricValueStatus!

MetricValueStatus
  value Quantity?
  averageValue Quantity?
  averageUtilization int32?
"""
PATH = "autoscaling/horizontalpodautoscalers"
DEFAULT_CPU_UTILIZATION = 80
STABILIZATION_SECONDS_MAX = 3600
PERIOD_SECONDS_MAX = 1800
_PRINTED_MAX = 2
_RULE_FIELDS = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
"""Types of metrics -> the fields that describe them."""
_CHECKED = ("object", "external", "pods", "resource", "containerResource")
"""Fields of sources in the order in which they are checked: only the first that is there is."""
_SCALE_UP: Tree = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_SCALE_DOWN: Tree = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def set_defaults(one: Tree) -> None:
    """A CPU utilization of 80 % without metrics; rules of a behavior that is set."""
    spec = one["spec"]
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": DEFAULT_CPU_UTILIZATION}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if behavior is not None:
        for name, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            given = behavior.get(name) or {}
            made = {**copy.deepcopy(rules), **given}
            behavior[name] = {key: made[key] for key in _RULE_FIELDS if key in made}


def _validate(obj: Tree, old: Tree | None = None) -> Iterator[Cause]:
    spec = obj["spec"]
    least, most = spec.get("minReplicas"), spec["maxReplicas"]
    lower = 0 if old is not None and old["spec"].get("minReplicas") == 0 else 1
    if least is not None and least < lower:
        text = f"must be greater than or equal to {lower}"
        yield invalid("spec.minReplicas", least, text)
    if most == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        text = "must be greater than or equal to `minReplicas`"
        yield invalid("spec.maxReplicas", most, text)
    yield from _validate_target(spec["scaleTargetRef"], old)
    metrics = spec.get("metrics") or ()
    before = (old["spec"].get("metrics") or ()) if old is not None else ()
    checks_version = not any(
        _api_version_problem(each["object"]["describedObject"], True)
        for each in before
        if each["type"] == "Object" and "object" in each
    )
    for at, metric in enumerate(metrics):
        yield from _validate_metric(metric, f"spec.metrics[{at}]", checks_version)
    if least == 0 and not any(each["type"] in ("Object", "External") for each in metrics):
        text = "must specify at least one Object or External metric"
        yield forbidden_field("spec.metrics", f"{text} to support scaling to zero replicas")
    for name in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(name)
        if rules is not None:
            yield from _validate_rules(rules, f"spec.behavior.{name}")


def _validate_update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new, old)


def _validate_target(reference: Tree, old: Tree | None) -> Iterator[Cause]:
    """The target; its version only if it or the kind has changed."""
    path = "spec.scaleTargetRef"
    yield from _validate_reference(reference, path)
    keys = ("apiVersion", "kind")
    before = old["spec"]["scaleTargetRef"] if old is not None else {}
    if old is not None and all(before.get(key) == reference.get(key) for key in keys):
        return
    yield from _validate_version(reference, path, reference["kind"] == "ReplicationController")


def _validate_reference(reference: Tree, path: str) -> Iterator[Cause]:
    for name in ("kind", "name"):
        value = reference[name]
        if not value:
            yield required(f"{path}.{name}")
        for text in path_segment_problems(value):
            yield invalid(f"{path}.{name}", value, text)


def _validate_version(reference: Tree, path: str, core_allowed: bool) -> Iterator[Cause]:
    problem = _api_version_problem(reference, core_allowed)
    if problem:
        yield invalid(f"{path}.apiVersion", reference.get("apiVersion", ""), problem)


def _api_version_problem(reference: Tree, core_allowed: bool) -> str:
    version = reference.get("apiVersion", "")
    if version.count("/") > 1:
        return f"unexpected GroupVersion string: {version}"
    group = version.rpartition("/")[0]
    return "" if group or core_allowed else "apiVersion must specify API group"


def _validate_metric(metric: Tree, path: str, checks_version: bool) -> Iterator[Cause]:
    type_ = metric["type"]
    if not type_:
        yield required(f"{path}.type", "must specify a metric source type")
    if type_ not in _SOURCES:
        yield not_supported(f"{path}.type", type_, list(_SOURCES))
    present = [field for field in _CHECKED if field in metric]
    for field in present[:1]:
        source, here = metric[field], f"{path}.{field}"
        if field == "object":
            yield from _validate_reference(source["describedObject"], f"{here}.describedObject")
            if checks_version:
                described = source["describedObject"]
                yield from _validate_version(described, f"{here}.describedObject", True)
        yield from _validate_source(source, field, here)
    expected = _SOURCES.get(type_, "")
    if not expected:
        yield not_supported(f"{path}.type", type_, list(_SOURCES))
    elif expected not in metric:
        text = "must populate information for the given metric source"
        yield required(f"{path}.{expected}", text)
    if len(present) != 1:
        for other in sorted(set(present) - {expected}):
            text = "must populate the given metric source only"
            yield forbidden_field(f"{path}.{other}", text)


def _validate_source(source: Tree, field: str, path: str) -> Iterator[Cause]:
    of_resource = field in ("resource", "containerResource")
    if not of_resource:
        name = source["metric"]["name"]
        if not name:
            yield required(f"{path}.metric.name", "must specify a metric name")
        for text in path_segment_problems(name):
            yield invalid(f"{path}.metric.name", name, text)
    elif not source["name"]:
        yield required(f"{path}.name", "must specify a resource name")
    elif field == "containerResource":
        name = source["name"]
        yield from resource_requirements.validate_container_resource_name(name, f"{path}.name")
    if field == "containerResource":
        if not source["container"]:
            yield required(f"{path}.container", "must specify a container")
        else:
            yield from field_checks.dns_label(source["container"], f"{path}.container")
    yield from _validate_metric_target(source["target"], f"{path}.target")
    yield from _validate_amounts(source["target"], field, f"{path}.target")


def _validate_metric_target(target: Tree, path: str) -> Iterator[Cause]:
    if not target["type"]:
        yield required(f"{path}.type", "must specify a metric target type")
    if target["type"] not in ("Utilization", "Value", "AverageValue"):
        text = "must be either Utilization, Value, or AverageValue"
        yield invalid(f"{path}.type", target["type"], text)
    for name in ("value", "averageValue"):
        amount = target.get(name)
        if amount is not None and canonical_quantity.compare(amount, "0") <= 0:
            yield invalid(f"{path}.{name}", amount, "must be positive")
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        yield invalid(f"{path}.averageUtilization", share, "must be greater than 0")


def _validate_amounts(target: Tree, field: str, path: str) -> Iterator[Cause]:
    """Which of the amounts a source needs."""
    value, average = (target.get(name) is not None for name in ("value", "averageValue"))
    share = target.get("averageUtilization") is not None
    if field in ("resource", "containerResource"):
        if not share and not average:
            text = "must set either a target raw value or a target utilization"
            yield required(f"{path}.averageUtilization", text)
        elif share and average:
            text = "may not set both a target raw value and a target utilization"
            yield forbidden_field(f"{path}.averageValue", text)
    elif field == "pods" and not average:
        yield required(f"{path}.averageValue", "must specify a positive target averageValue")
    elif field == "object" and not (value or average):
        text = "must set either a target value or averageValue"
        yield required(f"{path}.averageValue", text)
    elif field == "external" and not (value or average):
        text = "must set either a target value for metric or a per-pod target"
        yield required(f"{path}.averageValue", text)
    elif field == "external" and value and average:
        text = "may not set both a target value for metric and a per-pod target"
        yield forbidden_field(f"{path}.value", text)


def _validate_rules(rules: Tree, path: str) -> Iterator[Cause]:
    window = rules.get("stabilizationWindowSeconds")
    here = f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        yield invalid(here, window, "must be greater than or equal to zero")
    elif window is not None and window > STABILIZATION_SECONDS_MAX:
        yield invalid(here, window, f"must be less than or equal to {STABILIZATION_SECONDS_MAX}")
    select = rules.get("selectPolicy")
    if select is not None and select not in ("Disabled", "Max", "Min"):
        yield not_supported(f"{path}.selectPolicy", select, ["Disabled", "Max", "Min"])
    if not rules.get("policies"):
        yield required(f"{path}.policies", "must specify at least one Policy")
    for at, policy in enumerate(rules.get("policies") or ()):
        there = f"{path}.policies[{at}]"
        if policy["type"] not in ("Percent", "Pods"):
            yield not_supported(f"{there}.type", policy["type"], ["Percent", "Pods"])
        for name in ("value", "periodSeconds"):
            if policy[name] <= 0:
                yield invalid(f"{there}.{name}", policy[name], "must be greater than zero")
        if policy["periodSeconds"] > PERIOD_SECONDS_MAX:
            text = f"must be less than or equal to {PERIOD_SECONDS_MAX}"
            yield invalid(f"{there}.periodSeconds", policy["periodSeconds"], text)
    tolerance = rules.get("tolerance")
    if tolerance is not None and canonical_quantity.is_negative(tolerance):
        yield invalid(f"{path}.tolerance", tolerance, field_checks.NOT_NEGATIVE)


def _validate_status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """The numbers of replicas are not negative."""
    for name in ("currentReplicas", "desiredReplicas"):
        yield from field_checks.not_negative(new["status"].get(name, 0), f"status.{name}")


def _metric_text(metric: Tree, status: Tree) -> str:
    """`cpu: 40%/80%`: the current and the wanted value of a metric."""
    field = _SOURCES.get(metric["type"], "")
    if not field:
        return "<unknown type>"
    target = metric[field]["target"]
    current = (status.get(field) or {}).get("current") or {}
    of_resource = field in ("resource", "containerResource")
    head = f"{metric[field]['name']}: " if of_resource else ""
    if of_resource and target.get("averageValue") is None:
        share = current.get("averageUtilization")
        now = UNKNOWN if share is None else f"{share}%"
        wanted = target.get("averageUtilization")
        return f"{head}{now}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if target.get("averageValue") is not None:
        tail = " (avg)" if field in ("external", "object") else ""
        return f"{head}{current.get('averageValue', UNKNOWN)}/{target['averageValue']}{tail}"
    return f"{head}{current.get('value', UNKNOWN)}/{target.get('value')}"


def _metrics_text(obj: Tree) -> str:
    metrics = obj["spec"].get("metrics") or []
    statuses = obj["status"].get("currentMetrics") or []
    if not metrics:
        return NONE
    texts = [
        _metric_text(metric, statuses[at] if at < len(statuses) else {})
        for at, metric in enumerate(metrics)
    ]
    more = len(texts) - _PRINTED_MAX
    return ", ".join(texts[:_PRINTED_MAX]) + (f" + {more} more..." if more > 0 else "")


def _cells(obj: Tree, now: float) -> list[Any]:
    spec = obj["spec"]
    target = spec["scaleTargetRef"]
    least = str(spec.get("minReplicas", UNSET))
    counts = [spec["maxReplicas"], obj["status"].get("currentReplicas", 0)]
    return [f"{target['kind']}/{target['name']}", _metrics_text(obj), least, *counts]


STRATEGY = BuiltinStrategy(
    _validate, _validate_update, status={"desiredReplicas": 0, "currentMetrics": None}
)
STATUS_STRATEGY = StatusStrategy(_validate_status_update)
TABLE = PrintedTable("Name, Reference, Targets, MinPods, MaxPods, Replicas, Age", _cells)
KIND = KindRegistration(
    group="autoscaling",
    version="v2",
    kind="HorizontalPodAutoscaler",
    types=TYPES,
    defaults={"autoscaling/v2.HorizontalPodAutoscaler": set_defaults},
    strategy=STRATEGY,
    status=STATUS_STRATEGY,
    short_names=("hpa",),
    categories=("all",),
    table=TABLE,
)
