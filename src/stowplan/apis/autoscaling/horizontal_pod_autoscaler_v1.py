"""HorizontalPodAutoscaler of autoscaling/v1, stored as autoscaling/v2.

What v1 lacks (other metrics than CPU utilization, behavior, conditions) is kept in annotations.

Source: kubernetes v1.36, pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

from stowplan.apis.autoscaling.horizontal_pod_autoscaler import (
    PATH,
    STATUS_STRATEGY,
    STRATEGY,
    TABLE,
    set_defaults,
)
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.machinery.resource import TableColumn
from stowplan.objects.encoding.tree import Tree

TYPES = """
HorizontalPodAutoscaler -- scales a workload by the CPU utilization of its pods.
  kind string
  apiVersion string
  metadata ObjectMeta
  spec HorizontalPodAutoscalerSpec -- desired state.
  status HorizontalPodAutoscalerStatus -- last observed state.

HorizontalPodAutoscalerSpec
  scaleTargetRef CrossVersionObjectReference! -- the workload that is scaled.
  minReplicas int32? =1 -- least number of pods.
  maxReplicas int32! -- greatest number of pods.
  targetCPUUtilizationPercentage int32?

CrossVersionObjectReference
  kind string! -- kind of the object.
  name string! -- name of the object.
  apiVersion string -- group and version.

HorizontalPodAutoscalerStatus
  observedGeneration int64?
  lastScaleTime Time? -- when it scaled last.
  currentReplicas int32! -- pods it saw last.
  desiredReplicas int32! -- pods it wants.
  currentCPUUtilizationPercentage int32?
"""
_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_ROUND_TRIP = (_METRICS, _CURRENT_METRICS, _BEHAVIOR, _CONDITIONS)
_SHARED = ("observedGeneration", "lastScaleTime", "desiredReplicas")


class HorizontalPodAutoscalerV1Alias:
    """Conversion between autoscaling/v1 and the stored autoscaling/v2 (`ResourceAlias`)."""

    path = PATH

    def from_stored(self, tree: Tree) -> Tree:
        """The object in v1."""
        spec, status = tree["spec"], tree.get("status") or {}
        others = [each for each in spec.get("metrics") or () if _cpu_target(each) is None]
        shares = (_cpu_target(each) for each in spec.get("metrics") or ())
        made_spec = {
            name: spec[name]
            for name in ("scaleTargetRef", "minReplicas", "maxReplicas")
            if name in spec
        }
        share = next((each for each in shares if each is not None), None)
        if share is not None:
            made_spec["targetCPUUtilizationPercentage"] = share
        made_status = {name: status[name] for name in _SHARED if name in status}
        made_status["currentReplicas"] = status.get("currentReplicas", 0)
        for each in status.get("currentMetrics") or ():
            current = (each.get("resource") or {}).get("current") or {}
            if (each.get("resource") or {}).get(
                "name"
            ) == "cpu" and "averageUtilization" in current:
                made_status["currentCPUUtilizationPercentage"] = current["averageUtilization"]
        kept = {
            _METRICS: [metric_v1(each, _TARGET) for each in others],
            _CURRENT_METRICS: [
                metric_v1(each, _CURRENT) for each in status.get("currentMetrics") or ()
            ],
            _BEHAVIOR: _internal_behavior(spec.get("behavior")),
            _CONDITIONS: status.get("conditions"),
        }
        meta = _with_annotations(tree["metadata"], kept)
        head = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1"}
        return {**head, "metadata": meta, "spec": made_spec, "status": made_status}

    def to_stored(self, tree: Tree) -> Tree:
        """The object in v2."""
        spec, status = dict(tree["spec"]), dict(tree.get("status") or {})
        notes = tree["metadata"].get("annotations") or {}
        share = spec.pop("targetCPUUtilizationPercentage", None)
        metrics = [metric_v2(each, _TARGET) for each in _list_of(notes, _METRICS)]
        if share is not None:
            target = {"type": "Utilization", "averageUtilization": share}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        if metrics:
            spec["metrics"] = metrics
        behavior = _parsed(notes, _BEHAVIOR)
        if isinstance(behavior, dict):
            spec["behavior"] = _behavior_of(behavior)
        status.pop("currentCPUUtilizationPercentage", None)
        current = [metric_v2(each, _CURRENT) for each in _list_of(notes, _CURRENT_METRICS)]
        status["currentMetrics"] = current or None
        conditions = _list_of(notes, _CONDITIONS)
        if conditions:
            status["conditions"] = conditions
        head = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2"}
        made = {
            **head,
            "metadata": _with_annotations(tree["metadata"], {}),
            "spec": spec,
            "status": status,
        }
        set_defaults(made)
        return made


class _Words(NamedTuple):
    """What v1 calls the amounts of a target or of a current value. field: theirs in v2."""

    field: str
    value: str
    average: str
    utilization: str


_TARGET = _Words("target", "targetValue", "targetAverageValue", "targetAverageUtilization")
_CURRENT = _Words("current", "currentValue", "currentAverageValue", "currentAverageUtilization")
_ZERO = "0"


def metric_v1(metric: Tree, words: _Words) -> Tree:
    """A metric of v2 in the words of v1, its fields in their order there."""
    made: Tree = {"type": metric.get("type", "")}
    for field in ("object", "pods", "resource", "containerResource", "external"):
        if field in metric:
            made[field] = _source_v1(metric[field], field, words)
    return made


def _source_v1(source: Tree, field: str, words: _Words) -> Tree:
    # What is applied may leave out what is required.
    amounts = source.get(words.field) or {}
    value, average = amounts.get("value"), amounts.get("averageValue")
    if field in ("resource", "containerResource"):
        made: Tree = {
            "name": source.get("name", ""),
            words.utilization: amounts.get("averageUtilization"),
            words.average: average if words is _TARGET else average or _ZERO,
        }
        if field == "containerResource":
            made["container"] = source.get("container", "")
        return _given(made)
    metric = source.get("metric") or {}
    name, selector = metric.get("name", ""), metric.get("selector")
    if field == "pods":
        amount = average or _ZERO
        return _given({"metricName": name, words.average: amount, "selector": selector})
    if field == "object":
        made = {
            "target": source.get("describedObject") or {"kind": "", "name": ""},
            "metricName": name,
        }
        made |= {words.value: value or _ZERO, "selector": selector, "averageValue": average}
        return _given(made)
    kept = value if words is _TARGET else value or _ZERO
    made = {"metricName": name, "metricSelector": selector, words.value: kept}
    return _given({**made, words.average: average})


def metric_v2(metric: Tree, words: _Words) -> Tree:
    """A metric of v1 in the words of v2; what is there in the words of v2 is kept."""
    made: Tree = {"type": metric.get("type", "")}
    for field in ("object", "pods", "resource", "containerResource", "external"):
        source = metric.get(field)
        if isinstance(source, dict):
            made[field] = source if words.field in source else _source_v2(source, field, words)
    return made


def _source_v2(source: Tree, field: str, words: _Words) -> Tree:
    value, average = source.get(words.value), source.get(words.average)
    if field in ("resource", "containerResource"):
        share = source.get(words.utilization)
        kind = "Utilization" if share is not None else "AverageValue"
        made: Tree = {"name": source.get("name", "")}
        amounts = {"averageValue": average, "averageUtilization": share}
        if field == "containerResource":
            made["container"] = source.get("container", "")
    else:
        selector = source.get("selector", source.get("metricSelector"))
        made = {"metric": _given({"name": source.get("metricName", ""), "selector": selector})}
        if field == "object":
            made["describedObject"] = source.get("target") or {"kind": "", "name": ""}
            average = source.get("averageValue")
            value = None if average is not None and words is _TARGET else value
        kind = "Value" if value is not None else "AverageValue"
        amounts = {"value": value, "averageValue": average}
    head = {"type": kind} if words is _TARGET else {}
    return {**made, words.field: _given({**head, **amounts})}


def _given(tree: Tree) -> Tree:
    return {key: value for key, value in tree.items() if value is not None}


_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")


def _internal_behavior(behavior: Tree | None) -> Tree | None:
    """The behavior as the original writes it: in its internal type, which has Go's names."""
    if behavior is None:
        return None
    made: Tree = {}
    for name in ("scaleUp", "scaleDown"):
        rules = behavior.get(name)
        if rules is not None:
            rules = {_go_name(key): rules.get(key) for key in _RULES}
            policies = rules["Policies"]
            if policies is not None:
                rules["Policies"] = [
                    {_go_name(key): each.get(key) for key in ("type", "value", "periodSeconds")}
                    for each in policies
                ]
        made[_go_name(name)] = rules
    return made


def _behavior_of(written: Tree) -> Tree:
    """The behavior of such an annotation; names count as Go reads them, of either case."""
    made: Tree = {}
    for name, rules in written.items():
        if isinstance(rules, dict):
            made[_json_name(name)] = {
                _json_name(key): [_lowered(each) for each in value]
                if isinstance(value, list)
                else value
                for key, value in rules.items()
                if value is not None
            }
    return made


def _lowered(policy: Any) -> Any:
    if not isinstance(policy, dict):
        return policy
    return {_json_name(key): value for key, value in policy.items()}


def _go_name(name: str) -> str:
    return name[0].upper() + name[1:]


def _json_name(name: str) -> str:
    return name[:1].lower() + name[1:]


def _cpu_target(metric: Tree) -> int | None:
    """The CPU utilization that a metric asks for; None for another metric."""
    resource = metric.get("resource") or {}
    if metric["type"] != "Resource" or resource.get("name") != "cpu":
        return None
    share: int | None = resource["target"].get("averageUtilization")
    return share


def _with_annotations(meta: Tree, kept: Tree) -> Tree:
    """A copy of metadata with only these round-trip annotations."""
    made = copy.deepcopy(meta)
    notes = made.pop("annotations", None) or {}
    notes = {name: value for name, value in notes.items() if name not in _ROUND_TRIP}
    notes |= {
        name: json.dumps(value, separators=(",", ":")) for name, value in kept.items() if value
    }
    return {**made, "annotations": notes} if notes else made


def _parsed(notes: dict[str, str], name: str) -> Any:
    """The value in an annotation; None if it is absent or no JSON, as the original ignores it."""
    try:
        return json.loads(notes.get(name, "null"))
    except ValueError:
        return None


def _list_of(notes: dict[str, str], name: str) -> list[Tree]:
    found = _parsed(notes, name)
    is_list = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    return list(found) if is_list else []


class _TableV1:
    """The table of v1, with the columns of v2."""

    columns: tuple[TableColumn, ...] = TABLE.columns

    def cells(self, obj: Tree, now: float) -> list[Any]:
        """The cells of an object of v1."""
        return TABLE.cells(HorizontalPodAutoscalerV1Alias().to_stored(obj), now)

    def conditions(self, obj: Tree) -> list[Tree]:
        """None."""
        return []


KIND = KindRegistration(
    group="autoscaling",
    kind="HorizontalPodAutoscaler",
    types=TYPES,
    strategy=STRATEGY,
    status=STATUS_STRATEGY,
    short_names=("hpa",),
    categories=("all",),
    table=_TableV1(),
    alias=HorizontalPodAutoscalerV1Alias(),
    stored_as="v2",
)
